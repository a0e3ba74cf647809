//! The PROXY protocol: a load balancer announces the client's address at the start of a connection.
//!
//! ```text
//!   client ──────► load balancer ── PROXY TCP4 198.51.100.7 … \r\n, then TLS or HTTP ──► listener
//!   198.51.100.7   10.0.0.2: in `from`                                                   its client is 198.51.100.7
//! ```
//!
//! The header's writer chooses the address, so only peers in `from` may connect, and each connection must begin with a
//! header: it is never auto-detected. The header is read before TLS, and no byte after it is consumed: the bytes are
//! peeked at (`MSG_PEEK`), then exactly the header is read. So the stream needs no wrapper, and listeners without the
//! setting pay nothing.

mod header;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tracing::info;

use crate::log_throttle::LogThrottle;
pub use header::{BINARY_MAX, ProxyHeader, ProxyHeaderError, TEXT_MAX};

/// Refused connections are logged once in this time for each reason.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// How many bytes are peeked at once. Most headers are shorter.
const PEEK_SIZE: usize = 256;

/// The PROXY protocol on one listener. Clones share the counts.
#[derive(Clone, Debug)]
pub struct ProxyProtocol {
    shared: Arc<ProxyProtocolInner>,
}

#[derive(Debug)]
struct ProxyProtocolInner {
    /// The listener's name, for the log.
    listener: &'static str,
    /// Networks of the load balancers, IPv4 networks not mapped to IPv6.
    from: Vec<IpNet>,
    /// In the order of [`RefusalReason::ALL`].
    refusals: [RefusalCount; RefusalReason::ALL.len()],
}

/// How many connections were refused for one reason.
#[derive(Debug)]
struct RefusalCount {
    n: AtomicU64,
    log: LogThrottle,
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// The peer's address is not in `from`.
    Peer,
    /// The header was not complete in time.
    Timeout,
    /// The peer closed the connection before the header was complete.
    Closed,
    /// The header is missing or invalid.
    Header(ProxyHeaderError),
    /// The announced address is loopback, unspecified, multicast or broadcast.
    Address,
}

/// Why a connection gets no client address.
enum ClientAddressFailure {
    Refused(RefusalReason),
    /// The peer closed the connection without sending a byte, as TCP health checks do.
    Probe,
}

impl ProxyProtocol {
    /// Requires a header on each connection of this listener, and accepts connections from these networks only.
    #[must_use]
    pub fn new(listener: &'static str, from: Vec<IpNet>) -> Self {
        let refusals = RefusalReason::ALL
            .map(|_| RefusalCount { n: AtomicU64::new(0), log: LogThrottle::new(LOGGED_EVERY) });
        Self { shared: Arc::new(ProxyProtocolInner { listener, from, refusals }) }
    }

    /// The networks of the load balancers.
    #[must_use]
    pub fn from(&self) -> &[IpNet] {
        &self.shared.from
    }

    /// Reads the header from a new connection and returns the client's address: the announced one, or the peer's for
    /// connections of the load balancer itself. None: the connection is refused, counted and logged; close it.
    ///
    /// Not cancel safe: if the future is dropped, part of the header may have been read.
    pub async fn client(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
        within: Duration,
    ) -> Option<SocketAddr> {
        let failure = if !self.admits(peer.ip()) {
            ClientAddressFailure::Refused(RefusalReason::Peer)
        } else {
            match tokio::time::timeout(within, read_header(stream)).await {
                Ok(Ok(announced)) => match client_address(announced, peer) {
                    Ok(client) => return Some(client),
                    Err(reason) => ClientAddressFailure::Refused(reason),
                },
                Ok(Err(failure)) => failure,
                Err(_) => ClientAddressFailure::Refused(RefusalReason::Timeout),
            }
        };
        if let ClientAddressFailure::Refused(reason) = failure {
            self.refuse(reason, peer.ip());
        }
        None
    }

    /// How many connections were refused, by reason.
    pub fn n_refused(&self) -> impl Iterator<Item = (RefusalReason, u64)> {
        let counts = self.shared.refusals.iter().map(|refusal| refusal.n.load(Ordering::Relaxed));
        RefusalReason::ALL.into_iter().zip(counts)
    }

    fn admits(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.shared.from.iter().any(|network| network.contains(&peer))
    }

