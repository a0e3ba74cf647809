//! Identities: verified ones count, claimed ones do not.

use std::sync::LazyLock;

use http::{HeaderValue, Request};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use ratewright_core::policy::Part;
use ratewright_core::quota::Refill;
use ratewright_core::store::{BucketName, Key};
use serde_json::{Value, json};

use super::*;
use crate::address::Forwarding;
use crate::jwt::{KeySet, TokenRules};
use crate::testing::{NOW, quota};

const SECRET: &[u8] = b"a secret of thirty-two bytes or so";
const STRANGER: &str = "192.0.2.9";
const PROXY: &str = "10.0.0.1";

type Lines<'a> = &'a [(&'a str, &'a str)];

/// Trusted proxies are 10.0.0.0/8; the user is the claim `sub` of a token, or `X-User-Id`.
static RULES: LazyLock<IdentityRules> = LazyLock::new(|| IdentityRules {
    proxies: Proxies { trusted: vec!["10.0.0.0/8".parse().unwrap()], ..Proxies::default() },
    token: Some(TokenUser {
        verifier: Arc::new(Verifier::new(KeySet::secret(SECRET).unwrap(), TokenRules::default())),
        claim: "sub".to_owned(),
    }),
    user_header: Some(HeaderName::from_static("x-user-id")),
    ..IdentityRules::default()
});

