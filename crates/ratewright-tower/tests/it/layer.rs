//! Identify, decide, render.

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Request, Response, StatusCode, header};
use ratewright_core::policy::{Condition, Cost, Mode, Pattern, Selector};
use ratewright_core::query::{AttributeName, Entrypoint};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Decision, Limiter, Micros, Policies, Policy, Store, Verdict};
use ratewright_http::address::Proxies;
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_store::MemoryStore;
use ratewright_tower::{RateLimitLayer, RequestReader};
use tower::{Layer, Service, ServiceExt};

use crate::world::{
    Body, NOW, RemoteStore, bucket, clock, header_text, limiter, quota, reader, request, text,
};

/// Sends a request to a service that says hello.
async fn send<S: Store<Error = Infallible> + 'static>(
    layer: &RateLimitLayer<S>,
    request: Request<Body>,
) -> Response<Body> {
    layer.layer(tower::service_fn(hello)).oneshot(request).await.unwrap()
}

async fn hello(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}

/// The statuses of two requests of one client and one of another.
async fn statuses<S: Store<Error = Infallible> + 'static>(layer: &RateLimitLayer<S>) -> [u16; 3] {
    let [mut first, mut again, mut other] = [0; 3];
    for (client, status) in [(1, &mut first), (1, &mut again), (2, &mut other)] {
        *status = send(layer, request(client, "/")).await.status().as_u16();
    }
    [first, again, other]
}

