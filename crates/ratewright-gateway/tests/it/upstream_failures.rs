//! Upstreams that are slow, abort, close at the worst moment or are unreachable.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use ratewright_core::Micros;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::{Balance, Health, Protocol, UpstreamServer};
use ratewright_gateway::{Route, Upstream};
use ratewright_lab::{free_port, within};

use crate::harness::{Client, ScriptedServer, TestGateway, route, route_to, text, wait_until};
use crate::hyper_peers::{HyperServer, body, whole};

/// An address without a listener.
fn nobody() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

/// An upstream that closes each connection after its response, without announcing it.
async fn closing() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        if client.read_until(b"\r\n\r\n").await.is_some() {
            client.send(text("once")).await;
        }
    })
    .await
}

#[tokio::test]
async fn upstream_connections_are_reused() {
    let server = ScriptedServer::echo().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    for n in 0..20 {
        let response = client.exchange(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(response.text(), format!("GET /{n} HTTP/1.1"));
    }
    assert_eq!(server.n_connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upstream_that_closes_idle_connections_loses_no_repeatable_request() {
    let server = closing().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    for n in 0..50 {
        assert_eq!(client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.text(), "once", "{n}");
    }
}

/// It reads the second request of each connection, and then closes.
#[tokio::test]
async fn a_request_that_may_have_been_processed_is_retried_only_if_idempotent() {
    let server = ScriptedServer::start(|mut client: Client, n| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send(text("first")).await;
        if n > 0 {
            return;
        }
        client.read_until(b"\r\n\r\n").await;
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!([client.exchange(get).await.text(), client.exchange(get).await.text()], ["first", "first"]);
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send(text("first")).await;
        client.read_until(b"\r\n\r\n").await;
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    assert_eq!(client.exchange(get).await.status, 200);
    let posted = client.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(posted.status, 502, "a POST is not done twice");
    assert_eq!(server.n_connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_unreachable_upstream_gets_502_with_the_request_id() {
    let gateway = TestGateway::in_front_of(&[nobody()]).await;
    let request = "GET /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-7\r\n\r\n";
    let response = gateway.connect().await.exchange(request).await;
    assert_eq!(
        (response.status, response.headers["content-type"].as_str()),
        (502, "application/problem+json")
    );
    let body = response.text();
    assert_eq!(response.headers["x-correlation-id"], "r-7");
    assert!(body.contains(r#""correlationId":"r-7""#) && body.contains(r#""instance":"/x""#), "{body}");
}

#[tokio::test]
async fn another_server_is_tried_and_the_failing_one_is_ejected() {
    let (server, nobody) = (ScriptedServer::echo().await, nobody());
    let gateway = TestGateway::in_front_of(&[nobody, server.address]).await;
    for n in 0..20 {
        assert_eq!(gateway.get("/").await.status, 200, "{n}");
    }
    let settings = gateway.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    let healthy: Vec<_> = route.upstream.states().map(|state| state.is_healthy).collect();
    assert_eq!(healthy, [false, true]);
}

/// 24 parallel requests that exceed the timeout, again and again, kept three of four healthy servers ejected.
#[tokio::test]
async fn slow_requests_eject_no_server_that_responds_to_others() {
    let n_slow = Arc::<AtomicUsize>::default();
    let slow_or_quick = || {
        let n_slow = Arc::clone(&n_slow);
        ScriptedServer::start(move |mut client: Client, _| {
            let n_slow = Arc::clone(&n_slow);
            async move {
                while let Some(head) = client.read_until(b"\r\n\r\n").await {
                    if head.starts_with(b"GET /slow") {
                        n_slow.fetch_add(1, Ordering::SeqCst);
                        client.read_to_end().await;
                        return;
                    }
                    client.send(text("quick")).await;
                }
            }
        })
    };
    let servers =
        [slow_or_quick().await, slow_or_quick().await, slow_or_quick().await, slow_or_quick().await];
    let mut route = route(&servers.map(|server| server.address));
    route.timeouts.header = Duration::from_secs(1);
    let upstream = Arc::clone(&route.upstream);
    let gateway = Arc::new(TestGateway::with_route(route).await);
    for round in 1..=3 {
        let slow: Vec<_> = (0..24)
            .map(|_| {
                let gateway = Arc::clone(&gateway);
                tokio::spawn(async move { gateway.get("/slow").await.status })
            })
            .collect();
        wait_until("all have begun", || n_slow.load(Ordering::SeqCst) >= 24 * round).await;
        for _ in 0..8 {
            assert_eq!(gateway.get("/").await.text(), "quick");
        }
        for asked in slow {
            assert_eq!(within("its timeout", asked).await.unwrap(), 504);
        }
    }
    assert!(
        upstream.states().all(|state| state.n_ejections == 0),
        "{:?}",
        upstream.states().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_recovered_server_is_probed_by_one_request() {
    let address = nobody();
    let mut patient = route(&[]);
    let health = Health { failures_max: NonZeroU32::MIN, eject_for: Micros::new(1), ..Health::default() };
    let servers = vec![UpstreamServer::parse(&format!("http://{address}")).unwrap()];
    patient.upstream = Arc::new(Upstream::new(servers, Balance::RoundRobin, Protocol::Http1, health));
    let gateway = TestGateway::with_route(patient).await;
    assert_eq!(gateway.get("/").await.status, 502);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1_000];
        tokio::io::AsyncReadExt::read(&mut stream, &mut request).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, text("back").as_bytes()).await.unwrap();
    });
    assert_eq!(gateway.get("/").await.text(), "back");
}

/// A route with short timeouts.
fn hasty(server: SocketAddr) -> Route {
    let short = Duration::from_millis(100);
    let timeouts = Timeouts { connect: short, header: short, idle: short, ..Timeouts::default() };
    Route { timeouts, ..route(&[server]) }
}

#[tokio::test]
async fn an_upstream_that_times_out_gets_504() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"never").await;
    })
    .await;
    let gateway = TestGateway::with_route(hasty(server.address)).await;
    let response = gateway.get("/").await;
    assert_eq!(response.status, 504);
    assert!(response.text().contains("did not respond in time"), "{}", response.text());
}

#[tokio::test]
async fn the_header_timeout_starts_when_the_request_is_sent() {
    let one = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"last").await;
        client.send(text("all of it")).await;
        client.read_until(b"never").await;
    })
    .await;
    let two = HyperServer::start(|request| async move {
        assert_eq!(whole(request.into_body()).await.0, "one.two.six.ten.and.last");
        Response::new(body("all of it"))
    })
    .await;
    let slow_client = async |route: Route| {
        let timeouts = Timeouts { header: Duration::from_secs(3), ..Timeouts::default() };
        let gateway = TestGateway::with_route(Route { timeouts, ..route }).await;
        let mut client = gateway.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\r\n").await;
        for piece in ["one.", "two.", "six.", "ten.", "and."] {
            // Longer than the header timeout in total: the client is slow, not the server.
            tokio::time::sleep(Duration::from_millis(700)).await;
            client.send(piece).await;
        }
        client.send("last").await;
        assert_eq!(client.response().await.unwrap().text(), "all of it");
    };
    tokio::join!(slow_client(route(&[one.address])), slow_client(route_to(&[two.url()], Protocol::Http2)));
}

