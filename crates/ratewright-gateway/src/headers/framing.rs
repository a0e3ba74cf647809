//! Rejects requests whose end or host is ambiguous.
//!
//! Two servers that disagree about the end of a request disagree about the start of the next one: the body of one is a
//! request to the other, which no policy limited. So ambiguous framing is rejected, even where the standard says which
//! reading is right.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Version};
use ratewright_http::parts;

/// Why framing or host is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// Parsers disagree on which one counts.
    #[error("request has both Content-Length and Transfer-Encoding; send one of them")]
    LengthAndCoding,
    /// Some parsers use the first and some the last.
    #[error("request has several Content-Length values; send one")]
    DuplicateLength,
    /// `+5`, `0x5`, empty, or more than 64 bits.
    #[error("invalid Content-Length; send digits only")]
    InvalidLength,
    /// Several codings, another one, or `chunked` in an unusual spelling.
    #[error("unsupported Transfer-Encoding; send exactly chunked")]
    UnsupportedCoding,
    /// HTTP/1.0 and HTTP/2 have no transfer codings.
    #[error("Transfer-Encoding requires HTTP/1.1")]
    CodingVersion,
    /// Some parsers continue the line before, and some start a new one.
    #[error("header line starts with white space; send each header on one line")]
    ObsoleteFold,
    /// Some parsers trim the white space, and some keep it in the name.
    #[error("header name empty or followed by white space; write Name: value")]
    InvalidName,
    /// Some parsers skip the line, and some start the body there.
    #[error("header line without a colon; write Name: value")]
    NoColon,
    /// Some parsers end a line at a bare LF, a bare CR or NUL.
    #[error("line of the request head does not end with CR LF, or contains CR or NUL")]
    InvalidLineEnd,
    /// HTTP/1.1 requires it.
    #[error("Host header missing; send one")]
    MissingHost,
    /// Some parsers use the first and some the last.
    #[error("request has several Host headers; send one")]
    DuplicateHost,
    /// It is empty or contains invalid characters.
    #[error("invalid Host header")]
    InvalidHost,
    /// The request target names another host.
    #[error("Host header differs from the host of the request target")]
    HostMismatch,
}

/// Rejects a request with ambiguous framing, and returns its host in lower case and without a port.
///
/// hyper hides some ambiguity before this sees the request: `framing_guard.rs` checks the raw bytes.
///
/// # Errors
/// The first reason found.
pub fn check_framing(request: &Parts) -> Result<Option<Cow<'_, str>>, FramingError> {
    check_length(request)?;
    check_host(request)
}

fn check_length(request: &Parts) -> Result<(), FramingError> {
    let mut codings = request.headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(()),
        (Some(_), Some(_)) => Err(FramingError::LengthAndCoding),
        (Some(_), None) if request.version != Version::HTTP_11 => Err(FramingError::CodingVersion),
        (Some(coding), None) if codings.next().is_some() || coding != "chunked" => {
            Err(FramingError::UnsupportedCoding)
        }
        (Some(_), None) => Ok(()),
        (None, Some(length)) if lengths.next().is_some() || length.as_bytes().contains(&b',') => {
            Err(FramingError::DuplicateLength)
        }
        (None, Some(length)) => is_length(length).then_some(()).ok_or(FramingError::InvalidLength),
    }
}

/// True if the value is a number of digits that fits 64 bits.
fn is_length(value: &HeaderValue) -> bool {
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.is_some_and(|digits| digits.parse::<u64>().is_ok())
}

fn check_host(request: &Parts) -> Result<Option<Cow<'_, str>>, FramingError> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(FramingError::DuplicateHost);
    }
    let target = request.uri.authority().map(|authority| authority.as_str());
    match (host, target) {
        (None, None) if request.version >= Version::HTTP_11 => Err(FramingError::MissingHost),
        (None, None) => Ok(None),
        (None, Some(target)) => host_and_port(target).map(|(host, _)| Some(host)),
        (Some(host), None) => host_and_port(text(host)?).map(|(host, _)| Some(host)),
        (Some(host), Some(target)) => {
            let host = host_and_port(text(host)?)?;
            if host == host_and_port(target)? { Ok(Some(host.0)) } else { Err(FramingError::HostMismatch) }
        }
    }
}

fn text(value: &HeaderValue) -> Result<&str, FramingError> {
    value.to_str().map_err(|_| FramingError::InvalidHost)
}

