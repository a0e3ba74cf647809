//! The control socket of a running process: starts the new process, and hands over the listening sockets.

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{geteuid, getpid};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::{
    DONE, FAILED, LINE_MAX, MESSAGE_TAKE_OVER, MESSAGE_UPGRADE, READY, SOCKETS_MAX, TAKE_OVER, connect_to,
    one_line,
};
use crate::sockets::NamedListener;

/// Time for a new process to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Time to read the last message of a process that has ended.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for a client to send its command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// The file name of the socket until it is published.
const HIDDEN: &str = "s";

/// Connections to the control socket at once.
const CONNECTIONS_MAX: usize = 8;

/// A running process's control socket.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: UnixListener,
    /// The folder that holds it until it is published.
    hidden_in: Option<PathBuf>,
    /// Device and inode of the published file: by now another process may have put its own there.
    file: Mutex<Option<(u64, u64)>>,
    sockets: Vec<NamedListener>,
    upgrade: Mutex<UpgradeState>,
}

/// Whether an upgrade is in progress.
#[derive(Debug, Default)]
enum UpgradeState {
    #[default]
    None,
    Starting,
    /// The process with this id may take over.
    Started {
        pid: u32,
        taker: oneshot::Sender<ControlConnection>,
    },
    TakingOver,
}

/// A new process that is not ready yet. Dropping it kills the process.
struct PendingProcess(Option<Child>);

/// Another process has taken over.
#[derive(Debug)]
pub(crate) struct Upgraded;

/// An authorised connection to the control socket.
type ControlConnection = BufReader<UnixStream>;

impl Control {
    /// Binds a control socket that is not published yet.
    ///
    /// # Errors
    /// If the path cannot be used, or is the control socket of another process. `old_path`, the control socket of the process that this
    /// one replaces, may be the same.
    pub(crate) fn bind(
        path: &Path,
        sockets: Vec<NamedListener>,
        old_path: Option<&Path>,
    ) -> anyhow::Result<Self> {
        if old_path != Some(path) {
            check_unused(path)?;
        }
        let what = || {
            format!(
                "cannot open the control socket {}; set listen.control to a path whose folder exists and is writable, or to off",
                path.display()
            )
        };
        let (listener, folder) = bind(path).with_context(what)?;
        let (path, file) = (path.to_owned(), Mutex::default());
        Ok(Self { path, listener, hidden_in: Some(folder), file, sockets, upgrade: Mutex::default() })
    }

    /// Moves the socket to its path, and replaces a socket there.
    ///
    /// # Errors
    /// If the folder has changed meanwhile.
    pub(crate) fn publish(&mut self) -> anyhow::Result<()> {
        let Some(folder) = self.hidden_in.take() else { return Ok(()) };
        let hidden = folder.join(HIDDEN);
        let file = identity(&hidden);
        let renamed = std::fs::rename(&hidden, &self.path);
        let _ = std::fs::remove_dir_all(&folder);
        renamed.with_context(|| format!("cannot open the control socket {}", self.path.display()))?;
        *self.file.get_mut() = file;
        Ok(())
    }

    /// Serves the control socket until another process has taken over.
    pub(crate) async fn serve(self: Arc<Self>) -> Upgraded {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (upgraded, mut is_upgraded) = mpsc::channel(1);
        let mut connections = JoinSet::new(); // dropped, and so closed, when this function returns
        loop {
            let accepted = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, self.listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                accepted = accepted => accepted,
                Some(Upgraded) = is_upgraded.recv() => {
                    *self.file.lock() = None; // the new process puts its own socket there
                    return Upgraded;
                }
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (control, upgraded) = (Arc::clone(&self), upgraded.clone());
            connections.spawn(async move {
                control.answer(stream, upgraded).await;
                drop(slot);
            });
            while connections.try_join_next().is_some() {}
        }
    }

