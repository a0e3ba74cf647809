//! The REST entrypoint, called from various addresses.

use super::*;
use crate::access_control::{Access, TokenDigest};
use http::Method;
use ratewright_core::policy::{Mode, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{ManualClock, Timestamp};
use ratewright_core::{Policies, Policy, Quota};
use ratewright_store::MemoryStore;
use tower::ServiceExt;

/// Calls the API from that address.
async fn ask(api: &Router, from: &str, method: Method, call: &str) -> (u16, serde_json::Value) {
    let uri = format!("/api/v1/rate-limit/{call}");
    let mut request = http::Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(format!("{from}:50000").parse::<SocketAddr>().unwrap()));
    let response = api.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

fn api() -> Router {
    api_with(ServerSettings::default())
}

fn api_with(settings: ServerSettings) -> Router {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "5/h".parse().unwrap()).unwrap();
    let policy =
        Policy::new("token_bucket", quota).unwrap().with_selector(Selector::Named).by(&[AttributeName::Key]);
    api_of(vec![policy], settings)
}

fn api_of(policies: Vec<Policy>, settings: ServerSettings) -> Router {
    let policies = Policies::new(policies).unwrap();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_250_000));
    let limiter = Limiter::new(policies, MemoryStore::new(clock.clone(), 1_000));
    let settings = settings.shared();
    router(Rest { limiter: Arc::new(limiter), settings, clock, gateway: GatewayView::default() })
}

