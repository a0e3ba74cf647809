//! Callers that are allowed: each row of the table, and pages of other sites.

use super::*;
use http::HeaderValue;

const REMOTE: &str = "192.0.2.7";

fn access() -> Access {
    Access::new(vec![TokenDigest::of("first"), TokenDigest::of("second")])
}

/// Headers with these values of `Authorization`.
fn authorization(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value))).collect()
}

fn caller<'a>(headers: &'a HeaderMap, peer: &str) -> Caller<'a> {
    Caller {
        headers,
        authority: None,
        peer: peer.parse().unwrap(),
        client_certified: None,
        is_behind_load_balancer: false,
    }
}

fn allows(access: &Access, values: &[&'static str], peer: &str) -> bool {
    access.allows(caller(&authorization(values), peer))
}

#[test]
fn c6_local_callers_are_allowed() {
    for local in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
        assert!(allows(&Access::default(), &[], local), "{local}");
        assert!(allows(&access(), &["Bearer wrong"], local), "{local}");
    }
    for stranger in [REMOTE, "0.0.0.0", "::", "2001:db8::7", "::ffff:192.0.2.7", "fe80::1"] {
        assert!(!allows(&access(), &[], stranger), "{stranger}");
    }
}

#[test]
fn c6_remote_callers_are_allowed_with_a_token() {
    for right in ["Bearer first", "bearer second", "BEARER  first"] {
        assert!(allows(&access(), &[right], REMOTE), "{right}");
        assert!(!allows(&Access::default(), &[right], REMOTE), "there are no tokens");
    }
    for wrong in
        ["Bearer third", "Bearer First", "Bearer firs", "Bearer ", "Bearer", "first", "Basic first", ""]
    {
        assert!(!allows(&access(), &[wrong], REMOTE), "{wrong}");
    }
    assert!(!allows(&access(), &["Bearer first", "Bearer first"], REMOTE), "two tokens are ambiguous");
}

#[test]
fn c6_an_empty_token_is_never_valid_even_if_configured() {
    let careless = Access::new(vec![TokenDigest::of("")]);
    for empty in ["Bearer ", "Bearer", "Bearer   ", ""] {
        assert!(!allows(&careless, &[empty], REMOTE), "{empty:?}");
    }
    let long = HeaderValue::from_str(&format!("Bearer {}", "x".repeat(1_025))).unwrap();
    let headers = [(header::AUTHORIZATION, long)].into_iter().collect();
    let access = Access::new(vec![TokenDigest::of(&"x".repeat(1_025))]);
    assert!(!access.allows(caller(&headers, REMOTE)), "too long to hash");
}

#[test]
fn a_certificate_is_enough_if_no_tokens_are_configured() {
    let client_certified = |access: &Access, values| {
        let headers = authorization(values);
        access.allows(Caller { client_certified: Some(ClientCertified), ..caller(&headers, REMOTE) })
    };
    assert!(client_certified(&Access::default(), &[]));
    assert!(!client_certified(&access(), &[]), "both are required");
    assert!(!client_certified(&access(), &["Bearer third"]));
    assert!(client_certified(&access(), &["Bearer first"]));
}

