//! The REST door.
//!
//! | request | does | answer |
//! |---|---|---|
//! | `GET` or `POST /api/v1/rate-limit/check?algorithm=&key=&permits=` | spends | 200 or 429 |
//! | `GET /api/v1/rate-limit/remaining?algorithm=&key=` | looks | 200 |
//! | `DELETE /api/v1/rate-limit/reset?algorithm=&key=` | forgets | 200 |
//!
//! Without `key` the caller's own address is meant. Naming a key means speaking for others, so that is for
//! callers on this machine only, and so is forgetting.

mod params;
mod wire;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::IntoResponse;
use axum::routing::{delete, get};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use tollgate_core::{Ask, Attribute, AttributeName, Clock, Limiter, Micros, Observe, Query, Select, Store};
use tollgate_http::{Problem, address};

use crate::answer::{Answered, Refusal, nowhere, wrong_method};
use crate::watch::Checks;
use params::{Accepts, Params};

/// What the door needs.
struct Door<S, O, C> {
    limiter: Arc<Limiter<S, O>>,
    /// Tells the time of day that answers name.
    clock: C,
    checks: Arc<Checks>,
}

/// What is asked, once parameters and caller are understood.
struct Asked {
    algorithm: params::Algorithm,
    key: String,
    permits: NonZeroU32,
}

/// The door's routes. `clock` is the wall clock: it tells the time of day that answers name. `checks` is told how
/// long each check took.
pub fn router<S, O, C>(limiter: Arc<Limiter<S, O>>, clock: C, checks: Arc<Checks>) -> Router
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    Router::new()
        .route("/api/v1/rate-limit/check", get(check::<S, O, C>).post(check::<S, O, C>).head(headless))
        .route("/api/v1/rate-limit/remaining", get(remaining::<S, O, C>).head(headless))
        .route("/api/v1/rate-limit/reset", delete(reset::<S, O, C>))
        .fallback(elsewhere)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::new(Door { limiter, clock, checks }))
}

async fn check<S, O, C>(State(door): State<Arc<Door<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = door.clock.now();
    let asked = understand(&request, Accepts::Permits)?;
    let decision = asked.decide(&door.limiter, Ask::Spend(asked.permits)).await;
    let now = door.clock.now();
    let response = wire::checked(&asked, &decision, now)?;
    door.checks.observe(asked.algorithm.model(), decision.verdict(), now.since(begun));
    answer(response)
}

async fn remaining<S, O, C>(State(door): State<Arc<Door<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let asked = understand(&request, Accepts::Key)?;
    let decision = asked.decide(&door.limiter, Ask::Look(0)).await;
    answer(wire::looked(&asked, &decision, door.clock.now())?)
}

async fn reset<S, O, C>(State(door): State<Arc<Door<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    local_only(&request, "reset", "ask there")?;
    let asked = understand(&request, Accepts::Key)?;
    let attributes = asked.attributes();
    let basis = door.limiter.reset(&asked.query(&attributes, Ask::Look(0))).await;
    answer(wire::forgotten(&asked, basis))
}

impl Asked {
    async fn decide<S, O>(&self, limiter: &Limiter<S, O>, ask: Ask) -> tollgate_core::Decision
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let attributes = self.attributes();
        limiter.decide(&self.query(&attributes, ask)).await
    }

    fn attributes(&self) -> [Attribute<'_>; 1] {
        [Attribute { name: AttributeName::Key, value: &self.key }]
    }

    /// An ad hoc query: the policy is the algorithm's own, and nobody can wait here.
    fn query<'a>(&'a self, attributes: &'a [Attribute<'a>], ask: Ask) -> Query<'a> {
        let select = Select::Named(self.algorithm.policy());
        Query { select, attributes, address: None, ask, patience: Micros::ZERO }
    }
}

/// What a request asks, and of which key.
fn understand(request: &Request, accepts: Accepts) -> Result<Asked, Problem> {
    if request.body().size_hint().exact() != Some(0) {
        let detail = "this call takes its parameters in the URL; send no body";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let Params { algorithm, key, permits } =
        Params::parse(request.uri().query().unwrap_or_default(), accepts)?;
    let key = match key {
        Some(key) => {
            local_only(request, "key", "leave it out to ask about your own address").map(|()| key)?
        }
        None => peer(request).map(|peer| address::client(peer.ip(), address::IPV6_PREFIX))?,
    };
    Ok(Asked { algorithm, key, permits })
}

/// Refuses callers from other machines.
fn local_only(request: &Request, what: &str, instead: &str) -> Result<(), Problem> {
    if peer(request)?.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let detail = format!("{what} is for callers on the same machine; {instead}");
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

/// Who asks.
fn peer(request: &Request) -> Result<SocketAddr, Problem> {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let unknown = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the caller's address is not known");
    info.map(|ConnectInfo(peer)| *peer).ok_or_else(unknown)
}

async fn elsewhere(request: Request) -> Refusal {
    nowhere(&request, "/api/v1/rate-limit/check, /remaining or /reset")
}

/// HEAD would have to do what GET does, and could not tell what came of it.
async fn headless(request: Request) -> Response<Body> {
    let mut response = wrong_method(request).await.into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}

fn answer(response: Response<String>) -> Answered {
    Ok(response.map(Body::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
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
        router(Arc::new(limiter), clock, Arc::default())
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
                "key is for callers on the same machine; leave it out to ask about your own address"
            );
            assert_eq!(ask(&door, stranger, Method::GET, "remaining?key=somebody").await.0, 403);
            assert_eq!(ask(&door, stranger, Method::DELETE, "reset").await.0, 403);
            assert_eq!(
                ask(&door, stranger, Method::GET, "check").await.0,
                200,
                "one's own address is one's own"
            );
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
}
