//! Decodes response bodies.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::header_whitespace::{trimmed, trimmed_end};

/// The longest chunk-size or trailer line, in bytes.
const LINE_MAX: usize = 8 * 1024;

/// The most trailers.
const TRAILERS_MAX: usize = 64;

/// The longest trailer section, in bytes.
const TRAILERS_LEN_MAX: usize = 8 * 1024;

/// How the rest of a body is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decoder {
    /// The body has ended.
    Done,
    /// Before the head is known: the request method allows no response body.
    NoBody,
    /// This many bytes.
    Length(u64),
    /// Until the connection closes.
    Close,
    /// Chunks.
    Chunked(Chunk),
}

/// The position within the chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chunk {
    /// Before a chunk size.
    Size,
    /// This many bytes of the chunk remain.
    Data(u64),
    /// Before the CR LF after a chunk.
    End,
    /// After the last chunk.
    Trailers,
}

/// One step of decoding.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// Data.
    Data(Bytes),
    /// The trailers, which end the body.
    Trailers(HeaderMap),
    /// The end of the body.
    End,
    /// More input is needed.
    More,
}

impl Decoder {
    /// The framing that a request method implies.
    pub(crate) fn of_request(method: &Method) -> Self {
        if method == Method::HEAD { Self::NoBody } else { Self::Done }
    }

    pub(crate) fn chunked() -> Self {
        Self::Chunked(Chunk::Size)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The remaining bytes, if known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self {
            Self::Done | Self::NoBody => Some(0),
            Self::Length(remaining) => Some(*remaining),
            Self::Close | Self::Chunked(_) => None,
        }
    }

    /// True if the body ends when the connection closes.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::Close)
    }

    /// Takes the next data or the end from the buffer.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, &'static str> {
        match self {
            Self::Done | Self::NoBody => Ok(Decoded::End),
            _ if buffer.is_empty() => Ok(Decoded::More),
            Self::Length(remaining) => {
                let data = take(buffer, remaining);
                if *remaining == 0 {
                    *self = Self::Done;
                }
                Ok(Decoded::Data(data))
            }
            Self::Close => Ok(Decoded::Data(buffer.split().freeze())),
            Self::Chunked(chunk) => {
                let decoded = chunk.decode(buffer)?;
                if matches!(decoded, Decoded::End | Decoded::Trailers(_)) {
                    *self = Self::Done;
                }
                Ok(decoded)
            }
        }
    }
}

impl Chunk {
    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, &'static str> {
        loop {
            match self {
                Self::Size => {
                    let Some(line) = line(buffer)? else { return Ok(Decoded::More) };
                    *self = match size(&line)? {
                        0 => Self::Trailers,
                        n => Self::Data(n),
                    };
                }
                Self::Data(_) if buffer.is_empty() => return Ok(Decoded::More),
                Self::Data(remaining) => {
                    let data = take(buffer, remaining);
                    if *remaining == 0 {
                        *self = Self::End;
                    }
                    return Ok(Decoded::Data(data));
                }
                Self::End => match line(buffer)? {
                    None => return Ok(Decoded::More),
                    Some(line) if line.is_empty() => *self = Self::Size,
                    Some(_) => return Err("chunk longer than its size"),
                },
                Self::Trailers => return trailers(buffer),
            }
        }
    }
}

/// Data up to this length is copied, in bytes, so that the buffer can be reused.
const COPIED_MAX: usize = 2 * 1024;

/// Takes as much of the buffer as belongs to the body.
fn take(buffer: &mut BytesMut, remaining: &mut u64) -> Bytes {
    let n = usize::try_from(*remaining).unwrap_or(usize::MAX).min(buffer.len());
    *remaining -= n as u64;
    if n > COPIED_MAX {
        return buffer.split_to(n).freeze();
    }
    let piece = Bytes::copy_from_slice(&buffer[..n]);
    buffer.advance(n);
    piece
}

/// Takes a complete line without its end.
fn line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, &'static str> {
    let Some(at) = memchr::memchr(b'\n', &buffer[..buffer.len().min(LINE_MAX)]) else {
        return if buffer.len() >= LINE_MAX { Err("chunk or trailer line too long") } else { Ok(None) };
    };
    let mut line = buffer.split_to(at);
    buffer.advance(1);
    match line.last() {
        Some(b'\r') => line.truncate(at - 1),
        _ => return Err("chunk or trailer line does not end with CR LF"),
    }
    // Some parsers end a line at a bare carriage return.
    if line.contains(&b'\r') {
        return Err("bare carriage return in a chunk line or trailer");
    }
    Ok(Some(line))
}

