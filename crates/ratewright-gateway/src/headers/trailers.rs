//! Trailers: headers after a body.
//!
//! Some upstreams merge them into the head. So trailers must not contain headers that were checked, removed or replaced
//! there: identity, target, framing, and headers that a policy reads.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED,
    HOST, SET_COOKIE, TRAILER,
};
use http::{HeaderMap, HeaderName};
use ratewright_http::IdentityRules;

use super::forwarded::is_claim;
use super::hop_by_hop::{hop_by_hop, is_alias};
use super::identity::PolicyHeaders;

/// Headers that are valid only in the head.
const HEAD_ONLY: [HeaderName; 10] = [
    HOST,
    AUTHORIZATION,
    COOKIE,
    FORWARDED,
    EXPECT,
    TRAILER,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_RANGE,
];

/// More of them, without a constant in http.
const HEAD_ONLY_BY_NAME: [&str; 2] = ["x-request-id", "x-correlation-id"];

/// Removes trailers that are valid only in the head.
pub fn clean_trailers(trailers: &mut HeaderMap, rules: &IdentityRules, read: &PolicyHeaders) {
    let user = rules.user_header.as_ref().map(HeaderName::as_str);
    let is_removed = |name: &&HeaderName| {
        HEAD_ONLY.contains(name)
            || HEAD_ONLY_BY_NAME.contains(&name.as_str())
            || hop_by_hop(name).is_some()
            || is_claim(name.as_str(), user)
            || is_alias(name.as_str())
            || read.contain(name)
            || read.contain_alias_of(name)
    };
    let removed: Vec<_> = trailers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
}

/// Removes trailers that a response must not contain: headers that are valid only in the head, and hop-by-hop headers,
/// which make the response invalid for HTTP/2 clients.
pub fn clean_response_trailers(trailers: &mut HeaderMap) {
    let is_removed = |name: &&HeaderName| {
        HEAD_ONLY.contains(name)
            || **name == SET_COOKIE
            || name.as_str().starts_with("access-control-")
            || hop_by_hop(name).is_some()
    };
    let removed: Vec<_> = trailers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use ratewright_core::query::AttributeName;
    use ratewright_core::quota::Algorithm;
    use ratewright_core::{Policies, Policy, Quota};

    #[test]
    fn trailers_contain_no_head_only_headers() {
        let rules = IdentityRules::default().user_header(Some(HeaderName::from_static("x-user-id")));
        let quota = Quota::new(Algorithm::SlidingWindow, "1/h".parse().unwrap()).unwrap();
        let policy = Policy::new("p", quota).unwrap().by(&[AttributeName::Header("x-api-key")]);
        let read = PolicyHeaders::of([&Policies::new(vec![policy]).unwrap()], &rules);
        let mut trailers = HeaderMap::new();
        for name in [
            "x-api-key",
            "x_api-key",
            "content_length",
            "x-user-id",
            "x_user_id",
            "x-forwarded-for",
            "x-real-ip",
            "forwarded",
            "host",
            "authorization",
            "cookie",
            "content-length",
            "transfer-encoding",
            "connection",
            "te",
            "x-original-url",
            "x-request-id",
            "expect",
            "trailer",
            "x-checksum",
            "grpc-status",
        ] {
            trailers.insert(name, HeaderValue::from_static("1"));
        }
        clean_trailers(&mut trailers, &rules, &read);
        let mut left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["grpc-status", "x-checksum"]);
    }

    #[test]
    fn response_trailers_contain_no_head_only_or_connection_headers() {
        let mut trailers = HeaderMap::new();
        for name in [
            "connection",
            "keep-alive",
            "te",
            "upgrade",
            "transfer-encoding",
            "content-length",
            "set-cookie",
            "access-control-allow-origin",
        ] {
            trailers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        clean_response_trailers(&mut trailers);
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["grpc-status"]);
    }
}
