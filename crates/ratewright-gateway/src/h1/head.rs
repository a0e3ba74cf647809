//! Parses response heads.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use httparse::{ParserConfig, Status};

use super::decode::Decoder;

/// The most headers of a response.
pub(crate) const HEADERS_MAX: usize = 128;

/// The longest head, in bytes.
const HEAD_MAX: usize = 64 * 1024;

/// The most interim responses (1xx) before a response. Without a limit an upstream could send them for ever.
const INTERIM_MAX: u32 = 32;

/// Capacity for headers that the gateway adds.
const HEADERS_SPARE: usize = 8;

/// A response head, and how its body is framed.
#[derive(Debug)]
pub(crate) struct ParsedHead {
    pub(crate) response: Response<()>,
    pub(crate) is_kept_alive: bool,
    pub(crate) decoder: Decoder,
}

/// What the headers say about body and connection.
#[derive(Default)]
struct ResponseFraming {
    length: Option<u64>,
    is_chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
}

/// Takes a response head from the buffer. None: incomplete. `by_method` is the framing that the request method implies,
/// `n_interim` the number of interim responses so far.
pub(crate) fn parse(
    buffer: &mut BytesMut,
    by_method: Decoder,
    n_interim: &mut u32,
) -> Result<Option<ParsedHead>, &'static str> {
    loop {
        let Some((n_bytes, parsed_head)) = parse_one(buffer, by_method)? else { return Ok(None) };
        buffer.advance(n_bytes);
        let status = parsed_head.response.status();
        // Interim responses are dropped: hyper sends 100 Continue to the client itself.
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(parsed_head));
        }
        *n_interim += 1;
        if *n_interim > INTERIM_MAX {
            return Err("too many interim responses");
        }
    }
}

fn parse_one(buffer: &BytesMut, by_method: Decoder) -> Result<Option<(usize, ParsedHead)>, &'static str> {
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, buffer, &mut lines);
    let n_bytes = match status {
        Ok(Status::Complete(n_bytes)) if n_bytes <= HEAD_MAX => n_bytes,
        Ok(Status::Partial) if buffer.len() <= HEAD_MAX => return Ok(None),
        Ok(_) => return Err("response head too long"),
        Err(httparse::Error::TooManyHeaders) => return Err("response has too many headers"),
        Err(_) => return Err("invalid response head"),
    };
    if has_bare_line_feed(&buffer[..n_bytes]) {
        return Err("response head has a line that ends with a bare LF");
    }
    let is_old = parsed.version == Some(0);
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default()).map_err(|_| "invalid status")?;
    let whole = Bytes::copy_from_slice(&buffer[..n_bytes]);
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + HEADERS_SPARE);
    let mut framing = ResponseFraming::default();
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| "invalid header name")?;
        if is_framing_header(&name) && framing.read_header(&name, header.value)? {
            continue;
        }
        let at = header.value.as_ptr().addr() - buffer.as_ptr().addr();
        let value = whole.slice(at..at + header.value.len());
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| "invalid header value")?;
        headers.append(name, value);
    }
    let decoder = framing.decoder(status, by_method, is_old)?;
    let is_kept_alive =
        !framing.says_close && (framing.says_keep_alive || !is_old) && !framing.has_stray_body(status);
    if status == StatusCode::NO_CONTENT {
        headers.remove(CONTENT_LENGTH); // an error for HTTP/2 clients
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(Some((n_bytes, ParsedHead { response, is_kept_alive, decoder })))
}

/// True if a line of a head does not end with CR LF. httparse accepts it, but other parsers join the line with the one
/// before.
fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

fn is_framing_header(name: &HeaderName) -> bool {
    name == CONTENT_LENGTH || name == TRANSFER_ENCODING || name == CONNECTION
}

