//! An axum program with rate limits inside: `cargo run -p ratewright-example-axum`, then
//!
//! ```text
//! for i in $(seq 7); do curl -s -o /dev/null -w '%{http_code} ' localhost:3000/; done
//! 200 200 200 200 200 429 429
//! ```
//!
//! To copy: `limiter()` sets the limits, `reader()` how requests are read, and two lines add the layer.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::routing::{get, post};
use ratewright_core::policy::{Condition, CountedResponses, Pattern, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Limiter, Policies, Policy, Quota};
use ratewright_store::{MemoryStore, SystemClock, WallClock};
use ratewright_tower::{RateLimitLayer, RequestReader};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let limits = RateLimitLayer::new(Arc::new(limiter()?), reader());
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(login))
        .layer(limits)
        .into_make_service_with_connect_info::<SocketAddr>(); // so that the layer knows the peer
    let listener = tokio::net::TcpListener::bind(address).await?;
    #[expect(clippy::print_stdout, reason = "a program may talk")]
    {
        println!("listening on {}", listener.local_addr()?);
    }
    Ok(axum::serve(listener, app).await?)
}

/// Accepts the right password.
async fn login(password: String) -> StatusCode {
    if password == "open sesame" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

/// Every client: 5 requests at once, 1 more each second. Every client's failed logins: 3 within an hour.
fn limiter() -> Result<Limiter<MemoryStore<SystemClock>>, Box<dyn Error>> {
    let bucket = Algorithm::TokenBucket(Refill::Smooth);
    let everything =
        Policy::new("everything", Quota::new(bucket, "1/s".parse()?)?.with_burst(5.try_into()?)?)?
            .by(&[AttributeName::Ip]);
    let at_login =
        Condition::default().and_fits(AttributeName::Path, vec![Pattern::new("/login", Some(b'/'))?]);
    let failed_logins = Policy::new("failed-logins", Quota::new(Algorithm::SlidingWindow, "3/h".parse()?)?)?
        .by(&[AttributeName::Ip])
        .with_selector(Selector::When(at_login))
        .with_count(CountedResponses::only(vec![401..=401, 403..=403]));
    let store = MemoryStore::new(SystemClock::new(), 100_000);
    Ok(Limiter::new(Policies::new(vec![everything, failed_logins])?, store))
}

/// Behind your own proxy, also set which proxies to trust: see `RequestReader::http_settings`.
fn reader() -> RequestReader {
    RequestReader::new(WallClock).peer(|request| {
        request.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
    })
}
