//! Parses PROXY protocol headers, as bytes come.
//!
//! ```text
//!   version 1   PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n                       at most 107 bytes
//!
//!   version 2   \r\n\r\n\0\r\nQUIT\n │ 0x21 PROXY │ 0x11 TCP/IPv4 │ length │ addresses, ports │ TLV TLV …
//!               12 bytes             │ 0x20 LOCAL │ 0x21 TCP/IPv6 │   2    │ 12 or 36         │
//!                                      1            1                     └ at most 4,096 ────────────┘
//! ```
//!
//! The format is defined in `proxy-protocol.txt` of HAProxy. Where it gives receivers a choice, this parser rejects: version 2 is
//! accepted for TCP over IPv4 and IPv6, and for `LOCAL`. TLVs are skipped; they must fill the header exactly, and a CRC32C must match.
//!
//! # Laws
//! - `len` never exceeds the given bytes, and bytes after the header change nothing.
//! - Every proper prefix of a valid header is `Incomplete`.
//! - An announced address is never IPv4 in IPv6's form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// What the first bytes of a connection are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyHeader {
    /// The beginning of a header.
    Incomplete,
    /// A whole header.
    Complete {
        /// The client that it announces. None: the load balancer speaks for itself (`UNKNOWN`, `LOCAL`), as in health checks.
        client: Option<SocketAddr>,
        /// How many bytes it has.
        len: usize,
    },
    /// Not a header, or not one that is accepted.
    Malformed(Malformed),
}

/// What is wrong with a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The connection begins with something else.
    Missing,
    /// It violates the format.
    Syntax,
    /// It is longer than [`TEXT_MAX`] or [`BINARY_MAX`].
    TooLong,
    /// It announces neither TCP over IPv4 nor TCP over IPv6.
    Unsupported,
    /// Its CRC32C does not match.
    Checksum,
}

/// The longest header of version 1, in bytes.
pub const TEXT_MAX: usize = 107;

/// The longest header of version 2, in bytes. The format allows 65,551, but load balancers send a few hundred.
pub const BINARY_MAX: usize = FIXED + 4_096;

/// What version 1 begins with.
const TEXT: &[u8] = b"PROXY ";

/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2 before the addresses.
const FIXED: usize = 16;

/// The type of the TLV with the checksum of the header.
const CRC32C: u8 = 0x03;

impl ProxyHeader {
    /// Parses the first bytes of a connection. More bytes may follow the header.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let parsed = if agrees(bytes, TEXT) {
            parse_text(bytes)
        } else if agrees(bytes, SIGNATURE) {
            parse_binary(bytes)
        } else {
            Err(Malformed::Missing)
        };
        match parsed {
            Ok(None) => Self::Incomplete,
            Ok(Some((client, len))) => Self::Complete { client, len },
            Err(malformed) => Self::Malformed(malformed),
        }
    }
}

/// A whole header's client and length. None: it is incomplete.
type Parsed = Result<Option<(Option<SocketAddr>, usize)>, Malformed>;

/// True if these bytes begin like `mark`, as far as there are any.
fn agrees(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.iter().zip(mark).all(|(byte, expected)| byte == expected)
}

fn parse_text(bytes: &[u8]) -> Parsed {
    let line = bytes.get(..TEXT_MAX).unwrap_or(bytes);
    let unfinished = if line.len() < TEXT_MAX { Ok(None) } else { Err(Malformed::TooLong) };
    let Some(end) = line.iter().position(|byte| !matches!(byte, b' '..=b'~')) else { return unfinished };
    match line.get(end..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {}
        [b'\r'] => return unfinished,
        _ => return Err(Malformed::Syntax),
    }
    let text = line.get(..end).and_then(|text| str::from_utf8(text).ok()).ok_or(Malformed::Syntax)?;
    let mut fields = text.split(' ').skip(1);
    let client = match fields.next() {
        Some("UNKNOWN") => None, // anything may follow it
        Some("TCP4") => Some(text_client::<Ipv4Addr>(fields)?),
        Some("TCP6") => Some(text_client::<Ipv6Addr>(fields)?),
        _ => return Err(Malformed::Syntax),
    };
    Ok(Some((client, end + 2)))
}

