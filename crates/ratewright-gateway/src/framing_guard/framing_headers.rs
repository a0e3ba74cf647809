//! The headers that frame a message: `Content-Length` and `Transfer-Encoding`.

use memchr::memchr;

use crate::header_whitespace::{is_space, trimmed};
use crate::headers::FramingError;

/// The framing headers of one head so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FramingHeaders {
    /// True for HTTP/1.1.
    is_11: bool,
    length: Option<u64>,
    is_chunked: bool,
    /// The first error.
    error: Option<FramingError>,
}

/// The length of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyExtent {
    /// A number of bytes, possibly 0.
    Bytes(u64),
    /// Chunks, each with its own size.
    Chunks,
}

/// A header, as far as it affects framing.
enum FramingHeader<'a> {
    Length(&'a [u8]),
    Coding(&'a [u8]),
    Other,
}

impl FramingHeaders {
    /// Reads the request line.
    pub(super) fn request(&mut self, line: &[u8]) {
        self.is_11 = line.ends_with(b" HTTP/1.1");
    }

    /// Reads a header line.
    pub(super) fn header(&mut self, line: &[u8]) {
        let read = match FramingHeader::of(line) {
            Ok(FramingHeader::Other) => return,
            Ok(FramingHeader::Length(value)) => self.length(value),
            Ok(FramingHeader::Coding(value)) => self.coding(value),
            Err(framing) => Err(framing),
        };
        if let Err(framing) = read {
            self.reject(framing);
        }
    }

    /// Records an error; the first one counts.
    pub(super) fn reject(&mut self, framing: FramingError) {
        self.error.get_or_insert(framing);
    }

    fn length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        if self.is_chunked {
            return Err(FramingError::LengthAndCoding);
        }
        if self.length.is_some() || value.contains(&b',') {
            return Err(FramingError::DuplicateLength);
        }
        self.length = Some(digits(value).ok_or(FramingError::InvalidLength)?);
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), FramingError> {
        if self.length.is_some() {
            return Err(FramingError::LengthAndCoding);
        }
        if !self.is_11 {
            return Err(FramingError::CodingVersion);
        }
        if self.is_chunked || value != b"chunked" {
            return Err(FramingError::UnsupportedCoding);
        }
        self.is_chunked = true;
        Ok(())
    }

    /// The body that follows the head.
    pub(super) fn extent(&self) -> Result<BodyExtent, FramingError> {
        match self.error {
            Some(framing) => Err(framing),
            None if self.is_chunked => Ok(BodyExtent::Chunks),
            None => Ok(BodyExtent::Bytes(self.length.unwrap_or(0))),
        }
    }
}

impl<'a> FramingHeader<'a> {
    fn of(line: &'a [u8]) -> Result<Self, FramingError> {
        if line.first().copied().is_some_and(is_space) {
            return Err(FramingError::ObsoleteFold);
        }
        let colon = memchr(b':', line).ok_or(FramingError::NoColon)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.last().copied().is_none_or(is_space) {
            return Err(FramingError::InvalidName);
        }
        Ok(if name.eq_ignore_ascii_case(b"content-length") {
            Self::Length(trimmed(value))
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            Self::Coding(trimmed(value))
        } else {
            Self::Other
        })
    }
}

/// True if a line is a header that may be a trailer: it does not affect framing.
pub(super) fn is_trailer(line: &[u8]) -> bool {
    matches!(FramingHeader::of(line), Ok(FramingHeader::Other))
}

/// Parses a number of digits only.
fn digits(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
