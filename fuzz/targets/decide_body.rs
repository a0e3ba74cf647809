//! The body of `POST /api/v1/decide`: whatever it is, the door answers, and says yes or no to what it understood.
//!
//! The policies look at every kind of attribute, so that all of them are read.
#![no_main]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use ratewright_core::{
    Algorithm, AttributeName, Condition, Cost, Limiter, ManualClock, Missing, Part, Pattern, Policies,
    Policy, Quota, Refill, Selector,
};
use ratewright_server::{Settings, rest};
use ratewright_store::MemoryStore;
use tower::ServiceExt as _;

static DOOR: LazyLock<Router> = LazyLock::new(door);
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let mut request =
        http::Request::post("/api/v1/decide").body(Body::from(body.to_vec())).expect("a request");
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 9))));
    let (status, answer) = RUNTIME.block_on(async {
        let response = DOOR.clone().oneshot(request).await.expect("it always answers");
        (
            response.status().as_u16(),
            to_bytes(response.into_body(), usize::MAX).await.expect("a whole answer"),
        )
    });
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("an answer in JSON");
    match status {
        200 => assert_eq!(answer["allowed"], true, "{answer}"),
        429 | 403 => {
            assert_eq!((&answer["allowed"], &answer["status"]), (&false.into(), &status.into()), "{answer}")
        }
        400 => assert!(answer["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{answer}"),
        other => panic!("{other}: {answer}"),
    }
});

fn door() -> Router {
    let quota = || {
        Quota::new(Algorithm::TokenBucket(Refill::Smooth), "3/h".parse().expect("a rate")).expect("a quota")
    };
    let named = |name: &str| AttributeName::parse(name).expect("an attribute");
    let by = |name: &str, attribute: &str| {
        Policy::new(name, quota()).expect("a policy").partitioned(vec![Part::one(named(attribute))])
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
            .covering(Selector::When(on("**/login**")))
            .costing(Cost::Of(named("header:x-cost"))),
        by("strict", "user").covering(Selector::When(on("/strict/**"))).lacking(Missing::Deny),
    ];
    let policies =
        Policies::new(each.chain(more).collect()).expect("a rule set").exempting(vec![on("/health**")]);
    let clock = ManualClock::default();
    let limiter = Arc::new(Limiter::new(policies, MemoryStore::new(clock.clone(), 1_000)));
    rest::router(rest::Rest {
        limiter,
        settings: Settings::default().shared(),
        clock,
        checks: Arc::default(),
    })
}
