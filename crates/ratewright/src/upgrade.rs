//! An upgrade: a new process takes over the listening sockets, without refusing a connection.
//!
//! ```text
//!   ratewright upgrade          old process                        new process
//!   ── upgrade PROGRAM ───────► starts PROGRAM with its own arguments ──►
//!                               ◄───────────────────── take over ──
//!                               ── listening sockets ─────────────►  reads its files, serves
//!                               ◄───────────────── ready │ failed ──
//!   ◄──────── done │ failed ──  drains and ends         │ keeps serving
//! ```
//!
//! All messages use the control socket, a Unix socket for its owner only. The old process starts the new one, which so inherits its
//! rights, environment, arguments and systemd unit. The old process serves unchanged until the new one is ready. While both run,
//! both accept connections.
//!
//! - `control`: the old process's side. `take_over`: the new one's. `command`: `ratewright upgrade`.

mod command;
mod control;
mod take_over;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

pub(crate) use command::upgrade;
pub(crate) use control::{Control, Upgraded};
pub(crate) use take_over::TakeOver;

/// The variable that tells a new process where the old one's control socket is.
pub(crate) const TAKE_OVER: &str = "RATEWRIGHT_TAKE_OVER";

/// The first message of a command: this, and the program to start.
const MESSAGE_UPGRADE: &str = "upgrade ";

/// The first message of a new process.
const MESSAGE_TAKE_OVER: &str = "take over";

/// The new process serves.
const READY: &str = "ready";

/// The upgrade is done: this, and the new process's id.
const DONE: &str = "done ";

/// The new process does not become ready: this, and why.
const FAILED: &str = "failed ";

/// The most sockets that are handed over: one for each listener, and room for more.
const SOCKETS_MAX: usize = 8;

/// The longest line, in bytes.
const LINE_MAX: u64 = 8_192;

/// Connects to a control socket. A full queue is an error: the owner may never accept.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Turns a text into one line that is short enough to send.
fn one_line(text: &str) -> String {
    const KEPT: usize = 2_000;
    text.chars().take(KEPT).map(|char| if char.is_control() { ' ' } else { char }).collect()
}
