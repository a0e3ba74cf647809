//! The request line and the target of a request, as logs have them.
//!
//! ```text
//!   GET /a?b=1 HTTP/1.1               a path
//!   GET http://example.com/a HTTP/1.1 an absolute URL: a host and a path
//!   \x16\x03\x01                      not a request
//! ```
//!
//! `CONNECT` and `OPTIONS *` have no path. The gateway rejects them before any policy applies, so they are not requests
//! here.

use std::borrow::Cow;

use super::LineError;
use super::text::{Quoted, plain, plain_text, unescaped};

/// The method and the target of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RequestLine<'a> {
    pub(super) method: Cow<'a, str>,
    pub(super) target: Target<'a>,
    /// True if it has more spaces than a valid request line: some servers accept it, others respond with 400.
    pub(super) is_irregular: bool,
}

/// Where a request goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target<'a> {
    /// The host, if the target is an absolute URL.
    pub(super) host: Option<Cow<'a, str>>,
    /// The path, with the query.
    pub(super) path: Cow<'a, str>,
}

impl<'a> RequestLine<'a> {
    /// Reads `METHOD TARGET HTTP/1.1`; the version may be missing. `None` if this is not a request line.
    #[inline(always)]
    pub(super) fn read(line: Quoted<'a>) -> Option<Self> {
        if line.has_escape { Self::read_escaped(line.bytes) } else { Self::split(line.bytes) }
    }

    #[cold]
    fn read_escaped(line: &[u8]) -> Option<Self> {
        let line = unescaped(line);
        RequestLine::split(&line).map(RequestLine::into_owned)
    }

    #[inline(always)]
    fn split(line: &'a [u8]) -> Option<Self> {
        let (method, rest) = line.split_at_checked(line.iter().position(|byte| *byte == b' ')?)?;
        let rest = rest.strip_prefix(b" ")?;
        // Nearly every line ends with a version of 8 bytes.
        let (target, version) = match rest.split_last_chunk::<9>() {
            Some((target, version)) if version.starts_with(b" HTTP/") => (target, &version[..]),
            _ => rest.split_at(memchr::memchr(b' ', rest).unwrap_or(rest.len())),
        };
        let has_version = version.starts_with(b" HTTP/") && !version.get(6..)?.contains(&b' ');
        let method = method_of(method)?;
        if !(version.is_empty() || has_version) || memchr::memchr(b' ', target).is_some() {
            return Self::split_at_spaces(method, rest);
        }
        Some(Self { method, target: Target::of_bytes(target)?, is_irregular: false })
    }

    /// Reads a request line with more spaces than needed. Servers accept several spaces between its parts, and some accept spaces within the
    /// target; such a request is served, so it counts.
    #[cold]
    fn split_at_spaces(method: Cow<'a, str>, rest: &'a [u8]) -> Option<Self> {
        let rest = rest.trim_ascii();
        let is_version = |word: &[u8]| word.starts_with(b"HTTP/");
        let target = match rest.iter().rposition(|byte| *byte == b' ').map(|at| rest.split_at(at)) {
            Some((target, version)) if is_version(version.trim_ascii()) => target.trim_ascii(),
            _ => rest,
        };
        let mut target = Target::of_bytes(target)?;
        target.path = Cow::Owned(target.path.replace(' ', "%20"));
        Some(Self { method, target, is_irregular: true })
    }

    fn into_owned(self) -> RequestLine<'static> {
        RequestLine {
            method: Cow::Owned(self.method.into_owned()),
            target: Target {
                host: self.target.host.map(|host| Cow::Owned(host.into_owned())),
                path: Cow::Owned(self.target.path.into_owned()),
            },
            is_irregular: self.is_irregular,
        }
    }
}

impl<'a> Target<'a> {
    #[inline(always)]
    fn of_bytes(target: &'a [u8]) -> Option<Self> {
        if let [b'/', ..] = target {
            return Some(Self { host: None, path: plain(target) });
        }
        Self::of_url(target)
    }

    #[cold]
    fn of_url(target: &'a [u8]) -> Option<Self> {
        let rest = after_scheme(target)?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let path = match path {
            [b'/', ..] => plain(path),
            _ => Cow::Owned(format!("/{}", plain(path))),
        };
        (!host.is_empty()).then(|| Self { host: Some(plain(host)), path })
    }

    /// Reads a target. `Ok(None)`: the line has no target.
    pub(super) fn of_text(target: Cow<'a, str>) -> Result<Option<Self>, LineError> {
        match target {
            Cow::Borrowed("" | "-" | "*") => Ok(None),
            Cow::Borrowed(target) => Self::of_bytes(target.as_bytes()).map(Some).ok_or(NO_PATH),
            Cow::Owned(target) if target.starts_with('/') => {
                Ok(Some(Self { host: None, path: plain_text(Cow::Owned(target)) }))
            }
            Cow::Owned(target) => {
                let target = Target::of_text(Cow::Borrowed(&target))?;
                let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
                Ok(target.map(|target| Self { host: target.host.map(owned), path: owned(target.path) }))
            }
        }
    }
}

const NO_PATH: LineError = LineError("path does not begin with / and is not a URL");

/// The rest of a URL after `http://` or `https://`.
fn after_scheme(url: &[u8]) -> Option<&[u8]> {
    let at = memchr::memchr(b':', url.get(..6).unwrap_or(url))?;
    let (scheme, rest) = url.split_at_checked(at)?;
    let is_http = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
    rest.strip_prefix(b"://").filter(|_| is_http)
}

/// A method as text. The usual ones need no check.
#[inline(always)]
fn method_of(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        b"GET" => Some(Cow::Borrowed("GET")),
        b"POST" => Some(Cow::Borrowed("POST")),
        b"HEAD" => Some(Cow::Borrowed("HEAD")),
        _ => is_method(bytes).then(|| plain(bytes)),
    }
}

/// True if a text can be the method of a request with a path.
pub(super) fn is_method(text: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !matches!(text, b"" | b"-" | b"CONNECT") && text.iter().all(is_token)
}
