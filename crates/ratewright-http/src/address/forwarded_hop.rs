//! One hop as proxies write it: an address, with or without brackets and a port.
//!
//! ```text
//!   192.0.2.1    192.0.2.1:4711    2001:db8::1    [2001:db8::1]    [2001:db8::1]:4711
//! ```

use std::net::IpAddr;

/// Longer than any address with its port.
const LENGTH_MAX: usize = 64;

/// The address of a hop. `None` for `unknown`, `_hidden` and anything else.
pub(super) fn parse(entry: &[u8]) -> Option<IpAddr> {
    let entry = entry.trim_ascii();
    if entry.len() > LENGTH_MAX {
        return None;
    }
    let text = str::from_utf8(entry).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            IpAddr::V6(address.parse().ok().filter(|_| is_end(port))?)
        }
        None => text.parse().ok().or_else(|| with_port(text))?,
    };
    Some(address.to_canonical())
}

/// `192.0.2.1:4711`. Without brackets an IPv6 address has no port.
fn with_port(text: &str) -> Option<IpAddr> {
    let (address, _) = text.split_once(':').filter(|(_, port)| is_port(port))?;
    address.parse().ok().map(IpAddr::V4)
}

/// What may follow a closing bracket.
fn is_end(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(is_port)
}

/// A port number, or an obfuscated port of RFC 7239: `_` and a token.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => {
            !hidden.is_empty() && hidden.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        }
        None => text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
