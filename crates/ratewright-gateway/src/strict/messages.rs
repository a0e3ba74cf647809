//! Where messages begin and end in a stream of bytes that comes in pieces.
//!
//! ```text
//!            ┌───────────────────── the next message ──────────────────────┐
//!            ▼                    ┌── no body ──►───┐                       │
//!   lines: Request ─► Field* ─────┼── bytes ────────┴───────────────────────┤
//!                        │        └► Size ─► bytes ─► SizedEnd ─► Size …    │
//!                        │             └─ 0 ─► Trailer* ────────────────────┘
//!                        └─ a rule is broken: the head is passed on, and then nothing
//! ```
//!
//! All but bodies is lines. One that comes whole, as most do, is judged where it lies; of one that comes in pieces, the
//! beginning is kept until the end is there.

use memchr::{memchr, memchr3};
use smallvec::SmallVec;

use super::fields::{Extent, Fields, is_trailer};
use crate::headers::Framing;

/// The longest line with a chunk's size: extensions are rare, and those that are known are signatures of a hundred bytes.
const SIZE_LINE_MAX: usize = 1024;

/// The most digits of a chunk's size: as many as 64 bits have.
const SIZE_DIGITS_MAX: usize = 16;

/// How a client begins that speaks HTTP/2. A request that begins like this is none in HTTP/1.1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Follows messages.
#[derive(Debug)]
pub(crate) struct Messages {
    at: At,
    /// Bytes that may still come before the present head, line of a chunk, or run of trailers is too long.
    room: usize,
    /// The line whose end has not come.
    begun: SmallVec<[u8; 128]>,
    fields: Fields,
    n_heads: u64,
    header_max: usize,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum At {
    Line(Kind),
    /// Bytes of a body, and the line after them.
    Bytes {
        left: u64,
        then: Kind,
    },
    /// Anything, for ever.
    Tunnel,
    /// Nothing.
    End(End),
}

/// What a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The first of a head. Empty ones may precede it.
    Request,
    /// A field of a head, or its end.
    Field,
    /// The size of a chunk.
    Size,
    /// The empty line after a chunk.
    SizedEnd,
    /// A field after the last chunk, or the end.
    Trailer,
}

/// Why there is nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A head broke a rule.
    Refused(Framing),
    /// A head did not end in time. hyper has as much of it as it will take, and says so.
    TooLong,
    /// A body broke a rule.
    Broken,
}

/// A line without its end.
struct Line<'a> {
    text: &'a [u8],
    /// True if it ends as it should, and has nothing in it that others take for an end.
    is_clean: bool,
}

impl Messages {
    pub(crate) fn new(header_max: usize) -> Self {
        Self {
            at: At::Line(Kind::Request),
            room: header_max,
            begun: SmallVec::new(),
            fields: Fields::default(),
            n_heads: 0,
            header_max,
        }
    }

    /// Heads that have ended.
    pub(crate) fn n_heads(&self) -> u64 {
        self.n_heads
    }