/// C2: the time of the reset is rounded up, and is Unix seconds.
#[tokio::test]
async fn c2_reset_is_the_unix_second_at_which_the_bucket_is_full() {
    let mut request = http::Request::get("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    let response = api().oneshot(request).await.unwrap();
    let fields = ratewright_http::RateLimitHeaders::parse(response.headers());
    assert_eq!((fields.remaining, fields.reset), (Some(4), Some(1_700_000_000 + 720 + 1)));
}

#[tokio::test]
async fn responses_have_both_families_of_headers() {
    let mut request = http::Request::get("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    let response = api().oneshot(request).await.unwrap();
    let field = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!(field("x-ratelimit-limit"), "5");
    assert_eq!(field("ratelimit-policy"), r#""token_bucket";q=5;w=3600"#);
    assert_eq!(field("ratelimit"), r#""token_bucket";r=4;t=720"#);
}

#[tokio::test]
async fn an_algorithm_without_a_policy_is_404() {
    let (status, body) = ask(&api(), "127.0.0.1", Method::GET, "check?algorithm=FIXED_WINDOW").await;
    assert_eq!((status, body["detail"].as_str()), (404, Some("no limit is configured for FIXED_WINDOW")));
}

/// The body shows the bucket of a policy in shadow mode; only the headers hide it.
#[tokio::test]
async fn the_body_shows_the_bucket_of_a_policy_in_shadow_mode() {
    let quota = Quota::new(Algorithm::SlidingWindow, "2/h".parse().unwrap()).unwrap();
    let policy = |mode| {
        let policy = Policy::new("trial", quota.clone()).unwrap().by(&[AttributeName::Ip]);
        policy.with_mode(mode)
    };
    let api = api_of(vec![policy(Mode::Shadow)], ServerSettings::default());
    for (call, left) in [("check", 1), ("remaining", 1), ("check", 0), ("check", 0), ("remaining", 0)] {
        let uri = format!("/api/v1/rate-limit/{call}?policy=trial");
        let mut request = http::Request::get(uri).body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
        let response = api.clone().oneshot(request).await.unwrap();
        assert_eq!((response.status(), response.headers().get("x-ratelimit-limit")), (StatusCode::OK, None));
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["remaining"], left, "{call}: {body}");
        assert_eq!((&body["basis"], &body["algorithm"]), (&"local".into(), &"SLIDING_WINDOW".into()));
        assert_eq!(body["resetAfterSeconds"], 3_600, "{body}");
    }
    let off = api_of(vec![policy(Mode::Off)], ServerSettings::default());
    let (_, body) = ask(&off, "127.0.0.1", Method::GET, "remaining?policy=trial").await;
    assert_eq!((&body["basis"], &body["remaining"]), (&"off".into(), &2.into()));
    assert_eq!(body["algorithm"], "SLIDING_WINDOW");
}

#[tokio::test]
async fn head_spends_nothing() {
    let api = api();
    let mut request = http::Request::head("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    let response = api.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()[header::ALLOW]),
        (405, &HeaderValue::from_static("GET,POST"))
    );
    assert_eq!(ask(&api, "127.0.0.1", Method::GET, "check").await.1["remaining"], 4);
}

#[tokio::test]
async fn c6_an_explicit_key_and_reset_are_for_callers_on_loopback() {
    let api = api();
    for stranger in ["192.0.2.7", "[2001:db8::7]", "[::ffff:192.0.2.7]"] {
        let (status, body) = ask(&api, stranger, Method::GET, "check?key=somebody").await;
        assert_eq!(status, 403, "{stranger}");
        assert_eq!(
            body["detail"],
            "key is for callers on the same machine or with a token; omit it to check your own address"
        );
        assert_eq!(ask(&api, stranger, Method::GET, "remaining?key=somebody").await.0, 403);
        assert_eq!(ask(&api, stranger, Method::DELETE, "reset").await.0, 403);
        assert_eq!(ask(&api, stranger, Method::GET, "check").await.0, 200, "the caller's own address");
    }
    for local in ["127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"] {
        assert_eq!(ask(&api, local, Method::GET, "check?key=somebody").await.0, 200, "{local}");
    }
}

/// Calls the API from that address, with that `Authorization`. Returns the status and the detail.
async fn ask_with(api: &Router, from: &str, authorization: &str, call: (&str, &str, &str)) -> (u16, String) {
    let (method, path, body) = call;
    let request = http::Request::builder().method(method).uri(format!("/api/v1/{path}"));
    let request =
        if authorization.is_empty() { request } else { request.header("authorization", authorization) };
    let mut request = request.body(Body::from(body.to_owned())).unwrap();
    request.extensions_mut().insert(ConnectInfo(format!("{from}:50000").parse::<SocketAddr>().unwrap()));
    let response = api.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    (status, body["detail"].as_str().unwrap_or_default().to_owned())
}

/// C6: calls that concern other clients are for local callers, or those with a token; others are rejected before anything is
/// read or charged.
#[tokio::test]
async fn c6_remote_calls_for_other_clients_need_a_token() {
    let access = Access::new(["first", "second"].map(TokenDigest::of).into());
    let api = api_with(ServerSettings { access, ..ServerSettings::default() });
    for (method, path, body, what) in [
        ("GET", "rate-limit/check?key=somebody", "", "key"),
        ("POST", "rate-limit/check?key=somebody", "", "key"),
        ("GET", "rate-limit/remaining?key=somebody", "", "key"),
        ("DELETE", "rate-limit/reset?key=somebody", "", "reset"),
        ("DELETE", "rate-limit/reset", "", "reset"),
        ("POST", "decide", "{}", "decide"),
        ("POST", "decide/batch", r#"{"queries": []}"#, "decide"),
        ("POST", "refund", r#"{"receipt": "eyJpIjo3LCJjIjpbXX0"}"#, "refund"),
    ] {
        let call = (method, path, body);
        for stranger in ["192.0.2.7", "[2001:db8::7]", "[::ffff:192.0.2.7]"] {
            for wrong in ["", "Bearer third", "Bearer ", "Basic first"] {
                let (status, detail) = ask_with(&api, stranger, wrong, call).await;
                assert_eq!(status, 403, "{method} {path} from {stranger} with {wrong:?}");
                let expected = format!("{what} is for callers on the same machine or with a token; ");
                assert!(detail.starts_with(&expected), "{detail}");
            }
            for right in ["Bearer first", "Bearer second"] {
                let response = ask_with(&api, stranger, right, call).await;
                assert!([200, 429].contains(&response.0), "{method} {path} from {stranger}: {response:?}");
            }
        }
        assert!([200, 429].contains(&ask_with(&api, "127.0.0.1", "", call).await.0), "{method} {path}");
    }
    let (status, _) = ask_with(&api, "192.0.2.7", "", ("POST", "decide", "no JSON at all")).await;
    assert_eq!(status, 403, "authorization comes before parsing");
}

#[tokio::test]
async fn c6_addresses_of_one_client_share_a_bucket() {
    let api = api();
    let key = async |from: &str| {
        let (_, body) = ask(&api, from, Method::GET, "check").await;
        (body["key"].as_str().unwrap().to_owned(), body["remaining"].as_u64().unwrap())
    };
    assert_eq!(key("192.0.2.7").await, ("192.0.2.7".to_owned(), 4));
    assert_eq!(key("[::ffff:192.0.2.7]").await, ("192.0.2.7".to_owned(), 3));
    assert_eq!(key("[2001:db8::1]").await, ("2001:db8::/64".to_owned(), 4));
    assert_eq!(key("[2001:db8::2]").await, ("2001:db8::/64".to_owned(), 3));
    assert_eq!(key("[2001:db8:0:1::2]").await, ("2001:db8:0:1::/64".to_owned(), 4));
}

/// A check has the caller's id, if there is one, and otherwise none, because no log line would have it.
#[tokio::test]
async fn a_check_has_the_id_of_its_request() {
    for (given, expected) in [(Some(("x-request-id", "r-1")), Some("r-1")), (None, None)] {
        let mut request = http::Request::get("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
        if let Some((name, id)) = given {
            request.headers_mut().insert(name, HeaderValue::from_static(id));
        }
        let response = api().oneshot(request).await.unwrap();
        assert_eq!(response.headers().get("x-correlation-id").map(|id| id.to_str().unwrap()), expected);
    }
}

/// Only web pages send an origin, and may read the headers.
#[tokio::test]
async fn a_web_page_may_read_the_headers() {
    for (origin, expected) in [(Some("https://shop.example"), true), (None, false)] {
        let mut request = http::Request::get("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo("192.0.2.1:5".parse::<SocketAddr>().unwrap()));
        request.headers_mut().extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
        let response = api().oneshot(request).await.unwrap();
        assert_eq!(response.headers().contains_key(header::ACCESS_CONTROL_EXPOSE_HEADERS), expected);
    }
}

/// A caller that checks its own address has the same overrides as with `decide`: those of its header, or of its address.
#[tokio::test]
async fn a_callers_own_overrides_apply() {
    use ratewright_core::policy::{Condition, Pattern};
    let quota = |rate: &str| Quota::new(Algorithm::SlidingWindow, rate.parse().unwrap()).unwrap();
    let tier = AttributeName::Header("x-tier".to_owned());
    let premium = Condition::default().and_fits(tier, vec![Pattern::new("premium", None).unwrap()]);
    let office = Condition::default().and_within(vec!["192.0.2.0/24".parse().unwrap()]);
    let policy = Policy::new("api", quota("5/h"))
        .unwrap()
        .by(&[AttributeName::Ip])
        .with_override(None, premium, vec![(None, quota("1000/h"))], None)
        .with_override(None, office, vec![(None, quota("100/h"))], None);
    let api = api_of(vec![policy], ServerSettings::default());
    for (from, tier, left) in [("127.0.0.1", "", 4), ("127.0.0.2", "premium", 999), ("192.0.2.7", "", 99)] {
        let mut request =
            http::Request::get("/api/v1/rate-limit/check?policy=api").body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(format!("{from}:5").parse::<SocketAddr>().unwrap()));
        request.headers_mut().insert("x-tier", HeaderValue::from_static(tier));
        let response = api.clone().oneshot(request).await.unwrap();
        assert_eq!(
            ratewright_http::RateLimitHeaders::parse(response.headers()).remaining,
            Some(left),
            "{from} {tier}"
        );
    }
}

/// Anna's token, signed with the secret below, until 2096.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIiwiZXhwIjo0MDAwMDAwMDAwfQ.6tJmnXbQWQ2Qlg96ePo9008Hfzf1AuOYopIFrTp5qH4";

/// Verifying a token costs more than the rest of a decision: it is done once for each query, however many policies read the
/// token, and not at all if none does.
#[tokio::test]
async fn a_token_is_verified_once_for_each_decision() {
    use ratewright_http::identify::TokenUser;
    use ratewright_http::jwt::{KeySet, TokenRules, Verifier};
    use ratewright_http::{HttpSettings, IdentityRules};
    let by = |name: &str, by: AttributeName<&str>| {
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "9/h".parse().unwrap()).unwrap();
        Policy::new(name, quota).unwrap().by(&[by])
    };
    let (user, claim, ip) = (
        by("user", AttributeName::User),
        by("claim", AttributeName::Claim("sub")),
        by("ip", AttributeName::Ip),
    );
    for (policies, n_each) in [(vec![user, claim, ip.clone()], 1), (vec![ip], 0)] {
        let keys = KeySet::secret(b"a secret of at least thirty-two bytes").unwrap();
        let verifier = Arc::new(Verifier::new(keys, TokenRules::default()));
        let token = Some(TokenUser { verifier: Arc::clone(&verifier), claim: "sub".to_owned() });
        let http_settings = HttpSettings::default().rules(IdentityRules::default().token(token));
        let api = api_of(
            policies,
            ServerSettings { http_settings: Arc::new(http_settings), ..ServerSettings::default() },
        );
        let about = |token: &str| {
            let headers = serde_json::json!({ "Authorization": format!("Bearer {token}") });
            serde_json::json!({ "attributes": { "ip": "192.0.2.1", "headers": headers } }).to_string()
        };
        for (n, response) in (1..).zip([TOKEN, TOKEN, "a.b.c"]) {
            let (status, detail) =
                ask_with(&api, "127.0.0.1", "", ("POST", "decide", &about(response))).await;
            assert_eq!((status, verifier.n_verified()), (200, n * n_each), "{response}: {detail}");
        }
        let batch = format!(r#"{{"queries": [{}, {}]}}"#, about(TOKEN), about(TOKEN));
        let (status, detail) = ask_with(&api, "127.0.0.1", "", ("POST", "decide/batch", &batch)).await;
        assert_eq!((status, verifier.n_verified()), (200, 5 * n_each), "a batch of two: {detail}");
    }
}
