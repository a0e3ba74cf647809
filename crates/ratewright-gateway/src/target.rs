//! The one path of a request: matched, limited and forwarded.
//!
//! If the server read another path than the one that was limited, a limit could be walked around. So the server gets the
//! normal path too, not the one that the client wrote.
//!
//! ```text
//!   written     /Shop//caf%c3%a9/../login%2Fx/?next=//a
//!   matched     /Shop/login/x                              and limited by
//!   forwarded   /Shop/login/x/?next=//a                    a slash at the end and the query stay
//! ```
//!
//! The slash at the end stays because servers may mean something by it; for limits it makes no difference. Nothing of the query
//! is touched: it has no normal form.
//!
//! # Laws
//! - What is forwarded would be forwarded as it is, and matched as the same path.
//! - A path that is normal already is neither changed nor copied.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::uri::PathAndQuery;
use http::{Method, Uri};
use ratewright_http::path::{Case, has_control, normalise};

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    path: Cow<'a, str>,
    rewritten: Option<PathAndQuery>,
    written: Option<&'a PathAndQuery>,
}

/// Why a request goes nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// `OPTIONS *` asks about the server as a whole.
    #[error("* names no path, and a gateway cannot answer for all servers behind it; ask for a path")]
    Asterisk,
    /// `CONNECT`, or an authority alone.
    #[error("this gateway opens no tunnels; ask for a path")]
    Tunnel,
    /// Some servers end the path there, or drop the character: `/static/..%00/login` may be `/login` to them.
    #[error("the path contains a control character, perhaps percent-encoded; remove it")]
    Control,
    /// The normal path and the query are longer than any server takes.
    #[error("the path and the query have more than {} bytes in their normal form", Target::LEN_MAX)]
    TooLong,
}

impl<'a> Target<'a> {
    /// The longest path with its query, in bytes: what a `Uri` can hold.
    pub const LEN_MAX: usize = u16::MAX as usize - 1;

    /// Where a request goes that asks for this.
    ///
    /// # Errors
    /// If it does not ask for a path, or for one that is too long or contains a control character.
    pub fn of(method: &Method, uri: &'a Uri, case: Case) -> Result<Self, TargetError> {
        if method == Method::CONNECT || (uri.authority().is_some() && uri.scheme().is_none()) {
            return Err(TargetError::Tunnel);
        }
        let written = uri.path();
        if written == "*" {
            return Err(TargetError::Asterisk);
        }
        if has_control(written) {
            return Err(TargetError::Control);
        }
        let normal = normalise(written, Case::Sensitive);
        let has_all = uri.path_and_query().is_some_and(|whole| whole.as_str().starts_with('/'));
        let is_normal = matches!(normal, Cow::Borrowed(_)) && normal.is_ascii() && has_all && written != "//";
        let rewritten = if is_normal { None } else { Some(rewrite(&normal, written, uri.query())?) };
        let path = match case {
            Case::Sensitive => normal,
            Case::Insensitive => normalise(written, case),
        };
        Ok(Self { path, rewritten, written: uri.path_and_query() })
    }

    /// The normal path, to be matched and limited.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the server is asked for, if it is not what the client wrote.
    pub fn rewritten(&self) -> Option<&PathAndQuery> {
        self.rewritten.as_ref()
    }

    /// What the server is asked for.
    pub fn forwarded(&self) -> PathAndQuery {
        let slash = || PathAndQuery::from_static("/");
        self.rewritten.as_ref().or(self.written).cloned().unwrap_or_else(slash)
    }
}

/// What the server is asked for: the normal path in ASCII, with a slash at its end if one was written, and the query.
#[cold]
fn rewrite(normal: &str, written: &str, query: Option<&str>) -> Result<PathAndQuery, TargetError> {
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
    if written.ends_with('/') && !text.ends_with('/') {
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
    fn check(written: &str, matched: &str, forwarded: &str) {
        let uri: Uri = written.parse().unwrap();
        let target = Target::of(&Method::GET, &uri, Case::Sensitive).unwrap();
        assert_eq!((target.path(), target.forwarded().as_str()), (matched, forwarded), "{written}");
    }

    #[test]
    fn what_is_matched_is_what_is_forwarded() {
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
    fn what_is_not_ascii_is_matched_as_it_is_and_forwarded_encoded() {
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
    fn what_is_no_path_is_refused() {
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
    fn case_matters_to_the_server_also_if_it_does_not_to_limits() {
        let uri: Uri = "/Login/?A".parse().unwrap();
        let target = Target::of(&Method::GET, &uri, Case::Insensitive).unwrap();
        assert_eq!((target.path(), target.forwarded().as_str()), ("/login", "/Login/?A"));
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for written in ["/", "/api/orders/17?x=1", "/a/", "/a%20b"] {
            let uri: Uri = written.parse().unwrap();
            let made = allocation_counter::measure(|| {
                let target = Target::of(&Method::GET, &uri, Case::Sensitive).unwrap();
                assert!(target.rewritten().is_none());
            });
            assert_eq!(made.count_total, 0, "{written}");
        }
    }

    /// Paths with a query, often with what is peculiar about them.
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
        fn what_is_forwarded_is_forwarded_as_it_is(uri in uris(), is_folded: bool) {
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
