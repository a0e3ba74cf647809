//! Client addresses, as logs write them: with a port, a zone, brackets, or as a host name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address. `None` for `-`, a host name or a list.
#[inline]
pub(super) fn parse(text: &[u8]) -> Option<IpAddr> {
    if let Some(address) = ipv4(text) {
        return Some(IpAddr::V4(address));
    }
    ipv6(text)
}

/// Reads an address that may have a port: `10.0.0.1:80`, `[::1]:80`, `[::1]`, `::1`.
pub(super) fn parse_with_port(text: &[u8]) -> Option<IpAddr> {
    if let Some(inner) = text.strip_prefix(b"[") {
        let end = memchr::memchr(b']', inner)?;
        return ipv6(inner.get(..end)?);
    }
    parse(text).or_else(|| parse(without_port(text)?))
}

/// Reads an address that always has a port. An IPv6 address may be without brackets: `::1:80` is `::1`.
pub(super) fn parse_before_port(text: &[u8]) -> Option<IpAddr> {
    match without_port(text) {
        Some(address) if !text.starts_with(b"[") => parse(address),
        _ => parse_with_port(text),
    }
}

fn without_port(text: &[u8]) -> Option<&[u8]> {
    let at = memchr::memrchr(b':', text)?;
    let (address, port) = text.split_at_checked(at)?;
    let is_port = (2..=6).contains(&port.len()) && port.iter().skip(1).all(u8::is_ascii_digit);
    is_port.then_some(address)
}

/// Four numbers from 0 to 255, without leading zeros.
#[inline]
fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let (mut octets, mut at) = ([0_u8; 4], 0);
    let (mut number, mut n_digits) = (0_u16, 0);
    for byte in text {
        match byte {
            b'0'..=b'9' => {
                if n_digits > 0 && number == 0 {
                    return None;
                }
                number = number * 10 + u16::from(byte - b'0');
                n_digits += 1;
                if number > 255 {
                    return None;
                }
            }
            b'.' if n_digits > 0 && at < 3 => {
                octets[at] = u8::try_from(number).ok()?;
                (at, number, n_digits) = (at + 1, 0, 0);
            }
            _ => return None,
        }
    }
    octets[3] = u8::try_from(number).ok()?;
    (at == 3 && n_digits > 0).then(|| Ipv4Addr::from(octets))
}

#[cold]
fn ipv6(text: &[u8]) -> Option<IpAddr> {
    // A zone, as in fe80::1%eth0, names an interface of the server.
    let end = memchr::memchr(b'%', text).unwrap_or(text.len());
    let address: Ipv6Addr = str::from_utf8(text.get(..end)?).ok()?.parse().ok()?;
    Some(IpAddr::V6(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_with_ports_brackets_and_zones() {
        let check = |text: &str, expected: Option<&str>| {
            let address = parse_with_port(text.as_bytes()).map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        };
        check("203.0.113.7", Some("203.0.113.7"));
        check("203.0.113.7:65535", Some("203.0.113.7"));
        check("2001:db8::7", Some("2001:db8::7"));
        check("[2001:db8::7]", Some("2001:db8::7"));
        check("[fe80::1%eth0]:80", Some("fe80::1"));
        check("::ffff:203.0.113.7", Some("::ffff:203.0.113.7"));
        for text in
            ["", "-", "localhost", "[", "[]", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4:", "1.2.3.4,5.6.7.8"]
        {
            check(text, None);
        }
        let before_port = |text: &str| parse_before_port(text.as_bytes()).map(|address| address.to_string());
        assert_eq!(before_port("2001:db8::7:2817").as_deref(), Some("2001:db8::7"));
        assert_eq!(before_port("[2001:db8::7]:2817").as_deref(), Some("2001:db8::7"));
        assert_eq!(before_port("203.0.113.7:1").as_deref(), Some("203.0.113.7"));
        assert_eq!(before_port("-"), None);
    }

    proptest! {
        #[test]
        fn an_ipv4_address_is_read_as_the_standard_library_does(text in "[0-9.]{0,16}|([0-9]{1,3}\\.){3}[0-9]{1,3}") {
            prop_assert_eq!(ipv4(text.as_bytes()), text.parse().ok());
        }
    }
}
