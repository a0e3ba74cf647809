//! The new process's side of an upgrade.

use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::geteuid;
use tracing::warn;

use super::{FAILED, MESSAGE_TAKE_OVER, READY, SOCKETS_MAX, TAKE_OVER, one_line};
use crate::sockets::{NamedListener, Sockets};

/// Time for the old process to hand over its sockets.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection to the old process, which waits until this process is ready.
#[derive(Debug)]
pub(crate) struct TakeOver {
    stream: UnixStream,
    /// The old process's control socket.
    path: PathBuf,
}

impl TakeOver {
    /// Asks the old process for its sockets, if this process was started to replace it.
    pub(crate) fn begin() -> anyhow::Result<Option<(Self, Sockets)>> {
        let Some(path) = crate::environment(TAKE_OVER) else { return Ok(None) };
        let (take_over, named) = Self::connect(Path::new(&path))
            .with_context(|| format!("take-over failed from the process at {path} ({TAKE_OVER})"))?;
        Ok(Some((take_over, Sockets::from_old_process(named)?)))
    }

    fn connect(path: &Path) -> anyhow::Result<(Self, Vec<NamedListener>)> {
        let mut stream = UnixStream::connect(path)?;
        let owner = socket_peercred(&stream)?.uid;
        if owner != geteuid() {
            bail!("the control socket belongs to another user");
        }
        stream.set_read_timeout(Some(HAND_OVER_TIMEOUT))?;
        stream.write_all(format!("{MESSAGE_TAKE_OVER}\n").as_bytes())?;
        let named = receive(&stream)?;
        Ok((Self { stream, path: path.to_owned() }, named))
    }

    /// The path of the old process's control socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the old process that this one serves.
    pub(crate) fn ready(mut self) {
        if self.stream.write_all(format!("{READY}\n").as_bytes()).is_err() {
            warn!("the old process ended during the upgrade; this process keeps serving");
        }
    }

    /// Tells the old process why this one cannot serve.
    pub(crate) fn fail(mut self, why: &str) {
        let _ = self.stream.write_all(format!("{FAILED}{}\n", one_line(why)).as_bytes());
    }
}

/// Receives the sockets, which come with the first byte, and the names of their listeners in one line.
fn receive(stream: &UnixStream) -> anyhow::Result<Vec<NamedListener>> {
    let (mut line, mut fds) = (Vec::new(), Vec::<OwnedFd>::new());
    while !line.ends_with(b"\n") {
        let mut bytes = [0; 1_024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let n = recvmsg(stream, &mut slices, &mut rights, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        let received = bytes.get(..n).filter(|received| !received.is_empty());
        line.extend_from_slice(
            received.context("the old process closed the connection without sending sockets")?,
        );
    }
    let names: Vec<&str> = std::str::from_utf8(&line)?.split_whitespace().collect();
    if names.len() != fds.len() {
        bail!("the old process sent {} sockets for {} listeners", fds.len(), names.len());
    }
    let named = names.into_iter().zip(fds);
    Ok(named
        .map(|(name, fd)| NamedListener { name: name.to_owned(), listener: TcpListener::from(fd) })
        .collect())
}
