//! `cors`, in `gateway` and in routes.

use super::*;

/// A file with these rules for the gateway, and two routes.
fn file(gateway: &str, route: &str) -> String {
    format!(
        "gateway: {{{gateway}}}\nroutes:\n- {{id: a, match: {{path: /a}}, upstream: http://h{route}}}\n- {{id: b, match: {{path: /b}}, upstream: http://h}}\n"
    )
}

#[test]
fn a_route_takes_the_gateways_rules_or_has_its_own_or_none() {
    let general = "cors: {origins: [https://App.example.com, 'https://*.example.com:443']}";
    check(
        &file(general, ""),
        expect![[r#"
            no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
            cors, unless a route says otherwise: from https://app.example.com, https://*.example.com; methods GET, HEAD, POST; request headers content-type; preflights cached for 10 min
            route a: /a to http://h:80
            route b: /b to http://h:80
        "#]],
    );
    check(
        &file(general, ", cors: off"),
        expect![[r#"
            no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
            cors, unless a route says otherwise: from https://app.example.com, https://*.example.com; methods GET, HEAD, POST; request headers content-type; preflights cached for 10 min
            route a: /a to http://h:80; cors off
            route b: /b to http://h:80
        "#]],
    );
    check(
        &file(
            general,
            ", cors: {origins: 'http://localhost:3000', methods: [get, put], headers: '*', expose: [ETag], credentials: true, max_age: 0s}",
        ),
        expect![[r#"
            no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
            cors, unless a route says otherwise: from https://app.example.com, https://*.example.com; methods GET, HEAD, POST; request headers content-type; preflights cached for 10 min
            route a: /a to http://h:80; cors from http://localhost:3000; methods GET, PUT, HEAD; request headers all; also exposes etag; with credentials; preflights not cached
            route b: /b to http://h:80
        "#]],
    );
    check(
        &file("", ", cors: {origins: '*', headers: []}"),
        expect![[r#"
            no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
            route a: /a to http://h:80; cors from *; methods GET, HEAD, POST; request headers none; preflights cached for 10 min
            route b: /b to http://h:80
        "#]],
    );
    check(
        &file("", ", cors: false"),
        expect![[r#"
        no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
        route a: /a to http://h:80
        route b: /b to http://h:80
    "#]],
    );
    check(
        &file("cors: '${CORS:-off}'", ""),
        expect![[r#"
        no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
        route a: /a to http://h:80
        route b: /b to http://h:80
    "#]],
    );
}

#[test]
fn a_star_with_credentials_is_rejected() {
    check(
        &file("cors: {origins: '*', credentials: true}", ""),
        expect![[r#"
            t.yaml:1:45: gateway.cors.credentials is true and origins is *, which cannot be combined with credentials: any site could read responses made with its visitors' cookies, and browsers reject it; list the origins, or leave credentials out
        "#]],
    );
    check(
        &file("", ", cors: {credentials: true, origins: ['*']}"),
        expect![[r#"
            t.yaml:3:70: routes.a.cors.credentials is true and origins is *, which cannot be combined with credentials: any site could read responses made with its visitors' cookies, and browsers reject it; list the origins, or leave credentials out
        "#]],
    );
}

#[test]
fn invalid_rules_are_reported_each_with_its_position() {
    check(
        r#"
gateway:
  cors:
    origins:
    - app.example.com
    - https://app.example.com/
    - https://app.example.com/path
    - "https://*example.com"
    - https://*.com
    - "null"
    - https://a.example.com
    - HTTPS://A.example.com:443
    methods: [GET, get, "*", "P T"]
    headers: [Content-Type, content-type, "X *"]
    expose: ["*", ETag, etag]
    credentials: perhaps
    max_age: 2d
"#,
        expect![[r#"
            t.yaml:5:7: gateway.cors.origins is "app.example.com"; the scheme is missing; write https://app.example.com
            t.yaml:6:7: gateway.cors.origins is "https://app.example.com/"; browsers send an origin without a path, query or slash at the end; write https://app.example.com
            t.yaml:7:7: gateway.cors.origins is "https://app.example.com/path"; browsers send an origin without a path, query or slash at the end; write https://app.example.com
            t.yaml:8:7: gateway.cors.origins is "https://*example.com"; a star stands for whole labels at the start of the host; write for example https://*.example.com
            t.yaml:9:7: gateway.cors.origins is "https://*.com"; it would allow every site below .com; name the domain, for example https://*.example.com
            t.yaml:10:7: gateway.cors.origins is "null"; every sandboxed frame and local file has the origin null, so any site could use it; name the page's real origin
            t.yaml:12:7: gateway.cors.origins has "HTTPS://A.example.com:443" twice; remove one
            t.yaml:13:20: gateway.cors.methods has "get" twice; remove one
            t.yaml:13:25: gateway.cors.methods is "*"; stars are not supported here; list the methods, for example [GET, POST, PUT]
            t.yaml:13:30: gateway.cors.methods is "P T"; use a method such as GET or POST
            t.yaml:14:29: gateway.cors.headers has "content-type" twice; remove one
            t.yaml:14:43: gateway.cors.headers is "X *"; use a header name, for example Authorization, or * alone for all
            t.yaml:15:14: gateway.cors.expose is "*"; stars are not supported here; list the headers, for example [ETag, X-Total-Count]
            t.yaml:15:25: gateway.cors.expose has "etag" twice; remove one
            t.yaml:16:18: gateway.cors.credentials is "perhaps"; use true or false
            t.yaml:17:14: gateway.cors.max_age must be at most 1d, since no browser keeps a preflight longer; use for example 10min
        "#]],
    );
    check(
        &file("cors: {}", ""),
        expect![[r#"
        t.yaml:1:17: gateway.cors.origins: no origin is allowed; name at least one, for example https://app.example.com
    "#]],
    );
    check(
        &file("cors: {origins: []}", ""),
        expect![[r#"
        t.yaml:1:27: gateway.cors.origins: no origin is allowed; name at least one, for example https://app.example.com
    "#]],
    );
    check(
        &file("cors: true", ", cors: [a]"),
        expect![[r#"
        t.yaml:3:50: off, or a section such as {origins: [https://app.example.com]} is expected here, not a list
    "#]],
    );
    check(
        &file("cors: true", ""),
        expect![[r#"
        t.yaml:1:17: gateway.cors is "true"; write off, or a section such as {origins: [https://app.example.com]}
    "#]],
    );
    check(
        &file("cors: {origins: ['*', https://a.example], credentials: true}", ""),
        expect![[r#"
        t.yaml:1:27: gateway.cors.origins: * allows every origin, so the others have no effect; leave out either * or the others
    "#]],
    );
    check(
        &file("cors: everyone", ""),
        expect![[r#"
        t.yaml:1:17: gateway.cors is "everyone"; write off, or a section such as {origins: [https://app.example.com]}
    "#]],
    );
    check(
        &file("cors: {origin: '*'}", ""),
        expect![[r#"
        t.yaml:1:18: unknown setting "origin"; did you mean origins? Known: origins, methods, headers, expose, credentials, max_age
    "#]],
    );
    check(
        &file("cors: {origins: ['*', https://a.example], headers: ['*', X-A], methods: []}", ""),
        expect![[r#"
            t.yaml:1:62: gateway.cors.headers: * allows every header, so the others have no effect; leave out either * or the others
            t.yaml:1:83: gateway.cors.methods is an empty list, so every preflight would be rejected; remove it
        "#]],
    );
}

#[test]
fn a_profile_replaces_it_as_a_whole() {
    let base =
        file("cors: {origins: https://a.example, credentials: true}", ", cors: {origins: https://b.example}");
    Files::of(&base)
        .profile("p.yaml", "gateway: {cors: {origins: '*'}}\nroutes: [{id: a, cors: off}]\n")
        .check(expect![[r#"
            no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
            cors, unless a route says otherwise: from *; methods GET, HEAD, POST; request headers content-type; preflights cached for 10 min
            route a: /a to http://h:80; cors off
            route b: /b to http://h:80
        "#]]);
    Files::of(&base).beside("u.yaml", "gateway: {cors: off}\n").check(expect![[r#"
        u.yaml:1:17: duplicate setting, also set in t.yaml:1; keep one, or move one into a profile
    "#]]);
}

#[test]
fn requests_without_a_route_have_the_gateways_rules() {
    let config = Config::of_text(&file("cors: {origins: https://a.example}", ", cors: off")).ok().unwrap();
    let has_rules = |number| config.gateway.routes.nth(number).unwrap().cors.is_some();
    assert_eq!((config.gateway.cors.is_some(), has_rules(0), has_rules(1)), (true, false, true));
}