/// Why a local caller with these headers is rejected; `None` if it is allowed.
fn by_page(access: &Access, fields: &[(&'static str, &'static str)]) -> Option<String> {
    let field = |&(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let headers = fields.iter().map(field).collect();
    let caller = caller(&headers, "127.0.0.1");
    let problem = access.authorize(caller, "reset", "send one of api.tokens").err()?;
    assert!(!access.allows(caller));
    assert_eq!(access.authenticate(caller), Err(problem.clone()), "also on an exposed listener");
    let body: serde_json::Value = serde_json::from_str(problem.render().body()).unwrap();
    assert_eq!(body["status"], 403);
    let (why, _) =
        body["detail"].as_str().unwrap().split_once("; the request may come from a web page").unwrap();
    Some(why.to_owned())
}

#[test]
fn a_page_of_another_site_is_not_local() {
    let site = "Sec-Fetch-Site names another site";
    let origin = "Origin is not on this machine";
    let referer = "Referer is not on this machine";
    let agent = "User-Agent is a browser's, without Sec-Fetch-Site; let a program send another User-Agent";
    for (fields, expected) in [
        (&[][..], None),
        (&[("host", "127.0.0.1:8080")], None),
        (&[("host", "[::1]:8080")], None),
        (&[("host", "[::1]")], None),
        (&[("host", "LocalHost:8080")], None),
        (&[("host", "localhost:9999")], None), // of ssh -L
        (&[("host", "192.0.2.7")], Some(HOST_RULE)),
        (&[("host", "evil.example:8080")], Some(HOST_RULE)),
        (&[("host", "127.0.0.1.evil.example")], Some(HOST_RULE)),
        (&[("host", "localhost.evil.example")], Some(HOST_RULE)),
        (&[("host", "t")], Some(HOST_RULE)),
        (&[("host", "")], Some(HOST_RULE)),
        (&[("host", "::1")], Some(HOST_RULE)),
        (&[("host", "127.0.0.1@evil.example")], Some(HOST_RULE)),
        (&[("host", "\u{fc}")], Some(HOST_RULE)),
        (&[("host", "127.0.0.1"), ("host", "evil.example")], Some(HOST_RULE)),
        (&[("user-agent", "curl/8.5.0"), ("host", "127.0.0.1")], None),
        (&[("user-agent", "python-requests/2.32 Mozilla/5.0")], None),
        (&[("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"), ("host", "127.0.0.1")], Some(agent)),
        (&[("user-agent", "Mozilla/5.0"), ("sec-fetch-site", "same-origin")], None),
        (&[("user-agent", "Mozilla/5.0"), ("sec-fetch-site", "none")], None),
        (&[("user-agent", "Mozilla/5.0"), ("sec-fetch-site", "cross-site")], Some(site)),
        (&[("referer", "http://localhost:8082/?a=https://b")], None),
        (&[("referer", "http://127.0.0.1/page")], None),
        (&[("referer", "https://evil.example/")], Some(referer)),
        (&[("referer", "https://evil.example/http://localhost/")], Some(referer)),
        (&[("referer", "http://localhost@evil.example/")], Some(referer)),
        (&[("referer", "http://localhost.evil.example")], Some(referer)),
        (&[("referer", "evil")], Some(referer)),
        (&[("referer", "https://app.example/"), ("sec-fetch-site", "same-origin")], None),
        (&[("user-agent", "Mozilla/5.0 \u{fc}")], Some(agent)),
        (&[("user-agent", "AppleCoreMedia/1.0.0.21F79 (Macintosh)")], Some(agent)),
        (&[("sec-fetch-site", "same-origin")], None),
        (&[("sec-fetch-site", "none")], None),
        (&[("sec-fetch-site", "cross-site")], Some(site)),
        (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], Some(site)),
        (&[("origin", "http://localhost"), ("origin", "https://evil.example")], Some(origin)),
        (&[("sec-fetch-site", "same-site")], Some(site)),
        (&[("sec-fetch-site", "same-site"), ("host", "localhost")], Some(site)),
        (&[("origin", "http://localhost:3000")], None),
        (&[("origin", "http://127.0.0.1")], None),
        (&[("origin", "https://[::1]:3000")], None),
        (&[("origin", "https://evil.example"), ("host", "127.0.0.1")], Some(origin)),
        (&[("origin", "http://192.0.2.7")], Some(origin)),
        (&[("origin", "null")], Some(origin)),
        (&[("origin", "http://localhost@evil.example")], Some(origin)),
    ] {
        assert_eq!(by_page(&access(), fields).as_deref(), expected, "{fields:?}");
        let with_token = [fields, &[("authorization", "Bearer first")]].concat();
        assert_eq!(by_page(&access(), &with_token), None, "with a token any site is allowed");
    }
}

const HOST_RULE: &str = "Host is not localhost, 127.0.0.1 or [::1]";

/// A page can reach this machine by these hosts, and browsers send neither Origin nor Sec-Fetch-Site with a plain GET to them;
/// or no browser sends them.
#[test]
fn a_host_in_an_unusual_spelling_is_not_local() {
    let none = HeaderMap::new();
    for host in concat!(
        "0.0.0.0 0.0.0.0:8080 [::] [::]:8080 [0:0:0:0:0:0:0:0] [::ffff:0.0.0.0] [::ffff:0:0]:80 ",
        "[::ffff:127.0.0.1] [::ffff:7f00:1]:8080 [::7f00:1] [0:0:0:0:0:0:0:1] [::0001] [::1%25lo] [64:ff9b::7f00:1] ",
        "0 0:8080 00 0x0 0x0:8080 0.0 0.0.0 00.0.0.0 0000.0.0.0 . 1 127.1 127.1:8080 127.0.1 127.0.0.01 127.0.0.1. ",
        "127.0.0.256 128.0.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 localhost. localhost:80x ",
        "localhost.localdomain ip6-localhost [ [] [::1 [::1]x [::1]:80x [127.0.0.1] 127.0.0.1:80:80"
    )
    .split(' ')
    {
        let expected = Some(HOST_RULE.to_owned());
        assert_eq!(by_page(&Access::default(), &[("host", host)]), expected, "{host}");
        let target = Caller { authority: Some(host), ..caller(&none, "::1") };
        assert!(!Access::default().allows(target), "{host} as target");
    }
    for host in ["127.0.0.1", "127.9.9.9:1", "[::1]:8080", "[::1]", "localhost:", "LOCALHOST:80"] {
        assert_eq!(by_page(&Access::default(), &[("host", host)]), None, "{host}");
        let target = Caller { authority: Some(host), ..caller(&none, "::1") };
        assert!(Access::default().allows(target), "{host} as target");
    }
}

