//! Connections to servers of HTTP/2: how many there are, how much goes by each, and when they are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use ratewright_gateway::{Protocol, Route, Timeouts};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::peers::{Count, Speaking, ask, body, connect, exchange, get, piece, pieces};
use crate::world::{Setup, World, route_to, settings, until};

/// A server that answers when it is told to.
struct Holding {
    server: Speaking,
    /// Requests that wait for their answer.
    n_held: Arc<AtomicUsize>,
    free: watch::Sender<bool>,
}

impl Holding {
    async fn start(streams_max: u32) -> Self {
        let n_held = Arc::new(AtomicUsize::new(0));
        let (free, is_free) = watch::channel(false);
        let held = Arc::clone(&n_held);
        let server = Speaking::narrow(streams_max, move |_| {
            let (held, mut is_free) = (Count::new(&held), is_free.clone());
            async move {
                is_free.wait_for(|is_free| *is_free).await.unwrap();
                drop(held);
                Response::new(body("free"))
            }
        })
        .await;
        Self { server, n_held, free }
    }

    /// Lets it answer once so many wait, of so many that have asked, and tells how many connections there are.
    async fn check(self, n_asked: usize, n_held: usize) -> usize {
        let timeouts = Timeouts { header: Duration::from_secs(86_400), ..Timeouts::default() };
        let world = World::of(Route { timeouts, ..route_to(&[self.server.url()], Protocol::Http2) }).await;
        let client = connect(world.address).await;
        let mut asked = JoinSet::new();
        for _ in 0..n_asked {
            let client = client.clone();
            asked.spawn(async move { exchange(&client, get("/")).await });
        }
        until("they wait for the server", || self.n_held.load(Ordering::SeqCst) == n_held).await;
        self.free.send_replace(true);
        for answer in asked.join_all().await {
            assert_eq!(answer, (200, "free".to_owned()));
        }
        self.server.n_connections()
    }
}

#[tokio::test]
async fn what_comes_at_once_shares_one_connection() {
    assert_eq!(Holding::start(250).await.check(100, 100).await, 1);
}

/// The server takes five at once on a connection. Twenty that take long are all under way.
#[tokio::test]
async fn what_a_connection_does_not_take_goes_by_another() {
    assert_eq!(Holding::start(5).await.check(20, 20).await, 4);
}

/// There are not as many connections as anybody likes: who finds no room waits until there is.
#[tokio::test]
async fn there_are_not_more_connections_than_there_may_be() {
    assert_eq!(Holding::start(1).await.check(40, 16).await, 16);
}

/// A place is free again when its request is over, also one that was called off.
#[tokio::test]
async fn places_are_free_again() {
    let Holding { server, n_held, free } = Holding::start(2).await;
    let world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(world.address).await;
    for n in 0..20 {
        let asked: Vec<_> = (0..2).map(|_| tokio::spawn(client.clone().send_request(get("/")))).collect();
        until("they are under way", || n_held.load(Ordering::SeqCst) == 2).await;
        asked.iter().for_each(tokio::task::JoinHandle::abort);
        until("they are called off", || n_held.load(Ordering::SeqCst) == 0).await;
        // The gateway may hear of it later than the server, and take another connection meanwhile.
        assert!(server.n_connections() <= 2, "{n}");
    }
    free.send_replace(true);
    for _ in 0..20 {
        assert_eq!(exchange(&client, get("/")).await.0, 200);
    }
    assert!(server.n_connections() <= 2);
}

/// A gateway that keeps idle connections only a moment.
async fn forgetful(route: Route) -> World {
    let kept_for = Some(Duration::from_millis(200));
    World::start(Setup { settings: settings(route), kept_for, ..Setup::default() }).await
}

async fn here() -> Speaking {
    Speaking::start(|_| async { Response::new(body("here")) }).await
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_and_the_next_request_opens_another() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = here().await;
        let world = forgetful(route_to(&[server.url()], protocol)).await;
        for n in 1..=3 {
            assert_eq!(world.get("/").await.text(), "here");
            assert_eq!(server.n_connections(), n, "{protocol:?}");
            until("it is closed", || server.n_open() == 0).await;
        }
    }
}

#[tokio::test]
async fn a_connection_to_a_server_that_is_no_more_in_the_file_is_closed() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (server, other) = (here().await, here().await);
        let world = forgetful(route_to(&[server.url()], protocol)).await;
        assert_eq!(world.get("/").await.text(), "here");
        world.reload(settings(route_to(&[other.url()], protocol)));
        assert_eq!(world.get("/").await.text(), "here");
        assert_eq!(other.n_connections(), 1);
        until("it is closed", || server.n_open() == 0).await;
    }
}

/// A connection on which something is under way is not idle, however quiet it is.
#[tokio::test]
async fn a_connection_that_is_used_stays() {
    let (sender, answer) = pieces();
    let answer = std::sync::Mutex::new(Some(answer));
    let quiet = Speaking::start(move |_| {
        let answer = answer.lock().unwrap().take().unwrap();
        async move { Response::new(answer) }
    })
    .await;
    let idle = here().await;
    let world = forgetful(route_to(&[quiet.url()], Protocol::Http2)).await;
    let client = connect(world.address).await;
    let mut answer = ask(&client, get("/")).await;
    world.reload(settings(route_to(&[idle.url()], Protocol::Http2)));
    for n in 1..=3 {
        assert_eq!(exchange(&client, get("/")).await.0, 200);
        until("one that was used later is closed", || idle.n_open() == 0).await;
        assert_eq!(idle.n_connections(), n);
    }
    sender.send("still");
    assert_eq!(piece(answer.body_mut()).await, "still");
    drop((sender, answer));
    until("now it is idle", || quiet.n_open() == 0).await;
}
