//! Finds message boundaries in a stream that arrives in pieces.
//!
//! ```text
//!            ┌───────────────────── the next message ──────────────────────────┐
//!            ▼                     ┌── no body ──►───┐                          │
//!   lines: Request ─► Header* ─────┼── bytes ────────┴──────────────────────────┤
//!                        │         └► ChunkSize ─► bytes ─► ChunkEnd ─► …       │
//!                        │             └─ 0 ─► Trailer* ────────────────────────┘
//!                        └─ invalid: the head passes, then nothing
//! ```
//!
//! Everything but bodies is lines. A complete line is checked in place; the start of an incomplete one is kept until
//! its end arrives.

use memchr::{memchr, memchr3};
use smallvec::SmallVec;

use super::framing_headers::{BodyExtent, FramingHeaders, is_trailer};
use crate::headers::FramingError;

/// The longest chunk-size line, in bytes. Extensions are rare; known ones are signatures of a hundred bytes.
const SIZE_LINE_MAX: usize = 1024;

/// The most digits of a chunk size: 64 bits.
const SIZE_DIGITS_MAX: usize = 16;

/// The start of the HTTP/2 preface. It is not a valid HTTP/1.1 request.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Follows messages.
#[derive(Debug)]
pub(crate) struct MessageScanner {
    position: ScanPosition,
    /// Bytes until the current head, chunk line or trailer section is too long.
    remaining: usize,
    /// The start of an incomplete line.
    partial_line: SmallVec<[u8; 128]>,
    headers: FramingHeaders,
    n_heads: u64,
    header_max: usize,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum ScanPosition {
    Line(LineKind),
    /// Bytes of a body, and the line after them.
    Bytes {
        left: u64,
        then: LineKind,
    },
    /// Anything: HTTP/2 or a tunnel.
    Tunnel,
    /// Nothing more passes.
    End(ScanEnd),
}

/// The kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineKind {
    /// A request line. Empty lines may precede it.
    Request,
    /// A header, or the end of the head.
    Header,
    /// A chunk size.
    ChunkSize,
    /// The empty line after a chunk.
    ChunkEnd,
    /// A trailer, or the end of the message.
    Trailer,
}

/// Why nothing more passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanEnd {
    /// A head has invalid framing.
    Rejected(FramingError),
    /// A head is longer than `header_max`. hyper has read that much and responds with 431.
    TooLong,
    /// A body has invalid framing.
    InvalidBody,
}

/// A line without its end.
struct Line<'a> {
    text: &'a [u8],
    /// True if it ends with CR LF and contains no CR or NUL.
    is_clean: bool,
}

impl MessageScanner {
    pub(crate) fn new(header_max: usize) -> Self {
        Self {
            position: ScanPosition::Line(LineKind::Request),
            remaining: header_max,
            partial_line: SmallVec::new(),
            headers: FramingHeaders::default(),
            n_heads: 0,
            header_max,
        }
    }

    /// The number of complete heads.
    pub(crate) fn n_heads(&self) -> u64 {
        self.n_heads
    }

