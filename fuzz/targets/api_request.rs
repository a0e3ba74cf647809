//! API requests: each gets a JSON response and no 5xx, and a valid `decide` request is allowed or denied. The input is sent
//! as the body of the POST calls and as the query of `check`, `remaining` and `reset`.
//!
//! The policies look at every kind of attribute, so that all of them are read.
#![no_main]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use ratewright_core::policy::{Condition, Cost, Missing, Part, Pattern, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Limiter, ManualClock, Policies, Policy, Quota};
use ratewright_server::{ServerSettings, rest};
use ratewright_store::MemoryStore;
use tower::ServiceExt as _;

static ROUTER: LazyLock<Router> = LazyLock::new(router);
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    for path in ["/api/v1/decide/batch", "/api/v1/refund"] {
        let (status, found) = send(http::Request::post(path), body);
        assert!(status < 500, "{path}: {found}");
    }
    for (method, call) in [("POST", "check"), ("GET", "remaining"), ("DELETE", "reset")] {
        let uri = format!("/api/v1/rate-limit/{call}?{}", String::from_utf8_lossy(body));
        if uri.parse::<http::Uri>().is_ok() {
            let (status, found) = send(http::Request::builder().method(method).uri(&uri), b"");
            assert!(status < 500, "{uri}: {found}");
        }
    }
    let (status, found) = send(http::Request::post("/api/v1/decide"), body);
    match status {
        200 => assert_eq!(found["allowed"], true, "{found}"),
        429 | 403 => {
            assert_eq!((&found["allowed"], &found["status"]), (&false.into(), &status.into()), "{found}")
        }
        400 => assert!(found["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{found}"),
        other => panic!("{other}: {found}"),
    }
});

/// The response's status and JSON body.
fn send(request: http::request::Builder, body: &[u8]) -> (u16, serde_json::Value) {
    let mut request = request.body(Body::from(body.to_vec())).expect("a request");
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 9))));
    let (status, bytes) = RUNTIME.block_on(async {
        let response = ROUTER.clone().oneshot(request).await.expect("a response");
        let status = response.status().as_u16();
        (status, to_bytes(response.into_body(), usize::MAX).await.expect("a complete body"))
    });
    (status, serde_json::from_slice(&bytes).expect("a JSON body"))
}

fn router() -> Router {
    let quota = || {
        Quota::new(Algorithm::TokenBucket(Refill::Smooth), "3/h".parse().expect("a rate")).expect("a quota")
    };
    let named = |name: &str| AttributeName::parse(name).expect("an attribute");
    let by = |name: &str, attribute: &str| {
        Policy::new(name, quota()).expect("a policy").with_partition(vec![Part::one(named(attribute))])
    };
    let on = |path: &str| {
        let pattern = Pattern::new(path, Some(b'/')).expect("a pattern");
        Condition::default().and_fits(AttributeName::Path, vec![pattern])
    };
    let names =
        ["ip", "user", "host", "route", "header:x-key", "cookie:c", "query:q", "claim:c", "attribute:a"];
    let each = (0..).zip(names).map(|(n, attribute): (u32, _)| by(&format!("p{n}"), attribute));
    let more = [
        by("login", "ip")
            .with_selector(Selector::When(on("**/login**")))
            .with_cost(Cost::Of(named("header:x-cost"))),
        by("strict", "user").with_selector(Selector::When(on("/strict/**"))).with_missing(Missing::Deny),
    ];
    let policies =
        Policies::new(each.chain(more).collect()).expect("a rule set").with_exempt(vec![on("/health**")]);
    let clock = ManualClock::default();
    let limiter = Arc::new(Limiter::new(policies, MemoryStore::new(clock.clone(), 1_000)));
    rest::router(rest::Rest {
        limiter,
        settings: ServerSettings::default().shared(),
        clock,
        gateway: rest::GatewayView::default(),
    })
}
