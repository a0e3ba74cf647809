//! Parses PROXY protocol headers, complete or partly received.
//!
//! ```text
//!   version 1   PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n                       at most 107 bytes
//!
//!   version 2   \r\n\r\n\0\r\nQUIT\n │ 0x21 PROXY │ 0x11 TCP/IPv4 │ length │ addresses, ports │ TLV TLV …
//!               12 bytes             │ 0x20 LOCAL │ 0x21 TCP/IPv6 │   2    │ 12 or 36         │
//!                                      1            1                     └ at most 4,096 ────────────┘
//! ```
//!
//! The format is defined in `proxy-protocol.txt` of HAProxy. Where it gives receivers a choice, this parser rejects:
//! version 2 is accepted for TCP over IPv4 and IPv6, and for `LOCAL`. TLVs are skipped; they must fill the header
//! exactly, and a CRC32C must match.
//!
//! # Laws
//! - `len` never exceeds the given bytes, and bytes after the header change nothing.
//! - Every proper prefix of a valid header is `Incomplete`.
//! - An announced address is never an IPv4-mapped IPv6 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyHeader {
    /// The beginning of a header.
    Incomplete,
    /// A whole header.
    Complete {
        /// The announced client. None for the load balancer's own connections (`UNKNOWN`, `LOCAL`), such as health
        /// checks.
        client: Option<SocketAddr>,
        /// Its length in bytes.
        len: usize,
    },
    /// Not a header, or one that is rejected.
    Invalid(ProxyHeaderError),
}

/// Why a header is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyHeaderError {
    /// The connection begins with something else.
    Missing,
    /// The header violates the format.
    Syntax,
    /// The header is longer than [`TEXT_MAX`] or [`BINARY_MAX`].
    TooLong,
    /// The header announces neither TCP over IPv4 nor TCP over IPv6.
    Unsupported,
    /// The header's CRC32C does not match.
    Checksum,
}

/// The longest header of version 1, in bytes.
pub const TEXT_MAX: usize = 107;

/// The longest header of version 2, in bytes. The format allows 65,551, but load balancers send a few hundred.
pub const BINARY_MAX: usize = FIXED + 4_096;

/// The first bytes of version 1.
const TEXT_PREFIX: &[u8] = b"PROXY ";

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The length of version 2 before the addresses, in bytes.
const FIXED: usize = 16;

/// The type of the TLV with the checksum of the header.
const CRC32C: u8 = 0x03;

impl ProxyHeader {
    /// Parses the first bytes of a connection. Other bytes may follow the header.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let parsed = if begins_like(bytes, TEXT_PREFIX) {
            parse_text(bytes)
        } else if begins_like(bytes, SIGNATURE) {
            parse_binary(bytes)
        } else {
            Err(ProxyHeaderError::Missing)
        };
        match parsed {
            Ok(None) => Self::Incomplete,
            Ok(Some((client, len))) => Self::Complete { client, len },
            Err(error) => Self::Invalid(error),
        }
    }
}

/// The client and the length of a whole header. None: it is incomplete.
type Parsed = Result<Option<(Option<SocketAddr>, usize)>, ProxyHeaderError>;

/// True if `bytes` begin with `prefix`, or are the beginning of it.
fn begins_like(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.iter().zip(prefix).all(|(byte, expected)| byte == expected)
}

fn parse_text(bytes: &[u8]) -> Parsed {
    let line = bytes.get(..TEXT_MAX).unwrap_or(bytes);
    let incomplete = if line.len() < TEXT_MAX { Ok(None) } else { Err(ProxyHeaderError::TooLong) };
    let Some(end) = line.iter().position(|byte| !matches!(byte, b' '..=b'~')) else { return incomplete };
    match line.get(end..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {}
        [b'\r'] => return incomplete,
        _ => return Err(ProxyHeaderError::Syntax),
    }
    let text = line.get(..end).and_then(|text| str::from_utf8(text).ok()).ok_or(ProxyHeaderError::Syntax)?;
    let mut fields = text.split(' ').skip(1);
    let client = match fields.next() {
        Some("UNKNOWN") => None, // anything may follow it
        Some("TCP4") => Some(text_client::<Ipv4Addr>(fields)?),
        Some("TCP6") => Some(text_client::<Ipv6Addr>(fields)?),
        _ => return Err(ProxyHeaderError::Syntax),
    };
    Ok(Some((client, end + 2)))
}

