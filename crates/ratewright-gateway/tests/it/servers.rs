//! Servers that are slow, break off, close at the worst moment or are not there at all.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use ratewright_core::Micros;
use ratewright_gateway::{Balance, Health, Protocol, Route, Server, Timeouts, Upstream};

use crate::peers::{Speaking, body, whole};
use crate::world::{Client, Scripted, World, route, route_to, text, until};

/// An address where nobody listens.
async fn nobody() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// A server that closes each connection after its answer, without a word.
async fn closing() -> Scripted {
    Scripted::start(|mut client: Client, _| async move {
        if client.until(b"\r\n\r\n").await.is_some() {
            client.send(text("once")).await;
        }
    })
    .await
}

#[tokio::test]
async fn connections_to_a_server_are_used_again() {
    let server = Scripted::echo().await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    for n in 0..20 {
        let answer = client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(answer.text(), format!("GET /{n} HTTP/1.1"));
    }
    assert_eq!(server.n_connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_closes_idle_connections_loses_no_request_that_can_be_repeated() {
    let server = closing().await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    for n in 0..50 {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.text(), "once", "{n}");
    }
}

/// It reads the second request of each connection, and then closes: at the worst moment.
#[tokio::test]
async fn a_request_that_may_have_been_seen_is_repeated_only_if_that_is_harmless() {
    let server = Scripted::start(|mut client: Client, n| async move {
        client.until(b"\r\n\r\n").await;
        client.send(text("first")).await;
        if n > 0 {
            return;
        }
        client.until(b"\r\n\r\n").await;
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!([client.ask(get).await.text(), client.ask(get).await.text()], ["first", "first"]);
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send(text("first")).await;
        client.until(b"\r\n\r\n").await;
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    assert_eq!(client.ask(get).await.status, 200);
    let posted = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(posted.status, 502, "a POST is not done twice");
    assert_eq!(server.n_connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_502_with_the_requests_id() {
    let world = World::before(&[nobody().await]).await;
    let request = "GET /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-7\r\n\r\n";
    let answer = world.connect().await.ask(request).await;
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (502, "application/problem+json"));
    let body = answer.text();
    assert_eq!(answer.headers["x-correlation-id"], "r-7");
    assert!(body.contains(r#""correlationId":"r-7""#) && body.contains(r#""instance":"/x""#), "{body}");
}

#[tokio::test]
async fn another_server_is_tried_and_the_one_that_fails_is_left_alone() {
    let (server, nobody) = (Scripted::echo().await, nobody().await);
    let world = World::before(&[nobody, server.address]).await;
    for n in 0..20 {
        assert_eq!(world.get("/").await.status, 200, "{n}");
    }
    let settings = world.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    let healthy: Vec<_> = route.upstream.states().map(|state| state.is_healthy).collect();
    assert_eq!(healthy, [false, true]);
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_out_by_one_request() {
    let address = nobody().await;
    let mut patient = route(&[]);
    let health = Health { failures_max: NonZeroU32::MIN, eject_for: Micros::new(1) };
    let servers = vec![Server::parse(&format!("http://{address}")).unwrap()];
    patient.upstream = Arc::new(Upstream::new(servers, Balance::RoundRobin, Protocol::Http1, health));
    let world = World::of(patient).await;
    assert_eq!(world.get("/").await.status, 502);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1_000];
        tokio::io::AsyncReadExt::read(&mut stream, &mut request).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, text("back").as_bytes()).await.unwrap();
    });
    assert_eq!(world.get("/").await.text(), "back");
}

/// A route whose times are short.
fn hasty(server: SocketAddr) -> Route {
    let short = Duration::from_millis(100);
    let timeouts = Timeouts { connect: short, header: short, idle: short, ..Timeouts::default() };
    Route { timeouts, ..route(&[server]) }
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_a_504() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"never").await;
    })
    .await;
    let world = World::of(hasty(server.address)).await;
    let answer = world.get("/").await;
    assert_eq!(answer.status, 504);
    assert!(answer.text().contains("did not answer in time"), "{}", answer.text());
}

