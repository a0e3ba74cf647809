//! What the lines of a head say of the message's end.

use memchr::memchr;

use crate::headers::Framing;
use crate::ows::{is_space, trimmed};

/// What is known of a head so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Fields {
    /// True if it is one of HTTP/1.1.
    is_11: bool,
    length: Option<u64>,
    is_chunked: bool,
    /// The first rule that was broken.
    odd: Option<Framing>,
}

/// How a body is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// It has so many bytes, possibly none.
    Bytes(u64),
    /// It comes in chunks, each of which tells its own size.
    Chunks,
}

/// A field, as far as anything depends on it here.
enum Field<'a> {
    Length(&'a [u8]),
    Coding(&'a [u8]),
    Other,
}

impl Fields {
    /// Takes note of the first line.
    pub(super) fn request(&mut self, line: &[u8]) {
        self.is_11 = line.ends_with(b" HTTP/1.1");
    }

    /// Takes note of a line with a field.
    pub(super) fn field(&mut self, line: &[u8]) {
        let noted = match Field::of(line) {
            Ok(Field::Other) => return,
            Ok(Field::Length(value)) => self.length(value),
            Ok(Field::Coding(value)) => self.coding(value),
            Err(framing) => Err(framing),
        };
        if let Err(framing) = noted {
            self.refuse(framing);
        }
    }

    /// Takes note of a broken rule.
    pub(super) fn refuse(&mut self, framing: Framing) {
        self.odd.get_or_insert(framing);
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Framing> {
        if self.is_chunked {
            return Err(Framing::LengthAndCoding);
        }
        if self.length.is_some() || value.contains(&b',') {
            return Err(Framing::Lengths);
        }
        self.length = Some(digits(value).ok_or(Framing::Length)?);
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Framing> {
        if self.length.is_some() {
            return Err(Framing::LengthAndCoding);
        }
        if !self.is_11 {
            return Err(Framing::CodingOfOtherVersion);
        }
        if self.is_chunked || value != b"chunked" {
            return Err(Framing::Coding);
        }
        self.is_chunked = true;
        Ok(())
    }

    /// The body that follows the head.
    pub(super) fn extent(&self) -> Result<Extent, Framing> {
        match self.odd {
            Some(framing) => Err(framing),
            None if self.is_chunked => Ok(Extent::Chunks),
            None => Ok(Extent::Bytes(self.length.unwrap_or(0))),
        }
    }
}

impl<'a> Field<'a> {
    fn of(line: &'a [u8]) -> Result<Self, Framing> {
        if line.first().copied().is_some_and(is_space) {
            return Err(Framing::Folded);
        }
        let colon = memchr(b':', line).ok_or(Framing::NoColon)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.last().copied().is_none_or(is_space) {
            return Err(Framing::Name);
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

/// True if a line may stand after a body: it is a field, and says nothing of where the message ends.
pub(super) fn is_trailer(line: &[u8]) -> bool {
    matches!(Field::of(line), Ok(Field::Other))
}

/// A number in digits only.
fn digits(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