/// Splits host and port. A user is invalid: some parsers take it for the host.
fn host_and_port(text: &str) -> Result<(Cow<'_, str>, Option<u16>), FramingError> {
    let host = parts::host_of(text).filter(|_| is_host(text)).ok_or(FramingError::InvalidHost)?;
    if host.len() == text.len() {
        return Ok((host, None));
    }
    let port = text.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
    match port {
        None | Some("") => Ok((host, None)),
        Some(port) => port.parse().map(|port| (host, Some(port))).map_err(|_| FramingError::InvalidHost),
    }
}

/// True if the text contains only characters of hosts and ports, and no separator or `@`.
fn is_host(text: &str) -> bool {
    text.bytes().all(|byte| HOST_BYTES[usize::from(byte)])
}

const HOST_BYTES: [bool; 256] = {
    let mut known = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        known[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~:[]!$&'()*+;=";
    let mut n = 0;
    while n < others.len() {
        known[others[n] as usize] = true;
        n += 1;
    }
    known
};

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[track_caller]
    fn check(version: Version, uri: &str, fields: &[(&str, &str)], expected: Result<(), FramingError>) {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(check_framing(&parts).map(|_| ()), expected, "{uri} {fields:?}");
    }

    #[track_caller]
    fn check_body(fields: &[(&str, &str)], expected: Result<(), FramingError>) {
        let fields = [fields, &[("host", "a")]].concat();
        check(Version::HTTP_11, "/", &fields, expected);
    }

    #[test]
    fn a_body_has_one_length_or_is_chunked() {
        check_body(&[], Ok(()));
        check_body(&[("content-length", "0")], Ok(()));
        check_body(&[("content-length", "18446744073709551615")], Ok(()));
        check_body(&[("transfer-encoding", "chunked")], Ok(()));
        check_body(
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
            Err(FramingError::LengthAndCoding),
        );
        for lengths in [&["5", "5"][..], &["5", "6"], &["5, 5"], &["5,6"]] {
            let fields: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
            check_body(&fields, Err(FramingError::DuplicateLength));
        }
        for length in ["", "+5", "-1", "0x5", "5 ", "5;", "18446744073709551616", "٥"] {
            check_body(&[("content-length", length)], Err(FramingError::InvalidLength));
        }
    }

    #[test]
    fn chunked_is_the_only_coding_and_of_one_version_only() {
        for coding in
            ["gzip", "gzip, chunked", "Chunked", "chunked, chunked", "identity", "", "xchunked", "chunked;q"]
        {
            check_body(&[("transfer-encoding", coding)], Err(FramingError::UnsupportedCoding));
        }
        check_body(
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            Err(FramingError::UnsupportedCoding),
        );
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let fields = [("host", "a"), ("transfer-encoding", "chunked")];
            check(version, "/", &fields, Err(FramingError::CodingVersion));
        }
    }

    #[test]
    fn a_request_is_for_one_host() {
        let check_11 = |uri: &str, hosts: &[&str], expected| {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            check(Version::HTTP_11, uri, &fields, expected);
        };
        check_11("/", &["a.example:8080"], Ok(()));
        check_11("/", &["[::1]:80"], Ok(()));
        check_11("/", &["[::1]"], Ok(()));
        check_11("/", &[], Err(FramingError::MissingHost));
        check_11("/", &["a", "a"], Err(FramingError::DuplicateHost));
        for odd in ["", " ", "a b", "a,b", "a/b", "u@a", "a:b", "a:99999", "a\"", "é", "a\\b", "a?b"] {
            check_11("/", &[odd], Err(FramingError::InvalidHost));
        }
        check_11("http://A.example/", &["a.example"], Ok(()));
        check_11("http://a.example/", &["b.example"], Err(FramingError::HostMismatch));
        check_11("http://a.example:1/", &["a.example:2"], Err(FramingError::HostMismatch));
        check_11("http://u@a.example/", &["a.example"], Err(FramingError::InvalidHost));
    }

    #[test]
    fn other_versions_may_lack_a_host_or_name_it_in_the_target() {
        check(Version::HTTP_10, "/", &[], Ok(()));
        check(Version::HTTP_2, "https://a.example/", &[], Ok(()));
        check(
            Version::HTTP_2,
            "https://a.example/",
            &[("host", "b.example")],
            Err(FramingError::HostMismatch),
        );
        check(Version::HTTP_2, "/", &[], Err(FramingError::MissingHost));
    }
}
