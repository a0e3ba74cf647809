//! HTTP/2 connections to upstreams: their number, their streams, and when they are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use ratewright_gateway::Route;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::Protocol;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::harness::{Setup, TestGateway, route_to, settings, wait_until};
use crate::hyper_peers::{HyperServer, InFlightCount, body, connect, exchange, get, piece, pieces, send};

/// An upstream that responds on demand.
struct HeldServer {
    server: HyperServer,
    /// Requests that wait for their response.
    n_held: Arc<AtomicUsize>,
    free: watch::Sender<bool>,
}

impl HeldServer {
    async fn start(streams_max: u32) -> Self {
        let n_held = Arc::new(AtomicUsize::new(0));
        let (free, is_free) = watch::channel(false);
        let held = Arc::clone(&n_held);
        let server = HyperServer::narrow(streams_max, move |_| {
            let (held, mut is_free) = (InFlightCount::new(&held), is_free.clone());
            async move {
                is_free.wait_for(|is_free| *is_free).await.unwrap();
                drop(held);
                Response::new(body("free"))
            }
        })
        .await;
        Self { server, n_held, free }
    }

    /// Releases the responses once `n_held` of `n_asked` requests wait, and returns the number of connections.
    async fn check(self, n_asked: usize, n_held: usize) -> usize {
        let timeouts = Timeouts { header: Duration::from_secs(86_400), ..Timeouts::default() };
        let gateway =
            TestGateway::with_route(Route { timeouts, ..route_to(&[self.server.url()], Protocol::Http2) })
                .await;
        let client = connect(gateway.address).await;
        let mut asked = JoinSet::new();
        for _ in 0..n_asked {
            let client = client.clone();
            asked.spawn(async move { exchange(&client, get("/")).await });
        }
        wait_until("they wait for the server", || self.n_held.load(Ordering::SeqCst) == n_held).await;
        self.free.send_replace(true);
        for response in asked.join_all().await {
            assert_eq!(response, (200, "free".to_owned()));
        }
        self.server.n_connections()
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_connection() {
    assert_eq!(HeldServer::start(250).await.check(100, 100).await, 1);
}

/// The server allows five streams per connection. Twenty slow requests are all in flight.
#[tokio::test]
async fn streams_over_the_limit_use_another_connection() {
    assert_eq!(HeldServer::start(5).await.check(20, 20).await, 4);
}

/// The number of connections is limited: further requests wait.
#[tokio::test]
async fn connections_to_one_server_are_bounded() {
    assert_eq!(HeldServer::start(1).await.check(40, 16).await, 16);
}

/// A slot is released when its request ends or is reset.
#[tokio::test]
async fn slots_are_released() {
    let HeldServer { server, n_held, free } = HeldServer::start(2).await;
    let gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(gateway.address).await;
    for n in 0..20 {
        let asked: Vec<_> = (0..2).map(|_| tokio::spawn(client.clone().send_request(get("/")))).collect();
        wait_until("they are in flight", || n_held.load(Ordering::SeqCst) == 2).await;
        asked.iter().for_each(tokio::task::JoinHandle::abort);
        wait_until("they are called off", || n_held.load(Ordering::SeqCst) == 0).await;
        // The gateway may notice later than the server, and open another connection meanwhile.
        assert!(server.n_connections() <= 2, "{n}");
    }
    free.send_replace(true);
    for _ in 0..20 {
        assert_eq!(exchange(&client, get("/")).await.0, 200);
    }
    assert!(server.n_connections() <= 2);
}

/// A gateway that keeps idle connections only for a moment.
async fn forgetful(route: Route) -> TestGateway {
    let pool_idle_timeout = Some(Duration::from_millis(200));
    TestGateway::start(Setup { settings: settings(route), pool_idle_timeout, ..Setup::default() }).await
}

async fn here() -> HyperServer {
    HyperServer::start(|_| async { Response::new(body("here")) }).await
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_next_request_opens_another() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = here().await;
        let gateway = forgetful(route_to(&[server.url()], protocol)).await;
        for n in 1..=3 {
            assert_eq!(gateway.get("/").await.text(), "here");
            assert_eq!(server.n_connections(), n, "{protocol:?}");
            wait_until("it is closed", || server.n_open() == 0).await;
        }
    }
}

#[tokio::test]
async fn connections_to_a_removed_server_are_closed() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (server, other) = (here().await, here().await);
        let gateway = forgetful(route_to(&[server.url()], protocol)).await;
        assert_eq!(gateway.get("/").await.text(), "here");
        gateway.reload(settings(route_to(&[other.url()], protocol)));
        assert_eq!(gateway.get("/").await.text(), "here");
        assert_eq!(other.n_connections(), 1);
        wait_until("it is closed", || server.n_open() == 0).await;
    }
}

/// A connection with a request in flight is not idle, however quiet it is.
#[tokio::test]
async fn a_used_connection_is_kept() {
    let (sender, response) = pieces();
    let response = std::sync::Mutex::new(Some(response));
    let quiet = HyperServer::start(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { Response::new(response) }
    })
    .await;
    let idle = here().await;
    let gateway = forgetful(route_to(&[quiet.url()], Protocol::Http2)).await;
    let client = connect(gateway.address).await;
    let mut response = send(&client, get("/")).await;
    gateway.reload(settings(route_to(&[idle.url()], Protocol::Http2)));
    for n in 1..=3 {
        assert_eq!(exchange(&client, get("/")).await.0, 200);
        wait_until("one that was used later is closed", || idle.n_open() == 0).await;
        assert_eq!(idle.n_connections(), n);
    }
    sender.send("still");
    assert_eq!(piece(response.body_mut()).await, "still");
    drop((sender, response));
    wait_until("now it is idle", || quiet.n_open() == 0).await;
}