    /// The length of the incomplete line.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn n_kept(&self) -> usize {
        self.partial_line.len()
    }

    /// Why nothing more passes.
    pub(crate) fn end(&self) -> Option<ScanEnd> {
        match self.position {
            ScanPosition::End(end) => Some(end),
            ScanPosition::Line(_) | ScanPosition::Bytes { .. } | ScanPosition::Tunnel => None,
        }
    }

    /// True if everything passes: HTTP/2 or a tunnel.
    pub(super) fn is_passing_through(&self) -> bool {
        matches!(self.position, ScanPosition::Tunnel)
    }

    /// Lets everything pass. Fails if bytes have been dropped already.
    pub(super) fn pass_through(&mut self) {
        self.position =
            if self.end().is_some() { ScanPosition::End(ScanEnd::InvalidBody) } else { ScanPosition::Tunnel };
    }

    /// Inspects bytes and returns how many pass: all of them, unless [`MessageScanner::end`] gives a reason.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut n_passed = 0;
        while n_passed < bytes.len() {
            let rest = &bytes[n_passed..];
            n_passed += match self.position {
                ScanPosition::Line(kind) => self.line(kind, rest),
                ScanPosition::Bytes { left, then } => self.bytes(left, then, rest.len()),
                ScanPosition::Tunnel => rest.len(),
                ScanPosition::End(_) => break,
            };
        }
        n_passed
    }

    fn bytes(&mut self, left: u64, then: LineKind, n_there: usize) -> usize {
        match usize::try_from(left) {
            Ok(left) if left <= n_there => {
                self.next(then);
                left
            }
            _ => {
                self.position = ScanPosition::Bytes { left: left - n_there as u64, then };
                n_there
            }
        }
    }

    /// Starts a new section with this line.
    fn next(&mut self, kind: LineKind) {
        self.position = ScanPosition::Line(kind);
        self.remaining = match kind {
            LineKind::Request | LineKind::Header | LineKind::Trailer => self.header_max,
            LineKind::ChunkSize => SIZE_LINE_MAX,
            LineKind::ChunkEnd => 2,
        };
    }

    fn line(&mut self, kind: LineKind, bytes: &[u8]) -> usize {
        let within = &bytes[..bytes.len().min(self.remaining)];
        if !self.partial_line.is_empty() {
            return self.line_in_pieces(kind, within);
        }
        let Some((line, len)) = Line::first(within) else {
            return self.keep_partial(kind, within);
        };
        self.remaining -= len;
        self.accept_line(kind, &line);
        self.forwardable(len)
    }

    #[cold]
    fn line_in_pieces(&mut self, kind: LineKind, within: &[u8]) -> usize {
        let Some(end) = memchr(b'\n', within) else {
            return self.keep_partial(kind, within);
        };
        let mut whole = std::mem::take(&mut self.partial_line);
        whole.extend_from_slice(&within[..=end]);
        self.remaining -= end + 1;
        if let Some((line, _)) = Line::first(&whole) {
            self.accept_line(kind, &line);
        }
        self.forwardable(end + 1)
    }

    /// Keeps the start of a line.
    #[cold]
    fn keep_partial(&mut self, kind: LineKind, piece: &[u8]) -> usize {
        self.partial_line.extend_from_slice(piece);
        self.remaining -= piece.len();
        if self.remaining == 0 {
            let is_head = matches!(kind, LineKind::Request | LineKind::Header);
            self.position = ScanPosition::End(if is_head { ScanEnd::TooLong } else { ScanEnd::InvalidBody });
        }
        self.forwardable(piece.len())
    }

    /// How many bytes of a line pass: none of a line that makes a body invalid.
    fn forwardable(&self, len: usize) -> usize {
        if matches!(self.position, ScanPosition::End(ScanEnd::InvalidBody)) { 0 } else { len }
    }

    /// Moves on after a line.
    fn accept_line(&mut self, kind: LineKind, line: &Line<'_>) {
        match kind {
            LineKind::Header | LineKind::Request if !line.is_clean => {
                self.headers.reject(FramingError::InvalidLineEnd);
                match (kind, line.text) {
                    (LineKind::Header, []) => self.end_head(),
                    (_, []) => {}
                    _ => self.position = ScanPosition::Line(LineKind::Header),
                }
            }
            LineKind::Header if line.text.is_empty() => self.end_head(),
            LineKind::Header => self.headers.header(line.text),
            LineKind::Request if line.text.is_empty() => {}
            LineKind::Request if line.text == PREFACE && self.n_heads == 0 => {
                self.position = ScanPosition::Tunnel
            }
            LineKind::Request => {
                self.headers.request(line.text);
                self.position = ScanPosition::Line(LineKind::Header);
            }
            LineKind::ChunkSize | LineKind::ChunkEnd | LineKind::Trailer if !line.is_clean => {
                self.position = ScanPosition::End(ScanEnd::InvalidBody)
            }
            LineKind::ChunkSize => match size(line.text) {
                None => self.position = ScanPosition::End(ScanEnd::InvalidBody),
                Some(0) => self.next(LineKind::Trailer),
                Some(left) => self.position = ScanPosition::Bytes { left, then: LineKind::ChunkEnd },
            },
            LineKind::ChunkEnd if line.text.is_empty() => self.next(LineKind::ChunkSize),
            LineKind::Trailer if line.text.is_empty() => self.next(LineKind::Request),
            LineKind::Trailer if is_trailer(line.text) => {}
            LineKind::ChunkEnd | LineKind::Trailer => self.position = ScanPosition::End(ScanEnd::InvalidBody),
        }
    }

    /// Moves on after a head.
    fn end_head(&mut self) {
        self.n_heads += 1;
        match std::mem::take(&mut self.headers).extent() {
            Err(framing) => self.position = ScanPosition::End(ScanEnd::Rejected(framing)),
            Ok(BodyExtent::Chunks) => self.next(LineKind::ChunkSize),
            Ok(BodyExtent::Bytes(0)) => self.next(LineKind::Request),
            Ok(BodyExtent::Bytes(left)) => {
                self.position = ScanPosition::Bytes { left, then: LineKind::Request }
            }
        }
    }
}

/// Parser state, for the laws in `fuzzing.rs`.
#[cfg(any(test, feature = "fuzzing"))]
impl MessageScanner {
    /// True inside a body.
    pub(crate) fn is_body(&self) -> bool {
        matches!(self.position, ScanPosition::Bytes { .. })
    }

    /// True between two messages.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!(self.position, ScanPosition::Line(LineKind::Request))
            && self.partial_line.is_empty()
            && self.remaining == self.header_max
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self.position, ScanPosition::Tunnel)
    }

    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.position, ScanPosition::End(ScanEnd::InvalidBody))
    }
}

impl<'a> Line<'a> {
    /// The first line, and its length with its end.
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

/// Parses a chunk size. Extensions are ignored.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let is_size = !digits.is_empty() && digits.len() <= SIZE_DIGITS_MAX;
    let digits = std::str::from_utf8(digits).ok()?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_size && is_hex)
}
