//! Detects forwarding headers from untrusted peers, once an hour for each network, so that the log can warn of them.
//!
//! Behind a proxy that is missing in `clients.trusted_proxies`, all clients count as one, and the first one to use up
//! the limit does so for all. Any client can send these headers, so memory is bounded: with [`NETWORKS_MAX`] networks
//! remembered, further networks are ignored until an hour has passed for another.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex, PoisonError};

use http::{HeaderMap, HeaderName, header};
use ratewright_core::{Micros, Timestamp};

use super::{Forwarding, Proxies, X_FORWARDED_FOR, X_REAL_IP, network};

/// The most networks remembered.
const NETWORKS_MAX: usize = 1_000;

/// The interval between two warnings of a network.
const WARN_EVERY: Micros = Micros::from_secs(3_600);

/// The bits of an address that make a network.
const IPV4_PREFIX: u32 = 24;
const IPV6_PREFIX: u8 = 64;

/// The networks whose headers were ignored, and when the last warning was.
static WARNED: LazyLock<WarnedNetworks> = LazyLock::new(WarnedNetworks::default);

#[derive(Debug, Default)]
struct WarnedNetworks(Mutex<HashMap<IpAddr, Timestamp>>);

/// The forwarding header that is ignored because the peer is not trusted. `None` if the peer's network had a warning within
/// the last hour.
pub fn newly_ignored(
    headers: &HeaderMap,
    peer: IpAddr,
    rules: &Proxies,
    now: Timestamp,
) -> Option<&'static str> {
    // Comparing all names once is cheaper than a lookup, and most requests have none of them.
    let is_forwarding =
        |name: &HeaderName| *name == X_FORWARDED_FOR || *name == X_REAL_IP || *name == header::FORWARDED;
    if !headers.keys().any(is_forwarding) {
        return None;
    }
    let header = match rules.source {
        Forwarding::Forwarded => headers.contains_key(header::FORWARDED).then_some("Forwarded"),
        Forwarding::XForwardedFor if headers.contains_key(X_FORWARDED_FOR) => Some("X-Forwarded-For"),
        Forwarding::XForwardedFor => headers.contains_key(X_REAL_IP).then_some("X-Real-IP"),
    }?;
    (!rules.trust(peer) && WARNED.admit(peer, now)).then_some(header)
}

impl WarnedNetworks {
    /// True if the peer's network had no warning for an hour.
    fn admit(&self, peer: IpAddr, now: Timestamp) -> bool {
        let network = match peer.to_canonical() {
            IpAddr::V4(address) => {
                let mask = u32::MAX << (32 - IPV4_PREFIX);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            address @ IpAddr::V6(_) => network(address, IPV6_PREFIX),
        };
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.get(&network).is_some_and(|at| now.since(*at) < WARN_EVERY) {
            return false;
        }
        if warned.len() >= NETWORKS_MAX {
            warned.retain(|_, at| now.since(*at) < WARN_EVERY);
        }
        let has_room = warned.len() < NETWORKS_MAX;
        if has_room {
            warned.insert(network, now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::default() + Micros::from_secs(secs)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_one_warning_an_hour() {
        let warned = WarnedNetworks::default();
        assert!(warned.admit(address("192.0.2.1"), at(0)));
        assert!(!warned.admit(address("192.0.2.200"), at(3_599)), "the same network");
        assert!(warned.admit(address("192.0.3.1"), at(3_599)), "another network");
        assert!(warned.admit(address("::ffff:192.0.2.1"), at(3_600)), "an hour later");
        assert!(warned.admit(address("2001:db8::1"), at(0)));
        assert!(!warned.admit(address("2001:db8::2"), at(0)));
    }

    #[test]
    fn a_flood_of_networks_is_bounded() {
        let warned = WarnedNetworks::default();
        let peer = |n: u32| IpAddr::V4((n << 8).into());
        let n_admitted = (0..5_000).filter(|n| warned.admit(peer(*n), at(1))).count();
        assert_eq!(n_admitted, NETWORKS_MAX);
        assert_eq!(warned.0.lock().unwrap().len(), NETWORKS_MAX);
        assert!(warned.admit(peer(6_000), at(3_601)), "after an hour there is room again");
    }

    #[test]
    fn only_ignored_headers_cause_a_warning() {
        let rules = Proxies { trusted: vec!["10.0.0.0/8".parse().unwrap()], ..Proxies::default() };
        let with = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, "198.51.100.7".parse().unwrap());
            headers
        };
        let peer = address("203.0.113.77");
        assert_eq!(newly_ignored(&HeaderMap::new(), peer, &rules, at(0)), None, "there is no header");
        assert_eq!(newly_ignored(&with("forwarded"), peer, &rules, at(0)), None, "not the configured header");
        assert_eq!(newly_ignored(&with("x-forwarded-for"), address("10.0.0.1"), &rules, at(0)), None);
        assert_eq!(newly_ignored(&with("x-forwarded-for"), peer, &rules, at(0)), Some("X-Forwarded-For"));
        assert_eq!(newly_ignored(&with("x-real-ip"), peer, &rules, at(1)), None, "the same network");
    }
}