    /// Bytes of a line whose end has not come.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn n_kept(&self) -> usize {
        self.begun.len()
    }

    /// Why there is nothing more, if so.
    pub(crate) fn end(&self) -> Option<End> {
        match self.at {
            At::End(end) => Some(end),
            At::Line(_) | At::Bytes { .. } | At::Tunnel => None,
        }
    }

    /// True if whatever comes is passed on: the client speaks HTTP/2, or something else than HTTP.
    pub(super) fn is_let_through(&self) -> bool {
        matches!(self.at, At::Tunnel)
    }

    /// Passes on whatever comes. If something has been left out already, what follows it would make no sense.
    pub(super) fn let_through(&mut self) {
        self.at = if self.end().is_some() { At::End(End::Broken) } else { At::Tunnel };
    }

    /// Looks at what came, and tells how much of it is passed on: all of it, unless [`Messages::end`] says why not.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut n_passed = 0;
        while n_passed < bytes.len() {
            let rest = &bytes[n_passed..];
            n_passed += match self.at {
                At::Line(kind) => self.line(kind, rest),
                At::Bytes { left, then } => self.bytes(left, then, rest.len()),
                At::Tunnel => rest.len(),
                At::End(_) => break,
            };
        }
        n_passed
    }

    fn bytes(&mut self, left: u64, then: Kind, n_there: usize) -> usize {
        match usize::try_from(left) {
            Ok(left) if left <= n_there => {
                self.next(then);
                left
            }
            _ => {
                self.at = At::Bytes { left: left - n_there as u64, then };
                n_there
            }
        }
    }

    /// Goes on to a line, of another section than the one before.
    fn next(&mut self, kind: Kind) {
        self.at = At::Line(kind);
        self.room = match kind {
            Kind::Request | Kind::Field | Kind::Trailer => self.header_max,
            Kind::Size => SIZE_LINE_MAX,
            Kind::SizedEnd => 2,
        };
    }

    fn line(&mut self, kind: Kind, bytes: &[u8]) -> usize {
        let within = &bytes[..bytes.len().min(self.room)];
        if !self.begun.is_empty() {
            return self.line_in_pieces(kind, within);
        }
        let Some((line, len)) = Line::first(within) else {
            return self.begin(kind, within);
        };
        self.room -= len;
        self.judge(kind, &line);
        self.passed_of(len)
    }

    #[cold]
    fn line_in_pieces(&mut self, kind: Kind, within: &[u8]) -> usize {
        let Some(end) = memchr(b'\n', within) else {
            return self.begin(kind, within);
        };
        let mut whole = std::mem::take(&mut self.begun);
        whole.extend_from_slice(&within[..=end]);
        self.room -= end + 1;
        if let Some((line, _)) = Line::first(&whole) {
            self.judge(kind, &line);
        }
        self.passed_of(end + 1)
    }

    /// Keeps the beginning of a line.
    #[cold]
    fn begin(&mut self, kind: Kind, piece: &[u8]) -> usize {
        self.begun.extend_from_slice(piece);
        self.room -= piece.len();
        if self.room == 0 {
            let is_head = matches!(kind, Kind::Request | Kind::Field);
            self.at = At::End(if is_head { End::TooLong } else { End::Broken });
        }
        self.passed_of(piece.len())
    }

    /// How much of a line is passed on: of one that breaks a body, nothing.
    fn passed_of(&self, len: usize) -> usize {
        if matches!(self.at, At::End(End::Broken)) { 0 } else { len }
    }

    /// Goes on after a line.
    fn judge(&mut self, kind: Kind, line: &Line<'_>) {
        match kind {
            Kind::Field | Kind::Request if !line.is_clean => {
                self.fields.refuse(Framing::LineEnd);
                match (kind, line.text) {
                    (Kind::Field, []) => self.end_head(),
                    (_, []) => {}
                    _ => self.at = At::Line(Kind::Field),
                }
            }
            Kind::Field if line.text.is_empty() => self.end_head(),
            Kind::Field => self.fields.field(line.text),
            Kind::Request if line.text.is_empty() => {}
            Kind::Request if line.text == PREFACE && self.n_heads == 0 => self.at = At::Tunnel,
            Kind::Request => {
                self.fields.request(line.text);
                self.at = At::Line(Kind::Field);
            }
            Kind::Size | Kind::SizedEnd | Kind::Trailer if !line.is_clean => self.at = At::End(End::Broken),
            Kind::Size => match size(line.text) {
                None => self.at = At::End(End::Broken),
                Some(0) => self.next(Kind::Trailer),
                Some(left) => self.at = At::Bytes { left, then: Kind::SizedEnd },
            },
            Kind::SizedEnd if line.text.is_empty() => self.next(Kind::Size),
            Kind::Trailer if line.text.is_empty() => self.next(Kind::Request),
            Kind::Trailer if is_trailer(line.text) => {}
            Kind::SizedEnd | Kind::Trailer => self.at = At::End(End::Broken),
        }
    }

    /// Goes on after a head.
    fn end_head(&mut self) {
        self.n_heads += 1;
        match std::mem::take(&mut self.fields).extent() {
            Err(framing) => self.at = At::End(End::Refused(framing)),
            Ok(Extent::Chunks) => self.next(Kind::Size),
            Ok(Extent::Bytes(0)) => self.next(Kind::Request),
            Ok(Extent::Bytes(left)) => self.at = At::Bytes { left, then: Kind::Request },
        }
    }
}

/// Parser state, for the laws in `fuzzing.rs`.
#[cfg(any(test, feature = "fuzzing"))]
impl Messages {
    /// True inside a body.
    pub(crate) fn is_body(&self) -> bool {
        matches!(self.at, At::Bytes { .. })
    }

    /// True between two messages.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!(self.at, At::Line(Kind::Request)) && self.begun.is_empty() && self.room == self.header_max
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self.at, At::Tunnel)
    }

    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.at, At::End(End::Broken))
    }
}

impl<'a> Line<'a> {
    /// The first line of some bytes, and how long it is with its end.
    fn first(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let odd = memchr3(b'\r', b'\n', b'\0', bytes)?;
        if bytes[odd..].starts_with(b"\r\n") {
            return Some((Self { text: &bytes[..odd], is_clean: true }, odd + 2));
        }
        let end = odd + memchr(b'\n', &bytes[odd..])?;
        let text = &bytes[..end];
        Some((Self { text: text.strip_suffix(b"\r").unwrap_or(text), is_clean: false }, end + 1))
    }
}

/// The size in front of a chunk. What extensions say is nobody's business here.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let is_size = !digits.is_empty() && digits.len() <= SIZE_DIGITS_MAX;
    let digits = std::str::from_utf8(digits).ok()?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_size && is_hex)
}
