//! Ambiguous requests: upstreams may interpret them in more than one way, so the layer rejects them or counts each way.

use std::convert::Infallible;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Request, Response};
use jsonwebtoken::{EncodingKey, Header, encode};
use ratewright_core::policy::{Condition, Cost, Pattern, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::{Limiter, Policies, Policy};
use ratewright_http::address::Proxies;
use ratewright_http::identify::{AmbiguousPaths, TokenUser};
use ratewright_http::jwt::{KeySet, TokenRules, Verifier};
use ratewright_http::parts::credentials_pattern;
use ratewright_http::path::Case;
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_store::MemoryStore;
use ratewright_tower::RateLimitLayer;
use serde_json::json;
use tower::{Layer, ServiceExt};

use crate::world::{Body, NOW, bucket, clock, limiter, over_http_2, reader, request};

const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

/// The statuses of requests that are sent one after the other under a policy.
async fn statuses(policy: Policy, requests: Vec<Request<Body>>) -> Vec<u16> {
    statuses_under(Policies::new(vec![policy]).unwrap(), IdentityRules::default(), requests).await
}

/// The same, under several policies and with other rules for identifying clients; over HTTP/1.1, and again over HTTP/2.
async fn statuses_under(policies: Policies, rules: IdentityRules, requests: Vec<Request<Body>>) -> Vec<u16> {
    let over_2 = requests.iter().cloned().map(over_http_2).collect();
    let statuses = statuses_of(policies.clone(), rules.clone(), requests).await;
    assert_eq!(statuses_of(policies, rules, over_2).await, statuses, "over HTTP/2");
    statuses
}

async fn statuses_of(policies: Policies, rules: IdentityRules, requests: Vec<Request<Body>>) -> Vec<u16> {
    let limiter = Arc::new(Limiter::new(policies, MemoryStore::new(clock(), 1_000)));
    let http_settings = HttpSettings::default().rules(rules).shared();
    let layer = RateLimitLayer::new(limiter, reader().http_settings(http_settings));
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(layer.layer(hello).oneshot(request).await.unwrap().status().as_u16());
    }
    statuses
}

