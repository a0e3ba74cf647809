//! Policies that need nothing but the client's address: the rest of a request is not read, and must not change anything.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use ratewright_core::decision::{Observe, Unobserved};
use ratewright_core::query::AttributeName;
use ratewright_core::{Decision, Limiter, Policies, Query, Timestamp};
use ratewright_http::identify::AmbiguousPaths;
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_store::MemoryStore;
use ratewright_tower::{Peer, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::world::{Body, Memory, bucket, clock, limiter, over_http_2, reader, text};

const AMBIGUOUS: &str = "/api/items/1%2f..%2f..%2fx";

fn from(peer: &str, method: &str, path: &str) -> Request<Body> {
    let method: Method = method.parse().unwrap();
    let peer = Peer(peer.parse().unwrap());
    Request::builder().method(method).uri(path).extension(peer).body(Body::default()).unwrap()
}

async fn call<O: Observe + 'static>(
    layer: &RateLimitLayer<Memory, O>,
    request: Request<Body>,
) -> Response<Body> {
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    layer.layer(service).oneshot(request).await.unwrap()
}

async fn status<O: Observe + 'static>(layer: &RateLimitLayer<Memory, O>, request: Request<Body>) -> u16 {
    call(layer, request).await.status().as_u16()
}

#[tokio::test]
async fn neither_method_nor_path_nor_version_gives_a_client_another_bucket() {
    let (limiter, _) = limiter([bucket("p", "4/h")]);
    let layer = RateLimitLayer::new(limiter, reader());
    let mut found = Vec::new();
    for (method, path) in [("GET", "/"), ("get", AMBIGUOUS), ("X-OTHER", "/%zz"), ("POST", AMBIGUOUS)] {
        found.push(status(&layer, from("192.0.2.1", method, path)).await);
    }
    found.push(status(&layer, over_http_2(from("192.0.2.1", "GET", "/new"))).await);
    found.push(status(&layer, from("::ffff:192.0.2.1", "GET", "/")).await);
    assert_eq!(found, [200, 200, 200, 200, 429, 429]);
    // An IPv6 network is one client.
    let mut networks = Vec::new();
    for n in 0..6 {
        networks.push(status(&layer, from(&format!("2001:db8::{n}"), "GET", "/")).await);
    }
    assert_eq!(networks, [200, 200, 200, 200, 429, 429]);
    assert_eq!(status(&layer, from("2001:db8:0:1::1", "GET", "/")).await, 200);
}

#[tokio::test]
async fn an_ambiguous_path_is_rejected_if_the_rules_say_so() {
    let (limiter, _) = limiter([bucket("p", "1/h")]);
    let rules = IdentityRules::default().ambiguous_paths(AmbiguousPaths::Reject);
    let layer =
        RateLimitLayer::new(limiter, reader().http_settings(HttpSettings::default().rules(rules).shared()));
    assert_eq!(status(&layer, from("192.0.2.1", "GET", AMBIGUOUS)).await, 400);
    assert_eq!(status(&layer, from("192.0.2.1", "GET", "/")).await, 200);
    for path in [AMBIGUOUS, "/"] {
        let response = call(&layer, from("192.0.2.1", "HEAD", path)).await;
        assert!(response.status().is_client_error() && response.headers()["content-length"] != "0");
        assert_eq!(text(response).await, "", "a response to HEAD has no body");
    }
}

#[tokio::test]
async fn after_a_reload_policies_may_need_the_path() {
    let (limiter, _) = limiter([bucket("p", "1/h")]);
    let layer = RateLimitLayer::new(Arc::clone(&limiter), reader());
    assert_eq!(status(&layer, from("192.0.2.1", "GET", "/a")).await, 200);
    let by_path = bucket("by-path", "1/h").by(&[AttributeName::Ip, AttributeName::Path]);
    limiter.swap(Policies::new(vec![by_path]).unwrap());
    for (path, expected) in [("/a", 200), ("/a", 429), ("/b", 200)] {
        assert_eq!(status(&layer, from("192.0.2.1", "GET", path)).await, expected, "{path}");
    }
    limiter.swap(Policies::new(vec![bucket("p", "1/h")]).unwrap());
    assert_eq!(status(&layer, from("192.0.2.1", "GET", "/c")).await, 429, "the bucket of before the reload");
}

/// Keeps the attributes of queries.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Observe for Log {
    fn observe(&self, query: &Query<'_>, _: &Decision, _: Timestamp) {
        let values = query.attributes.iter().map(|attribute| attribute.value);
        self.0.lock().unwrap().push(values.collect::<Vec<_>>().join(" "));
    }
}

#[tokio::test]
async fn an_observer_still_sees_method_and_path() {
    let log = Arc::new(Log::default());
    assert!(log.reads_attributes() && !Unobserved.reads_attributes());
    let policies = Policies::new(vec![bucket("p", "1/h")]).unwrap();
    let limiter = Limiter::observed(policies, MemoryStore::new(clock(), 1_000), Arc::clone(&log));
    let layer = RateLimitLayer::new(Arc::new(limiter), reader());
    assert_eq!(status(&layer, from("192.0.2.1", "GET", "/a/")).await, 200);
    assert_eq!(*log.0.lock().unwrap(), ["192.0.2.1 GET /a"]);
}
