//! The new process's side of an upgrade.

use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::geteuid;
use tracing::warn;

use super::{FAILED, READY, TAKE_OVER, TAKES_OVER, one_line};
use crate::sockets::{Named, Sockets};

/// Time for the old process to hand over its sockets.
const HANDED_WITHIN: Duration = Duration::from_secs(10);

/// The connection to the old process, which waits until we are ready.
#[derive(Debug)]
pub(crate) struct TakeOver {
    stream: UnixStream,
}

impl TakeOver {
    /// Asks the old process for its sockets, if this process was started to replace it.
    pub(crate) fn begin() -> anyhow::Result<Option<(Self, Sockets)>> {
        let Some(path) = crate::environment(TAKE_OVER) else { return Ok(None) };
        let (take_over, named) = Self::connect(Path::new(&path))
            .with_context(|| format!("cannot take over from the process at {path} ({TAKE_OVER})"))?;
        Ok(Some((take_over, Sockets::of_old_process(named)?)))
    }

    fn connect(path: &Path) -> anyhow::Result<(Self, Vec<Named>)> {
        let mut stream = UnixStream::connect(path)?;
        let owner = socket_peercred(&stream)?.uid;
        if owner != geteuid() {
            bail!("it belongs to another user");
        }
        stream.set_read_timeout(Some(HANDED_WITHIN))?;
        stream.write_all(format!("{TAKES_OVER}\n").as_bytes())?;
        let named = receive(&stream)?;
        Ok((Self { stream }, named))
    }

    /// Tells the old process that this one serves.
    pub(crate) fn ready(mut self) {
        if self.stream.write_all(format!("{READY}\n").as_bytes()).is_err() {
            warn!("the process that was to be replaced is gone; this one serves");
        }
    }

    /// Tells the old process why this one cannot serve.
    pub(crate) fn fail(mut self, why: &str) {
        let _ = self.stream.write_all(format!("{FAILED}{}\n", one_line(why)).as_bytes());
    }
}

/// The sockets, which come with the first byte, and the names of their listeners in one line.
fn receive(stream: &UnixStream) -> anyhow::Result<Vec<Named>> {
    let (mut line, mut fds) = (Vec::new(), Vec::<OwnedFd>::new());
    while !line.ends_with(b"\n") {
        let mut bytes = [0; 1_024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let n = recvmsg(stream, &mut slices, &mut rights, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        let received = bytes.get(..n).filter(|received| !received.is_empty());
        line.extend_from_slice(received.context("it hands over nothing")?);
    }
    let names: Vec<&str> = std::str::from_utf8(&line)?.split_whitespace().collect();
    if names.len() != fds.len() {
        bail!("it hands over {} sockets for {} listeners", fds.len(), names.len());
    }
    let named = names.into_iter().zip(fds);
    Ok(named.map(|(name, fd)| Named { name: name.to_owned(), listener: TcpListener::from(fd) }).collect())
}
