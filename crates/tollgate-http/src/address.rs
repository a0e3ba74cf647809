//! Which bucket a client address means.
//!
//! An IPv6 host gets a whole /64 to itself, so it could take a new address for each request; all of a /64 is
//! one client. An IPv4 address that comes as IPv6 (`::ffff:192.0.2.1`) is the IPv4 address.

use std::net::{IpAddr, Ipv6Addr};

/// The name under which an address is limited: `192.0.2.1`, or `2001:db8::/64`.
pub fn client(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) if address.is_loopback() => address.to_string(),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64));
            format!("{network}/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_client_share_a_name() {
        let client = |text: &str| client(text.parse().unwrap());
        assert_eq!(client("192.0.2.1"), "192.0.2.1");
        assert_eq!(client("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(client("::1"), "::1");
        assert_eq!(client("2001:db8::1"), "2001:db8::/64");
        assert_eq!(client("2001:db8::ffff:1:2:3"), "2001:db8::/64");
        assert_ne!(client("2001:db8:0:1::1"), client("2001:db8::1"));
    }
}
