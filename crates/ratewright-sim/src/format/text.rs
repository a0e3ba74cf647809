//! Texts of a line: quoted, escaped, or not text at all.
//!
//! ```text
//!   nginx    \x22  \x5C  \xC3\xA9         every byte that is not plain ASCII
//!   Apache   \"  \\  \n  \t  \x16
//! ```
//!
//! A client chooses most of these strings, so they may contain anything. A byte that is not UTF-8, and a control
//! character, becomes `%XX`: different strings stay different, and a NUL, which marks unreadable attributes in the
//! engine, never appears.
//!
//! Functions on the way of a plain text are always inlined: a `Cow` that passes through memory costs more than the
//! check of its bytes.
//!
//! # Laws
//! - A plain text is borrowed.
//! - A text contains no ASCII control character.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The inside of a quoted text, still escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quoted<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) has_escape: bool,
}

impl<'a> Quoted<'a> {
    /// Splits a text after its opening quote: the inside, and the rest after the closing quote.
    #[inline]
    pub(super) fn split(after_quote: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let at = memchr::memchr2(b'"', b'\\', after_quote)?;
        let (bytes, rest) = after_quote.split_at(at);
        match rest {
            [b'"', rest @ ..] => Some((Self { bytes, has_escape: false }, rest)),
            _ => Self::split_escaped(after_quote, at),
        }
    }

    /// The same, from the first backslash on.
    fn split_escaped(after_quote: &'a [u8], backslash: usize) -> Option<(Self, &'a [u8])> {
        let mut at = backslash;
        loop {
            at += memchr::memchr2(b'"', b'\\', after_quote.get(at..)?)?;
            match after_quote.get(at..)? {
                [b'"', rest @ ..] => {
                    let bytes = after_quote.get(..at)?;
                    return Some((Self { bytes, has_escape: true }, rest));
                }
                _ => at += 2,
            }
        }
    }

    /// The text; `None` if it is empty or `-`.
    #[inline(always)]
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self.bytes {
            b"" | b"-" => None,
            bytes if self.has_escape => Some(Cow::Owned(unescaped_text(bytes))),
            bytes => Some(plain(bytes)),
        }
    }
}

#[cold]
fn unescaped_text(bytes: &[u8]) -> String {
    plain(&unescaped(bytes)).into_owned()
}

/// Undoes the escapes of nginx and Apache. An unknown escape stays.
#[cold]
pub(super) fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (byte, after) = match rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) * 16 + hex(*low), after)
            }
            [b'\\', quoted @ (b'"' | b'\\'), after @ ..] => (*quoted, after),
            [b'\\', b'n', after @ ..] => (b'\n', after),
            [b'\\', b't', after @ ..] => (b'\t', after),
            [b'\\', b'r', after @ ..] => (b'\r', after),
            [b'\\', b'b', after @ ..] => (0x08, after),
            [b'\\', b'v', after @ ..] => (0x0b, after),
            [b'\\', b'f', after @ ..] => (0x0c, after),
            _ => (*first, after),
        };
        text.push(byte);
        rest = after;
    }
    text
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Bytes as text: bytes that are not UTF-8 and control characters become `%XX`.
#[inline(always)]
pub(super) fn plain(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) if !has_control(bytes) => Cow::Borrowed(text),
        _ => Cow::Owned(percent_encoded(bytes)),
    }
}

/// The same for text.
pub(super) fn plain_text(text: Cow<'_, str>) -> Cow<'_, str> {
    if has_control(text.as_bytes()) { Cow::Owned(percent_encoded(text.as_bytes())) } else { text }
}

/// True if an ASCII control character is among these bytes.
#[inline]
fn has_control(bytes: &[u8]) -> bool {
    // No early exit: the compiler compares many bytes at once.
    bytes.iter().fold(false, |found, byte| found | (*byte < 0x20) | (*byte == 0x7f))
}

#[cold]
fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_ascii_control() {
                write!(text, "%{:02X}", u32::from(char)).expect("a string takes all that is written");
            } else {
                text.push(char);
            }
        }
        for byte in chunk.invalid() {
            write!(text, "%{byte:02X}").expect("a string takes all that is written");
        }
    }
    text
}
