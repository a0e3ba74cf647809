//! Encodes requests.

use http::header::{CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method};

use super::{OutFraming, OutboundHead};

/// Writes a request head. Hop-by-hop headers have been removed; this adds the framing.
pub(super) fn head(
    OutboundHead { head: request, forwarding }: OutboundHead<'_>,
    length: Option<u64>,
    is_empty: bool,
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
        write_header(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    if let Some(forwarding) = forwarding {
        forwarding.for_each(|name, value| write_header(name.as_str().as_bytes(), value, out));
    }
    let framing = framing(request, length, is_empty, out);
    out.extend_from_slice(b"\r\n");
    framing
}

/// Writes the framing header.
fn framing(request: &Parts, length: Option<u64>, is_empty: bool, out: &mut Vec<u8>) -> OutFraming {
    if is_empty {
        // Servers expect a body with these methods, so an empty one is announced.
        let expects = [Method::POST, Method::PUT, Method::PATCH].contains(&request.method);
        if expects || request.headers.contains_key(CONTENT_LENGTH) {
            write_header(b"content-length", b"0", out);
        }
        return OutFraming::Length;
    }
    match length.filter(|_| !request.headers.contains_key(TRAILER)) {
        Some(length) => {
            write_header(b"content-length", itoa::Buffer::new().format(length).as_bytes(), out);
            OutFraming::Length
        }
        None => {
            write_header(b"transfer-encoding", b"chunked", out);
            OutFraming::Chunked
        }
    }
}

/// Writes a chunk size.
pub(super) fn chunk_size(n: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let n_digits = (usize::BITS - n.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..n_digits).rev().map(|place| DIGITS[(n >> (place * 4)) & 15]));
    out.extend_from_slice(b"\r\n");
}

/// Writes the last chunk and the trailers.
pub(super) fn trailers(trailers: &HeaderMap, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        // Framing headers must not be trailers.
        if name != CONTENT_LENGTH && name != TRANSFER_ENCODING && name != TRAILER {
            write_header(name.as_str().as_bytes(), value.as_bytes(), out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_header(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_are_lower_case_hexadecimal() {
        for n in [0, 1, 9, 10, 15, 16, 255, 256, 65_535, 65_536, usize::MAX] {
            let mut out = Vec::new();
            chunk_size(n, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{n:x}\r\n"));
        }
    }

    #[track_caller]
    fn check(method: &str, fields: &[(&str, &str)], length: Option<u64>, is_empty: bool, expected: &str) {
        let mut request = http::Request::builder().method(method).uri("/a?b");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        head(OutboundHead { head: &parts, forwarding: None }, length, is_empty, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn requests_are_framed_by_length_or_chunks() {
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