#[tokio::test]
async fn a6_an_allowed_response_carries_both_header_families() {
    let (limiter, _) = limiter([bucket("api", "15/min")]);
    let response = send(&RateLimitLayer::new(limiter, reader()), request(1, "/")).await;
    let headers = response.headers();
    assert_eq!(response.status(), 200);
    assert_eq!(header_text(headers, "x-ratelimit-limit"), "15");
    assert_eq!(header_text(headers, "x-ratelimit-remaining"), "14");
    assert_eq!(header_text(headers, "x-ratelimit-reset"), (NOW + 4).to_string());
    assert_eq!(header_text(headers, "ratelimit-policy"), r#""api";q=15;w=60"#);
    assert_eq!(header_text(headers, "ratelimit"), r#""api";r=14;t=4"#);
    assert_eq!(header_text(headers, "retry-after"), "-");
    assert_eq!(text(response).await, "hello");
}

#[tokio::test]
async fn a7_b6_a_denied_request_does_not_reach_the_service_and_gets_a_problem() {
    let (limiter, _) = limiter([bucket("login", "1/min")]);
    let layer = RateLimitLayer::new(limiter, reader());
    let n_served = Arc::new(AtomicUsize::new(0));
    let counter = n_served.clone();
    let mut service = layer.layer(tower::service_fn(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        hello(request)
    }));
    service.ready().await.unwrap().call(request(1, "/login")).await.unwrap();
    let mut again = request(1, "/login");
    again.headers_mut().insert("x-correlation-id", HeaderValue::from_static("c-1"));
    let denied = service.ready().await.unwrap().call(again).await.unwrap();
    assert_eq!((denied.status(), n_served.load(Ordering::Relaxed)), (StatusCode::TOO_MANY_REQUESTS, 1));
    assert_eq!(header_text(denied.headers(), "retry-after"), "60");
    assert_eq!(header_text(denied.headers(), "x-ratelimit-remaining"), "0");
    assert_eq!(header_text(denied.headers(), "content-type"), "application/problem+json");
    assert_eq!(header_text(denied.headers(), "x-correlation-id"), "c-1");
    let body: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
    let expected = serde_json::json!({
        "type": "about:blank", "title": "Too Many Requests", "status": 429,
        "detail": "Rate limit \"login\" exceeded. Try again in 60 seconds.", "instance": "/login",
        "correlationId": "c-1", "limitType": "login", "retryAfter": 60,
        "timestamp": "2023-11-14T22:13:20.000Z", "violated-policies": ["login"],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn each_client_has_its_own_bucket_which_refills() {
    let (limiter, clock) = limiter([bucket("api", "1/s")]);
    let layer = RateLimitLayer::new(limiter, reader());
    assert_eq!(statuses(&layer).await, [200, 429, 200]);
    clock.advance(Micros::from_secs(1));
    assert_eq!(statuses(&layer).await, [200, 429, 200]);
}

#[tokio::test]
async fn a_remote_store_gives_the_same_decisions() {
    let clock = clock();
    let store = RemoteStore(MemoryStore::new(clock.clone(), 1_000));
    let limiter = Arc::new(Limiter::new(Policies::new(vec![bucket("api", "1/s")]).unwrap(), store));
    let layer = RateLimitLayer::new(limiter, reader());
    assert_eq!(statuses(&layer).await, [200, 429, 200]);
    clock.advance(Micros::from_secs(1));
    assert_eq!(statuses(&layer).await, [200, 429, 200]);
}

#[tokio::test]
async fn a10_a_request_without_a_policy_gets_no_headers() {
    let covered = Condition::default()
        .and_fits(AttributeName::Path, vec![Pattern::new("/api/**", Some(b'/')).unwrap()]);
    let (limiter, _) = limiter([bucket("api", "1/h").with_selector(Selector::When(covered))]);
    let layer = RateLimitLayer::new(limiter, reader());
    for _ in 0..3 {
        let response = send(&layer, request(1, "/elsewhere")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers().len(), 0);
    }
}

#[tokio::test]
async fn e6_a_shadow_policy_never_denies_and_a_swapped_policy_applies_at_once() {
    let (limiter, _) = limiter([bucket("api", "1/h").with_mode(Mode::Shadow)]);
    let layer = RateLimitLayer::new(limiter.clone(), reader());
    assert_eq!(statuses(&layer).await, [200, 200, 200]);
    limiter.swap(Policies::new(vec![bucket("api", "1/h")]).unwrap());
    assert_eq!(statuses(&layer).await, [429, 429, 429]);
    limiter.swap(Policies::new(vec![bucket("api", "1/h").with_mode(Mode::Off)]).unwrap());
    assert_eq!(statuses(&layer).await, [200, 200, 200]);
}

/// For programs that replace their routes and policies together.
#[tokio::test]
async fn a_readers_own_rule_set_survives_a_swap() {
    let (limiter, _) = limiter([bucket("api", "1/h")]);
    let layer = RateLimitLayer::new(limiter.clone(), reader().rule_set(limiter.policies()));
    limiter.swap(Policies::new(Vec::new()).unwrap());
    assert_eq!(statuses(&layer).await, [200, 429, 200]);
    assert_eq!(statuses(&RateLimitLayer::new(limiter, reader())).await, [200, 200, 200]);
}

#[tokio::test]
async fn a_request_without_a_peer_gets_500() {
    let (limiter, _) = limiter([]);
    let layer = RateLimitLayer::new(limiter, reader());
    let response = send(&layer, Request::get("/").body(Body::default()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text(response).await.contains("peer address of the request is unknown"));
}

#[tokio::test]
async fn a11_forwarded_addresses_count_only_from_trusted_proxies() {
    let forwarded = |client: u8| {
        let mut request = request(1, "/");
        let value = HeaderValue::from_str(&format!("198.51.100.{client}")).unwrap();
        request.headers_mut().insert("x-forwarded-for", value);
        request
    };
    for (trusted, expected) in [(vec![], [200, 429]), (vec!["192.0.2.0/24".parse().unwrap()], [200, 200])] {
        let rules = IdentityRules::default().proxies(Proxies::default().trusted(trusted));
        let (limiter, _) = limiter([bucket("api", "1/h")]);
        let http_settings = HttpSettings::default().rules(rules).shared();
        let layer = RateLimitLayer::new(limiter, reader().http_settings(http_settings));
        let mut statuses = [0; 2];
        for (client, status) in (7..).zip(&mut statuses) {
            *status = send(&layer, forwarded(client)).await.status().as_u16();
        }
        assert_eq!(statuses, expected);
    }
}

#[tokio::test]
async fn a_program_adds_its_own_attribute_and_cost() {
    let per_tenant = quota(Algorithm::TokenBucket(Refill::Smooth), "10/h");
    let policy = Policy::new("tenants", per_tenant).unwrap().by(&[AttributeName::Named("tenant")]);
    let (limiter, _) = limiter([policy.with_cost(Cost::Fixed(2))]);
    let reader = RequestReader::new(clock())
        .peer(|_| Some(IpAddr::from([192, 0, 2, 9])))
        .attribute("tenant", |request| request.uri.host().map(str::to_owned))
        .cost(|request| NonZeroU32::new(if request.uri.path() == "/expensive" { 4 } else { 1 }).unwrap());
    let layer = RateLimitLayer::new(limiter, reader);
    let mut remaining = Vec::new();
    for uri in
        ["http://a.example/expensive", "http://a.example/", "http://b.example/", "http://a.example/expensive"]
    {
        let response = send(&layer, Request::get(uri).body(Body::default()).unwrap()).await;
        let remaining_units = header_text(response.headers(), "x-ratelimit-remaining").to_owned();
        remaining.push(format!("{} {remaining_units}", response.status().as_u16()));
    }
    assert_eq!(remaining, ["200 2", "200 0", "200 8", "429 0"]);
}

#[tokio::test]
async fn named_policies_count_by_route() {
    let by_route = quota(Algorithm::TokenBucket(Refill::Smooth), "1/h");
    let named =
        Policy::new("orders", by_route).unwrap().with_selector(Selector::Named).by(&[AttributeName::Route]);
    let (limiter, _) = limiter([named]);
    let mut statuses = Vec::new();
    for (route, names) in [("a", vec!["orders"]), ("a", vec![]), ("b", vec!["orders"]), ("a", vec!["orders"])]
    {
        let layer = RateLimitLayer::new(limiter.clone(), reader().route(route).policies(names));
        statuses.push(send(&layer, request(1, "/")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn the_decision_is_an_extension_of_the_response() {
    let (limiter, _) = limiter([bucket("api", "5/h")]);
    let response = send(&RateLimitLayer::new(limiter, reader()), request(1, "/")).await;
    let decision: &Arc<Decision> = response.extensions().get().unwrap();
    let (policy, _, standing) = decision.tightest().unwrap();
    assert_eq!((decision.verdict(), policy.name(), standing.remaining), (Verdict::Allow, "api", 4));
}

#[tokio::test]
async fn pages_of_other_origins_may_read_the_headers() {
    let (limiter, _) = limiter([bucket("api", "5/h")]);
    let mut request = request(1, "/");
    request.headers_mut().insert(header::ORIGIN, HeaderValue::from_static("https://shop.example"));
    let response = send(&RateLimitLayer::new(limiter, reader()), request).await;
    assert!(header_text(response.headers(), "access-control-expose-headers").contains("RateLimit"));
}

#[tokio::test]
async fn headers_of_the_services_own_limits_are_never_loosened() {
    let (limiter, _) = limiter([bucket("gate", "100/h")]);
    for (own, shown) in [("3", "3"), ("500", "99")] {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let response = Response::builder()
                .header("x-ratelimit-limit", "1000")
                .header("x-ratelimit-remaining", own)
                .header("ratelimit", format!("\"own\";r={own}"));
            Ok::<_, Infallible>(response.body(Body::default()).unwrap())
        });
        limiter.reset(&query_of_client_1()).await;
        let layer = RateLimitLayer::new(limiter.clone(), reader());
        let response = layer.layer(service).oneshot(request(1, "/")).await.unwrap();
        assert_eq!(header_text(response.headers(), "x-ratelimit-remaining"), shown);
        let lists: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
        assert_eq!(lists, [format!("\"own\";r={own}").as_str(), "\"gate\";r=99;t=36"]);
    }
}

/// A query for all policies of client 1.
fn query_of_client_1() -> ratewright_core::Query<'static> {
    const CLIENT: [ratewright_core::query::Attribute<'static>; 1] =
        [ratewright_core::query::Attribute { name: AttributeName::Ip, value: "192.0.2.1" }];
    ratewright_core::Query {
        select: ratewright_core::query::Select::Covering(&[]),
        attributes: &CLIENT,
        address: None,
        ask: ratewright_core::query::Ask::Look(0),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    }
}
