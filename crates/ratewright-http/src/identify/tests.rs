//! Identities: what was proved counts, what was only said does not.

use std::sync::LazyLock;

use http::{HeaderValue, Request};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use ratewright_core::{BucketName, Key, Part, Refill};
use serde_json::{Value, json};

use super::*;
use crate::address::Forwarding;
use crate::jwt::{KeySet, TokenRules};
use crate::testing::{NOW, quota};

const SECRET: &[u8] = b"a secret of thirty-two bytes or so";
const STRANGER: &str = "192.0.2.9";
const PROXY: &str = "10.0.0.1";

type Lines<'a> = &'a [(&'a str, &'a str)];

/// Our proxies are 10.0.0.0/8; users are named by the claim `sub` of a token, or by `X-User-Id`.
static RULES: LazyLock<Rules> = LazyLock::new(|| Rules {
    proxies: Proxies { trusted: vec!["10.0.0.0/8".parse().unwrap()], ..Proxies::default() },
    token: Some(TokenUser {
        verifier: Arc::new(Verifier::new(KeySet::secret(SECRET).unwrap(), TokenRules::default())),
        claim: "sub".to_owned(),
    }),
    user_header: Some(HeaderName::from_static("x-user-id")),
    ..Rules::default()
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

/// What policies that count by this attribute find in a request from a peer.
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
    let quota = quota(ratewright_core::Algorithm::TokenBucket(Refill::Smooth), "1/s", 1);
    let (name, attributes) = (BucketName::new("each", None, &quota, vec![part]), facts.attributes());
    let key = Key::new(&name, &attributes).unwrap();
    key.values().map(|value| value.to_string()).collect()
}

/// Why a request's token names nobody, for policies that count by these.
fn refused(names: &[&str], token: &str) -> Option<TokenError> {
    let (request, needs) = (request("/", &[("authorization", &bearing(token))]), needs(names));
    identify(&request, STRANGER.parse().unwrap(), &RULES, &needs, NOW).refused_token
}

/// A token of one who may go on for a minute, with these claims too.
fn token(more: Value) -> String {
    signed_with(SECRET, more)
}

fn signed_with(secret: &[u8], more: Value) -> String {
    let mut claims = json!({ "sub": "anna", "exp": NOW.as_micros() / 1_000_000 + 60 });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn bearing(token: &str) -> String {
    format!("Bearer {token}")
}

/// Tokens that a client could make or keep, with why they are refused.
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
fn b5_the_key_is_the_user_who_is_proved_and_else_the_address() {
    let anna = bearing(&token(json!({})));
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
fn b5_addresses_are_looked_for_in_order() {
    let lines = [("x-forwarded-for", "6.6.6.6, 198.51.100.7"), ("x-real-ip", "198.51.100.8")];
    assert_eq!(client_key(PROXY, &lines), "ip:198.51.100.7");
    assert_eq!(client_key(PROXY, &lines[1..]), "ip:198.51.100.8");
    assert_eq!(client_key(PROXY, &[]), "ip:10.0.0.1");
}

#[test]
fn a11_c11_what_a_stranger_says_of_itself_is_not_heard() {
    let lines = [("x-forwarded-for", "198.51.100.7"), ("x-real-ip", "198.51.100.8"), ("x-user-id", "anna")];
    assert_eq!(client_key(STRANGER, &lines), "ip:192.0.2.9");
    assert_eq!(find("user", STRANGER, "/", &lines), None);
    assert_eq!(find("user", PROXY, "/", &lines).as_deref(), Some("anna"));
}

#[test]
fn b5_a_user_header_counts_only_if_there_is_one() {
    let rules = Rules { user_header: None, ..RULES.clone() };
    let (request, needs) = (request("/", &[("x-user-id", "anna")]), needs(&["user"]));
    let facts = identify(&request, PROXY.parse().unwrap(), &rules, &needs, NOW);
    assert_eq!(facts.value(AttributeName::User), None);
}

#[test]
fn e1_a_token_that_is_refused_names_nobody_and_it_is_told_why() {
    for (token, why) in bad_tokens() {
        assert_eq!(refused(&["user"], &token), Some(why));
        assert_eq!(refused(&["claim:plan"], &token), Some(why));
        assert_eq!(client_key(STRANGER, &[("authorization", &bearing(&token))]), "ip:192.0.2.9", "{why}");
    }
    assert_eq!(refused(&["user"], &token(json!({}))), None);
}

/// The proxy's word is not the token's: it stands when the token falls.
#[test]
fn b5_a_refused_token_does_not_silence_a_trusted_proxy() {
    for (token, why) in bad_tokens() {
        let lines = [("authorization", &*bearing(&token)), ("x-user-id", "bert")];
        assert_eq!(client_key(PROXY, &lines), "user:bert", "{why}");
    }
}

#[test]
fn e1_claims_come_out_of_verified_tokens_only() {
    let plan = |token: &str| find("claim:realm.plan", PROXY, "/", &[("authorization", &bearing(token))]);
    let claims = json!({ "realm": { "plan": "gold" } });
    assert_eq!(plan(&token(claims.clone())).as_deref(), Some("gold"));
    assert_eq!(plan(&token(json!({}))), None);
    assert_eq!(plan(&signed_with(b"another secret of some length", claims)), None);
    bad_tokens().iter().for_each(|(token, why)| assert_eq!(plan(token), None, "{why}"));
}

/// Without rules for tokens, a token is a header like any other.
#[test]
fn e1_without_keys_a_token_says_nothing() {
    let rules = Rules { token: None, ..RULES.clone() };
    let line = bearing(&token(json!({ "plan": "gold" })));
    let (request, needs) = (request("/", &[("authorization", &line)]), needs(&["user", "claim:plan"]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &rules, &needs, NOW);
    assert_eq!((facts.value(AttributeName::User), facts.value(AttributeName::Claim("plan"))), (None, None));
    assert_eq!(facts.refused_token, None);
}

/// A refusal would be told, so none was looked at.
#[test]
fn no_token_is_verified_if_nobody_counts_by_it() {
    for (token, why) in bad_tokens() {
        let others = ["ip", "method", "path", "host", "route", "header:authorization", "cookie:c", "query:q"];
        assert_eq!(refused(&others, &token), None, "{why}");
        assert_eq!(refused(&[], &token), None, "{why}");
    }
}

#[test]
fn what_nobody_needs_is_not_told() {
    let lines = [("x-api-key", "k"), ("cookie", "sid=s"), ("host", "a.example")];
    let (request, needs) = (request("/a?q=1", &lines), needs(&["cookie:sid"]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &RULES, &needs, NOW);
    let told: Vec<_> =
        facts.attributes().iter().map(|fact| format!("{}={}", fact.name, fact.value)).collect();
    assert_eq!(told, ["ip=192.0.2.9", "method=GET", "path=/a", "cookie:sid=s"]);
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
fn paths_are_told_by_their_one_name() {
    let path = |uri: &str| find("path", STRANGER, uri, &[]);
    for uri in ["/login", "//login/", "/%6Cogin", "/x/..%2flogin", "http://a.example/login"] {
        assert_eq!(path(uri).as_deref(), Some("/login"), "{uri}");
    }
    assert_eq!(path("/Login").as_deref(), Some("/Login"));
    let (rules, request) = (Rules { case: Case::Insensitive, ..RULES.clone() }, request("/Login", &[]));
    let facts = identify(&request, STRANGER.parse().unwrap(), &rules, &[], NOW);
    assert_eq!(facts.value(AttributeName::Path), Some("/login"));
}

#[test]
fn b4_a_path_that_could_be_read_in_two_ways_is_told_as_such() {
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
    assert_eq!(nothing.select(&[]), Select::Covering(&[]), "who speaks of no path speaks clearly");
}

#[test]
fn empty_values_and_long_ones_are_missing() {
    let longest = "k".repeat(VALUE_MAX);
    let find = |value: &str| find("header:x-api-key", STRANGER, "/", &[("x-api-key", value)]);
    assert_eq!(find(&longest), Some(longest.clone()));
    assert_eq!(find(&(longest.clone() + "k")), None);
    assert_eq!(find(""), None);
    assert_eq!(find("  "), None);
    let user = bearing(&token(json!({ "sub": longest + "k" })));
    assert_eq!(client_key(STRANGER, &[("authorization", &user)]), "ip:192.0.2.9");
    assert_eq!(
        client_key(STRANGER, &[("authorization", &bearing(&token(json!({ "sub": "" }))))]),
        "ip:192.0.2.9"
    );
}

/// All that policies see of an attribute, in words.
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

/// What could be read in several ways is told once for each.
#[test]
fn every_reading_is_told() {
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
    facts.tell_method("options");
    let told: Vec<_> = facts.attributes().iter().map(|fact| fact.value.to_owned()).collect();
    assert_eq!(told, ["options", "OPTIONS"]);
}

/// A11: who shows a token that names nobody is counted by address; who shows another scheme is not known.
#[test]
fn a_token_that_names_nobody_cannot_be_read() {
    for (token, why) in bad_tokens() {
        assert_eq!(read("user", "/", &[("authorization", &bearing(&token))]), "unreadable", "{why}");
        assert_eq!(read("claim:plan", "/", &[("authorization", &bearing(&token))]), "unreadable", "{why}");
    }
    let good = bearing(&token(json!({ "sub": "anna" })));
    assert_eq!(read("user", "/", &[("authorization", &good)]), "anna");
    assert_eq!(read("user", "/", &[("authorization", &good), ("authorization", &good)]), "unreadable");
    assert_eq!(read("user", "/", &[("authorization", "Basic YTpi")]), "");
    assert_eq!(
        read("user", "/", &[("authorization", &bearing(&token(json!({ "sub": ["anna"] }))))]),
        "unreadable"
    );
    assert_eq!(read("claim:plan", "/", &[("authorization", &good)]), "", "a claim may be missing");
}

/// Without a path it would fall under no policy that is on one.
#[test]
fn b3_a_path_is_told_however_long_it_is() {
    let path = format!("/login/{}", "x".repeat(VALUE_MAX));
    assert_eq!(find("path", STRANGER, &path, &[]), Some(path));
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let ip = |peer: &str, ipv6_prefix| {
        let (rules, request) = (Rules { ipv6_prefix, ..RULES.clone() }, request("/", &[]));
        let facts = identify(&request, peer.parse().unwrap(), &rules, &[], NOW);
        (facts.value(AttributeName::Ip).unwrap().to_owned(), facts.address.unwrap().to_string())
    };
    assert_eq!(ip("2001:db8::1:2", 64), ("2001:db8::/64".to_owned(), "2001:db8::1:2".to_owned()));
    assert_eq!(ip("2001:db8::1:2", 128).0, "2001:db8::1:2");
    assert_eq!(ip("::ffff:192.0.2.9", 64), (STRANGER.to_owned(), STRANGER.to_owned()));
}

#[test]
fn what_is_told_later_counts() {
    let request = request("/", &[]);
    let mut facts = identify(&request, STRANGER.parse().unwrap(), &RULES, &[], NOW);
    facts.tell_address("::ffff:198.51.100.7".parse().unwrap(), &RULES);
    facts.tell_path("/a//b", &RULES);
    assert_eq!(facts.value(AttributeName::Ip), Some("198.51.100.7"));
    assert_eq!(facts.address, Some("198.51.100.7".parse().unwrap()));
    assert_eq!(facts.value(AttributeName::Path), Some("/a/b"));
    assert_eq!((facts.attributes().len(), facts.is_ambiguous), (4, true), "the path in two readings");
}

/// Any field that matters here, with anything in it that fits into a line.
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
    /// C11: whatever a request holds, there is an answer, and a stranger is who it is.
    #[test]
    fn c11_a_stranger_is_its_address_whatever_it_sends(
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
