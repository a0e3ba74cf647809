//! The one path of a request: matched, limited and forwarded.
//!
//! If the upstream read another path than the one that was limited, limits could be bypassed. So the upstream gets the
//! normalized path, not the client's.
//!
//! ```text
//!   raw         /Shop//caf%c3%a9/../login%2Fx/?next=//a
//!   matched     /Shop/login/x                              and limited
//!   forwarded   /Shop/login/x/?next=//a                    a slash at the end and the query stay
//! ```
//!
//! The slash at the end stays because it may matter to the upstream; limits ignore it. The query is not changed: it has
//! no normalized form.
//!
//! # Laws
//! - Forwarding is idempotent: the forwarded target is forwarded unchanged, and matched as the same path.
//! - A normalized path is neither changed nor copied.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use ratewright_http::path::{Case, has_control, normalise};

/// The target of a request.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    path: Cow<'a, str>,
    rewritten: Option<PathAndQuery>,
    raw: Option<&'a PathAndQuery>,
}

/// Why a target is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// `OPTIONS *` asks about the server as a whole.
    #[error("target * has no path; request a path")]
    Asterisk,
    /// `CONNECT`, or an authority alone.
    #[error("CONNECT is not supported; request a path")]
    Tunnel,
    /// Some upstreams end the path there, or drop the character: they may read `/static/..%00/login` as `/login`.
    #[error("path contains a control character, possibly percent-encoded; remove it")]
    Control,
    /// Path and query exceed [`Target::LEN_MAX`].
    #[error("path and query exceed {} bytes in normalized form", Target::LEN_MAX)]
    TooLong,
}

impl<'a> Target<'a> {
    /// The longest path with its query, in bytes: the maximum of a `Uri`.
    pub const LEN_MAX: usize = u16::MAX as usize - 1;

    /// The target of a request.
    ///
    /// # Errors
    /// If it contains no path, or one that is too long or contains a control character.
    pub fn of(method: &Method, uri: &'a Uri, case: Case) -> Result<Self, TargetError> {
        if method == Method::CONNECT || (uri.authority().is_some() && uri.scheme().is_none()) {
            return Err(TargetError::Tunnel);
        }
        let raw = uri.path();
        if raw == "*" {
            return Err(TargetError::Asterisk);
        }
        if has_control(raw) {
            return Err(TargetError::Control);
        }
        let normal = normalise(raw, Case::Sensitive);
        let has_all = uri.path_and_query().is_some_and(|whole| whole.as_str().starts_with('/'));
        let is_normal = matches!(normal, Cow::Borrowed(_)) && normal.is_ascii() && has_all && raw != "//";
        let rewritten = if is_normal { None } else { Some(rewrite(&normal, raw, uri.query())?) };
        let path = match case {
            Case::Sensitive => normal,
            Case::Insensitive => normalise(raw, case),
        };
        Ok(Self { path, rewritten, raw: uri.path_and_query() })
    }

    /// The normalized path, for matching and limiting.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The forwarded path and query, if they differ from the client's.
    pub fn rewritten(&self) -> Option<&PathAndQuery> {
        self.rewritten.as_ref()
    }

    /// The forwarded path and query.
    pub fn forwarded(&self) -> PathAndQuery {
        let slash = || PathAndQuery::from_static("/");
        self.rewritten.as_ref().or(self.raw).cloned().unwrap_or_else(slash)
    }
}

