//! One allowed origin, as the policy file names it.
//!
//! Browsers send an origin in one form: scheme, host and port in lower case, without the scheme's default port. A
//! configured origin is brought into that form once, so that matching a request is a comparison of bytes.
//!
//! ```text
//!   https://app.example.com        this origin alone
//!   https://*.example.com:8443     one label in place of the star: https://app.example.com:8443
//!   https://**.example.com         one label or more: https://a.b.example.com
//!   *                              every origin
//! ```
//!
//! # Laws
//! - A star stands for whole labels: `https://evil-example.com` never matches `https://*.example.com`.
//! - An exact origin matches itself and nothing else.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// An origin that may read responses, or a pattern of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AllowedOrigin {
    /// Every origin: `*`.
    Any,
    /// One origin, in the form that browsers send.
    Exact(String),
    /// The subdomains of a host.
    Subdomains {
        /// The scheme with its separator: `https://`.
        scheme: String,
        /// How many labels the star stands for.
        depth: Depth,
        /// The rest with its dot: `.example.com:8443`.
        suffix: String,
    },
}

/// How many labels a star stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Depth {
    /// Exactly one: `*`.
    One,
    /// One or more: `**`.
    Many,
}

/// Why a text is not an origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OriginError {
    /// There is no `://`.
    #[error("the scheme is missing; write https://{0}")]
    NoScheme(String),
    /// The scheme has invalid characters.
    #[error("the scheme is invalid; write https:// or http://")]
    Scheme,
    /// `null`.
    #[error(
        "every sandboxed frame and local file has the origin null, so any site could use it; name the page's real origin"
    )]
    Null,
    /// There is something after host and port.
    #[error("browsers send an origin without a path, query or slash at the end; write {0}")]
    Path(String),
    /// There is a user or a password.
    #[error("browsers send an origin without a user or a password; write only scheme, host and port")]
    User,
    /// The star is not the first label, or not a whole one.
    #[error(
        "a star stands for whole labels at the start of the host; write for example https://*.example.com"
    )]
    Star,
    /// The pattern covers a whole top-level domain.
    #[error("it would allow every site below .{0}; name the domain, for example https://*.example.{0}")]
    TooWide(String),
    /// The host is empty or has invalid characters.
    #[error("the host is invalid; use letters, digits and -, other scripts as xn--…, IPv6 in brackets")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port is invalid; use 1 to 65535")]
    Port,
}

impl FromStr for AllowedOrigin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        match text {
            "*" => return Ok(Self::Any),
            "null" => return Err(OriginError::Null),
            _ => {}
        }
        let lower = text.to_ascii_lowercase();
        let (scheme, rest) = lower.split_once("://").ok_or_else(|| {
            let host = lower.trim_start_matches('/');
            OriginError::NoScheme(host.split('/').next().unwrap_or_default().to_owned())
        })?;
        if !is_scheme(scheme) {
            return Err(OriginError::Scheme);
        }
        if rest.contains('@') {
            return Err(OriginError::User);
        }
        if let Some((authority, _)) = rest.split_once(['/', '?', '#', '\\']) {
            return Err(OriginError::Path(format!("{scheme}://{authority}")));
        }
        let (host, port) = split_port(rest)?;
        let port = port.filter(|port| default_port(scheme) != Some(*port));
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let (depth, domain) = match (host.strip_prefix("*."), host.strip_prefix("**.")) {
            (Some(domain), _) => (Depth::One, domain),
            (None, Some(domain)) => (Depth::Many, domain),
            (None, None) => return Ok(Self::Exact(format!("{scheme}://{}{port}", host_form(host)?))),
        };
        let domain = Some(domain).filter(|domain| !domain.starts_with('[')).ok_or(OriginError::Star)?;
        let domain = host_form(domain)?;
        if !domain.contains('.') && domain != "localhost" {
            return Err(OriginError::TooWide(domain));
        }
        Ok(Self::Subdomains { scheme: format!("{scheme}://"), depth, suffix: format!(".{domain}{port}") })
    }
}

