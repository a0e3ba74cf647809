//! Where listening sockets come from: systemd, the process that is being replaced, or the system.
//!
//! systemd passes sockets that it listens on itself (`LISTEN_FDS`), so that no connection is refused while no process runs. Each
//! must have the address of a listener: the policy file was checked against its own addresses, and a socket that is open to
//! other machines must not slip in under a listener that is not.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, bail};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use tokio::net::TcpSocket;

/// Connections that wait to be accepted: those that come while many come must not have to try again a second later.
const QUEUE: u32 = 4_096;

/// The sockets that this process was given, until its listeners take them.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    given: Vec<Given>,
}

#[derive(Debug)]
struct Given {
    listener: TcpListener,
    address: SocketAddr,
    by: Giver,
}

#[derive(Debug, PartialEq)]
enum Giver {
    Systemd,
    /// The process that is being replaced, where this listener has it.
    OldProcess(String),
}

/// A listening socket, and the name of its listener: `api`, `admin`, `gateway` or `grpc`.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) listener: TcpListener,
}

impl Sockets {
    /// Those that systemd passes. To be called once.
    pub(crate) fn of_systemd() -> anyhow::Result<Self> {
        let mut fds = ListenFd::from_env();
        let mut given = Vec::new();
        for n in 0..fds.len() {
            let listener = fds.take_tcp_listener(n).context("a socket of LISTEN_FDS cannot be used")?;
            let Some(listener) = listener else { continue };
            let address = listener.local_addr().context("a socket of LISTEN_FDS has no address")?;
            if !socket_acceptconn(&listener).unwrap_or(false) {
                bail!(
                    "the socket on {address} of LISTEN_FDS does not listen; set Accept=no in the socket unit"
                );
            }
            given.push(Given { listener, address, by: Giver::Systemd });
        }
        Ok(Self { given })
    }

    /// Those of the process that is being replaced.
    pub(crate) fn of_old_process(named: Vec<Named>) -> anyhow::Result<Self> {
        let given = named.into_iter().map(|Named { name, listener }| {
            let address = listener.local_addr().context("a socket of the old process has no address")?;
            Ok(Given { listener, address, by: Giver::OldProcess(name) })
        });
        Ok(Self { given: given.collect::<anyhow::Result<_>>()? })
    }

    /// A socket for a listener: the one that was given for it, or a new one.
    pub(crate) fn take(&mut self, name: &str, address: SocketAddr) -> std::io::Result<TcpListener> {
        let position = self.given.iter().position(|given| given.suits(name, address));
        let Some(position) = position else { return listen(address) };
        let listener = self.given.swap_remove(position).listener;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// To be called when all listeners have theirs. Those of an old process that nobody wants any more are closed.
    ///
    /// # Errors
    /// If a socket of systemd is left: connections to it would wait for ever.
    pub(crate) fn check_all_taken(&self) -> anyhow::Result<()> {
        let left = self.given.iter().find(|given| given.by == Giver::Systemd);
        let Some(Given { address, .. }) = left else { return Ok(()) };
        bail!(
            "systemd passes a socket on {address}, and no listener has that address; write the same address under listen in the policy file and as ListenStream in the socket unit"
        );
    }
}

impl Given {
    fn suits(&self, name: &str, address: SocketAddr) -> bool {
        let Self { address: own, .. } = self;
        match &self.by {
            Giver::Systemd => *own == address,
            // Of a port that the system chose, the old one stays.
            Giver::OldProcess(own_name) => {
                let has_address = *own == address || (address.port() == 0 && own.ip() == address.ip());
                own_name == name && has_address
            }
        }
    }
}

/// A new socket.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)?.into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(by: Giver) -> (Sockets, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Sockets { given: vec![Given { listener, address, by }] }, address)
    }

    #[tokio::test]
    async fn a_socket_of_systemd_goes_to_the_listener_with_its_address() {
        let (mut sockets, address) = given(Giver::Systemd);
        let other = SocketAddr::new(address.ip(), 0);
        assert_ne!(sockets.take("api", other).unwrap().local_addr().unwrap(), address);
        let error = sockets.check_all_taken().unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        assert_eq!(sockets.take("api", address).unwrap().local_addr().unwrap(), address);
        sockets.check_all_taken().unwrap();
    }

    #[tokio::test]
    async fn a_socket_of_an_old_process_goes_to_the_same_listener() {
        let (mut sockets, address) = given(Giver::OldProcess("api".to_owned()));
        let any_port = SocketAddr::new(address.ip(), 0);
        assert_ne!(sockets.take("admin", any_port).unwrap().local_addr().unwrap(), address);
        assert_eq!(sockets.take("api", any_port).unwrap().local_addr().unwrap(), address);
    }

    /// A listener that the new policy file has moved does not stay where it was.
    #[tokio::test]
    async fn a_socket_of_an_old_process_with_another_address_is_left() {
        let (mut sockets, address) = given(Giver::OldProcess("api".to_owned()));
        let moved = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(sockets.take("api", moved).unwrap().local_addr().unwrap(), moved);
        assert_ne!(moved, address);
        sockets.check_all_taken().unwrap();
    }
}
