//! CORS headers of responses, without a socket.

use expect_test::{Expect, expect};
use http::Request;

use super::*;

fn rules(origins: &[&str]) -> CorsRules {
    CorsRules {
        origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(),
        methods: vec![Method::GET, Method::PUT],
        headers: AllowedHeaders::Listed(vec![http::header::CONTENT_TYPE]),
        expose: Vec::new(),
        credentials: false,
        max_age: Duration::from_millis(1_999),
    }
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    lines.iter().map(line).fold(HeaderMap::new(), |mut headers, (name, value)| {
        headers.append(name, value);
        headers
    })
}

fn shown(headers: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines.join("\n")
}

/// The response headers to a request with these headers.
#[track_caller]
fn check(
    rules: CorsRules,
    request: &[(&'static str, &str)],
    response: &[(&'static str, &str)],
    expected: Expect,
) {
    let (cors, mut response) = (Cors::new(rules).unwrap(), headers(response));
    cors.headers_for(&headers(request)).write(&mut response);
    expected.assert_eq(&shown(&response));
}

const APP: &str = "https://app.example.com";

#[test]
fn an_allowed_origin_is_echoed_and_others_are_not() {
    let echoed = expect![[r#"
        access-control-allow-origin: https://app.example.com
        access-control-expose-headers: X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After, X-Correlation-Id
        vary: Origin"#]];
    check(rules(&[APP]), &[("origin", APP)], &[], echoed);
    for request in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "*")],
        &[("origin", APP), ("origin", APP)],
        &[("origin", APP), ("origin", "https://evil.example")],
        &[("origin", "https://app.example.com, https://evil.example")],
    ] {
        check(rules(&[APP]), request, &[], expect!["vary: Origin"]);
    }
}

#[test]
fn a_star_does_not_depend_on_the_origin() {
    let expose = "access-control-expose-headers: X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After, X-Correlation-Id";
    for request in [&[][..], &[("origin", APP)], &[("origin", "null")], &[("origin", APP), ("origin", APP)]] {
        let cors = Cors::new(rules(&["*"])).unwrap();
        let mut response = HeaderMap::new();
        cors.headers_for(&headers(request)).write(&mut response);
        assert_eq!(shown(&response), format!("access-control-allow-origin: *\n{expose}"), "{request:?}");
    }
}

#[test]
fn upstream_cors_headers_are_replaced() {
    let response = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-origin", "https://evil.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "ETag"),
        ("access-control-expose-headers", "Retry-After"),
        ("access-control-allow-private-network", "true"),
        ("access-control-max-age", "86400"),
        ("content-type", "text/plain"),
    ];
    check(
        rules(&[APP]),
        &[("origin", "https://evil.example")],
        &response,
        expect![[r#"
        content-type: text/plain
        vary: Origin"#]],
    );
    let own = CorsRules {
        credentials: true,
        expose: vec![http::header::ETAG, http::header::RETRY_AFTER],
        ..rules(&["https://*.example.com"])
    };
    check(
        own,
        &[("origin", APP)],
        &response,
        expect![[r#"
        access-control-allow-credentials: true
        access-control-allow-origin: https://app.example.com
        access-control-expose-headers: X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After, X-Correlation-Id, etag
        content-type: text/plain
        vary: Origin"#]],
    );
}

#[test]
fn vary_is_merged() {
    let vary = |response: &[(&'static str, &str)], expected| check(rules(&[APP]), &[], response, expected);
    vary(&[("vary", "Accept-Encoding")], expect!["vary: Accept-Encoding, Origin"]);
    vary(&[("vary", "Accept, Cookie"), ("vary", "X-A")], expect!["vary: Accept, Cookie, X-A, Origin"]);
    vary(&[("vary", "accept,ORIGIN")], expect!["vary: accept,ORIGIN"]);
    vary(&[("vary", "*")], expect!["vary: *"]);
    vary(
        &[("vary", "Accept"), ("vary", "*")],
        expect![[r#"
        vary: *
        vary: Accept"#]],
    );
    vary(&[("vary", "")], expect!["vary: Origin"]);
    vary(&[("vary", "X-Origin")], expect!["vary: X-Origin, Origin"]);
}

/// The response to a preflight.
#[track_caller]
fn check_preflight(rules: CorsRules, request: &[(&'static str, &str)], expected: Expect) {
    let cors = Cors::new(rules).unwrap();
    let response = cors.preflight(&headers(request));
    expected.assert_eq(&response.map_or_else(|error| error.to_string(), |headers| shown(&headers)));
}

#[test]
fn a_preflight_is_allowed_by_origin_method_and_headers() {
    let put = ("access-control-request-method", "PUT");
    check_preflight(
        rules(&[APP]),
        &[("origin", APP), put, ("access-control-request-headers", "content-type")],
        expect![[r#"
        access-control-allow-headers: content-type
        access-control-allow-methods: GET, PUT, HEAD
        access-control-allow-origin: https://app.example.com
        access-control-max-age: 1
        vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers"#]],
    );
    let origin = expect!["preflight rejected: this origin is not in cors.origins"];
    check_preflight(rules(&[APP]), &[("origin", "https://evil.example"), put], origin);
    let method = "preflight rejected: this method is not in cors.methods";
    for methods in [&["DELETE"][..], &["put"], &[""], &["a b"], &["PUT", "PUT"]] {
        let asked = methods.iter().map(|method| ("access-control-request-method", *method));
        let request: Vec<_> = asked.chain([("origin", APP)]).collect();
        let error = Cors::new(rules(&[APP])).unwrap().preflight(&headers(&request)).unwrap_err();
        assert_eq!(error.to_string(), method, "{methods:?}");
    }
    let header = expect!["preflight rejected: a header that it asks for is not in cors.headers"];
    for names in ["authorization", "content-type, x-a", "content-type x-a", "é"] {
        let request = [("origin", APP), put, ("access-control-request-headers", names)];
        let error = Cors::new(rules(&[APP])).unwrap().preflight(&headers(&request)).unwrap_err();
        header.assert_eq(&error.to_string());
    }
    let request = [
        ("origin", APP),
        put,
        ("access-control-request-headers", "Content-Type,,"),
        ("access-control-request-headers", "x-a"),
    ];
    check_preflight(rules(&[APP]), &request, header);
}

/// Browsers take a `*` for a name where there are credentials.
#[test]
fn with_all_headers_allowed_the_requested_ones_are_echoed() {
    let any = || CorsRules { headers: AllowedHeaders::Any, credentials: true, ..rules(&[APP]) };
    let get = ("access-control-request-method", "GET");
    let request = [("origin", APP), get, ("access-control-request-headers", "authorization,X-A")];
    check_preflight(
        any(),
        &request,
        expect![[r#"
        access-control-allow-credentials: true
        access-control-allow-headers: authorization, x-a
        access-control-allow-methods: GET, PUT, HEAD
        access-control-allow-origin: https://app.example.com
        access-control-max-age: 1
        vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers"#]],
    );
    check_preflight(
        any(),
        &[("origin", APP), get, ("access-control-request-headers", "x a")],
        expect!["preflight rejected: a header that it asks for is not in cors.headers"],
    );
    check_preflight(
        any(),
        &[("origin", APP), get],
        expect![[r#"
        access-control-allow-credentials: true
        access-control-allow-methods: GET, PUT, HEAD
        access-control-allow-origin: https://app.example.com
        access-control-max-age: 1
        vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers"#]],
    );
}

#[test]
fn a_preflight_is_an_options_request_with_both_headers() {
    let asks = |method: &str, names: &[&str]| {
        let request = names.iter().fold(Request::builder().method(method), |r, name| r.header(*name, "GET"));
        is_preflight(&request.body(()).unwrap().into_parts().0)
    };
    assert!(asks("OPTIONS", &["origin", "access-control-request-method"]));
    assert!(!asks("OPTIONS", &["origin"]));
    assert!(!asks("OPTIONS", &["access-control-request-method"]));
    assert!(!asks("GET", &["origin", "access-control-request-method"]));
}

#[test]
fn rules_that_cannot_be_applied_are_rejected() {
    let error = |rules| Cors::new(rules).unwrap_err();
    assert_eq!(error(rules(&[])), CorsError::NoOrigin);
    assert_eq!(error(CorsRules { credentials: true, ..rules(&["*"]) }), CorsError::CredentialsForAny);
    assert_eq!(error(rules(&["*", APP])), CorsError::AnyAmongOthers);
    assert_eq!(error(CorsRules { credentials: true, ..rules(&[APP, "*"]) }), CorsError::AnyAmongOthers);
}
