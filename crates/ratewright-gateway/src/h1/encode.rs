//! A request as bytes.

use http::header::{CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method};

use super::{OutFraming, Sent};

/// Writes the head of a request. What is between neighbours only is not in it any more; how the body ends is said here.
pub(super) fn head(
    Sent { head: request, told }: Sent<'_>,
    length: Option<u64>,
    is_nothing: bool,
    out: &mut Vec<u8>,
) -> OutFraming {
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &request.headers {
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            continue;
        }
        field(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    if let Some(told) = told {
        told.each(|name, value| field(name.as_str().as_bytes(), value, out));
    }
    let framing = framing(request, length, is_nothing, out);
    out.extend_from_slice(b"\r\n");
    framing
}

/// Says how the body ends.
fn framing(request: &Parts, length: Option<u64>, is_nothing: bool, out: &mut Vec<u8>) -> OutFraming {
    if is_nothing {
        // Of these methods a server expects a body, and is told that there is none.
        let expects = [Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
        if expects || request.headers.contains_key(CONTENT_LENGTH) {
            field(b"content-length", b"0", out);
        }
        return OutFraming::Length;
    }
    match length.filter(|_| !request.headers.contains_key(TRAILER)) {
        Some(length) => {
            field(b"content-length", itoa::Buffer::new().format(length).as_bytes(), out);
            OutFraming::Length
        }
        None => {
            field(b"transfer-encoding", b"chunked", out);
            OutFraming::Chunked
        }
    }
}

/// Writes the head of a chunk.
pub(super) fn chunk_size(n: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let n_digits = (usize::BITS - n.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..n_digits).rev().map(|place| DIGITS[(n >> (place * 4)) & 15]));
    out.extend_from_slice(b"\r\n");
}

/// Writes the last chunk and what follows it.
pub(super) fn trailers(trailers: &HeaderMap, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        // What says how a message is read has no place at its end.
        if name != CONTENT_LENGTH && name != TRANSFER_ENCODING && name != TRAILER {
            field(name.as_str().as_bytes(), value.as_bytes(), out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for n in [0, 1, 9, 10, 15, 16, 255, 256, 65_535, 65_536, usize::MAX] {
            let mut out = Vec::new();
            chunk_size(n, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{n:x}\r\n"));
        }
    }

    #[track_caller]
    fn check(method: &str, fields: &[(&str, &str)], length: Option<u64>, is_nothing: bool, expected: &str) {
        let mut request = http::Request::builder().method(method).uri("/a?b");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        head(Sent { head: &parts, told: None }, length, is_nothing, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_server_is_told_where_the_body_ends() {
        let host = ("host", "a");
        check("GET", &[host], Some(0), true, "GET /a?b HTTP/1.1\r\nhost: a\r\n\r\n");
        check("POST", &[host], Some(0), true, "POST /a?b HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        check(
            "POST",
            &[("content-length", "9"), host],
            Some(5),
            false,
            "POST /a?b HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n",
        );
        check(
            "PUT",
            &[host, ("transfer-encoding", "chunked")],
            None,
            false,
            "PUT /a?b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        );
    }
}