#[tokio::test]
async fn the_time_to_answer_begins_when_the_request_is_sent() {
    let one = Scripted::start(|mut client: Client, _| async move {
        client.until(b"last").await;
        client.send(text("all of it")).await;
        client.until(b"never").await;
    })
    .await;
    let two = Speaking::start(|request| async move {
        assert_eq!(whole(request.into_body()).await.0, "one.two.six.ten.and.last");
        Response::new(body("all of it"))
    })
    .await;
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let timeouts = Timeouts { header: Duration::from_secs(1), ..Timeouts::default() };
        let world = World::of(Route { timeouts, ..route }).await;
        let mut client = world.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\r\n").await;
        for piece in ["one.", "two.", "six.", "ten.", "and."] {
            // Longer than the server has to answer, all together: the client is slow, not the server.
            tokio::time::sleep(Duration::from_millis(250)).await;
            client.send(piece).await;
        }
        client.send("last").await;
        assert_eq!(client.answer().await.unwrap().text(), "all of it");
    }
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_given_up() {
    let server = Scripted::start(|client: Client, _| async move {
        std::future::pending::<()>().await;
        drop(client);
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_millis(100), ..Timeouts::default() };
    let world = World::of(Route { timeouts, ..route(&[server.address]) }).await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n").await;
    let (mut reading, mut writing) = client.stream.split();
    let sends = async {
        let piece = vec![b'x'; 65_536];
        while tokio::io::AsyncWriteExt::write_all(&mut writing, &piece).await.is_ok() {}
    };
    let reads = async {
        let mut answer = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer).await.unwrap();
        assert_eq!(answer, *b"HTTP/1.1 504");
    };
    crate::world::within(async {
        tokio::select! {
            () = reads => {}
            () = async { sends.await; std::future::pending::<()>().await } => {}
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_stops_in_the_middle_breaks_the_answer_off_and_never_ends_it_well() {
    let stopping = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
        client.until(b"never").await;
    })
    .await;
    let dying = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await;
    })
    .await;
    for server in [stopping.address, dying.address] {
        let timeouts = Timeouts { idle: Duration::from_millis(100), ..Timeouts::default() };
        let world = World::of(Route { timeouts, ..route(&[server]) }).await;
        let mut client = world.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let all = String::from_utf8(client.all_that_comes().await).unwrap();
        assert!(all.starts_with("HTTP/1.1 200 OK") && all.contains("hello"), "{all}");
        assert!(!all.ends_with("0\r\n\r\n"), "the client can tell that it is not whole: {all}");
    }
}

#[tokio::test]
async fn all_of_it_has_its_time_if_the_route_says_so() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"never").await;
    })
    .await;
    let timeouts = Timeouts { total: Some(Duration::from_millis(50)), ..Timeouts::default() };
    let world = World::of(Route { timeouts, ..route(&[server.address]) }).await;
    assert_eq!(world.get("/").await.status, 504);
    let dripping = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        // As long as somebody listens, and never too long between two.
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let timeouts = Timeouts { total: Some(Duration::from_secs(1)), ..Timeouts::default() };
    let world = World::of(Route { timeouts, ..route(&[dripping.address]) }).await;
    let mut client = world.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let all = String::from_utf8(client.all_that_comes().await).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK") && !all.ends_with("0\r\n\r\n"), "it is broken off: {all}");
}

/// However fast they come: a socket that is always readable must not keep the timeout from firing.
#[tokio::test]
async fn an_endless_row_of_interim_responses_is_a_502() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        let many = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000);
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, many.as_bytes()).await.is_ok() {}
    })
    .await;
    let world = World::of(route(&[server.address])).await;
    assert_eq!(world.get("/").await.status, 502);
}

