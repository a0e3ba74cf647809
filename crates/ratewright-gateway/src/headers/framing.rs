//! Where a request ends and for which host it is, if that can be read in one way only.
//!
//! Two servers that disagree about the end of a request disagree about the beginning of the next one: what one of them
//! takes for a body is a request to the other, which nobody limited. So whatever could be read in two ways is refused, also
//! where the standard says which one is right.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Version};
use ratewright_http::parts;

/// Why a request could be read in two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Framing {
    /// Some go by the one and some by the other.
    #[error("the request has both Content-Length and Transfer-Encoding; send one of them")]
    LengthAndCoding,
    /// Some take the first and some the last.
    #[error("the request has several values of Content-Length; send one")]
    Lengths,
    /// `+5`, `0x5`, nothing, or more than 64 bits.
    #[error("Content-Length is no whole number in digits")]
    Length,
    /// Several, another one, or `chunked` in an unusual spelling.
    #[error("Transfer-Encoding is not exactly chunked")]
    Coding,
    /// HTTP/1.0 does not know it, and HTTP/2 and later have no such thing.
    #[error("Transfer-Encoding is for HTTP/1.1 only")]
    CodingOfOtherVersion,
    /// Some go on with the line before, and some begin a new one.
    #[error("a line of the request's head begins with white space")]
    Folded,
    /// Some take the white space off, and some take it for a part of the name.
    #[error("a field of the request has no name, or white space between its name and the colon")]
    Name,
    /// Some pass over it, and some take it for the beginning of the body.
    #[error("a line of the request's head has no colon")]
    NoColon,
    /// Some end a line at LF alone, at CR alone, or at NUL.
    #[error("a line of the request's head does not end with CR LF, or has CR or NUL in it")]
    LineEnd,
    /// HTTP/1.1 asks for it.
    #[error("the request has no Host")]
    NoHost,
    /// Some take the first and some the last.
    #[error("the request has several Host fields; send one")]
    Hosts,
    /// It is empty, or has what no host has.
    #[error("Host is no host")]
    Host,
    /// What is asked for names another one.
    #[error("Host is not the host that the request's target names")]
    OtherHost,
}

/// Refuses a request that two servers could read in two ways.
///
/// What a server has tidied up before it shows the request cannot be refused here: `strict.rs` sees it earlier.
///
/// The host that it is for is what comes of it, if it says one: in lower case and without its port.
///
/// # Errors
/// The first reason that is found.
pub fn check_framing(request: &Parts) -> Result<Option<Cow<'_, str>>, Framing> {
    check_length(request)?;
    check_host(request)
}

fn check_length(request: &Parts) -> Result<(), Framing> {
    let mut codings = request.headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(()),
        (Some(_), Some(_)) => Err(Framing::LengthAndCoding),
        (Some(_), None) if request.version != Version::HTTP_11 => Err(Framing::CodingOfOtherVersion),
        (Some(coding), None) if codings.next().is_some() || coding != "chunked" => Err(Framing::Coding),
        (Some(_), None) => Ok(()),
        (None, Some(length)) if lengths.next().is_some() || length.as_bytes().contains(&b',') => {
            Err(Framing::Lengths)
        }
        (None, Some(length)) => is_length(length).then_some(()).ok_or(Framing::Length),
    }
}

/// Digits, and not more than 64 bits of them.
fn is_length(value: &HeaderValue) -> bool {
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.is_some_and(|digits| digits.parse::<u64>().is_ok())
}

fn check_host(request: &Parts) -> Result<Option<Cow<'_, str>>, Framing> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Framing::Hosts);
    }
    let target = request.uri.authority().map(|authority| authority.as_str());
    match (host, target) {
        (None, None) if request.version >= Version::HTTP_11 => Err(Framing::NoHost),
        (None, None) => Ok(None),
        (None, Some(target)) => host_and_port(target).map(|(host, _)| Some(host)),
        (Some(host), None) => host_and_port(text(host)?).map(|(host, _)| Some(host)),
        (Some(host), Some(target)) => {
            let host = host_and_port(text(host)?)?;
            if host == host_and_port(target)? { Ok(Some(host.0)) } else { Err(Framing::OtherHost) }
        }
    }
}

fn text(value: &HeaderValue) -> Result<&str, Framing> {
    value.to_str().map_err(|_| Framing::Host)
}

/// A host as it is compared. With a user in it, some would take the user for the host.
fn host_and_port(text: &str) -> Result<(Cow<'_, str>, Option<u16>), Framing> {
    let host = parts::host_of(text).filter(|_| is_host(text)).ok_or(Framing::Host)?;
    if host.len() == text.len() {
        return Ok((host, None));
    }
    let port = text.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
    match port {
        None | Some("") => Ok((host, None)),
        Some(port) => port.parse().map(|port| (host, Some(port))).map_err(|_| Framing::Host),
    }
}

/// What stands in names and addresses, and nothing that a server may split at or unquote; nor `@`.
fn is_host(text: &str) -> bool {
    text.bytes().all(|byte| OF_HOSTS[usize::from(byte)])
}

const OF_HOSTS: [bool; 256] = {
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
    fn check(version: Version, uri: &str, fields: &[(&str, &str)], expected: Result<(), Framing>) {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(check_framing(&parts).map(|_| ()), expected, "{uri} {fields:?}");
    }

    #[track_caller]
    fn check_body(fields: &[(&str, &str)], expected: Result<(), Framing>) {
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
            Err(Framing::LengthAndCoding),
        );
        for lengths in [&["5", "5"][..], &["5", "6"], &["5, 5"], &["5,6"]] {
            let fields: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
            check_body(&fields, Err(Framing::Lengths));
        }
        for length in ["", "+5", "-1", "0x5", "5 ", "5;", "18446744073709551616", "٥"] {
            check_body(&[("content-length", length)], Err(Framing::Length));
        }
    }

    #[test]
    fn chunked_is_the_only_coding_and_of_one_version_only() {
        for coding in
            ["gzip", "gzip, chunked", "Chunked", "chunked, chunked", "identity", "", "xchunked", "chunked;q"]
        {
            check_body(&[("transfer-encoding", coding)], Err(Framing::Coding));
        }
        check_body(
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            Err(Framing::Coding),
        );
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let fields = [("host", "a"), ("transfer-encoding", "chunked")];
            check(version, "/", &fields, Err(Framing::CodingOfOtherVersion));
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
        check_11("/", &[], Err(Framing::NoHost));
        check_11("/", &["a", "a"], Err(Framing::Hosts));
        for odd in ["", " ", "a b", "a,b", "a/b", "u@a", "a:b", "a:99999", "a\"", "é", "a\\b", "a?b"] {
            check_11("/", &[odd], Err(Framing::Host));
        }
        check_11("http://A.example/", &["a.example"], Ok(()));
        check_11("http://a.example/", &["b.example"], Err(Framing::OtherHost));
        check_11("http://a.example:1/", &["a.example:2"], Err(Framing::OtherHost));
        check_11("http://u@a.example/", &["a.example"], Err(Framing::Host));
    }

    #[test]
    fn other_versions_may_lack_a_host_or_name_it_in_the_target() {
        check(Version::HTTP_10, "/", &[], Ok(()));
        check(Version::HTTP_2, "https://a.example/", &[], Ok(()));
        check(Version::HTTP_2, "https://a.example/", &[("host", "b.example")], Err(Framing::OtherHost));
        check(Version::HTTP_2, "/", &[], Err(Framing::NoHost));
    }
}