impl ResponseFraming {
    /// Reads a framing header. True if it must not be forwarded.
    fn read_header(&mut self, name: &HeaderName, value: &[u8]) -> Result<bool, &'static str> {
        if name == CONTENT_LENGTH {
            let digits = str::from_utf8(value.trim_ascii()).ok();
            let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length = digits.and_then(|text| text.parse().ok()).ok_or("invalid Content-Length")?;
            if self.length.is_some() {
                return Err("duplicate Content-Length");
            }
            self.length = Some(length);
            return Ok(false);
        }
        if name == TRANSFER_ENCODING {
            if self.is_chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err("unsupported Transfer-Encoding");
            }
            self.is_chunked = true;
            return Ok(true);
        }
        let mut says_more = false;
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.says_keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.says_close = true;
            } else {
                says_more = true; // names hop-by-hop headers
            }
        }
        Ok(!says_more)
    }

    /// True if a body is announced that cannot exist. If it arrives anyway, it must not be parsed as the next response.
    fn has_stray_body(&self, status: StatusCode) -> bool {
        status == StatusCode::NO_CONTENT && (self.is_chunked || self.length.is_some_and(|length| length > 0))
    }

    fn decoder(&self, status: StatusCode, by_method: Decoder, is_old: bool) -> Result<Decoder, &'static str> {
        let has_none = status.is_informational()
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        match (self.is_chunked, self.length) {
            _ if has_none || by_method == Decoder::NoBody => Ok(Decoder::Done),
            (true, Some(_)) => Err("response has both Content-Length and Transfer-Encoding"),
            (true, None) if is_old => Err("Transfer-Encoding in an HTTP/1.0 response"),
            (true, None) => Ok(Decoder::chunked()),
            (false, Some(0)) => Ok(Decoder::Done),
            (false, Some(length)) => Ok(Decoder::Length(length)),
            (false, None) => Ok(Decoder::Close),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &[u8]) -> Result<Option<ParsedHead>, &'static str> {
        parse(&mut BytesMut::from(text), Decoder::Done, &mut 0)
    }

    #[test]
    fn headers_may_be_empty_and_interim_responses_are_skipped() {
        let text = b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nX-Empty:\r\nX-Blank:  \r\nContent-Length: 3\r\n\r\n";
        let parsed_head = parsed(text).unwrap().unwrap();
        let headers = parsed_head.response.headers();
        assert_eq!((parsed_head.response.status().as_u16(), headers.len()), (200, 3));
        assert_eq!(
            (&headers["x-empty"], &headers["x-blank"]),
            (&HeaderValue::from_static(""), &HeaderValue::from_static(""))
        );
        assert_eq!(parsed_head.decoder, Decoder::Length(3));
        assert!(parsed_head.is_kept_alive && parsed(&text[..text.len() - 1]).unwrap().is_none());
    }

    #[test]
    fn a_flood_of_interim_responses_is_rejected_however_it_is_split() {
        let interim = "HTTP/1.1 103 Early\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\n\r\n";
        let most = interim.repeat(32) + last;
        assert!(parsed(most.as_bytes()).unwrap().is_some());
        let flood = interim.repeat(33) + last;
        assert!(parsed(flood.as_bytes()).is_err());
        let (mut buffer, mut n_interim) = (BytesMut::new(), 0);
        let rejected = flood.as_bytes().iter().any(|byte| {
            buffer.extend_from_slice(&[*byte]);
            parse(&mut buffer, Decoder::Done, &mut n_interim).is_err()
        });
        assert!(rejected);
    }

    #[test]
    fn a_head_is_too_long_at_the_same_byte_however_it_is_split() {
        for (length, is_too_long) in [(HEAD_MAX, false), (HEAD_MAX + 1, true)] {
            let begin = "HTTP/1.1 200 OK\r\nx: ";
            let text = format!("{begin}{}\r\n\r\n", "y".repeat(length - begin.len() - 4));
            assert_eq!(parsed(text.as_bytes()).is_err(), is_too_long, "{length}");
        }
        assert!(parsed(format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_MAX)).as_bytes()).is_err());
    }

    #[test]
    fn connections_are_not_reused_after_close_or_a_204_that_announces_a_body() {
        for (head, is_kept_alive, n_fields) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0", true, 1),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0", true, 1),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\nContent-Length: 0", false, 1),
            ("HTTP/1.0 200 OK\r\nConnection: close\r\nConnection: keep-alive", false, 0),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0", true, 0),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 10", false, 0),
            ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked", false, 0),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 10", true, 1),
        ] {
            let parsed_head = parsed(format!("{head}\r\n\r\n").as_bytes()).unwrap().unwrap();
            let found = (parsed_head.is_kept_alive, parsed_head.response.headers().len());
            assert_eq!(found, (is_kept_alive, n_fields), "{head}");
        }
    }

    #[test]
    fn an_ambiguous_response_is_rejected() {
        for lines in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 99999999999999999999",
        ] {
            assert!(parsed(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n").as_bytes()).is_err(), "{lines}");
        }
    }

    #[test]
    fn a_response_line_with_a_bare_line_feed_is_rejected() {
        let whole = "HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 0\r\n\r\n";
        assert!(parsed(whole.as_bytes()).unwrap().is_some());
        for (n, (at, _)) in whole.match_indices("\r\n").enumerate() {
            let bare = [&whole.as_bytes()[..at], &whole.as_bytes()[at + 1..]].concat();
            assert!(parsed(&bare).is_err(), "line {n}");
        }
        let interim = format!("HTTP/1.1 103 Early\nLink: a\r\n\r\n{whole}");
        assert!(parsed(interim.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn random_input_does_not_panic(rest in prop::collection::vec(any::<u8>(), 0..200), is_answer: bool) {
            let begin: &[u8] = if is_answer { b"HTTP/1.1 200 OK\r\na:" } else { b"" };
            let _ = parsed(&[begin, &rest].concat());
            let _ = parsed(&[begin, &rest, b"\r\n\r\n"].concat());
        }
    }
}
