//! The REST door, asked as if from any address.

use super::*;
use http::Method;
use tollgate_core::AttributeName;
use tollgate_core::{Algorithm, Policies, Policy, Quota, Refill, Selector};
use tollgate_core::{ManualClock, Timestamp};
use tollgate_store::MemoryStore;
use tower::ServiceExt;

/// Asks as if from that address.
async fn ask(door: &Router, from: &str, method: Method, call: &str) -> (u16, serde_json::Value) {
    let uri = format!("/api/v1/rate-limit/{call}");
    let mut request = http::Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(format!("{from}:50000").parse::<SocketAddr>().unwrap()));
    let response = door.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

fn door() -> Router {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "5/h".parse().unwrap()).unwrap();
    let policy =
        Policy::new("token_bucket", quota).unwrap().covering(Selector::Named).by(&[AttributeName::Key]);
    let policies = Policies::new(vec![policy]).unwrap();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_250_000));
    let limiter = Limiter::new(policies, MemoryStore::new(clock.clone(), 1_000));
    let settings = Settings::default().shared();
    router(Rest { limiter: Arc::new(limiter), settings, clock, checks: Arc::default() })
}

/// C2: the time of the reset is rounded up, and is Unix seconds.
#[tokio::test]
async fn c2_reset_is_the_unix_second_by_which_all_is_back() {
    let mut request = http::Request::get("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    let response = door().oneshot(request).await.unwrap();
    let fields = tollgate_http::Fields::parse(response.headers());
    assert_eq!((fields.remaining, fields.reset), (Some(4), Some(1_700_000_000 + 720 + 1)));
}

#[tokio::test]
async fn answers_have_both_families_of_fields() {
    let mut request = http::Request::get("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    let response = door().oneshot(request).await.unwrap();
    let field = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!(field("x-ratelimit-limit"), "5");
    assert_eq!(field("ratelimit-policy"), r#""token_bucket";q=5;w=3600"#);
    assert_eq!(field("ratelimit"), r#""token_bucket";r=4;t=720"#);
}

#[tokio::test]
async fn an_algorithm_without_a_policy_is_not_let_through() {
    let (status, body) = ask(&door(), "127.0.0.1", Method::GET, "check?algorithm=FIXED_WINDOW").await;
    assert_eq!((status, body["detail"].as_str()), (404, Some("no limit is configured for FIXED_WINDOW")));
}

#[tokio::test]
async fn head_spends_nothing() {
    let door = door();
    let mut request = http::Request::head("/api/v1/rate-limit/check").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    let response = door.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()[header::ALLOW]),
        (405, &HeaderValue::from_static("GET"))
    );
    assert_eq!(ask(&door, "127.0.0.1", Method::GET, "check").await.1["remaining"], 4);
}

#[tokio::test]
async fn c6_an_explicit_key_and_reset_are_for_callers_on_loopback() {
    let door = door();
    for stranger in ["192.0.2.7", "[2001:db8::7]", "[::ffff:192.0.2.7]"] {
        let (status, body) = ask(&door, stranger, Method::GET, "check?key=somebody").await;
        assert_eq!(status, 403, "{stranger}");
        assert_eq!(
            body["detail"],
            "key is for callers on the same machine or with a token; leave it out to ask about yourself"
        );
        assert_eq!(ask(&door, stranger, Method::GET, "remaining?key=somebody").await.0, 403);
        assert_eq!(ask(&door, stranger, Method::DELETE, "reset").await.0, 403);
        assert_eq!(ask(&door, stranger, Method::GET, "check").await.0, 200, "one's own address is one's own");
    }
    for local in ["127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"] {
        assert_eq!(ask(&door, local, Method::GET, "check?key=somebody").await.0, 200, "{local}");
    }
}

#[tokio::test]
async fn c6_addresses_of_one_client_share_a_bucket() {
    let door = door();
    let key = async |from: &str| {
        let (_, body) = ask(&door, from, Method::GET, "check").await;
        (body["key"].as_str().unwrap().to_owned(), body["remaining"].as_u64().unwrap())
    };
    assert_eq!(key("192.0.2.7").await, ("192.0.2.7".to_owned(), 4));
    assert_eq!(key("[::ffff:192.0.2.7]").await, ("192.0.2.7".to_owned(), 3));
    assert_eq!(key("[2001:db8::1]").await, ("2001:db8::/64".to_owned(), 4));
    assert_eq!(key("[2001:db8::2]").await, ("2001:db8::/64".to_owned(), 3));
    assert_eq!(key("[2001:db8:0:1::2]").await, ("2001:db8:0:1::/64".to_owned(), 4));
}
