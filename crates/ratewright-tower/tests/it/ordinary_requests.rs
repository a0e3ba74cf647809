//! Ordinary requests pass the layer: of different clients behind one address, with one request an hour for each client.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use jsonwebtoken::{EncodingKey, Header, encode};
use ratewright_core::policy::{Condition, Pattern, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::{Limiter, Policies, Policy};
use ratewright_http::identify::TokenUser;
use ratewright_http::jwt::{KeySet, TokenRules, Verifier};
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_lab::{LIMITS, OrdinaryRequest, ordinary_requests};
use ratewright_store::MemoryStore;
use ratewright_tower::RateLimitLayer;
use serde_json::json;
use tower::{Layer, ServiceExt};

use crate::world::{Body, Memory, NOW, bucket, clock, over_http_2, reader, request};

const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

/// A limit for every kind of key, and one that makes overridden methods ambiguous.
fn one_an_hour() -> Policies {
    let mut policies = Vec::from(LIMITS.map(|(name, by)| {
        let by: Vec<_> = by.iter().map(|name| AttributeName::parse(name).unwrap()).collect();
        let by: Vec<_> = by.iter().map(AttributeName::as_deref).collect();
        covering(bucket(name, "1/h").by(&by), AttributeName::Path, &format!("/{name}/**"))
    }));
    policies.push(covering(bucket("writes", "100000/h"), AttributeName::Method, "P*"));
    Policies::new(policies).unwrap()
}

fn covering(policy: Policy, name: AttributeName<String>, pattern: &str) -> Policy {
    let separator = (name == AttributeName::Path).then_some(b'/');
    let pattern = Pattern::new(pattern, separator).unwrap();
    policy.with_selector(Selector::When(Condition::default().and_fits(name, vec![pattern])))
}

fn layer() -> RateLimitLayer<Memory> {
    let limiter = Arc::new(Limiter::new(one_an_hour(), MemoryStore::new(clock(), 100_000)));
    let verifier = Verifier::new(KeySet::secret(SECRET).unwrap(), TokenRules::default());
    let token = TokenUser { verifier: Arc::new(verifier), claim: "sub".to_owned() };
    let rules = IdentityRules::default().token(Some(token));
    RateLimitLayer::new(limiter, reader().http_settings(HttpSettings::default().rules(rules).shared()))
}

fn token(user: &str) -> String {
    let claims = json!({"sub": user, "exp": NOW + 3_600});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

/// The request over HTTP/1.1.
fn over_http_1(ordinary: &OrdinaryRequest) -> Request<Body> {
    let mut request = request(1, &ordinary.path);
    *request.method_mut() = Method::from_bytes(ordinary.method.as_bytes()).unwrap();
    for (name, value) in &ordinary.headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// The request with a header for each cookie.
fn with_cookies_split(mut request: Request<Body>) -> Request<Body> {
    let cookies = request.headers_mut().remove("cookie").unwrap();
    for cookie in cookies.to_str().unwrap().split("; ") {
        request.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    request
}

async fn status(layer: &RateLimitLayer<Memory>, request: Request<Body>) -> StatusCode {
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    layer.layer(hello).oneshot(request).await.unwrap().status()
}

/// Each counts as its own client over either version of HTTP.
#[tokio::test]
async fn ordinary_requests_of_different_clients_pass_once() {
    let requests = ordinary_requests(token);
    for is_http_2_first in [false, true] {
        let layer = layer();
        for (is_http_2, expected) in [(is_http_2_first, 200), (!is_http_2_first, 429)] {
            for ordinary in &requests {
                let mut request = over_http_1(ordinary);
                if is_http_2 {
                    request = over_http_2(with_cookies_split(request));
                }
                assert_eq!(status(&layer, request).await, expected, "{ordinary:?}");
            }
        }
    }
}
