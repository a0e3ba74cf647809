//! The sources of listening sockets: systemd, the process that this one replaces, or a new socket.
//!
//! systemd passes sockets that it listens on itself (`LISTEN_FDS`), so that no connection is refused while no process runs. Each
//! must have the address of a listener: the policy file was checked against its own addresses, and a socket that is open to
//! other machines must not slip in under a listener that is not.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, bail};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use tokio::net::TcpSocket;

/// Length of the accept queue: in a burst, a connection that does not fit is retried by its client only after a second.
const BACKLOG: u32 = 4_096;

/// The most sockets that systemd can pass.
const LISTEN_FDS_MAX: u64 = 1_024;

/// The sockets that this process inherited, until its listeners take them.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    inherited: Vec<InheritedSocket>,
}

#[derive(Debug)]
struct InheritedSocket {
    listener: TcpListener,
    address: SocketAddr,
    origin: SocketOrigin,
}

#[derive(Debug, PartialEq)]
enum SocketOrigin {
    Systemd,
    /// The process that this one replaces, where it belongs to the listener of this name.
    OldProcess(String),
}

/// A listening socket, and the name of its listener: `api`, `admin`, `gateway` or `grpc`.
#[derive(Debug)]
pub(crate) struct NamedListener {
    pub(crate) name: String,
    pub(crate) listener: TcpListener,
}

impl Sockets {
    /// The sockets that systemd passes. Call it once.
    pub(crate) fn from_systemd() -> anyhow::Result<Self> {
        // `ListenFd` would iterate up to any number.
        if let Some(n) = crate::environment("LISTEN_FDS").and_then(|n| n.parse::<u64>().ok())
            && n > LISTEN_FDS_MAX
        {
            bail!("invalid LISTEN_FDS={n}: at most {LISTEN_FDS_MAX} sockets can be passed; unset it");
        }
        let mut fds = ListenFd::from_env();
        let mut inherited = Vec::new();
        for n in 0..fds.len() {
            let listener = fds.take_tcp_listener(n).context("systemd socket (LISTEN_FDS) cannot be used")?;
            let Some(listener) = listener else { continue };
            let address = listener.local_addr().context("systemd socket (LISTEN_FDS) has no address")?;
            if !socket_acceptconn(&listener).unwrap_or(false) {
                bail!("systemd socket {address} is not listening; set Accept=no in the socket unit");
            }
            inherited.push(InheritedSocket { listener, address, origin: SocketOrigin::Systemd });
        }
        Ok(Self { inherited })
    }

    /// The sockets of the process that this one replaces.
    pub(crate) fn from_old_process(named: Vec<NamedListener>) -> anyhow::Result<Self> {
        let inherited = named.into_iter().map(|NamedListener { name, listener }| {
            let address =
                listener.local_addr().context("inherited socket of the old process has no address")?;
            Ok(InheritedSocket { listener, address, origin: SocketOrigin::OldProcess(name) })
        });
        Ok(Self { inherited: inherited.collect::<anyhow::Result<_>>()? })
    }

    /// A socket for a listener: the one that was inherited for it, or a new one.
    pub(crate) fn take(&mut self, name: &str, address: SocketAddr) -> std::io::Result<TcpListener> {
        let position = self.inherited.iter().position(|socket| socket.matches(name, address));
        let Some(position) = position else { return listen(address) };
        let listener = self.inherited.swap_remove(position).listener;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// The address of an inherited socket with this port. It prevents a new socket on another address with the same port.
    pub(crate) fn old_address_with_port(&self, port: u16) -> Option<SocketAddr> {
        let has_port = |socket: &&InheritedSocket| socket.address.port() == port;
        self.inherited.iter().find(has_port).map(|socket| socket.address)
    }

    /// Call it when all listeners have their sockets. Dropping `self` closes unused sockets of an old process.
    ///
    /// # Errors
    /// If no listener took a systemd socket: connections to it would never be accepted.
    pub(crate) fn check_all_taken(&self) -> anyhow::Result<()> {
        let left = self.inherited.iter().find(|socket| socket.origin == SocketOrigin::Systemd);
        let Some(InheritedSocket { address, .. }) = left else { return Ok(()) };
        bail!(
            "systemd socket {address} matches no listener; use the same address for ListenStream= and under listen, and note that the gateway needs routes"
        );
    }
}

impl InheritedSocket {
    fn matches(&self, name: &str, address: SocketAddr) -> bool {
        let Self { address: own, .. } = self;
        match &self.origin {
            _ if *own == address => true,
            // Port 0 matches whatever port the system gave to the old process.
            SocketOrigin::OldProcess(own_name) => {
                own_name == name && address.port() == 0 && own.ip() == address.ip()
            }
            SocketOrigin::Systemd => false,
        }
    }
}

/// A new socket.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(origin: SocketOrigin) -> (Sockets, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Sockets { inherited: vec![InheritedSocket { listener, address, origin }] }, address)
    }

    #[tokio::test]
    async fn a_socket_from_systemd_goes_to_the_listener_with_its_address() {
        let (mut sockets, address) = inherited(SocketOrigin::Systemd);
        let other = SocketAddr::new(address.ip(), 0);
        assert_ne!(sockets.take("api", other).unwrap().local_addr().unwrap(), address);
        let error = sockets.check_all_taken().unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        assert_eq!(sockets.take("api", address).unwrap().local_addr().unwrap(), address);
        sockets.check_all_taken().unwrap();
    }

    #[tokio::test]
    async fn a_socket_of_an_old_process_goes_to_the_same_listener() {
        let (mut sockets, address) = inherited(SocketOrigin::OldProcess("api".to_owned()));
        let any_port = SocketAddr::new(address.ip(), 0);
        assert_ne!(sockets.take("admin", any_port).unwrap().local_addr().unwrap(), address);
        assert_eq!(sockets.take("api", any_port).unwrap().local_addr().unwrap(), address);
        let (mut sockets, address) = inherited(SocketOrigin::OldProcess("api".to_owned()));
        assert_eq!(
            sockets.take("admin", address).unwrap().local_addr().unwrap(),
            address,
            "or to its address"
        );
    }

    /// A listener that the new policy file has moved does not stay where it was.
    #[tokio::test]
    async fn a_socket_of_an_old_process_with_another_address_is_left() {
        let (mut sockets, address) = inherited(SocketOrigin::OldProcess("api".to_owned()));
        let moved = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(sockets.take("api", moved).unwrap().local_addr().unwrap(), moved);
        assert_ne!(moved, address);
        sockets.check_all_taken().unwrap();
    }
}
