//! The PROXY protocol: a load balancer announces the client of a connection before anything else.
//!
//! ```text
//!   client ──────► load balancer ── PROXY TCP4 198.51.100.7 … \r\n, then TLS or HTTP ──► listener
//!   198.51.100.7   10.0.0.2: in `from`                                                   its client is 198.51.100.7
//! ```
//!
//! Whoever writes the header chooses the address, so only peers in `from` may connect, and each connection must begin with a header:
//! it is never detected. The header is read before everything else, TLS too, and nothing after it is read: bytes are looked at first
//! (`MSG_PEEK`), then exactly those of the header are taken. The stream needs no wrapper, and listeners without the setting pay nothing.

mod header;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::info;

use crate::log_throttle::LogThrottle;
pub use header::{BINARY_MAX, Malformed, ProxyHeader, TEXT_MAX};

/// Refused connections are logged once in this time, for each reason.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Bytes that are looked at in one step. Most headers are shorter.
const STEP: usize = 256;

/// The PROXY protocol on one listener. Clones share the counts.
#[derive(Clone, Debug)]
pub struct ProxyProtocol {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The listener's name, for the log.
    listener: &'static str,
    /// Networks of the load balancers. An IPv4 network is written as IPv4.
    from: Vec<IpNet>,
    /// In the order of [`Refusal::ALL`].
    refused: [Refused; Refusal::ALL.len()],
    began_at: Instant,
}

/// How many connections were refused for one reason.
#[derive(Debug)]
struct Refused {
    n: AtomicU64,
    log: LogThrottle,
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The peer is not in `from`.
    Peer,
    /// The header was not complete in time.
    Timeout,
    /// The peer closed the connection before the header was complete.
    Closed,
    /// The header is not accepted.
    Header(Malformed),
    /// The announced address is loopback, unspecified, multicast or broadcast.
    Address,
}

/// How reading a header failed.
enum Failure {
    Refused(Refusal),
    /// The peer connected and went away without a byte, as TCP health checks do.
    Probe,
}

impl ProxyProtocol {
    /// Requires a header on each connection of this listener, and accepts connections from these networks only.
    #[must_use]
    pub fn new(listener: &'static str, from: Vec<IpNet>) -> Self {
        let refused =
            Refusal::ALL.map(|_| Refused { n: AtomicU64::new(0), log: LogThrottle::new(LOGGED_EVERY) });
        // Tokio's clock, which this crate measures all times by.
        Self { shared: Arc::new(Shared { listener, from, refused, began_at: Instant::now() }) }
    }

    /// The networks of the load balancers.
    #[must_use]
    pub fn from(&self) -> &[IpNet] {
        &self.shared.from
    }

    /// Reads the header from a new connection and returns the client's address: the announced one, or the peer's if the load balancer
    /// speaks for itself. None: the connection is refused, which is counted and logged; close it.
    ///
    /// Not cancel safe: after a drop the header may have been read in part.
    pub async fn client(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
        within: Duration,
    ) -> Option<SocketAddr> {
        let failure = if !self.admits(peer.ip()) {
            Failure::Refused(Refusal::Peer)
        } else {
            match tokio::time::timeout(within, read_header(stream)).await {
                Ok(Ok(announced)) => match judge(announced, peer) {
                    Ok(client) => return Some(client),
                    Err(refusal) => Failure::Refused(refusal),
                },
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Refused(Refusal::Timeout),
            }
        };
        if let Failure::Refused(refusal) = failure {
            self.refuse(refusal, peer.ip());
        }
        None
    }

    /// How many connections were refused, by reason.
    pub fn n_refused(&self) -> impl Iterator<Item = (Refusal, u64)> {
        let counts = self.shared.refused.iter().map(|refused| refused.n.load(Ordering::Relaxed));
        Refusal::ALL.into_iter().zip(counts)
    }

    fn admits(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.shared.from.iter().any(|network| network.contains(&peer))
    }