    /// Answers one connection.
    async fn answer(&self, stream: UnixStream, upgraded: mpsc::Sender<Upgraded>) {
        let Ok(peer) = stream.peer_cred() else { return };
        let (own, root) = (geteuid().as_raw(), 0);
        if peer.uid() != own && peer.uid() != root {
            warn!(uid = peer.uid(), "control connection rejected: uid is neither the owner nor root");
            return;
        }
        let mut connection = BufReader::new(stream);
        let Ok(Some(asked)) = timeout(COMMAND_TIMEOUT, read_line(&mut connection)).await else { return };
        if asked == MESSAGE_TAKE_OVER {
            self.accept_take_over(peer.pid(), connection);
        } else if let Some(program) = asked.strip_prefix(MESSAGE_UPGRADE) {
            let said = match self.upgrade(Path::new(program)).await {
                Ok(pid) => format!("{DONE}{pid}\n"),
                Err(why) => {
                    error!("upgrade failed: {why:#}; this process keeps serving");
                    format!("{FAILED}{}\n", one_line(&format!("{why:#}")))
                }
            };
            let is_done = said.starts_with(DONE);
            let _ = connection.write_all(said.as_bytes()).await;
            if is_done {
                let _ = upgraded.send(Upgraded).await;
            }
        } else {
            let _ = connection.write_all(format!("{FAILED}unknown command\n").as_bytes()).await;
        }
    }

    /// Passes a connection to the upgrade in progress, if it comes from the new process.
    fn accept_take_over(&self, peer: Option<i32>, connection: ControlConnection) {
        let mut upgrade = self.upgrade.lock();
        let peer = peer.and_then(|pid| u32::try_from(pid).ok());
        match std::mem::replace(&mut *upgrade, UpgradeState::TakingOver) {
            UpgradeState::Started { pid, taker } if Some(pid) == peer => drop(taker.send(connection)),
            other @ (UpgradeState::None
            | UpgradeState::Starting
            | UpgradeState::Started { .. }
            | UpgradeState::TakingOver) => {
                *upgrade = other;
                warn!(pid = peer, "socket hand-over rejected: the process was not started by this upgrade");
            }
        }
    }

    /// Starts a program as the new process, and returns its process id once it is ready.
    async fn upgrade(&self, program: &Path) -> anyhow::Result<u32> {
        if getpid().is_init() {
            bail!(
                "cannot upgrade PID 1 of a container, which ends with it; start a container with the new version instead"
            );
        }
        {
            let mut upgrade = self.upgrade.lock();
            if !matches!(*upgrade, UpgradeState::None) {
                bail!("another upgrade is in progress; wait until it has ended");
            }
            *upgrade = UpgradeState::Starting;
        }
        let upgraded = self.start(program).await;
        if upgraded.is_err() {
            *self.upgrade.lock() = UpgradeState::None;
        }
        upgraded
    }

    async fn start(&self, program: &Path) -> anyhow::Result<u32> {
        info!(program = %program.display(), "upgrade started");
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).env(TAKE_OVER, &self.path).stdin(Stdio::null());
        for variable in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
            command.env_remove(variable); // the new process inherits its sockets from this one
        }
        let (mut child, pid, taken) = {
            // The new process may ask for the sockets before we know its id: it waits for the lock.
            let mut upgrade = self.upgrade.lock();
            let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
            let child = PendingProcess(Some(child));
            let pid = child.id().context("the new process ended at once")?;
            let (taker, taken) = oneshot::channel();
            *upgrade = UpgradeState::Started { pid, taker };
            (child, pid, taken)
        };
        let ready = async {
            let mut connection = taken.await.context("the new process did not ask for the sockets")?;
            self.hand_over(connection.get_ref()).await.context("socket hand-over failed")?;
            match read_line(&mut connection).await.as_deref() {
                Some(READY) => Ok(()),
                Some(said) => bail!("{}", said.strip_prefix(FAILED).unwrap_or(said)),
                None => bail!("the new process ended before it was ready; its log says why"),
            }
        };
        let mut ready = std::pin::pin!(ready);
        let became_ready = tokio::select! {
            became_ready = timeout(READY_TIMEOUT, &mut ready) => {
                became_ready.unwrap_or_else(|_| bail!("the new process was not ready after {READY_TIMEOUT:?}"))
            }
            // The process may have sent a reason before it ended.
            status = child.ended() => match timeout(LAST_MESSAGE_TIMEOUT, &mut ready).await {
                Ok(Err(why)) => Err(why),
                Ok(Ok(())) | Err(_) => {
                    bail!("the new process ended before it was ready ({status}); its log says why")
                }
            },
        };
        became_ready?;
        child.0 = None;
        info!(pid, "upgrade done; the new process accepts connections now");
        crate::systemd::hand_over_to(pid);
        Ok(pid)
    }

    /// Sends the listening sockets, with the names of their listeners in one line.
    async fn hand_over(&self, stream: &UnixStream) -> std::io::Result<()> {
        let names: Vec<&str> = self.sockets.iter().map(|named| named.name.as_str()).collect();
        let line = format!("{}\n", names.join(" "));
        let fds: Vec<BorrowedFd<'_>> = self.sockets.iter().map(|named| named.listener.as_fd()).collect();
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            if !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(std::io::Error::other("too many sockets"));
            }
            Ok(sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut rights, SendFlags::NOSIGNAL)?)
        };
        let n_sent = stream.async_io(Interest::WRITABLE, send).await?;
        if n_sent == line.len() { Ok(()) } else { Err(std::io::ErrorKind::WriteZero.into()) }
    }
}