/// The normalized path in ASCII, with a slash at its end if the raw path has one, and the query.
#[cold]
fn rewrite(normal: &str, raw: &str, query: Option<&str>) -> Result<PathAndQuery, TargetError> {
    let mut text = String::with_capacity(normal.len() + query.map_or(0, str::len) + 2);
    for char in normal.chars() {
        if char.is_ascii() {
            text.push(char);
            continue;
        }
        for byte in char.encode_utf8(&mut [0; 4]).bytes() {
            write!(text, "%{byte:02X}").expect("a string takes all that is written");
        }
    }
    if raw.ends_with('/') && !text.ends_with('/') {
        text.push('/');
    }
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    if text.len() > Target::LEN_MAX {
        return Err(TargetError::TooLong);
    }
    text.try_into().map_err(|_| TargetError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(raw: &str, matched: &str, forwarded: &str) {
        let uri: Uri = raw.parse().unwrap();
        let target = Target::of(&Method::GET, &uri, Case::Sensitive).unwrap();
        assert_eq!((target.path(), target.forwarded().as_str()), (matched, forwarded), "{raw}");
    }

    #[test]
    fn the_matched_path_is_the_forwarded_path() {
        check("/", "/", "/");
        check("/a/b?x=1", "/a/b", "/a/b?x=1");
        check("/a//b/../c%2Fd?x=//..", "/a/c/d", "/a/c/d?x=//..");
        check("/%6Cogin", "/login", "/login");
        check("/a;v=1/b", "/a/b", "/a/b");
        check("/..%2f..", "/", "/");
        check("/a?", "/a", "/a?");
    }

    #[test]
    fn a_slash_at_the_end_is_forwarded_and_not_matched() {
        check("/a/", "/a", "/a/");
        check("/a//?q", "/a", "/a/?q");
        check("//", "/", "/");
        check("/a/../", "/", "/");
    }

    #[test]
    fn non_ascii_paths_are_matched_decoded_and_forwarded_encoded() {
        check("/caf%c3%a9", "/café", "/caf%C3%A9");
        check("/café?é", "/café", "/caf%C3%A9?é");
        check("/%ff", "/%FF", "/%FF");
    }

    #[test]
    fn an_absolute_target_loses_its_host() {
        check("http://a.example/x?y", "/x", "/x?y");
        check("http://a.example", "/", "/");
        check("http://a.example?y", "/", "/?y");
    }

    #[test]
    fn targets_without_a_path_are_rejected() {
        let of = |method: Method, uri: &str| {
            Target::of(&method, &uri.parse().unwrap(), Case::Sensitive).map(|_| ()).unwrap_err()
        };
        assert_eq!(of(Method::OPTIONS, "*"), TargetError::Asterisk);
        assert_eq!(of(Method::GET, "*"), TargetError::Asterisk);
        assert_eq!(of(Method::CONNECT, "a.example:443"), TargetError::Tunnel);
        assert_eq!(of(Method::GET, "a.example:443"), TargetError::Tunnel);
        assert_eq!(of(Method::CONNECT, "https://a.example/chat"), TargetError::Tunnel);
        for path in ["/static/..%00/login", "/static/.%09./login", "/%252e%250a", "/a%7F?b"] {
            assert_eq!(of(Method::GET, path), TargetError::Control, "{path}");
        }
        assert!(Target::of(&Method::GET, &"/a?%00".parse().unwrap(), Case::Sensitive).is_ok());
        let long = format!("/{}", "é".repeat(20_000));
        assert_eq!(of(Method::GET, &long), TargetError::TooLong);
    }

    #[test]
    fn the_forwarded_path_keeps_its_case_even_if_limits_ignore_it() {
        let uri: Uri = "/Login/?A".parse().unwrap();
        let target = Target::of(&Method::GET, &uri, Case::Insensitive).unwrap();
        assert_eq!((target.path(), target.forwarded().as_str()), ("/login", "/Login/?A"));
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for raw in ["/", "/api/orders/17?x=1", "/a/", "/a%20b"] {
            let uri: Uri = raw.parse().unwrap();
            let made = allocation_counter::measure(|| {
                let target = Target::of(&Method::GET, &uri, Case::Sensitive).unwrap();
                assert!(target.rewritten().is_none());
            });
            assert_eq!(made.count_total, 0, "{raw}");
        }
    }

    /// Paths with a query, often with special characters.
    fn uris() -> impl Strategy<Value = Uri> {
        let parts = prop::sample::select(vec![
            "/", "\\", ".", "..", "%", "25", "2f", "5C", "2e", "%41", "%c3%a9", "%ff", "a", "B", ";", "é",
            "?", "{", "=", "//",
        ]);
        let texts = prop::collection::vec(parts, 0..20).prop_map(|parts| format!("/{}", parts.concat()));
        texts.prop_filter_map("no uri", |text| text.parse().ok())
    }

    proptest! {
        #[test]
        fn forwarding_is_idempotent(uri in uris(), is_folded: bool) {
            let case = if is_folded { Case::Insensitive } else { Case::Sensitive };
            let target = Target::of(&Method::GET, &uri, case).unwrap();
            let forwarded = target.forwarded();
            prop_assert_eq!(normalise(forwarded.path(), case), target.path());
            prop_assert!(forwarded.path().is_ascii());
            prop_assert_eq!(forwarded.query(), uri.query());
            let again = Uri::from(forwarded.clone());
            let again = Target::of(&Method::GET, &again, case).unwrap();
            prop_assert_eq!(again.path(), target.path());
            prop_assert_eq!(again.forwarded(), forwarded);
        }
    }
}