impl AllowedOrigin {
    /// True if a request's `Origin` is this one, or one of these.
    pub fn matches(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact.as_bytes() == origin,
            Self::Subdomains { scheme, depth, suffix } => {
                let labels = origin.strip_prefix(scheme.as_bytes());
                let labels = labels.and_then(|rest| rest.strip_suffix(suffix.as_bytes()));
                labels.is_some_and(|labels| match depth {
                    Depth::One => is_label(labels),
                    Depth::Many => labels.split(|byte| *byte == b'.').all(is_label),
                })
            }
        }
    }
}

impl fmt::Display for AllowedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(origin) => f.write_str(origin),
            Self::Subdomains { scheme, depth: Depth::One, suffix } => write!(f, "{scheme}*{suffix}"),
            Self::Subdomains { scheme, depth: Depth::Many, suffix } => write!(f, "{scheme}**{suffix}"),
        }
    }
}

/// True if it is a scheme in lower case. Apps and browser extensions have schemes of their own.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
}

/// The port that browsers leave out.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// The host, and the port if there is one.
fn split_port(authority: &str) -> Result<(&str, Option<u16>), OriginError> {
    let has_port = authority.rsplit(']').next().is_some_and(|after_address| after_address.contains(':'));
    let Some((host, digits)) = authority.rsplit_once(':').filter(|_| has_port) else {
        return Ok((authority, None));
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| *port > 0 && is_number).ok_or(OriginError::Port)?;
    Ok((host, Some(port)))
}

/// A host without stars, as browsers write it.
fn host_form(host: &str) -> Result<String, OriginError> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = address.parse().map_err(|_| OriginError::Host)?;
        return Ok(format!("[{address}]"));
    }
    if host.contains('*') {
        return Err(OriginError::Star);
    }
    let is_host = host.as_bytes().split(|byte| *byte == b'.').all(is_label);
    is_host.then(|| host.to_owned()).ok_or(OriginError::Host)
}

