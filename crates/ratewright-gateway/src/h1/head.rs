//! The head of an answer.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use httparse::{ParserConfig, Status};

use super::decode::Decoder;

/// The most fields of an answer.
pub(crate) const FIELDS_MAX: usize = 128;

/// The longest head, in bytes.
const HEAD_MAX: usize = 64 * 1024;

/// The most interim responses (1xx) before a response. Without a limit an upstream could send them for ever.
const INTERIM_MAX: u32 = 32;

/// Room for the fields that are added to an answer on its way.
const FIELDS_MORE: usize = 8;

/// An answer whose body is to come.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response<()>,
    pub(crate) is_kept_alive: bool,
    pub(crate) decoder: Decoder,
}

/// How a body may end, as the fields say it.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    is_chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
}

/// Takes the head of an answer out of what has come. Nothing, if it is not whole yet. `asked` is what the request's method
/// says of the body, `n_interim` how many interim responses have come.
pub(crate) fn parse(
    seen: &mut BytesMut,
    asked: Decoder,
    n_interim: &mut u32,
) -> Result<Option<Answered>, &'static str> {
    loop {
        let Some((n_bytes, answered)) = parse_one(seen, asked)? else { return Ok(None) };
        seen.advance(n_bytes);
        let status = answered.response.status();
        // Those before the last one are for whoever waits with its body, and nobody does here.
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(answered));
        }
        *n_interim += 1;
        if *n_interim > INTERIM_MAX {
            return Err("too many interim responses");
        }
    }
}

fn parse_one(seen: &BytesMut, asked: Decoder) -> Result<Option<(usize, Answered)>, &'static str> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, seen, &mut fields);
    let n_bytes = match status {
        Ok(Status::Complete(n_bytes)) if n_bytes <= HEAD_MAX => n_bytes,
        Ok(Status::Partial) if seen.len() <= HEAD_MAX => return Ok(None),
        Ok(_) => return Err("the head of the response is too long"),
        Err(httparse::Error::TooManyHeaders) => return Err("the answer has too many fields"),
        Err(_) => return Err("what came is no answer"),
    };
    if has_bare_line_feed(&seen[..n_bytes]) {
        return Err("response head has a line that ends with a bare LF");
    }
    let is_old = parsed.version == Some(0);
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default()).map_err(|_| "its status is none")?;
    let whole = Bytes::copy_from_slice(&seen[..n_bytes]);
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + FIELDS_MORE);
    let mut said = Said::default();
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "a field's name is none")?;
        if is_ours(&name) && said.note(&name, field.value)? {
            continue;
        }
        let at = field.value.as_ptr().addr() - seen.as_ptr().addr();
        let value = whole.slice(at..at + field.value.len());
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| "a field's value is none")?;
        headers.append(name, value);
    }
    let decoder = said.decoder(status, asked, is_old)?;
    let is_kept_alive = !said.says_close && (said.says_keep_alive || !is_old) && !said.has_stray_body(status);
    if status == StatusCode::NO_CONTENT {
        headers.remove(CONTENT_LENGTH); // HTTP/2 clients would take it for an error
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(Some((n_bytes, Answered { response, is_kept_alive, decoder })))
}

/// True if a line of a head does not end with CR LF. httparse accepts it, and others take the line for a part of the one before.
fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

fn is_ours(name: &HeaderName) -> bool {
    name == CONTENT_LENGTH || name == TRANSFER_ENCODING || name == CONNECTION
}

impl Said {
    /// Takes note of a field, and tells whether that is all it was for.
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<bool, &'static str> {
        if name == CONTENT_LENGTH {
            let digits = str::from_utf8(value.trim_ascii()).ok();
            let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length =
                digits.and_then(|text| text.parse().ok()).ok_or("its Content-Length is no number")?;
            if self.length.is_some() {
                return Err("it has two lengths");
            }
            self.length = Some(length);
            return Ok(false);
        }
        if name == TRANSFER_ENCODING {
            if self.is_chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err("its Transfer-Encoding is not chunked");
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
                says_more = true; // it names fields that go no further than here
            }
        }
        Ok(!says_more)
    }

    /// True if a body is announced that cannot be there. If it comes all the same, it must not be taken for the next
    /// response.
    fn has_stray_body(&self, status: StatusCode) -> bool {
        status == StatusCode::NO_CONTENT && (self.is_chunked || self.length.is_some_and(|length| length > 0))
    }

    fn decoder(&self, status: StatusCode, asked: Decoder, is_old: bool) -> Result<Decoder, &'static str> {
        let has_none = status.is_informational()
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        match (self.is_chunked, self.length) {
            _ if has_none || asked == Decoder::Nothing => Ok(Decoder::Done),
            (true, Some(_)) => Err("it has both Content-Length and Transfer-Encoding"),
            (true, None) if is_old => Err("HTTP/1.0 knows no Transfer-Encoding"),
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

    fn parsed(text: &[u8]) -> Result<Option<Answered>, &'static str> {
        parse(&mut BytesMut::from(text), Decoder::Done, &mut 0)
    }

    #[test]
    fn fields_may_be_empty_and_those_before_the_last_answer_are_passed_over() {
        let text = b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nX-Empty:\r\nX-Blank:  \r\nContent-Length: 3\r\n\r\n";
        let answered = parsed(text).unwrap().unwrap();
        let headers = answered.response.headers();
        assert_eq!((answered.response.status().as_u16(), headers.len()), (200, 3));
        assert_eq!(
            (&headers["x-empty"], &headers["x-blank"]),
            (&HeaderValue::from_static(""), &HeaderValue::from_static(""))
        );
        assert_eq!(answered.decoder, Decoder::Length(3));
        assert!(answered.is_kept_alive && parsed(&text[..text.len() - 1]).unwrap().is_none());
    }

    #[test]
    fn a_flood_of_interim_responses_is_rejected_however_it_is_split() {
        let interim = "HTTP/1.1 103 Early\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\n\r\n";
        let most = interim.repeat(32) + last;
        assert!(parsed(most.as_bytes()).unwrap().is_some());
        let flood = interim.repeat(33) + last;
        assert!(parsed(flood.as_bytes()).is_err());
        let (mut seen, mut n_interim) = (BytesMut::new(), 0);
        let rejected = flood.as_bytes().iter().any(|byte| {
            seen.extend_from_slice(&[*byte]);
            parse(&mut seen, Decoder::Done, &mut n_interim).is_err()
        });
        assert!(rejected);
    }

    #[test]
    fn a_head_is_too_long_at_the_same_byte_however_it_comes() {
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
            let answered = parsed(format!("{head}\r\n\r\n").as_bytes()).unwrap().unwrap();
            let found = (answered.is_kept_alive, answered.response.headers().len());
            assert_eq!(found, (is_kept_alive, n_fields), "{head}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_answer() {
        for fields in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 99999999999999999999",
        ] {
            assert!(parsed(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes()).is_err(), "{fields}");
        }
    }

    #[test]
    fn a_line_that_ends_with_a_bare_line_feed_is_no_answer() {
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
        fn nothing_that_comes_makes_it_stumble(rest in prop::collection::vec(any::<u8>(), 0..200), is_answer: bool) {
            let begin: &[u8] = if is_answer { b"HTTP/1.1 200 OK\r\na:" } else { b"" };
            let _ = parsed(&[begin, &rest].concat());
            let _ = parsed(&[begin, &rest, b"\r\n\r\n"].concat());
        }
    }
}