/// The client in the fields of version 1: two addresses, two ports.
fn text_client<'a, A>(mut fields: impl Iterator<Item = &'a str>) -> Result<SocketAddr, ProxyHeaderError>
where
    A: FromStr + Into<IpAddr>,
{
    let mut next = || fields.next().ok_or(ProxyHeaderError::Syntax);
    let [source, destination, port, destination_port] = [next()?, next()?, next()?, next()?];
    let address = |text: &str| text.parse::<A>().map_err(|_| ProxyHeaderError::Syntax);
    let (source, _) = (address(source)?, address(destination)?);
    let (port, _) = (text_port(port)?, text_port(destination_port)?);
    if fields.next().is_some() {
        return Err(ProxyHeaderError::Syntax);
    }
    Ok(SocketAddr::new(source.into().to_canonical(), port))
}

/// A port in decimal, without leading zeros.
fn text_port(text: &str) -> Result<u16, ProxyHeaderError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().map_err(|_| ProxyHeaderError::Syntax) } else { Err(ProxyHeaderError::Syntax) }
}

fn parse_binary(bytes: &[u8]) -> Parsed {
    let Some(&[.., command, family, high, low]) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyHeaderError::Syntax),
    };
    if !is_local && !matches!(family, 0x11 | 0x21) {
        return Err(ProxyHeaderError::Unsupported);
    }
    if len > BINARY_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    if is_local {
        return Ok(Some((None, len))); // the format says to discard the rest
    }
    let (address, port, addresses_end) = match family {
        0x11 => {
            let addresses: [u8; 12] =
                header.get(FIXED..).and_then(<[u8]>::first_chunk).copied().ok_or(ProxyHeaderError::Syntax)?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = addresses;
            (IpAddr::from([a, b, c, d]), [high, low], FIXED + addresses.len())
        }
        _ => {
            let addresses: &[u8; 36] =
                header.get(FIXED..).and_then(<[u8]>::first_chunk).ok_or(ProxyHeaderError::Syntax)?;
            let source: &[u8; 16] = addresses.first_chunk().ok_or(ProxyHeaderError::Syntax)?;
            (IpAddr::from(*source), [addresses[32], addresses[33]], FIXED + addresses.len())
        }
    };
    check_tlvs(header, addresses_end)?;
    let client = SocketAddr::new(address.to_canonical(), u16::from_be_bytes(port));
    Ok(Some((Some(client), len)))
}

/// Checks that TLVs fill the header from `at` to its end, and that the checksum matches if there is one.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), ProxyHeaderError> {
    let mut has_checksum = false;
    while let Some(rest) = header.get(at..).filter(|rest| !rest.is_empty()) {
        let &[kind, high, low] = rest.first_chunk().ok_or(ProxyHeaderError::Syntax)?;
        let (value_at, len) = (at + 3, usize::from(u16::from_be_bytes([high, low])));
        let value = header.get(value_at..value_at + len).ok_or(ProxyHeaderError::Syntax)?;
        if kind == CRC32C {
            let expected: [u8; 4] = value.try_into().map_err(|_| ProxyHeaderError::Syntax)?;
            if has_checksum {
                return Err(ProxyHeaderError::Syntax); // each would have to cover the other
            }
            has_checksum = true;
            let own = value_at..value_at + len;
            let zeroed = header.iter().enumerate().map(|(n, byte)| if own.contains(&n) { 0 } else { *byte });
            if crc32c(zeroed) != u32::from_be_bytes(expected) {
                return Err(ProxyHeaderError::Checksum);
            }
        }
        at = value_at + len;
    }
    Ok(())
}

/// The checksum of RFC 4960, appendix B. Without a table: a header is short, and there is one for each connection.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    !bytes.fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests;
