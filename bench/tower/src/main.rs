//! The same axum handler behind a layer: `ours` (all headers), `ours-x` (`X-RateLimit-` headers only), `governor`; or without
//! one: `bare`.
//!
//! Each layer limits by client address, sends rate limit headers, and denies nothing: a million requests a second are allowed.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use ratewright_tower::{HeaderStyle, Quota, RateLimitLayer};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const BURST: u32 = 1_000_000;

fn main() {
    let router = Router::new().route("/", get(|| async { "hello" }));
    let ours = || RateLimitLayer::per_ip(Quota::per_second(1_000_000).burst(BURST));
    let router = match std::env::args().nth(1).as_deref() {
        Some("ours") => router.layer(ours()),
        Some("ours-x") => router.layer(ours().headers(HeaderStyle::default().ietf(false))),
        Some("governor") => {
            let mut config = GovernorConfigBuilder::default();
            let config = config.per_nanosecond(1_000).burst_size(BURST).use_headers().finish();
            router.layer(GovernorLayer::new(config.expect("a quota that is not zero")))
        }
        Some("bare") => router,
        _ => panic!("usage: tower-peer ours | ours-x | governor | bare"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        eprintln!("tower-peer on http://{}, for comparison", listener.local_addr().expect("an address"));
        let router = router.into_make_service_with_connect_info::<SocketAddr>();
        let _ = axum::serve(listener, router).await;
    });
}