#[tokio::test]
async fn nonsense_is_a_502() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send("SMTP ready\r\n\r\n").await;
    })
    .await;
    let world = World::before(&[server.address]).await;
    assert_eq!(world.get("/").await.status, 502);
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_request_along() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let server = Scripted::start(move |mut client: Client, _| {
        let tell = tell.lock().unwrap().take();
        async move {
            client.until(b"\r\n\r\n").await;
            // Nothing comes any more: the connection ends.
            client.all_that_comes().await;
            let _ = tell.unwrap().send(());
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("the server has it", || server.n_connections.load(Ordering::SeqCst) == 1).await;
    drop(client);
    crate::world::within(told).await.unwrap();
}

#[tokio::test]
async fn requests_in_hand_finish_after_a_stop_and_none_is_dropped() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let server = Scripted::start(move |mut client: Client, _| {
        let mut gone = gone.clone();
        async move {
            client.until(b"\r\n\r\n").await;
            gone.wait_for(|go| *go).await.unwrap();
            client.send(text("done")).await;
        }
    })
    .await;
    let mut world = World::before(&[server.address]).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = world.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        clients.push(client);
    }
    until("all are under way", || server.n_connections.load(Ordering::SeqCst) == 10).await;
    world.stop();
    go.send(true).unwrap();
    for mut client in clients {
        assert_eq!(client.answer().await.unwrap().text(), "done");
    }
    world.stopped().await;
}

/// How many requests are under way at each server.
fn busy(world: &World) -> Vec<u32> {
    let settings = world.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    route.upstream.states().map(|state| state.n_busy).collect()
}

/// One dies in the middle of everything: it takes requests, and closes. Nobody who asks what can be asked twice notices.
#[tokio::test]
async fn a_server_that_fails_under_load_is_left_alone_and_nobody_notices() {
    let n_asked = Arc::new(AtomicUsize::new(0));
    let failing = Scripted::start(move |mut client: Client, _| {
        let n_asked = Arc::clone(&n_asked);
        async move {
            while client.until(b"\r\n\r\n").await.is_some() {
                if n_asked.fetch_add(1, Ordering::SeqCst) >= 100 {
                    return;
                }
                client.send(text("good still")).await;
            }
        }
    })
    .await;
    let good = [Scripted::echo().await, Scripted::echo().await];
    let world = World::before(&[failing.address, good[0].address, good[1].address]).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut client = world.connect().await;
        asking.spawn(async move {
            for n in 0..50 {
                let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
                assert_eq!(answer.status, 200, "{n}: {}", answer.text());
            }
        });
    }
    asking.join_all().await;
    let settings = world.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    let healthy: Vec<_> = route.upstream.states().map(|state| state.is_healthy).collect();
    assert_eq!(healthy, [false, true, true]);
}

#[tokio::test]
async fn a_busy_server_is_sent_nothing_while_others_are_idle() {
    let slow = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.until(b"never").await;
    })
    .await;
    let quick = Scripted::echo().await;
    let urls = [slow.address, quick.address].map(|address| format!("http://{address}"));
    let servers = urls.iter().map(|url| Server::parse(url).unwrap()).collect();
    let upstream = Upstream::new(servers, Balance::LeastConnections, Protocol::Http1, Health::default());
    let world = World::of(Route { upstream: Arc::new(upstream), ..route(&[]) }).await;
    let mut stuck = world.connect().await;
    while busy(&world)[0] == 0 {
        // Idle ones take turns: sooner or later the slow one has it.
        stuck = world.connect().await;
        stuck.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        until("it is somewhere, or over", || {
            busy(&world)[0] == 1 || quick.n_connections.load(Ordering::SeqCst) > 0
        })
        .await;
    }
    for n in 0..50 {
        assert_eq!(world.get("/").await.status, 200, "{n}");
    }
    assert_eq!(busy(&world), [1, 0]);
    drop(stuck);
}