    #[cold]
    fn refuse(&self, refusal: Refusal, peer: IpAddr) {
        let Shared { listener, refused, began_at, .. } = &*self.shared;
        let Some((_, refused)) = Refusal::ALL.iter().zip(refused).find(|(known, _)| **known == refusal)
        else {
            return;
        };
        refused.n.fetch_add(1, Ordering::Relaxed);
        let now = u64::try_from(began_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(suppressed) = refused.log.admit(now.saturating_add(1)) {
            let (reason, advice) = (refusal.name(), refusal.advice());
            info!(%peer, listener, reason, suppressed, "connection refused by proxy_protocol: {advice}");
        }
    }
}

/// The client's address: the announced one, or the peer's where the load balancer speaks for itself. It does so too where it announces
/// the very connection on which it says so: health checks of HAProxy do, in version 1.
///
/// Callers on loopback have privileges, and a client on another machine never has such an address, so nobody is announced by one.
fn judge(announced: Option<SocketAddr>, peer: SocketAddr) -> Result<SocketAddr, Refusal> {
    let own = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    let Some(client) = announced.filter(|client| *client != own) else { return Ok(peer) };
    let ip = client.ip();
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_broadcast {
        return Err(Refusal::Address);
    }
    Ok(client)
}

/// Reads a header, and nothing after it.
async fn read_header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, Failure> {
    let closed = |n_seen| if n_seen == 0 { Failure::Probe } else { Failure::Refused(Refusal::Closed) };
    let mut bytes = Vec::new();
    loop {
        let n_taken = bytes.len();
        bytes.resize(BINARY_MAX.min(n_taken + STEP), 0);
        let n_seen = match stream.peek(&mut bytes[n_taken..]).await {
            Ok(0) | Err(_) => return Err(closed(n_taken)),
            Ok(n) => n_taken + n,
        };
        bytes.truncate(n_seen);
        let (client, len) = match ProxyHeader::parse(&bytes) {
            ProxyHeader::Incomplete => (None, n_seen),
            ProxyHeader::Complete { client, len } => (Some(client), len),
            ProxyHeader::Malformed(malformed) => return Err(Failure::Refused(Refusal::Header(malformed))),
        };
        // They were there a moment ago, so this does not wait.
        stream.read_exact(&mut bytes[n_taken..len]).await.map_err(|_| closed(n_taken))?;
        if let Some(client) = client {
            return Ok(client);
        }
    }
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Peer,
        Self::Timeout,
        Self::Closed,
        Self::Header(Malformed::Missing),
        Self::Header(Malformed::Syntax),
        Self::Header(Malformed::TooLong),
        Self::Header(Malformed::Unsupported),
        Self::Header(Malformed::Checksum),
        Self::Address,
    ];

    /// Its name in metrics and in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Header(Malformed::Missing) => "missing",
            Self::Header(Malformed::Syntax) => "malformed",
            Self::Header(Malformed::TooLong) => "too_long",
            Self::Header(Malformed::Unsupported) => "unsupported",
            Self::Header(Malformed::Checksum) => "checksum",
            Self::Address => "address",
        }
    }

    /// What happened, and what to do.
    fn advice(self) -> &'static str {
        match self {
            Self::Peer => "peer is not in proxy_protocol.from; add it if it is a load balancer of yours",
            Self::Timeout => "header not received in time; turn on the PROXY protocol in the load balancer",
            Self::Closed => "peer closed the connection before the header was complete",
            Self::Header(Malformed::Missing) => {
                "connection does not begin with a header; turn on the PROXY protocol in the load balancer, or remove proxy_protocol"
            }
            Self::Header(Malformed::Syntax) => "header is malformed",
            Self::Header(Malformed::TooLong) => {
                "header is longer than 107 bytes (version 1) or 4112 bytes (version 2)"
            }
            Self::Header(Malformed::Unsupported) => {
                "header announces neither TCP over IPv4 nor TCP over IPv6"
            }
            Self::Header(Malformed::Checksum) => "checksum of the header does not match",
            Self::Address => {
                "announced address is loopback, unspecified, multicast or broadcast; clients on the load balancer's machine must use its network address, not localhost"
            }
        }
    }
}

#[cfg(test)]
mod tests;