/// A browser says `none` for a typed URL, and for all to which that redirects.
#[test]
fn a_link_spends_nothing() {
    let fields = |fields: &[(HeaderName, &'static str)]| -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    };
    let spends = |headers: &HeaderMap| access().authorize_spending(caller(headers, "::1"), "key", "omit it");
    let opened = fields(&[(SEC_FETCH_SITE, "none")]);
    assert!(access().allows(caller(&opened, "::1")), "it may look");
    let how = "set api.tokens, and send one as \"Authorization: Bearer TOKEN\"";
    let why = "a link may have opened this URL (Sec-Fetch-Site: none)";
    let page = "the request may come from a web page of another site";
    rejected(spends(&opened), 403, &format!("{why}; {page}; {how}"));
    assert!(spends(&fields(&[(header::USER_AGENT, "curl/8.5.0")])).is_ok());
    assert!(spends(&fields(&[(SEC_FETCH_SITE, "same-origin")])).is_ok());
    let with_token = [(SEC_FETCH_SITE, "none"), (header::AUTHORIZATION, "Bearer first")];
    assert!(spends(&fields(&with_token)).is_ok());
}

#[test]
fn a_page_of_another_site_gets_a_reason_and_advice() {
    let headers = [(header::ORIGIN, HeaderValue::from_static("null"))].into_iter().collect();
    rejected(
        access().authorize(caller(&headers, "::1"), "reset", "send one of api.tokens"),
        403,
        "Origin is not on this machine; the request may come from a web page of another site; set api.tokens, and send one as \"Authorization: Bearer TOKEN\"",
    );
    rejected(
        access().authenticate(caller(&headers, REMOTE)),
        401,
        "the token is missing; send one that is configured as \"Authorization: Bearer TOKEN\"",
    );
}

#[track_caller]
fn rejected(refusal: Result<(), Problem>, status: u16, detail: &str) {
    let answer = refusal.unwrap_err().render();
    assert_eq!(answer.status(), status);
    assert_eq!(answer.headers().contains_key(header::WWW_AUTHENTICATE), status == 401);
    let body: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
    assert_eq!(body["detail"], detail);
}

#[test]
fn c6_an_exposed_listener_requires_a_token_with_401() {
    let authenticate = |values| access().authenticate(caller(&authorization(values), REMOTE));
    assert_eq!(authenticate(&["Bearer first"]), Ok(()));
    let how = "send one that is configured as \"Authorization: Bearer TOKEN\"";
    rejected(authenticate(&[]), 401, &format!("the token is missing; {how}"));
    rejected(authenticate(&["Bearer wrong"]), 401, &format!("the token is not valid; {how}"));
}

#[test]
fn c6_a_remote_key_or_reset_without_a_token_is_403() {
    let authorize = |values| {
        access().authorize(caller(&authorization(values), REMOTE), "reset", "send one of api.tokens")
    };
    assert_eq!(authorize(&["Bearer second"]), Ok(()));
    let detail = "reset is for callers on the same machine or with a token; send one of api.tokens";
    rejected(authorize(&[]), 403, detail);
    rejected(authorize(&["Bearer wrong"]), 403, detail);
}

#[test]
fn only_loopback_is_not_exposed() {
    for (address, expected) in [
        ("127.0.0.1:80", false),
        ("127.9.9.9:80", false),
        ("[::1]:80", false),
        ("[::ffff:127.0.0.1]:80", false),
        ("0.0.0.0:80", true),
        ("[::]:80", true),
        ("10.0.0.1:80", true),
    ] {
        assert_eq!(is_exposed(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn a_token_is_not_shown() {
    assert_eq!(
        format!("{:?} {:?}", access(), TokenDigest::of("first")),
        "Access { n_tokens: 2 } TokenDigest(..)"
    );
}
