//! Rejects requests with ambiguous identity: those for which the upstream may read another client than the one we
//! count.
//!
//! A limit helps only if it counts what the upstream reads. Two `Authorization` headers name two users, and the
//! upstream may use the other one. `Connection: X-Api-Key` removes the key after it was counted, so every made-up key
//! gets a fresh bucket and the upstream sees none. `post` is counted as another method than `POST`, but some upstreams
//! serve both. All of these get 400.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONNECTION, COOKIE, FORWARDED, HOST};
use http::request::Parts;
use http::{HeaderName, Method};
use ratewright_core::Policies;
use ratewright_core::query::AttributeName;
use ratewright_http::identify::METHOD_OVERRIDES;
use ratewright_http::{HttpSettings, IdentityRules};

use super::hop_by_hop::{connection_options, hop_by_hop, is_alias_of};
use crate::explain_header::EXPLAIN;
use crate::snapshot::Snapshot;

/// The headers that policies and identification read.
#[derive(Clone, Debug, Default)]
pub struct PolicyHeaders(Vec<HeaderName>);

/// Which headers are trusted and read, by one policy file.
#[derive(Clone, Debug)]
pub(crate) struct HeaderRules {
    /// The identification rules.
    pub(crate) http_settings: Arc<HttpSettings>,
    pub(crate) read: PolicyHeaders,
}

/// Why a request's identity is ambiguous.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Some upstreams use the first and some the last.
    #[error("the request has several Authorization headers; send one")]
    DuplicateAuthorization,
    /// Methods are case-sensitive, but not for every upstream.
    #[error("the method {0} contains lower-case letters; write it in capitals")]
    LowercaseMethod(Method),
    /// It would be removed after it was counted.
    #[error("Connection names {0}, which must reach the upstream; remove it from Connection")]
    Connection(HeaderName),
}

impl PolicyHeaders {
    /// The headers that these policies and rules read.
    pub fn of<'a>(policies: impl IntoIterator<Item = &'a Policies>, rules: &IdentityRules) -> Self {
        let needs = policies.into_iter().flat_map(|policies| policies.needs().iter());
        let of_policies = needs.filter_map(|need| {
            let AttributeName::Header(name) = need else { return None };
            HeaderName::from_bytes(name.as_bytes()).ok()
        });
        let others = rules.user_header.clone().into_iter().chain(METHOD_OVERRIDES.clone()).chain([EXPLAIN]);
        let mut read: Vec<_> = of_policies.chain(others).collect();
        read.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        read.dedup();
        Self(read)
    }

    /// True if policies or identification read this header.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }

    /// True if a name is not read, but is an alias of one that is.
    pub(super) fn contain_alias_of(&self, name: &HeaderName) -> bool {
        !self.contain(name)
            && self.0.iter().any(|read| {
                is_alias_of(name.as_str(), read.as_str()) || is_alias_of(read.as_str(), name.as_str())
            })
    }
}

impl HeaderRules {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let Snapshot { policies, permits, http_settings, .. } = snapshot;
        let read = PolicyHeaders::of([&**policies, &**permits], &http_settings.rules);
        Self { http_settings: Arc::clone(http_settings), read }
    }
}

/// Rejects a request with ambiguous identity.
///
/// # Errors
/// The first reason found.
pub fn check_identity(request: &Parts, read: &PolicyHeaders) -> Result<(), IdentityError> {
    if request.method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(IdentityError::LowercaseMethod(request.method.clone()));
    }
    if request.headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(IdentityError::DuplicateAuthorization);
    }
    if !request.headers.contains_key(CONNECTION) {
        return Ok(());
    }
    let mut options = connection_options(&request.headers).into_iter();
    let removed =
        options.find(|name| identifies_client(name) || (read.contain(name) && hop_by_hop(name).is_none()));
    removed.map_or(Ok(()), |name| Err(IdentityError::Connection(name)))
}

/// True if a header identifies the client under any policy.
fn identifies_client(name: &HeaderName) -> bool {
    [AUTHORIZATION, COOKIE, HOST, FORWARDED].contains(name)
        || name == "x-real-ip"
        || name.as_str().starts_with("x-forwarded-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use ratewright_core::policy::Cost;
    use ratewright_core::quota::{Algorithm, Refill};
    use ratewright_core::{Policy, Quota};

    fn read() -> PolicyHeaders {
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/h".parse().unwrap()).unwrap();
        let policy = Policy::new("p", quota).unwrap();
        let policy = policy.by(&[AttributeName::Header("X-Api-Key"), AttributeName::Header("upgrade")]);
        let policy = policy.with_cost(Cost::Of(AttributeName::Header("x-cost".to_owned())));
        let rules = IdentityRules::default().user_header(Some(HeaderName::from_static("x-user-id")));
        PolicyHeaders::of([&Policies::new(vec![policy]).unwrap()], &rules)
    }

    #[track_caller]
    fn check(method: &str, fields: &[(&str, &str)], expected: Result<(), IdentityError>) {
        let mut request = Request::builder().method(method);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(check_identity(&parts, &read()), expected, "{method} {fields:?}");
    }

    #[test]
    fn a_request_has_at_most_one_authorization() {
        let one = ("authorization", "Bearer a");
        check("GET", &[one], Ok(()));
        check("GET", &[one, one], Err(IdentityError::DuplicateAuthorization));
        check("GET", &[one, ("Authorization", "")], Err(IdentityError::DuplicateAuthorization));
    }

    #[test]
    fn a_method_has_no_lower_case_letters() {
        for method in ["GET", "PROPFIND", "M-SEARCH", "REPORT", "X-1", "VERSION-CONTROL"] {
            check(method, &[], Ok(()));
        }
        for method in ["get", "post", "Post", "POSt", "x"] {
            let refused = IdentityError::LowercaseMethod(Method::from_bytes(method.as_bytes()).unwrap());
            check(method, &[], Err(refused));
        }
    }

    #[test]
    fn connection_must_not_name_policy_headers() {
        for options in
            ["close", "keep-alive, Upgrade", "TE", "te, trailers", "X-Mine", "x_api_key", ", ,", ""]
        {
            check("GET", &[("connection", options)], Ok(()));
        }
        for name in [
            "X-Api-Key",
            "x-cost",
            "X-User-Id",
            "Authorization",
            "Cookie",
            "Host",
            "X-Forwarded-For",
            "Forwarded",
        ] {
            let refused = IdentityError::Connection(name.parse().unwrap());
            for options in [name.to_owned(), format!("close , {name}"), format!("x-mine,{name},close")] {
                check("GET", &[("connection", &options)], Err(refused.clone()));
                check("GET", &[("connection", "keep-alive"), ("connection", &options)], Err(refused.clone()));
            }
        }
    }
}