/// The client in the fields of version 1: two addresses, two ports.
fn text_client<'a, A>(mut fields: impl Iterator<Item = &'a str>) -> Result<SocketAddr, Malformed>
where
    A: FromStr + Into<IpAddr>,
{
    let mut next = || fields.next().ok_or(Malformed::Syntax);
    let [source, destination, port, destination_port] = [next()?, next()?, next()?, next()?];
    let address = |text: &str| text.parse::<A>().map_err(|_| Malformed::Syntax);
    let (source, _) = (address(source)?, address(destination)?);
    let (port, _) = (text_port(port)?, text_port(destination_port)?);
    if fields.next().is_some() {
        return Err(Malformed::Syntax);
    }
    Ok(SocketAddr::new(source.into().to_canonical(), port))
}

/// A port in decimal, without leading zeros.
fn text_port(text: &str) -> Result<u16, Malformed> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().map_err(|_| Malformed::Syntax) } else { Err(Malformed::Syntax) }
}

fn parse_binary(bytes: &[u8]) -> Parsed {
    let Some(&[.., command, family, high, low]) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Syntax),
    };
    if !is_local && !matches!(family, 0x11 | 0x21) {
        return Err(Malformed::Unsupported);
    }
    if len > BINARY_MAX {
        return Err(Malformed::TooLong);
    }
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    if is_local {
        return Ok(Some((None, len))); // the format wants the rest discarded, whatever it is
    }
    let (address, port, addresses_end) = match family {
        0x11 => {
            let addresses: [u8; 12] =
                header.get(FIXED..).and_then(<[u8]>::first_chunk).copied().ok_or(Malformed::Syntax)?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = addresses;
            (IpAddr::from([a, b, c, d]), [high, low], FIXED + addresses.len())
        }
        _ => {
            let addresses: &[u8; 36] =
                header.get(FIXED..).and_then(<[u8]>::first_chunk).ok_or(Malformed::Syntax)?;
            let source: &[u8; 16] = addresses.first_chunk().ok_or(Malformed::Syntax)?;
            (IpAddr::from(*source), [addresses[32], addresses[33]], FIXED + addresses.len())
        }
    };
    check_tlvs(header, addresses_end)?;
    let client = SocketAddr::new(address.to_canonical(), u16::from_be_bytes(port));
    Ok(Some((Some(client), len)))
}

/// Checks that TLVs fill the header from `at` to its end, and the checksum if one of them is.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), Malformed> {
    let mut has_checksum = false;
    while let Some(rest) = header.get(at..).filter(|rest| !rest.is_empty()) {
        let &[kind, high, low] = rest.first_chunk().ok_or(Malformed::Syntax)?;
        let (value_at, len) = (at + 3, usize::from(u16::from_be_bytes([high, low])));
        let value = header.get(value_at..value_at + len).ok_or(Malformed::Syntax)?;
        if kind == CRC32C {
            let expected: [u8; 4] = value.try_into().map_err(|_| Malformed::Syntax)?;
            if has_checksum {
                return Err(Malformed::Syntax); // each would have to be in the other
            }
            has_checksum = true;
            let own = value_at..value_at + len;
            let zeroed = header.iter().enumerate().map(|(n, byte)| if own.contains(&n) { 0 } else { *byte });
            if crc32c(zeroed) != u32::from_be_bytes(expected) {
                return Err(Malformed::Checksum);
            }
        }
        at = value_at + len;
    }
    Ok(())
}

/// The checksum of RFC 4960, appendix B. Without a table: a header is short, and comes once for each connection.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
    !bytes.fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests;