    #[cold]
    fn refuse(&self, reason: RefusalReason, peer: IpAddr) {
        let ProxyProtocolInner { listener, refusals, .. } = &*self.shared;
        let position = RefusalReason::ALL.iter().position(|known| *known == reason);
        let Some(refusal) = position.and_then(|at| refusals.get(at)) else { return };
        refusal.n.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = refusal.log.admit() {
            let (reason, advice) = (reason.name(), reason.advice());
            info!(%peer, listener, reason, suppressed, "connection refused by proxy_protocol: {advice}");
        }
    }
}

/// The client's address: the announced one, or the peer's if the load balancer announces none, or announces its own
/// connection, as health checks of HAProxy do in version 1.
///
/// A loopback address is refused: requests from loopback have privileges, and no client on another machine has one.
fn client_address(announced: Option<SocketAddr>, peer: SocketAddr) -> Result<SocketAddr, RefusalReason> {
    let own = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let Some(client) = announced.filter(|client| *client != own) else { return Ok(peer) };
    let ip = client.ip();
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_broadcast {
        return Err(RefusalReason::Address);
    }
    Ok(client)
}

/// Reads a header and no byte after it.
async fn read_header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, ClientAddressFailure> {
    let closed = |n_seen| {
        if n_seen == 0 {
            ClientAddressFailure::Probe
        } else {
            ClientAddressFailure::Refused(RefusalReason::Closed)
        }
    };
    let mut bytes = Vec::new();
    loop {
        let n_read = bytes.len();
        bytes.resize(BINARY_MAX.min(n_read + PEEK_SIZE), 0);
        let n_seen = match stream.peek(&mut bytes[n_read..]).await {
            Ok(0) | Err(_) => return Err(closed(n_read)),
            Ok(n) => n_read + n,
        };
        bytes.truncate(n_seen);
        let (client, len) = match ProxyHeader::parse(&bytes) {
            ProxyHeader::Incomplete => (None, n_seen),
            ProxyHeader::Complete { client, len } => (Some(client), len),
            ProxyHeader::Invalid(error) => {
                return Err(ClientAddressFailure::Refused(RefusalReason::Header(error)));
            }
        };
        // These bytes were peeked at, so this does not wait.
        stream.read_exact(&mut bytes[n_read..len]).await.map_err(|_| closed(n_read))?;
        if let Some(client) = client {
            return Ok(client);
        }
    }
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Peer,
        Self::Timeout,
        Self::Closed,
        Self::Header(ProxyHeaderError::Missing),
        Self::Header(ProxyHeaderError::Syntax),
        Self::Header(ProxyHeaderError::TooLong),
        Self::Header(ProxyHeaderError::Unsupported),
        Self::Header(ProxyHeaderError::Checksum),
        Self::Address,
    ];

    /// The label in metrics and in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Header(ProxyHeaderError::Missing) => "missing",
            Self::Header(ProxyHeaderError::Syntax) => "malformed",
            Self::Header(ProxyHeaderError::TooLong) => "too_long",
            Self::Header(ProxyHeaderError::Unsupported) => "unsupported",
            Self::Header(ProxyHeaderError::Checksum) => "checksum",
            Self::Address => "address",
        }
    }

    /// What happened, and what to do.
    fn advice(self) -> &'static str {
        match self {
            Self::Peer => "peer is not in proxy_protocol.from; add its address if it is your load balancer",
            Self::Timeout => "header not received in time; turn on the PROXY protocol in the load balancer",
            Self::Closed => "peer closed the connection before the header was complete",
            Self::Header(ProxyHeaderError::Missing) => {
                "connection does not begin with a header; turn on the PROXY protocol in the load balancer, or remove proxy_protocol"
            }
            Self::Header(ProxyHeaderError::Syntax) => "header is malformed",
            Self::Header(ProxyHeaderError::TooLong) => {
                "header is longer than 107 bytes (version 1) or 4112 bytes (version 2)"
            }
            Self::Header(ProxyHeaderError::Unsupported) => {
                "header announces neither TCP over IPv4 nor TCP over IPv6"
            }
            Self::Header(ProxyHeaderError::Checksum) => "checksum of the header does not match",
            Self::Address => {
                "announced address is loopback, unspecified, multicast or broadcast; clients on the load balancer's machine must use its network address, not localhost"
            }
        }
    }
}

#[cfg(test)]
mod tests;
