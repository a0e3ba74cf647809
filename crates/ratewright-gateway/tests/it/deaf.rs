//! Servers that speak HTTP/2 and stop doing so without a word.

use std::time::Duration;

use http::{Request, Response};
use ratewright_gateway::{Protocol, Route, Timeouts};

use crate::peers::{Speaking, body, connect, exchange, get, pieces};
use crate::world::{Client, Scripted, World, route_to, until, within};

/// What a server says first: it has room for two gigabytes, on each stream and in all.
const ROOM: &[u8] =
    b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00";

fn impatient(url: String, timeouts: Timeouts) -> Route {
    Route { timeouts, ..route_to(&[url], Protocol::Http2) }
}

/// The server says that it has room, and then takes nothing from the operating system.
#[tokio::test]
async fn a_server_that_reads_nothing_is_noticed() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.send(ROOM).await;
        client.exactly(24).await; // the preface
        std::future::pending::<()>().await;
    })
    .await;
    let timeouts = Timeouts {
        idle: Duration::from_millis(300),
        header: Duration::from_secs(86_400),
        ..Timeouts::default()
    };
    let world = World::of(impatient(format!("http://{}", server.address), timeouts)).await;
    let client = connect(world.address).await;
    let (sender, upload) = pieces();
    let asking = tokio::spawn(client.clone().send_request(Request::post("http://a/").body(upload).unwrap()));
    let piece = "x".repeat(65_536);
    // More than all buffers on the way hold.
    for _ in 0..1_000 {
        sender.send(&piece);
    }
    let answer = within(asking).await.unwrap().unwrap();
    assert_eq!(answer.status(), 502);
}

/// The server reads what comes, and makes no room for more: it has its time to answer, and no longer.
#[tokio::test]
async fn a_server_that_makes_no_room_is_given_up() {
    let server = Speaking::start(|request| async move {
        std::future::pending::<()>().await;
        drop(request);
        Response::new(body(""))
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_millis(500), ..Timeouts::default() };
    let world = World::of(impatient(server.url(), timeouts)).await;
    let client = connect(world.address).await;
    let (sender, upload) = pieces();
    let asking = tokio::spawn(client.clone().send_request(Request::post("http://a/").body(upload).unwrap()));
    let piece = "x".repeat(65_536);
    // More than all buffers and windows on the way hold.
    for _ in 0..1_000 {
        sender.send(&piece);
    }
    assert_eq!(within(asking).await.unwrap().unwrap().status(), 504);
}

/// True if this machine has a connection between these ports that is open as far as it knows.
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

/// The machine is gone: nothing that is sent there arrives, and nobody says so. Nor has anybody a request on the connection.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_connection_to_a_machine_that_is_gone_is_closed_before_anybody_uses_it() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = Speaking::start(|_| async { Response::new(body("here")) }).await;
        let timeouts = Timeouts { idle: Duration::from_secs(2), ..Timeouts::default() };
        let world = World::of(Route { timeouts, ..route_to(&[server.url()], protocol) }).await;
        assert_eq!(world.get("/").await.text(), "here");
        let from = server.go_away();
        assert!(is_open(from, server.address.port()));
        until("it is closed", || !is_open(from, server.address.port())).await;
        assert_eq!(world.get("/").await.text(), "here");
        assert_eq!(server.n_connections(), 2);
    }
}

/// A connection on which nothing came in time is not given to the next one.
#[tokio::test]
async fn a_connection_that_gave_no_answer_in_time_is_not_used_again() {
    let server = Speaking::start(|request| async move {
        if request.uri().path() == "/never" {
            std::future::pending::<()>().await;
        }
        Response::new(body("here"))
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_secs(2), ..Timeouts::default() };
    let world = World::of(impatient(server.url(), timeouts)).await;
    let client = connect(world.address).await;
    let statuses = [
        exchange(&client, get("/never")).await.0,
        exchange(&client, get("/")).await.0,
        exchange(&client, get("/")).await.0,
    ];
    assert_eq!(statuses, [504, 200, 200]);
    assert_eq!(server.n_connections(), 2);
}

/// One request takes too long, and others are answered meanwhile: somebody is there.
#[tokio::test]
async fn a_connection_that_gave_others_an_answer_is_used_again() {
    let server = Speaking::start(|request| async move {
        if request.uri().path() == "/never" {
            std::future::pending::<()>().await;
        }
        Response::new(body("here"))
    })
    .await;
    let timeouts = Timeouts { header: Duration::from_secs(2), ..Timeouts::default() };
    let world = World::of(impatient(server.url(), timeouts)).await;
    let client = connect(world.address).await;
    assert_eq!(exchange(&client, get("/")).await.0, 200);
    let never = tokio::spawn(client.clone().send_request(get("/never")));
    while !never.is_finished() {
        assert_eq!(exchange(&client, get("/")).await.0, 200);
    }
    assert_eq!(never.await.unwrap().unwrap().status(), 504);
    assert_eq!(exchange(&client, get("/")).await.0, 200);
    assert_eq!(server.n_connections(), 1);
}
