//! Says in words where a client's address comes from, for operators who see many clients as one.

use std::fmt;
use std::net::IpAddr;

use http::HeaderMap;

use super::{Forwarding, Proxies, X_FORWARDED_FOR, X_REAL_IP, client_address, forwarded, forwarded_hop};

/// Where a client's address comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddressOrigin {
    /// The connection; the request has no forwarding header.
    Peer,
    /// The connection; the forwarding header is ignored because the peer is not trusted.
    Untrusted {
        /// The header.
        header: &'static str,
    },
    /// The connection of a trusted proxy that named no client. All its clients count as one.
    Silent {
        /// The header that the proxy should have sent.
        header: &'static str,
    },
    /// A header of a trusted proxy.
    Header {
        /// The header.
        header: &'static str,
        /// The number of the entry, counted from the right, beginning with 1.
        entry: usize,
        /// How many entries there are.
        n_entries: usize,
    },
}

impl AddressOrigin {
    /// Where the address of a request from `peer` comes from.
    pub fn of(headers: &HeaderMap, peer: IpAddr, rules: &Proxies) -> Self {
        let sent = match rules.source {
            Forwarding::Forwarded => headers.contains_key(http::header::FORWARDED).then_some("Forwarded"),
            Forwarding::XForwardedFor if headers.contains_key(X_FORWARDED_FOR) => Some("X-Forwarded-For"),
            Forwarding::XForwardedFor => headers.contains_key(X_REAL_IP).then_some("X-Real-IP"),
        };
        let due = match rules.source {
            Forwarding::Forwarded => "Forwarded",
            Forwarding::XForwardedFor => "X-Forwarded-For",
        };
        match sent {
            None if rules.trust(peer) => Self::Silent { header: due },
            None => Self::Peer,
            Some(header) if !rules.trust(peer) => Self::Untrusted { header },
            Some(header) => {
                let entries: Vec<Option<IpAddr>> = match rules.source {
                    Forwarding::Forwarded => {
                        let lines = headers.get_all(http::header::FORWARDED).iter().rev();
                        lines.flat_map(|line| forwarded::from_the_right(line.as_bytes())).collect()
                    }
                    Forwarding::XForwardedFor => {
                        let name = if header == "X-Real-IP" { X_REAL_IP } else { X_FORWARDED_FOR };
                        let lines = headers.get_all(name).iter().rev();
                        let entries = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
                        entries.map(forwarded_hop::parse).collect()
                    }
                };
                let address = client_address(headers, peer, rules);
                match entries.iter().position(|entry| entry.is_some_and(|entry| entry == address)) {
                    Some(at) => Self::Header { header, entry: at + 1, n_entries: entries.len() },
                    None => Self::Silent { header },
                }
            }
        }
    }
}

impl fmt::Display for AddressOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("the connection"),
            Self::Untrusted { header } => {
                write!(
                    f,
                    "the connection; {header} is ignored, since this address is not in clients.trusted_proxies"
                )
            }
            Self::Silent { header } => {
                write!(
                    f,
                    "the connection of a trusted proxy that sent no readable {header}: all its clients look like one"
                )
            }
            Self::Header { header, entry, n_entries } => {
                write!(f, "{header}, entry {entry} of {n_entries} from the right, sent by a trusted proxy")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(&str, &str)], peer: &str, expected: &str) {
        let rules = Proxies { trusted: vec!["10.0.0.0/8".parse().unwrap()], ..Proxies::default() };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        assert_eq!(AddressOrigin::of(&map, peer.parse().unwrap(), &rules).to_string(), expected);
    }

    #[test]
    fn the_origin_of_an_address_is_named() {
        check(&[], "192.0.2.1", "the connection");
        check(
            &[("x-forwarded-for", "1.1.1.1")],
            "192.0.2.1",
            "the connection; X-Forwarded-For is ignored, since this address is not in clients.trusted_proxies",
        );
        check(
            &[("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.0.0.2")],
            "10.0.0.1",
            "X-Forwarded-For, entry 2 of 3 from the right, sent by a trusted proxy",
        );
        check(
            &[("x-real-ip", "198.51.100.7")],
            "10.0.0.1",
            "X-Real-IP, entry 1 of 1 from the right, sent by a trusted proxy",
        );
        check(
            &[],
            "10.0.0.1",
            "the connection of a trusted proxy that sent no readable X-Forwarded-For: all its clients look like one",
        );
    }
}