impl PendingProcess {
    fn id(&self) -> Option<u32> {
        self.0.as_ref().and_then(Child::id)
    }

    /// Waits until the process has ended, and returns its status.
    async fn ended(&mut self) -> String {
        match &mut self.0 {
            Some(child) => {
                child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string())
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for PendingProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.start_kill();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let file = self.file.get_mut().take();
        if file.is_some() && identity(&self.path) == file {
            let _ = std::fs::remove_file(&self.path);
        }
        if let Some(folder) = &self.hidden_in {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The next line; `None` at the end, or if it is too long or not UTF-8.
async fn read_line(connection: &mut ControlConnection) -> Option<String> {
    let mut line = String::new();
    let read = connection.take(LINE_MAX).read_line(&mut line).await;
    read.ok().filter(|n| *n > 0)?;
    line.strip_suffix('\n').map(str::to_owned)
}

/// Rejects a path that another process uses, or that is not a socket.
fn check_unused(path: &Path) -> anyhow::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        bail!("listen.control {} exists and is not a socket; choose another path", path.display());
    }
    // A socket with a full queue is in use, too.
    let is_in_use = connect_to(path).map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |_| true);
    if is_in_use {
        bail!(
            "another process has its control socket at {}; to replace that process, run `ratewright upgrade`; to run beside it, set listen.control to another path",
            path.display()
        );
    }
    Ok(())
}

/// A Unix socket for its owner only: bound in a private folder, set to mode 0600, then renamed into place, so that no other user
/// can ever connect.
fn bind(path: &Path) -> std::io::Result<(UnixListener, PathBuf)> {
    let mut folder = path.as_os_str().as_bytes().to_owned();
    folder.extend_from_slice(format!(".{}", getpid().as_raw_nonzero()).as_bytes());
    let folder = PathBuf::from(std::ffi::OsStr::from_bytes(&folder));
    let _ = std::fs::remove_dir_all(&folder); // of a process that had this id
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let hidden = folder.join(HIDDEN);
    let listener = UnixListener::bind(&hidden);
    let bound = listener.and_then(|listener| {
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    match bound {
        Ok(listener) => Ok((listener, folder)),
        Err(error) => {
            let _ = std::fs::remove_dir_all(&folder);
            Err(error)
        }
    }
}

/// Device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.st_dev(), metadata.st_ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> anyhow::Result<Control> {
        let mut control = Control::bind(path, Vec::new(), None)?;
        control.publish()?;
        Ok(control)
    }

    #[tokio::test]
    async fn the_socket_is_for_its_owner_only_and_is_removed_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let control = open(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        drop(control);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_in_use_and_other_files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let control = open(&path).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(control);
        std::fs::write(&path, "a letter").unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
    }

    /// The socket of a process that was killed does not keep the next one from starting.
    #[tokio::test]
    async fn a_socket_of_a_process_that_is_gone_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        open(&path).unwrap();
    }

    #[tokio::test]
    async fn an_old_process_leaves_the_new_control_socket_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let old = open(&path).unwrap();
        let mut new = Control::bind(&path, Vec::new(), Some(&path)).unwrap();
        new.publish().unwrap();
        drop(old);
        assert!(path.exists());
        drop(new);
        assert!(!path.exists());
    }
}
