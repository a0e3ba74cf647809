//! HTTP/2 upstreams that stop responding.

use std::time::Duration;

use http::{Request, Response};
use ratewright_gateway::Route;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::Protocol;
use ratewright_lab::within;

use crate::harness::{Client, ScriptedServer, TestGateway, route_to, wait_until};
use crate::hyper_peers::{HyperServer, body, connect, exchange, get, pieces};

/// The first frames of a server: a window of 2 GB for each stream and for the connection.
const ROOM: &[u8] =
    b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00";

fn impatient(url: String, timeouts: Timeouts) -> Route {
    Route { timeouts, ..route_to(&[url], Protocol::Http2) }
}

/// The server opens the window, but reads nothing from the socket.
#[tokio::test]
async fn an_upstream_that_reads_nothing_times_out() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.send(ROOM).await;
        client.read_exact(24).await; // the preface
        std::future::pending::<()>().await;
    })
    .await;
    let timeouts = Timeouts {
        idle: Duration::from_millis(300),
        header: Duration::from_secs(86_400),
        ..Timeouts::default()
    };
    let gateway = TestGateway::with_route(impatient(format!("http://{}", server.address), timeouts)).await;
    let client = connect(gateway.address).await;
    let (sender, upload) = pieces();
    let asking = tokio::spawn(client.clone().send_request(Request::post("http://a/").body(upload).unwrap()));
    let piece = "x".repeat(65_536);
    // More than all buffers hold.
    for _ in 0..1_000 {
        sender.send(&piece);
    }
    let response = within("a response", asking).await.unwrap().unwrap();
    assert_eq!(response.status(), 502);
}

/// The server reads, but opens no window: the header timeout applies.
#[tokio::test]
async fn an_upstream_that_opens_no_window_times_out() {
    let server = HyperServer::start(|request| async move {
        std::future::pending::<()>().await;
        drop(request);
        Response::new(body(""))
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_millis(500), ..Timeouts::default() };
    let gateway = TestGateway::with_route(impatient(server.url(), timeouts)).await;
    let client = connect(gateway.address).await;
    let (sender, upload) = pieces();
    let asking = tokio::spawn(client.clone().send_request(Request::post("http://a/").body(upload).unwrap()));
    let piece = "x".repeat(65_536);
    // More than all buffers and windows hold.
    for _ in 0..1_000 {
        sender.send(&piece);
    }
    assert_eq!(within("a response", asking).await.unwrap().unwrap().status(), 504);
}

/// True if this host has an open connection between these ports.
#[cfg(target_os = "linux")]
fn is_open(from: u16, to: u16) -> bool {
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[1].ends_with(&format!(":{from:04X}"))
            && fields[2].ends_with(&format!(":{to:04X}"))
            && fields[3] == "01"
    })
}

/// The host is dead: packets are lost, and no request uses the connection.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_connection_to_a_dead_host_is_closed_before_reuse() {
    let check = async |protocol| {
        let server = HyperServer::start(|_| async { Response::new(body("here")) }).await;
        let timeouts = Timeouts { idle: Duration::from_secs(2), ..Timeouts::default() };
        let gateway =
            TestGateway::with_route(Route { timeouts, ..route_to(&[server.url()], protocol) }).await;
        assert_eq!(gateway.get("/").await.text(), "here");
        let Some(from) = server.go_away() else { return };
        assert!(is_open(from, server.address.port()));
        wait_until("it is closed", || !is_open(from, server.address.port())).await;
        assert_eq!(gateway.get("/").await.text(), "here");
        assert_eq!(server.n_connections(), 2);
    };
    tokio::join!(check(Protocol::Http1), check(Protocol::Http2)); // each for as long as the probes of TCP take
}

/// A connection without data in time is not given to the next request.
#[tokio::test]
async fn a_connection_without_a_timely_response_is_not_reused() {
    let server = HyperServer::start(|request| async move {
        if request.uri().path() == "/never" {
            std::future::pending::<()>().await;
        }
        Response::new(body("here"))
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_secs(2), ..Timeouts::default() };
    let gateway = TestGateway::with_route(impatient(server.url(), timeouts)).await;
    let client = connect(gateway.address).await;
    let statuses = [
        exchange(&client, get("/never")).await.0,
        exchange(&client, get("/")).await.0,
        exchange(&client, get("/")).await.0,
    ];
    assert_eq!(statuses, [504, 200, 200]);
    assert_eq!(server.n_connections(), 2);
}

/// One request times out while others get responses: the server is alive.
#[tokio::test]
async fn a_connection_that_served_other_responses_is_reused() {
    let server = HyperServer::start(|request| async move {
        if request.uri().path() == "/never" {
            std::future::pending::<()>().await;
        }
        Response::new(body("here"))
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_secs(2), ..Timeouts::default() };
    let gateway = TestGateway::with_route(impatient(server.url(), timeouts)).await;
    let client = connect(gateway.address).await;
    assert_eq!(exchange(&client, get("/")).await.0, 200);
    let never = tokio::spawn(client.clone().send_request(get("/never")));
    let others = async {
        while !never.is_finished() {
            assert_eq!(exchange(&client, get("/")).await.0, 200);
        }
    };
    within("the request without a response times out", others).await;
    assert_eq!(never.await.unwrap().unwrap().status(), 504);
    assert_eq!(exchange(&client, get("/")).await.0, 200);
    assert_eq!(server.n_connections(), 1);
}