/// Parses a chunk's size: hexadecimal digits, then padding that some upstreams add. Extensions after a semicolon are
/// ignored.
fn size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = trimmed_end(line.split(|byte| *byte == b';').next().unwrap_or_default());
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("invalid chunk size");
    }
    let digits = str::from_utf8(digits).map_err(|_| "invalid chunk size")?;
    u64::from_str_radix(digits, 16).map_err(|_| "invalid chunk size")
}

/// Parses the trailers once they are complete.
fn trailers(buffer: &mut BytesMut) -> Result<Decoded, &'static str> {
    let within = &buffer[..buffer.len().min(TRAILERS_LEN_MAX)];
    let is_whole = within.starts_with(b"\r\n") || memchr::memmem::find(within, b"\r\n\r\n").is_some();
    if !is_whole {
        let is_too_long = within.len() == TRAILERS_LEN_MAX;
        return if is_too_long { Err("trailers too long") } else { Ok(Decoded::More) };
    }
    let mut trailers = HeaderMap::new();
    for _ in 0..=TRAILERS_MAX {
        let Some(line) = line(buffer)? else { return Err("incomplete trailers") };
        if line.is_empty() {
            let is_empty = trailers.is_empty();
            return Ok(if is_empty { Decoded::End } else { Decoded::Trailers(trailers) });
        }
        let colon = memchr::memchr(b':', &line).ok_or("trailer without a colon")?;
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| "invalid trailer name")?;
        let value = HeaderValue::from_bytes(trimmed(&line[colon + 1..]));
        trailers.append(name, value.map_err(|_| "invalid trailer value")?);
    }
    Err("too many trailers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes input that arrives in these pieces.
    fn decode(mut decoder: Decoder, pieces: &[&[u8]]) -> Result<(Vec<u8>, HeaderMap, bool), &'static str> {
        let (mut buffer, mut body, mut trailers) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut buffer)? {
                    Decoded::Data(data) => body.extend_from_slice(&data),
                    Decoded::Trailers(found) => trailers = found,
                    Decoded::End | Decoded::More => break,
                }
            }
        }
        Ok((body, trailers, decoder.is_done() && buffer.is_empty()))
    }

    proptest! {
        /// The body does not depend on chunk sizes or on how the input is split.
        #[test]
        fn chunked_bodies_survive_any_split(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            has_trailers: bool,
        ) {
            let mut whole = Vec::new();
            for chunk in &chunks {
                whole.extend_from_slice(format!("{:X};x=1\r\n", chunk.len()).as_bytes());
                whole.extend_from_slice(chunk);
                whole.extend_from_slice(b"\r\n");
            }
            whole.extend_from_slice(if has_trailers { b"0\r\na: 1\r\nb: 2\r\n\r\n" } else { b"0\r\n\r\n" });
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([whole.len()]) {
                pieces.push(&whole[from..cut]);
                from = cut;
            }
            let (body, trailers, is_done) = decode(Decoder::chunked(), &pieces).unwrap();
            prop_assert_eq!(body, chunks.concat());
            prop_assert_eq!(trailers.len(), if has_trailers { 2 } else { 0 });
            prop_assert!(is_done);
        }

        #[test]
        fn random_input_does_not_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6), n: u64) {
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            for decoder in [Decoder::chunked(), Decoder::Length(n), Decoder::Close, Decoder::Done] {
                let _ = decode(decoder, &pieces);
            }
        }
    }

    #[test]
    fn invalid_chunks_are_rejected() {
        for bad in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1\n",
            b"1\r\nab\r\n",
            b"1\r\na\n",
            b"1234567890abcdef\r\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\na b: 1\r\n\r\n",
            b" 1\r\n",
            b"1\x0c\r\n",
            b"1\r\r\n",
            b"1;a\rb\r\n",
            b"0\r\na: \x0c\r\n\r\n",
            b"0\r\na: b\rc\r\n\r\n",
        ] {
            assert!(decode(Decoder::chunked(), &[bad]).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
        assert!(decode(Decoder::chunked(), &[&[b'1'; LINE_MAX]]).is_err());
    }

    #[test]
    fn trailers_are_too_long_at_the_same_byte_however_they_are_split() {
        for (length, is_too_long) in [(TRAILERS_LEN_MAX, false), (TRAILERS_LEN_MAX + 1, true)] {
            let value = "x".repeat(length - "a: \r\n\r\n".len());
            let text = format!("0\r\na: {value}\r\n\r\n");
            let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
            for pieces in [&[text.as_bytes()][..], &bytes] {
                assert_eq!(decode(Decoder::chunked(), pieces).is_err(), is_too_long, "{length}");
            }
        }
    }

    #[test]
    fn a_length_ends_where_it_says() {
        let (body, _, is_done) = decode(Decoder::Length(3), &[b"ab", b"cd"]).unwrap();
        assert_eq!((body, is_done), (b"abc".to_vec(), false), "what is left over is not its");
    }
}