fn with(method: &str, path: &str, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = request(1, path);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

fn on(method: &str) -> Policy {
    bucket("p", "1/h").with_selector(Selector::When(method_is(method)))
}

fn method_is(method: &str) -> Condition {
    Condition::default().and_fits(AttributeName::Method, vec![Pattern::new(method, None).unwrap()])
}

fn path_is(path: &str) -> Condition {
    Condition::default().and_fits(AttributeName::Path, vec![Pattern::new(path, Some(b'/')).unwrap()])
}

/// A policy of 4 units with these costs by method.
fn costing(costs: &[(&str, u32)]) -> Policy {
    let costs = costs.iter().map(|(method, cost)| ((*method).to_owned(), *cost)).collect();
    bucket("p", "4/h").with_cost(Cost::ByMethod { costs, others: 1 })
}

/// The statuses of requests with these `Authorization` headers, where tokens name users and each user has one request.
async fn statuses_by_user(requests: &[&[&str]]) -> Vec<u16> {
    let verifier = Verifier::new(KeySet::secret(SECRET).unwrap(), TokenRules::default());
    let token = TokenUser { verifier: Arc::new(verifier), claim: "sub".to_owned() };
    let rules = IdentityRules::default().token(Some(token));
    let policies = Policies::new(vec![bucket("p", "1/h").by(&[AttributeName::User])]).unwrap();
    let requests = requests.iter().map(|lines| {
        let headers: Vec<_> = lines.iter().map(|line| ("authorization", *line)).collect();
        with("GET", "/", &headers)
    });
    statuses_under(policies, rules, requests.collect()).await
}

fn token(sub: &str, expires: u64) -> String {
    let claims = json!({"sub": sub, "exp": expires});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

fn bearer(sub: &str) -> String {
    format!("Bearer {}", token(sub, NOW + 3_600))
}

#[tokio::test]
async fn two_authorization_headers_are_counted_by_address() {
    let [anna, bert] = [bearer("anna"), bearer("bert")];
    let both: &[&str] = &[&anna, &bert];
    assert_eq!(statuses_by_user(&[both, both, &[&anna], &[&bert]]).await, [200, 429, 200, 200]);
}

/// A program's own condition on `Authorization` uses the spelling of policy files.
#[tokio::test]
async fn a_pattern_of_credentials_covers_all_their_spellings() {
    for (pattern, spellings, others) in [
        ("Bearer *", &["Bearer abc", "bearer abc", "BEARER \t abc", "Token abc"][..], &["Basic YTpi"][..]),
        ("ApiKey demo", &["ApiKey demo", "apikey  demo", "APIKEY demo"], &["ApiKey other", "Bearer demo"]),
        ("Basic YW5uYTpzM2NyZXQ=", &["Basic YW5uYTpzM2NyZXQ=", "basic YW5uYTpzM2NyZXQ"], &["Basic YW5uYTp4"]),
    ] {
        let pattern = Pattern::new(&credentials_pattern(pattern), None).unwrap();
        let name = AttributeName::Header("authorization".to_owned());
        let policy = || {
            let covered = Condition::default().and_fits(name.clone(), vec![pattern.clone()]);
            bucket("p", "1/h").with_selector(Selector::When(covered))
        };
        let sent = |line: &&str| with("GET", "/", &[("authorization", *line)]);
        for spelling in spellings {
            let twice = vec![sent(spelling), sent(spelling)];
            assert_eq!(statuses(policy(), twice).await, [200, 429], "{spelling}");
        }
        let all = statuses(policy(), spellings.iter().map(sent).collect()).await;
        assert!(all[0] == 200 && all[1..].iter().all(|status| *status == 429), "one bucket: {all:?}");
        let others: Vec<_> = others.iter().chain(others).map(sent).collect();
        assert!(statuses(policy(), others).await.iter().all(|status| *status == 200));
    }
}

#[tokio::test]
async fn a_token_after_a_tab_or_several_spaces_is_a_token() {
    let anna = token("anna", NOW + 3_600);
    let [tab, spaces] = [format!("Bearer\t{anna}"), format!("bearer   {anna}")];
    let requests: &[&[&str]] = &[&[&tab], &[&spaces], &[&bearer("anna")], &[&bearer("bert")]];
    assert_eq!(statuses_by_user(requests).await, [200, 429, 429, 200]);
}

/// A11: in a bucket whose name no user can have; other schemes are ignored.
#[tokio::test]
async fn a_refused_token_is_counted_by_address() {
    let old = format!("Bearer {}", token("anna", NOW - 3_600));
    let forged = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.AAAA";
    let requests: &[&[&str]] = &[
        &[&old],
        &[forged],
        &["Bearer rubbish"],
        &[&bearer("anna")],
        &[&bearer("ip:192.0.2.1")],
        &[&bearer("192.0.2.1")],
        &["Basic YTpi"],
        &["Basic YTpi"],
    ];
    assert_eq!(statuses_by_user(requests).await, [200, 429, 429, 200, 200, 200, 200, 200]);
}

#[tokio::test]
async fn a_method_counts_however_it_is_written_or_overridden() {
    let posts = vec![with("POST", "/", &[]), with("post", "/", &[]), with("Post", "/", &[])];
    assert_eq!(statuses(on("POST"), posts).await, [200, 429, 429]);
    assert_eq!(statuses(on("GET"), vec![with("GET", "/", &[]), with("HEAD", "/", &[])]).await, [200, 429]);
    let mut requests = vec![with("PUT", "/", &[])];
    for name in ["x-http-method-override", "x-method-override", "x-http-method"] {
        requests.push(with("POST", "/", &[(name, "put")]));
    }
    requests.extend(["/?_method=PUT", "/?%5Fmethod=put"].map(|path| with("POST", path, &[])));
    assert_eq!(statuses(on("PUT"), requests).await, [200, 429, 429, 429, 429, 429]);
    let put = [("x-http-method-override", "put")];
    assert_eq!(statuses(on("PUT"), vec![with("POST", "/", &put), with("PUT", "/", &[])]).await, [200, 429]);
    assert_eq!(statuses(on("POST"), vec![with("POST", "/", &put), with("POST", "/", &[])]).await, [200, 429]);
    let many = "/?_method=A&_method=B&_method=C&_method=D&_method=E&_method=PUT";
    assert_eq!(statuses(on("PUT"), vec![with("POST", many, &[])]).await, [400]);
    for method in ["POST", "post", "Post"] {
        let requests = vec![with(method, "/", &[]), with(method, "/", &[])];
        assert_eq!(statuses(costing(&[("POST", 3)]), requests).await, [200, 429], "{method}");
    }
}

/// Exemptions compare methods exactly: an upstream may treat `options` as another method.
#[tokio::test]
async fn a_lower_case_method_is_not_exempt() {
    for (method, expected) in [("OPTIONS", [200, 200]), ("options", [200, 429]), ("Options", [200, 429])] {
        let policies =
            Policies::new(vec![bucket("p", "1/h")]).unwrap().with_exempt(vec![method_is("OPTIONS")]);
        let requests = vec![with(method, "/", &[]), with(method, "/", &[])];
        assert_eq!(statuses_under(policies, IdentityRules::default(), requests).await, expected, "{method}");
    }
}

#[tokio::test]
async fn head_is_counted_as_get_unless_named() {
    let heads = || vec![with("HEAD", "/", &[]), with("HEAD", "/", &[])];
    assert_eq!(statuses(costing(&[("GET", 3)]), heads()).await, [200, 429]);
    assert_eq!(statuses(costing(&[("GET", 3), ("HEAD", 2)]), heads()).await, [200, 200]);
    let of_group = |name, rate, method| {
        bucket(name, rate).with_selector(Selector::When(method_is(method))).with_group("g")
    };
    let group =
        Policies::new(vec![of_group("gets", "1/h", "GET"), of_group("heads", "2/h", "HEAD")]).unwrap();
    let requests = [heads(), vec![with("GET", "/", &[]), with("HEAD", "/", &[])]].concat();
    assert_eq!(statuses_under(group, IdentityRules::default(), requests).await, [200, 200, 200, 429]);
}

/// A body would be a protocol error in HTTP/2.
#[tokio::test]
async fn a_denial_of_head_has_no_body() {
    let (limiter, _) = limiter([bucket("p", "1/h")]);
    let layer = RateLimitLayer::new(limiter, reader());
    let hello =
        tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    for (method, status, has_body) in [("GET", 200, false), ("GET", 429, true), ("HEAD", 429, false)] {
        let response = layer.layer(hello).oneshot(with(method, "/", &[])).await.unwrap();
        assert_eq!(response.status(), status);
        let length = crate::world::header_text(response.headers(), "content-length").to_owned();
        assert_eq!(!crate::world::text(response).await.is_empty(), has_body, "{method}");
        assert!(method == "GET" || length.parse::<u32>().unwrap() > 0, "as a GET would have it");
    }
}

#[tokio::test]
async fn repeated_values_are_all_charged_or_rejected() {
    let sid = bucket("p", "1/h").by(&[AttributeName::Cookie("sid")]);
    let cookie = |value| with("GET", "/", &[("cookie", value)]);
    let requests = vec![
        cookie("sid=a; sid=b"),
        cookie("sid=b"),
        cookie("sid=c"),
        cookie("sid=1; sid=2; sid=3; sid=4; sid=5"),
    ];
    assert_eq!(statuses(sid, requests).await, [200, 429, 200, 400]);
    let k = bucket("p", "1/h").by(&[AttributeName::Param("k")]);
    let paths = ["/?k=a&k=b", "/?k=b", "/?k=c", "/?k=1&k=2&k=3&k=4&k=5"];
    let requests = paths.map(|path| with("GET", path, &[])).into();
    assert_eq!(statuses(k, requests).await, [200, 429, 200, 400]);
    let key = bucket("p", "1/h").by(&[AttributeName::Header("x-api-key")]);
    let twice = |path| with("GET", path, &[("x-api-key", "a"), ("x-api-key", "b")]);
    let requests = vec![twice("/"), with("GET", "/", &[("x-api-key", "a")])];
    assert_eq!(statuses(key.clone(), requests).await, [400, 200]);
    let elsewhere = key.with_selector(Selector::When(path_is("/other")));
    assert_eq!(statuses(elsewhere, vec![twice("/"), twice("/"), twice("/other")]).await, [200, 200, 400]);
}

/// HTTP/2 splits cookies into several headers.
#[tokio::test]
async fn cookies_in_several_headers_are_all_charged() {
    let sid = bucket("p", "1/h").by(&[AttributeName::Cookie("sid")]);
    let cookies = |values: &[&str]| {
        with("GET", "/", &values.iter().map(|value| ("cookie", *value)).collect::<Vec<_>>())
    };
    let requests = vec![
        cookies(&["sid=a", "theme=dark", "sid=b"]),
        cookies(&["sid=a"]),
        cookies(&["sid=b"]),
        cookies(&["sid=c"]),
        cookies(&["sid=1", "sid=2", "sid=3", "sid=4", "sid=5"]),
    ];
    assert_eq!(statuses(sid, requests).await, [200, 429, 429, 200, 400]);
}

#[tokio::test]
async fn two_user_headers_of_a_trusted_proxy_are_rejected() {
    let proxies = Proxies::default().trusted(vec!["192.0.2.0/24".parse().unwrap()]);
    let user_header = Some(HeaderName::from_static("x-user"));
    let rules = IdentityRules::default().proxies(proxies).user_header(user_header);
    let policies = Policies::new(vec![bucket("p", "1/h").by(&[AttributeName::User])]).unwrap();
    let requests = vec![
        with("GET", "/", &[("x-user", "anna"), ("x-user", "bert")]),
        with("GET", "/", &[("x-user", "anna")]),
        with("GET", "/", &[("x-user", "anna")]),
    ];
    assert_eq!(statuses_under(policies, rules, requests).await, [400, 200, 429]);
}

#[tokio::test]
async fn an_unreadable_value_is_counted_by_address() {
    let cookie = |bytes: &[u8]| {
        let mut request = with("GET", "/", &[]);
        request.headers_mut().insert("cookie", HeaderValue::from_bytes(bytes).unwrap());
        request
    };
    let requests = vec![
        cookie(b"sid=\xff; sid=REAL"),
        cookie(b"sid=REAL"),
        cookie(b"sid=\xff"),
        cookie(b"sid=\xfe"),
        cookie(b"other=1"),
    ];
    let sid = bucket("p", "1/h").by(&[AttributeName::Cookie("sid")]);
    assert_eq!(statuses(sid, requests).await, [200, 429, 429, 429, 200]);
    let long = "k".repeat(5_000);
    let requests = [(); 2].map(|()| with("GET", "/", &[("x-api-key", &long)])).into();
    let key = bucket("p", "1/h").by(&[AttributeName::Header("x-api-key")]);
    assert_eq!(statuses(key, requests).await, [200, 429]);
}

/// A layer forwards every header that it reads, so none is stripped after it was counted.
#[tokio::test]
async fn a_header_that_connection_names_is_counted() {
    let key = bucket("p", "1/h").by(&[AttributeName::Header("x-api-key")]);
    let hop = with("GET", "/", &[("x-api-key", "a"), ("connection", "X-Api-Key")]);
    assert_eq!(statuses(key, vec![hop, with("GET", "/", &[("x-api-key", "a")])]).await, [200, 429]);
}

#[tokio::test]
async fn an_ambiguous_path_counts_in_every_interpretation() {
    let ambiguous = || with("GET", "/api/items/1%2f..%2f..%2fx", &[]);
    for (pattern, plain) in [
        ("/api/items/**", Some("/api/items/1")),
        ("/api/x", Some("/api/x")),
        ("/api/items/1%2f..%2f..%2fx", None),
        ("/api/items/1/../../x", None),
    ] {
        let policy = bucket("p", "1/h").with_selector(Selector::When(path_is(pattern)));
        let first = plain.map_or_else(ambiguous, |path| with("GET", path, &[]));
        assert_eq!(statuses(policy, vec![first, ambiguous()]).await, [200, 429], "{pattern}");
    }
    let rejecting = IdentityRules::default().ambiguous_paths(AmbiguousPaths::Reject);
    let nothing = Policies::new(Vec::new()).unwrap();
    let requests = vec![ambiguous(), with("GET", "/api/y", &[])];
    assert_eq!(statuses_under(nothing, rejecting, requests).await, [400, 200]);
}

/// B4: an exempt path matches as a whole, and in every interpretation.
#[tokio::test]
async fn only_the_exact_path_is_exempt() {
    for (path, expected) in [
        ("/health", [200, 200]),
        ("/healthcare", [200, 429]),
        ("/health/x", [200, 429]),
        ("/login%2f..%2fhealth", [200, 429]),
    ] {
        let policies = Policies::new(vec![bucket("p", "1/h")]).unwrap().with_exempt(vec![path_is("/health")]);
        let requests = [(); 2].map(|()| with("GET", path, &[])).into();
        assert_eq!(statuses_under(policies, IdentityRules::default(), requests).await, expected, "{path}");
    }
}

#[tokio::test]
async fn paths_are_case_insensitive_if_configured() {
    for (case, expected) in [(Case::Sensitive, [200, 200]), (Case::Insensitive, [200, 429])] {
        let policy = bucket("p", "1/h").with_selector(Selector::When(path_is("/login")));
        let requests = ["/login", "/Login"].map(|path| with("GET", path, &[])).into();
        let rules = IdentityRules::default().case(case);
        assert_eq!(statuses_under(Policies::new(vec![policy]).unwrap(), rules, requests).await, expected);
    }
}

/// An application may read any `Host` header, or the host in the target.
#[tokio::test]
async fn every_host_counts() {
    let by_host = || bucket("p", "1/h").by(&[AttributeName::Host]);
    let lines = |hosts: &[&str]| {
        let mut request = with("GET", "/", &[]);
        request.headers_mut().remove("host");
        for host in hosts {
            request.headers_mut().append("host", host.parse().unwrap());
        }
        request
    };
    let one_by_one =
        vec![lines(&["a.example", "b.example"]), lines(&["b.example"]), lines(&["A.example:80"])];
    assert_eq!(statuses(by_host(), one_by_one).await, [200, 429, 429]);
    let mut target = lines(&["b.example"]);
    *target.uri_mut() = "http://a.example/".parse().unwrap();
    assert_eq!(statuses(by_host(), vec![target, lines(&["b.example"])]).await, [200, 429]);
    assert_eq!(statuses(by_host(), vec![lines(&["a b"]), lines(&["c d"])]).await, [200, 429], "by address");
}