/// True if these bytes are one label of a host.
fn is_label(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    /// The normalised form for comparisons, or why the origin is invalid.
    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let shown = text
            .parse()
            .map_or_else(|error: OriginError| error.to_string(), |o: AllowedOrigin| o.to_string());
        expected.assert_eq(&shown);
    }

    #[test]
    fn an_origin_is_compared_in_the_form_that_browsers_send() {
        check("https://App.Example.COM", expect!["https://app.example.com"]);
        check("HTTPS://app.example.com:443", expect!["https://app.example.com"]);
        check("http://app.example.com:80", expect!["http://app.example.com"]);
        check("http://app.example.com:443", expect!["http://app.example.com:443"]);
        check("http://localhost:03000", expect!["http://localhost:3000"]);
        check("http://[0:0::1]:3000", expect!["http://[::1]:3000"]);
        check("capacitor://localhost", expect!["capacitor://localhost"]);
        check("https://*.Example.com:443", expect!["https://*.example.com"]);
        check("https://**.example.com:8443", expect!["https://**.example.com:8443"]);
        check("http://*.localhost:3000", expect!["http://*.localhost:3000"]);
        check("*", expect!["*"]);
    }

    #[test]
    fn a_text_that_no_browser_sends_is_rejected_with_advice() {
        check("app.example.com", expect!["the scheme is missing; write https://app.example.com"]);
        check("//app.example.com/x", expect!["the scheme is missing; write https://app.example.com"]);
        check("ht tp://a", expect!["the scheme is invalid; write https:// or http://"]);
        check(
            "null",
            expect![
                "every sandboxed frame and local file has the origin null, so any site could use it; name the page's real origin"
            ],
        );
        check(
            "https://App.example.com/",
            expect![
                "browsers send an origin without a path, query or slash at the end; write https://app.example.com"
            ],
        );
        check(
            "https://a.example:8443/x?y",
            expect![
                "browsers send an origin without a path, query or slash at the end; write https://a.example:8443"
            ],
        );
        check(
            "https://a.example#x",
            expect![
                "browsers send an origin without a path, query or slash at the end; write https://a.example"
            ],
        );
        check(
            "https://me:pw@a.example",
            expect!["browsers send an origin without a user or a password; write only scheme, host and port"],
        );
        for text in [
            "https://*example.com",
            "https://a.*.com",
            "https://*",
            "https://a*.example.com",
            "https://***.a.b",
            "https://*.*.a.b",
            "https://*.[::1]",
        ] {
            let error = text.parse::<AllowedOrigin>().unwrap_err();
            assert_eq!(error, OriginError::Star, "{text}");
        }
        check(
            "https://*.com",
            expect![
                "it would allow every site below .com; name the domain, for example https://*.example.com"
            ],
        );
        for text in [
            "https://",
            "https://a..b",
            "https://.a.b",
            "https://a.b.",
            "https://ä.example",
            "https://a b",
            "https://[::x]",
            "https://*.",
            "https://a,b",
            "https://a:1:2",
        ] {
            let error = text.parse::<AllowedOrigin>().unwrap_err();
            assert_eq!(error, OriginError::Host, "{text}");
        }
        for text in ["https://a:", "https://a:0", "https://a:65536", "https://a:+1", "https://[::1]:x"] {
            let error = text.parse::<AllowedOrigin>().unwrap_err();
            assert_eq!(error, OriginError::Port, "{text}");
        }
    }

    #[track_caller]
    fn check_match(pattern: &str, matching: &[&str], others: &[&str]) {
        let allowed: AllowedOrigin = pattern.parse().unwrap();
        for origin in matching {
            assert!(allowed.matches(origin.as_bytes()), "{pattern} {origin}");
        }
        for origin in others {
            assert!(!allowed.matches(origin.as_bytes()), "{pattern} {origin}");
        }
    }

    #[test]
    fn a_star_stands_for_whole_labels() {
        check_match(
            "https://*.example.com",
            &["https://app.example.com", "https://a-1_b.example.com", "https://xn--4ca.example.com"],
            &[
                "https://example.com",
                "https://.example.com",
                "https://evil-example.com",
                "https://evilexample.com",
                "https://a.b.example.com",
                "http://app.example.com",
                "https://app.example.com:8443",
                "https://app.example.com.evil.example",
                "https://evil.example/.example.com",
                "https://evil.example:1.example.com",
                "https://evil.example#.example.com",
                "https://me@.example.com",
                "https://APP.example.com",
                "https://app.example.com.",
                "https://a\u{0}.example.com",
                "null",
                "",
            ],
        );
        check_match(
            "https://**.example.com:8443",
            &["https://a.example.com:8443", "https://a.b.c.example.com:8443"],
            &[
                "https://example.com:8443",
                "https://a..example.com:8443",
                "https://.a.example.com:8443",
                "https://a.b.example.com",
            ],
        );
        check_match(
            "https://a.example",
            &["https://a.example"],
            &["https://b.a.example", "https://a.exampl", "null"],
        );
    }

    proptest! {
        /// What a pattern matches ends, label by label, with the labels of the pattern.
        #[test]
        fn no_suffix_matches_that_is_not_whole_labels(host in "[a-z.:/@-]{0,12}", dots in "[.]{0,1}") {
            let one: AllowedOrigin = "https://*.example.com".parse().unwrap();
            let many: AllowedOrigin = "https://**.example.com".parse().unwrap();
            let origin = format!("https://{host}{dots}example.com");
            let labels: Vec<_> = origin.strip_prefix("https://").unwrap().split('.').collect();
            let ends = labels.len() > 2 && labels[labels.len() - 2..] == ["example", "com"];
            let is_plain = labels.iter().all(|label| !label.is_empty() && !label.contains(['/', ':', '@']));
            prop_assert_eq!(many.matches(origin.as_bytes()), ends && is_plain);
            prop_assert_eq!(one.matches(origin.as_bytes()), ends && is_plain && labels.len() == 3);
        }
    }
}
