//! Fields at the end of a body.
//!
//! Some servers add them to those of the head. So nothing may come here that was judged, taken away or made anew there: who is
//! asking and for whom, what for, how long the body is, and whatever a policy reads.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED,
    HOST, SET_COOKIE, TRAILER,
};
use http::{HeaderMap, HeaderName};
use ratewright_http::IdentityRules;

use super::forwarded::is_claim;
use super::hop_by_hop::{hop_by_hop, is_double};
use super::identity::ReadHeaders;

/// Fields that count only in the head.
const OF_HEADS: [HeaderName; 10] = [
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

/// More of them, those that http has no names for.
const OF_HEADS_TOO: [&str; 2] = ["x-request-id", "x-correlation-id"];

/// Takes away what would have counted only in the head.
pub fn clean_trailers(trailers: &mut HeaderMap, rules: &IdentityRules, read: &ReadHeaders) {
    let user = rules.user_header.as_ref().map(HeaderName::as_str);
    let is_removed = |name: &&HeaderName| {
        OF_HEADS.contains(name)
            || OF_HEADS_TOO.contains(&name.as_str())
            || hop_by_hop(name).is_some()
            || is_claim(name.as_str(), user)
            || is_double(name.as_str())
            || read.contain(name)
            || read.contain_double_of(name)
    };
    let removed: Vec<_> = trailers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
}

/// Removes what an upstream's trailers must not contain: headers that count only in the head, and those of the
/// connection, which HTTP/2 clients take for an error of the whole response.
pub fn clean_response_trailers(trailers: &mut HeaderMap) {
    let is_removed = |name: &&HeaderName| {
        OF_HEADS.contains(name)
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
    use ratewright_core::{Algorithm, AttributeName, Policies, Policy, Quota};

    #[test]
    fn nothing_that_counts_in_the_head_comes_at_the_end() {
        let rules = IdentityRules {
            user_header: Some(HeaderName::from_static("x-user-id")),
            ..IdentityRules::default()
        };
        let quota = Quota::new(Algorithm::SlidingWindow, "1/h".parse().unwrap()).unwrap();
        let policy = Policy::new("p", quota).unwrap().by(&[AttributeName::Header("x-api-key")]);
        let read = ReadHeaders::of([&Policies::new(vec![policy]).unwrap()], &rules);
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
    fn trailers_of_a_response_say_nothing_of_its_head_or_its_connection() {
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