fn request(uri: &str, lines: Lines<'_>) -> Parts {
    let request = lines.iter().fold(Request::builder().uri(uri), |request, (name, value)| {
        request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    request.body(()).unwrap().into_parts().0
}

fn needs(names: &[&str]) -> Vec<AttributeName<String>> {
    names.iter().map(|name| AttributeName::parse(name).unwrap()).collect()
}

/// The value of this attribute in a request from a peer.
fn find(name: &str, peer: &str, uri: &str, lines: Lines<'_>) -> Option<String> {
    let (request, needs) = (request(uri, lines), needs(&[name]));
    let facts = identify(&request, peer.parse().unwrap(), &RULES, &needs, NOW);
    facts.value(needs[0].as_deref()).map(str::to_owned)
}

/// The client's key, under a policy by `{first_of: [user, ip]}`.
fn client_key(peer: &str, lines: Lines<'_>) -> String {
    let (request, needs) = (request("/", lines), needs(&["user", "ip"]));
    let facts = identify(&request, peer.parse().unwrap(), &RULES, &needs, NOW);
    let part = Part::first_of(AttributeName::User, vec![AttributeName::Ip]);
    let quota = quota(ratewright_core::quota::Algorithm::TokenBucket(Refill::Smooth), "1/s", 1);
    let (name, attributes) = (BucketName::new("each", None, &quota, vec![part]), facts.attributes());
    let key = Key::new(&name, &attributes).unwrap();
    key.values().map(|value| value.to_string()).collect()
}

/// Why a request's token is invalid, for policies that need these attributes.
fn token_error(names: &[&str], token: &str) -> Option<TokenError> {
    let (request, needs) = (request("/", &[("authorization", &bearer_header(token))]), needs(names));
    identify(&request, STRANGER.parse().unwrap(), &RULES, &needs, NOW).token_error
}

/// A token that is valid for a minute, with these additional claims.
fn token(more: Value) -> String {
    signed_with(SECRET, more)
}

fn signed_with(secret: &[u8], more: Value) -> String {
    let mut claims = json!({ "sub": "anna", "exp": NOW.as_micros() / 1_000_000 + 60 });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn bearer_header(token: &str) -> String {
    format!("Bearer {token}")
}

/// Tokens that a client could make or keep, with the reason for their rejection.
fn bad_tokens() -> [(String, TokenError); 4] {
    let good = token(json!({}));
    let (_, rest) = good.split_once('.').unwrap();
    let none = "eyJhbGciOiJub25lIn0"; // {"alg":"none"}
    [
        (signed_with(b"another secret of some length", json!({})), TokenError::Signature),
        (token(json!({ "exp": 1 })), TokenError::Expired),
        (format!("{none}.{rest}"), TokenError::Algorithm),
        ("anna".to_owned(), TokenError::Malformed { part: "signature" }),
    ]
}

#[test]
fn b5_the_key_is_the_authenticated_user_or_else_the_address() {
    let anna = bearer_header(&token(json!({})));
    assert_eq!(client_key(STRANGER, &[]), "ip:192.0.2.9");
    assert_eq!(client_key(STRANGER, &[("authorization", &anna)]), "user:anna");
    assert_eq!(client_key(PROXY, &[("x-user-id", "bert")]), "user:bert");
    assert_eq!(client_key(PROXY, &[("x-user-id", "bert"), ("authorization", &anna)]), "user:anna");
    assert_eq!(
        client_key(PROXY, &[("x-user-id", ""), ("x-forwarded-for", "198.51.100.7")]),
        "ip:198.51.100.7"
    );
}

#[test]
fn b5_forwarding_headers_have_an_order() {
    let lines = [("x-forwarded-for", "6.6.6.6, 198.51.100.7"), ("x-real-ip", "198.51.100.8")];
    assert_eq!(client_key(PROXY, &lines), "ip:198.51.100.7");
    assert_eq!(client_key(PROXY, &lines[1..]), "ip:198.51.100.8");
    assert_eq!(client_key(PROXY, &[]), "ip:10.0.0.1");
}

#[test]
fn a11_c11_identity_headers_of_an_untrusted_peer_are_ignored() {
    let lines = [("x-forwarded-for", "198.51.100.7"), ("x-real-ip", "198.51.100.8"), ("x-user-id", "anna")];
    assert_eq!(client_key(STRANGER, &lines), "ip:192.0.2.9");
    assert_eq!(find("user", STRANGER, "/", &lines), None);
    assert_eq!(find("user", PROXY, "/", &lines).as_deref(), Some("anna"));
}

#[test]
fn b5_a_user_header_counts_only_if_configured() {
    let rules = IdentityRules { user_header: None, ..RULES.clone() };
    let (request, needs) = (request("/", &[("x-user-id", "anna")]), needs(&["user"]));
    let facts = identify(&request, PROXY.parse().unwrap(), &rules, &needs, NOW);
    assert_eq!(facts.value(AttributeName::User), None);
}

#[test]
fn e1_an_invalid_token_names_no_user_and_has_an_error() {
    for (token, why) in bad_tokens() {
        assert_eq!(token_error(&["user"], &token), Some(why));
        assert_eq!(token_error(&["claim:plan"], &token), Some(why));
        assert_eq!(
            client_key(STRANGER, &[("authorization", &bearer_header(&token))]),
            "ip:192.0.2.9",
            "{why}"
        );
    }
    assert_eq!(token_error(&["user"], &token(json!({}))), None);
}

/// The proxy's header does not depend on the token.
#[test]
fn b5_an_invalid_token_does_not_override_a_trusted_proxy() {
    for (token, why) in bad_tokens() {
        let lines = [("authorization", &*bearer_header(&token)), ("x-user-id", "bert")];
        assert_eq!(client_key(PROXY, &lines), "user:bert", "{why}");
    }
}

#[test]
fn e1_claims_come_from_verified_tokens_only() {
    let plan =
        |token: &str| find("claim:realm.plan", PROXY, "/", &[("authorization", &bearer_header(token))]);
    let claims = json!({ "realm": { "plan": "gold" } });
    assert_eq!(plan(&token(claims.clone())).as_deref(), Some("gold"));
    assert_eq!(plan(&token(json!({}))), None);
    assert_eq!(plan(&signed_with(b"another secret of some length", claims)), None);
    bad_tokens().iter().for_each(|(token, why)| assert_eq!(plan(token), None, "{why}"));
}

/// Without token rules, a token is a header like any other.
#[test]
fn e1_without_keys_a_token_is_ignored() {
    let rules = IdentityRules { token: None, ..RULES.clone() };
    let line = bearer_header(&token(json!({ "plan": "gold" })));
    let (request, needs) = (request("/", &[("authorization", &line)]), needs(&["user", "claim:plan"]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &rules, &needs, NOW);
    assert_eq!((facts.value(AttributeName::User), facts.value(AttributeName::Claim("plan"))), (None, None));
    assert_eq!(facts.token_error, None);
}

/// An invalid token would be reported, so none was verified.
#[test]
fn no_token_is_verified_unless_a_policy_needs_it() {
    for (token, why) in bad_tokens() {
        let others = ["ip", "method", "path", "host", "route", "header:authorization", "cookie:c", "query:q"];
        assert_eq!(token_error(&others, &token), None, "{why}");
        assert_eq!(token_error(&[], &token), None, "{why}");
    }
}

#[test]
fn only_needed_attributes_are_determined() {
    let lines = [("x-api-key", "k"), ("cookie", "sid=s"), ("host", "a.example")];
    let (request, needs) = (request("/a?q=1", &lines), needs(&["cookie:sid"]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &RULES, &needs, NOW);
    let attributes: Vec<_> =
        facts.attributes().iter().map(|fact| format!("{}={}", fact.name, fact.value)).collect();
    assert_eq!(attributes, ["ip=192.0.2.9", "method=GET", "path=/a", "cookie:sid=s"]);
}

#[test]
fn parts_of_a_request_are_found_by_name() {
    let lines = [("x-api-key", " k "), ("cookie", "a=1; sid=\"s\""), ("host", "A.Example.:8080")];
    for (name, value) in [
        ("method", "GET"),
        ("host", "a.example"),
        ("header:X-Api-Key", "k"),
        ("cookie:sid", "s"),
        ("query:tenant", "t 1"),
    ] {
        assert_eq!(find(name, STRANGER, "/a?x=1&tenant=t+1", &lines).as_deref(), Some(value), "{name}");
    }
    for name in
        ["header:x-other", "header:no name", "cookie:id", "query:tenants", "route", "key", "attribute:a"]
    {
        assert_eq!(find(name, STRANGER, "/a?x=1&tenant=t+1", &lines), None, "{name}");
    }
    assert_eq!(find("query:tenant", STRANGER, "/", &[]), None);
}

#[test]
fn paths_are_normalised() {
    let path = |uri: &str| find("path", STRANGER, uri, &[]);
    for uri in ["/login", "//login/", "/%6Cogin", "/x/..%2flogin", "http://a.example/login"] {
        assert_eq!(path(uri).as_deref(), Some("/login"), "{uri}");
    }
    assert_eq!(path("/Login").as_deref(), Some("/Login"));
    let (rules, request) =
        (IdentityRules { case: Case::Insensitive, ..RULES.clone() }, request("/Login", &[]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &rules, &[], NOW);
    assert_eq!(facts.value(AttributeName::Path), Some("/login"));
}

#[test]
fn b4_an_ambiguous_path_has_several_readings() {
    let select = |uri: &str| {
        let request = request(uri, &[]);
        let facts = identify(&request, STRANGER.parse().unwrap(), &RULES, &[], NOW);
        assert_eq!(facts.value(AttributeName::Path), Some("/health"), "{uri}");
        matches!(facts.select(&["a"]), Select::CoveringReadings(["a"]))
    };
    for plain in ["/health", "/health/", "/health?a=/../b"] {
        assert!(!select(plain), "{plain}");
    }
    for odd in ["/login%2f..%2fhealth", "/login/../health", "//health", "/%68ealth", "/login%5c..%5chealth"] {
        assert!(select(odd), "{odd}");
    }
    let nothing = Facts::default();
    assert_eq!(nothing.select(&[]), Select::Covering(&[]), "a request without a path is unambiguous");
}

#[test]
fn empty_and_long_values_are_missing() {
    let longest = "k".repeat(VALUE_MAX);
    let find = |value: &str| find("header:x-api-key", STRANGER, "/", &[("x-api-key", value)]);
    assert_eq!(find(&longest), Some(longest.clone()));
    assert_eq!(find(&(longest.clone() + "k")), None);
    assert_eq!(find(""), None);
    assert_eq!(find("  "), None);
    let user = bearer_header(&token(json!({ "sub": longest + "k" })));
    assert_eq!(client_key(STRANGER, &[("authorization", &user)]), "ip:192.0.2.9");
    assert_eq!(
        client_key(STRANGER, &[("authorization", &bearer_header(&token(json!({ "sub": "" }))))]),
        "ip:192.0.2.9"
    );
}

/// All values of an attribute that policies see.
fn read(name: &str, uri: &str, lines: Lines<'_>) -> String {
    let (request, needs) = (request(uri, lines), needs(&[name]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &RULES, &needs, NOW);
    let attributes = facts.attributes();
    let values = attributes.iter().filter(|fact| fact.name.is(&needs[0]));
    let words = values.map(|fact| match fact.value {
        Attribute::UNREADABLE => "unreadable",
        Attribute::REPEATED => "repeated",
        value => value,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// An ambiguous attribute has one value for each reading.
#[test]
fn every_reading_is_a_fact() {
    assert_eq!(read("cookie:sid", "/", &[("cookie", "sid=a; sid=b; sid=a")]), "a b");
    assert_eq!(read("cookie:sid", "/", &[("cookie", "sid=a"), ("cookie", "sid=b")]), "a b");
    assert_eq!(read("query:k", "/?k=a&k=b", &[]), "a b");
    assert_eq!(read("query:k", "/?k=%ff", &[]), "unreadable");
    assert_eq!(read("header:x-api-key", "/", &[("x-api-key", "a"), ("x-api-key", "b")]), "a b repeated");
    assert_eq!(read("header:x-api-key", "/", &[("x-api-key", "a")]), "a");
    assert_eq!(read("method", "/?_method=delete", &[("x-http-method-override", "Put")]), "GET PUT DELETE");
    assert_eq!(read("method", "/", &[("x-method-override", "get")]), "GET");
    assert_eq!(
        read("path", "/api/items/1%2f..%2f..%2fx", &[]),
        "/api/x /api/items/1%2f..%2f..%2fx /api/items/1/../../x"
    );
    let mut facts = Facts::default();
    facts.set_method("options");
    let attributes: Vec<_> = facts.attributes().iter().map(|fact| fact.value.to_owned()).collect();
    assert_eq!(attributes, ["options", "OPTIONS"]);
}

/// A11: a request with an invalid token is counted by address; one with another scheme has no user.
#[test]
fn an_invalid_token_is_unreadable() {
    for (token, why) in bad_tokens() {
        assert_eq!(read("user", "/", &[("authorization", &bearer_header(&token))]), "unreadable", "{why}");
        assert_eq!(
            read("claim:plan", "/", &[("authorization", &bearer_header(&token))]),
            "unreadable",
            "{why}"
        );
    }
    let good = bearer_header(&token(json!({ "sub": "anna" })));
    assert_eq!(read("user", "/", &[("authorization", &good)]), "anna");
    assert_eq!(read("user", "/", &[("authorization", &good), ("authorization", &good)]), "unreadable");
    assert_eq!(read("user", "/", &[("authorization", "Basic YTpi")]), "");
    assert_eq!(
        read("user", "/", &[("authorization", &bearer_header(&token(json!({ "sub": ["anna"] }))))]),
        "unreadable"
    );
    assert_eq!(read("claim:plan", "/", &[("authorization", &good)]), "", "a claim may be missing");
}

/// Without a path, no policy on a path would cover the request.
#[test]
fn b3_a_path_of_any_length_is_determined() {
    let path = format!("/login/{}", "x".repeat(VALUE_MAX));
    assert_eq!(find("path", STRANGER, &path, &[]), Some(path));
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let ip = |peer: &str, ipv6_prefix| {
        let (rules, request) = (IdentityRules { ipv6_prefix, ..RULES.clone() }, request("/", &[]));
        let facts = identify(&request, peer.parse().unwrap(), &rules, &[], NOW);
        (facts.value(AttributeName::Ip).unwrap().to_owned(), facts.address.unwrap().to_string())
    };
    assert_eq!(ip("2001:db8::1:2", 64), ("2001:db8::/64".to_owned(), "2001:db8::1:2".to_owned()));
    assert_eq!(ip("2001:db8::1:2", 128).0, "2001:db8::1:2");
    assert_eq!(ip("::ffff:192.0.2.9", 64), (STRANGER.to_owned(), STRANGER.to_owned()));
}

#[test]
fn a_later_value_replaces_an_earlier_one() {
    let request = request("/", &[]);
    let mut facts = identify(&request, STRANGER.parse().unwrap(), &RULES, &[], NOW);
    facts.set_address("::ffff:198.51.100.7".parse().unwrap(), &RULES);
    facts.set_path("/a//b", &RULES);
    assert_eq!(facts.value(AttributeName::Ip), Some("198.51.100.7"));
    assert_eq!(facts.address, Some("198.51.100.7".parse().unwrap()));
    assert_eq!(facts.value(AttributeName::Path), Some("/a/b"));
    assert_eq!((facts.attributes().len(), facts.is_ambiguous), (4, true), "the path in two readings");
}

/// Any header that affects identity, with any valid value.
fn line() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let names = ["x-forwarded-for", "forwarded", "x-real-ip", "x-user-id", "authorization", "cookie", "host"];
    let bytes = prop::collection::vec(prop_oneof![32u8..127, 128u8..=255, Just(b'\t')], 0..60);
    let words = prop::sample::select(vec![
        "Bearer ", "e30", ".", ",", ";", "=", "\"", "for=", "10.0.0.1", "6.6.6.6", "[::1]", "sid", "%", "a@",
    ]);
    let words = prop::collection::vec(words, 0..12).prop_map(|words| words.concat().into_bytes());
    (prop::sample::select(names.to_vec()), prop_oneof![bytes, words])
}

fn uri() -> impl Strategy<Value = String> {
    prop_oneof![
        "/[!-~]{0,40}",
        "/([a/.%25fF\\\\]|%2[ef]){0,20}",
        "(\\*|http://[a-z:.@0-9]{1,12}/[a-z/?&=%+]{0,12})"
    ]
}

proptest! {
    /// C11: identifying any request succeeds, and an untrusted peer is identified by its own address.
    #[test]
    fn c11_an_untrusted_peer_is_its_address_whatever_it_sends(
        uri in uri(),
        lines in prop::collection::vec(line(), 0..6),
        source in prop::sample::select(vec![Forwarding::XForwardedFor, Forwarding::Forwarded]),
        name in "[!-~é]{1,12}",
    ) {
        let Ok(uri) = uri.parse::<http::Uri>() else { return Ok(()) };
        let mut request = Request::builder().uri(uri).body(()).unwrap().into_parts().0;
        for (name, value) in &lines {
            request.headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let mut rules = RULES.clone();
        rules.proxies.source = source;
        let mut needs = needs(&["user", "host", "claim:sub", "cookie:sid", "query:a", "ip", "path", "method"]);
        for kind in ["header", "cookie", "query", "claim"] {
            needs.extend(AttributeName::parse(&format!("{kind}:{name}")));
        }
        for peer in [STRANGER, PROXY] {
            let facts = identify(&request, peer.parse().unwrap(), &rules, &needs, NOW);
            prop_assert!(facts.attributes().iter().all(|fact| !fact.value.is_empty()));
            prop_assert!(facts.value(AttributeName::Ip).is_some());
            if peer == STRANGER {
                prop_assert_eq!(facts.value(AttributeName::Ip), Some(STRANGER));
                prop_assert_eq!(facts.value(AttributeName::User), None);
                prop_assert_eq!(facts.address, Some(STRANGER.parse().unwrap()));
            }
        }
    }
}
