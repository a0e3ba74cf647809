//! The client's address, and the bucket that an address belongs to.
//!
//! Any client can send a forwarding header, so it counts only from a trusted proxy. Each proxy appends the address that
//! connected to it at the right. The walk therefore goes from the right, and ends at the first address that is not a
//! trusted proxy. Entries that the client wrote itself are further left and are never read.
//!
//! ```text
//!   X-Forwarded-For: 6.6.6.6, 198.51.100.7, 10.0.0.2      peer 10.0.0.1     trusted 10.0.0.0/8
//!                    written  ▲ the client  ◄───────────  ◄─────────
//!                    by the client
//! ```
//!
//! An entry that is not an address (`unknown`, `_hidden`, garbage, an empty entry) also ends the walk: the last known
//! hop is then the client. Only one header is read, never both: a proxy that writes one of them passes on the other as
//! the client sent it.
//!
//! An IPv6 host usually has a whole /64, so it could use a new address for each request; a /64 is therefore one
//! client. An IPv4 address in IPv6 form (`::ffff:192.0.2.1`) counts as the IPv4 address.
//!
//! # Laws
//! - From an untrusted peer, no header changes the result.
//! - Entries to the left of the result do not change it.
//! - The walk visits at most [`HOPS_MAX`] entries, and copies nothing.

mod address_origin;
mod forwarded;
mod forwarded_hop;
mod untrusted;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;

pub use address_origin::AddressOrigin;
pub use untrusted::newly_ignored;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The most hops that are visited.
pub const HOPS_MAX: usize = 100;

/// The longest IPv4 address as text.
const IPV4_LENGTH_MAX: usize = 15;

/// The usual `ipv6_prefix` of one subscriber.
pub const IPV6_PREFIX: u8 = 64;

/// Which proxies are trusted to name the client's address, and in which header. By default none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Proxies {
    /// Networks of trusted proxies. An IPv4 network is written as IPv4.
    pub trusted: Vec<IpNet>,
    /// The header that they write.
    pub source: Forwarding,
}

/// Setters, to be chained after `Proxies::default()`.
impl Proxies {
    /// Sets `trusted`: networks of trusted proxies. An IPv4 network is written as IPv4.
    #[must_use]
    pub fn trusted(mut self, trusted: Vec<IpNet>) -> Self {
        self.trusted = trusted;
        self
    }

    /// Sets `source`: the header that they write.
    #[must_use]
    pub fn source(mut self, source: Forwarding) -> Self {
        self.source = source;
        self
    }
}

/// The header in which proxies name the address that connected to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Forwarding {
    /// `X-Forwarded-For`; where it is absent, `X-Real-IP`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

impl Proxies {
    /// True if `address` is a trusted proxy.
    pub fn trust(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

/// The address of the client behind a request that came from `peer`.
pub fn client_address(headers: &HeaderMap, peer: IpAddr, rules: &Proxies) -> IpAddr {
    let peer = peer.to_canonical();
    if !rules.trust(peer) {
        return peer;
    }
    match rules.source {
        Forwarding::Forwarded => {
            let lines = headers.get_all(header::FORWARDED).iter().rev();
            walk(lines.flat_map(|line| forwarded::from_the_right(line.as_bytes())), peer, rules)
        }
        Forwarding::XForwardedFor if headers.contains_key(X_FORWARDED_FOR) => {
            let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
            let entries = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
            walk(entries.map(forwarded_hop::parse), peer, rules)
        }
        Forwarding::XForwardedFor => real_ip(headers).unwrap_or(peer),
    }
}

/// The client in the value of `X-Forwarded-For` that a trusted proxy sent. `None` if it does not end with an address.
pub fn forwarded_address(line: &[u8], rules: &Proxies) -> Option<IpAddr> {
    let mut hops = line.rsplit(|&byte| byte == b',').map(forwarded_hop::parse);
    let nearest = hops.next()??;
    Some(if rules.trust(nearest) { walk(hops, nearest, rules) } else { nearest })
}

/// The name of an address in bucket keys: `192.0.2.1`, or `2001:db8::/64` with a prefix of 64.
pub fn client(address: IpAddr, ipv6_prefix: u8) -> String {
    match ClientName::new(address, ipv6_prefix) {
        ClientName::Ipv6(text) => text,
        ipv4 @ ClientName::Ipv4(..) => ipv4.as_str().to_owned(),
    }
}

/// The name of an address in bucket keys. That of an IPv4 address needs no allocation.
#[derive(Clone, Debug)]
pub enum ClientName {
    /// An IPv4 address: the text, and its length.
    Ipv4([u8; IPV4_LENGTH_MAX], usize),
    /// An IPv6 address or network.
    Ipv6(String),
}

impl ClientName {
    /// The name of an address, or of its network.
    pub fn new(address: IpAddr, ipv6_prefix: u8) -> Self {
        match network(address, ipv6_prefix) {
            IpAddr::V4(address) => Self::ipv4(address),
            IpAddr::V6(network) if ipv6_prefix < 128 && !network.is_loopback() => {
                Self::Ipv6(format!("{network}/{ipv6_prefix}"))
            }
            IpAddr::V6(address) => Self::Ipv6(address.to_string()),
        }
    }

    fn ipv4(address: Ipv4Addr) -> Self {
        let (mut text, mut length) = ([b'.'; IPV4_LENGTH_MAX], 0);
        for (n, octet) in address.octets().into_iter().enumerate() {
            length += usize::from(n > 0); // a dot is there already
            if octet >= 100 {
                text[length] = b'0' + octet / 100;
                length += 1;
            }
            if octet >= 10 {
                text[length] = b'0' + octet / 10 % 10;
                length += 1;
            }
            text[length] = b'0' + octet % 10;
            length += 1;
        }
        Self::Ipv4(text, length)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ipv4(text, length) => str::from_utf8(&text[..*length]).unwrap_or_default(), // digits and dots
            Self::Ipv6(text) => text,
        }
    }
}

/// The first address of a client's network: a prefix for IPv6 (except loopback), the address itself for IPv4.
pub fn network(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if ipv6_prefix < 128 && !address.is_loopback() => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        other @ (IpAddr::V4(_) | IpAddr::V6(_)) => other,
    }
}

/// An address as text, in pieces. The standard formatting of an IPv4 address costs more than charging its bucket.
pub fn push(address: IpAddr, mut put: impl FnMut(&str)) {
    match address {
        IpAddr::V4(address) => push_ipv4(address, put),
        IpAddr::V6(address) => put(&address.to_string()),
    }
}

fn push_ipv4(address: Ipv4Addr, mut put: impl FnMut(&str)) {
    for (n, octet) in address.octets().into_iter().enumerate() {
        if n > 0 {
            put(".");
        }
        put(itoa::Buffer::new().format(octet));
    }
}

/// The first hop from the right that is not a trusted proxy; if the walk ends before, the last known hop.
fn walk(hops: impl Iterator<Item = Option<IpAddr>>, peer: IpAddr, rules: &Proxies) -> IpAddr {
    let mut nearest = peer;
    for hop in hops.take(HOPS_MAX) {
        let Some(address) = hop else { break };
        nearest = address;
        if !rules.trust(address) {
            break;
        }
    }
    nearest
}

/// The address in `X-Real-IP`, unless the header is repeated.
fn real_ip(headers: &HeaderMap) -> Option<IpAddr> {
    let mut lines = headers.get_all(X_REAL_IP).iter().map(HeaderValue::as_bytes);
    match (lines.next(), lines.next()) {
        (Some(line), None) => forwarded_hop::parse(line),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