#[tokio::test]
async fn an_upstream_that_takes_nothing_times_out() {
    let server = ScriptedServer::start(|client: Client, _| async move {
        std::future::pending::<()>().await;
        drop(client);
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_millis(100), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts, ..route(&[server.address]) }).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n").await;
    let (mut reading, mut writing) = client.stream.split();
    let sends = async {
        let piece = vec![b'x'; 65_536];
        while tokio::io::AsyncWriteExt::write_all(&mut writing, &piece).await.is_ok() {}
    };
    let reads = async {
        let mut response = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut reading, &mut response).await.unwrap();
        assert_eq!(response, *b"HTTP/1.1 504");
    };
    within("a response", async {
        tokio::select! {
            () = reads => {}
            () = async { sends.await; std::future::pending::<()>().await } => {}
        }
    })
    .await;
}

#[tokio::test]
async fn an_upstream_that_stops_mid_response_aborts_the_response() {
    let stopping = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
        client.read_until(b"never").await;
    })
    .await;
    let dying = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await;
    })
    .await;
    for server in [stopping.address, dying.address] {
        let timeouts = Timeouts { idle: Duration::from_millis(100), ..Timeouts::default() };
        let gateway = TestGateway::with_route(Route { timeouts, ..route(&[server]) }).await;
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let all = String::from_utf8(client.read_to_end().await).unwrap();
        assert!(all.starts_with("HTTP/1.1 200 OK") && all.contains("hello"), "{all}");
        assert!(!all.ends_with("0\r\n\r\n"), "the client can tell that it is not whole: {all}");
    }
}

#[tokio::test]
async fn the_total_timeout_covers_the_response_body() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"never").await;
    })
    .await;
    let timeouts = Timeouts { total: Some(Duration::from_millis(50)), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts, ..route(&[server.address]) }).await;
    assert_eq!(gateway.get("/").await.status, 504);
    let dripping = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        // Sends until the client disconnects, without a long pause.
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // The head must come before it is over, and the test takes as long.
    let timeouts = Timeouts { total: Some(Duration::from_secs(3)), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts, ..route(&[dripping.address]) }).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let all = String::from_utf8(client.read_to_end().await).unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK") && !all.ends_with("0\r\n\r\n"), "it is broken off: {all}");
}

/// However fast they arrive: a socket that is always readable must not keep the timeout from firing.
#[tokio::test]
async fn endless_interim_responses_get_502() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        let many = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000);
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, many.as_bytes()).await.is_ok() {}
    })
    .await;
    let gateway = TestGateway::with_route(route(&[server.address])).await;
    assert_eq!(gateway.get("/").await.status, 502);
}

#[tokio::test]
async fn an_invalid_response_gets_502() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("SMTP ready\r\n\r\n").await;
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    assert_eq!(gateway.get("/").await.status, 502);
}

#[tokio::test]
async fn a_client_disconnect_cancels_the_upstream_request() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let sender = std::sync::Mutex::new(Some(sender));
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let sender = sender.lock().unwrap().take();
        async move {
            client.read_until(b"\r\n\r\n").await;
            // No more data: the connection ends.
            client.read_to_end().await;
            let _ = sender.unwrap().send(());
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    wait_until("the server has it", || server.n_connections.load(Ordering::SeqCst) == 1).await;
    drop(client);
    within("it is cancelled", receiver).await.unwrap();
}

#[tokio::test]
async fn requests_in_flight_finish_after_a_stop() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let mut gone = gone.clone();
        async move {
            client.read_until(b"\r\n\r\n").await;
            gone.wait_for(|go| *go).await.unwrap();
            client.send(text("done")).await;
        }
    })
    .await;
    let mut gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        clients.push(client);
    }
    wait_until("all are in flight", || server.n_connections.load(Ordering::SeqCst) == 10).await;
    gateway.stop();
    go.send(true).unwrap();
    for mut client in clients {
        assert_eq!(client.response().await.unwrap().text(), "done");
    }
    gateway.stopped().await;
}

/// The requests in flight at each server.
fn busy(gateway: &TestGateway) -> Vec<u32> {
    let settings = gateway.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    route.upstream.states().map(|state| state.n_in_flight).collect()
}

/// One server fails under load: it reads requests, and closes. Idempotent requests see no error.
#[tokio::test]
async fn a_server_that_fails_under_load_is_ejected_and_clients_see_no_error() {
    let n_asked = Arc::new(AtomicUsize::new(0));
    let failing = ScriptedServer::start(move |mut client: Client, _| {
        let n_asked = Arc::clone(&n_asked);
        async move {
            while client.read_until(b"\r\n\r\n").await.is_some() {
                if n_asked.fetch_add(1, Ordering::SeqCst) >= 100 {
                    return;
                }
                client.send(text("good still")).await;
            }
        }
    })
    .await;
    let good = [ScriptedServer::echo().await, ScriptedServer::echo().await];
    let gateway = TestGateway::in_front_of(&[failing.address, good[0].address, good[1].address]).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut client = gateway.connect().await;
        asking.spawn(async move {
            for n in 0..50 {
                let response = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
                assert_eq!(response.status, 200, "{n}: {}", response.text());
            }
        });
    }
    within("all responses", asking.join_all()).await;
    let settings = gateway.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    let healthy: Vec<_> = route.upstream.states().map(|state| state.is_healthy).collect();
    assert_eq!(healthy, [false, true, true]);
}

#[tokio::test]
async fn least_connections_prefers_idle_servers() {
    let slow = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.read_until(b"never").await;
    })
    .await;
    let quick = ScriptedServer::echo().await;
    let urls = [slow.address, quick.address].map(|address| format!("http://{address}"));
    let servers = urls.iter().map(|url| UpstreamServer::parse(url).unwrap()).collect();
    let upstream = Upstream::new(servers, Balance::LeastConnections, Protocol::Http1, Health::default());
    let gateway = TestGateway::with_route(Route { upstream: Arc::new(upstream), ..route(&[]) }).await;
    let stuck = async {
        let mut stuck = gateway.connect().await;
        while busy(&gateway)[0] == 0 {
            // Idle servers take turns: sooner or later the slow one gets it.
            stuck = gateway.connect().await;
            stuck.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            wait_until("it is somewhere, or over", || {
                busy(&gateway)[0] == 1 || quick.n_connections.load(Ordering::SeqCst) > 0
            })
            .await;
        }
        stuck
    };
    let stuck = within("the slow server gets a request", stuck).await;
    for n in 0..50 {
        assert_eq!(gateway.get("/").await.status, 200, "{n}");
    }
    assert_eq!(busy(&gateway), [1, 0]);
    drop(stuck);
}
