//! Connections of clients: how many there may be, and how long one may take.

use std::num::NonZeroU32;
use std::time::Duration;

use ratewright_gateway::Settings;

use crate::peers::{connect, exchange, get};
use crate::world::{Answer, Client, Scripted, Setup, World, route, settings, until};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn world(change: impl FnOnce(&mut Settings)) -> World {
    let server = Scripted::echo().await;
    let mut settings = settings(route(&[server.address]));
    change(&mut settings);
    World::start(Setup { settings, ..Setup::default() }).await
}

/// Asks on a connection of its own. Nothing, if that is closed without an answer.
async fn ask_anew(world: &World) -> Option<Answer> {
    let mut client = world.connect().await;
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, GET.as_bytes()).await;
    client.answer().await
}

#[tokio::test]
async fn connections_too_many_are_closed_at_once_and_a_place_is_free_again() {
    let per_address: fn(&mut Settings) = |settings| settings.connections_per_address = NonZeroU32::new(3);
    let in_all: fn(&mut Settings) = |settings| settings.connections_max = NonZeroU32::new(3).unwrap();
    for change in [per_address, in_all] {
        let world = world(change).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = world.connect().await;
            assert_eq!(client.ask(GET).await.status, 200);
            clients.push(client);
        }
        for _ in 0..3 {
            assert_eq!(ask_anew(&world).await, None, "one too many");
        }
        for client in &mut clients {
            assert_eq!(client.ask(GET).await.status, 200, "those before are not touched");
        }
        clients.pop();
        let mut answer = None;
        while answer.is_none() {
            answer = ask_anew(&world).await;
        }
        assert_eq!(answer.unwrap().status, 200, "the place that was left");
    }
}

/// Silent, in the middle of a head, in the middle of what HTTP/2 begins with, and after an answer.
#[tokio::test]
async fn who_does_not_send_a_head_in_time_is_cut_off() {
    let world = world(|settings| settings.request_header = Duration::from_secs(1)).await;
    for beginning in ["", "GET / HTTP/1.1\r\nHost: ", "PRI * HTTP/2.0\r\n"] {
        let mut client = world.connect().await;
        client.send(beginning).await;
        let said = String::from_utf8(client.all_that_comes().await).unwrap();
        assert!(!said.contains("200 OK"), "{beginning:?}: {said}");
    }
    let mut client = world.connect().await;
    assert_eq!(client.ask(GET).await.status, 200);
    assert_eq!(client.all_that_comes().await, b"", "it has been idle for too long");
}

/// A drop every now and then does not help.
#[tokio::test]
async fn who_sends_a_head_drop_by_drop_is_cut_off() {
    let world = world(|settings| settings.request_header = Duration::from_secs(1)).await;
    let mut client = world.connect().await;
    client.send("GET / HTTP/1.1\r\nX: ").await;
    until("it is cut off", || client.stream.try_write(b"x").is_err()).await;
}

/// An HTTP/2 client that asks for nothing is let go, one that waits for its answer is not.
#[tokio::test]
async fn an_idle_connection_of_http_2_is_let_go() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let server = Scripted::start(move |mut client: Client, _| {
        let mut gone = gone.clone();
        async move {
            while client.until(b"\r\n\r\n").await.is_some() {
                gone.wait_for(|go| *go).await.unwrap();
                client.send(crate::world::text("slow")).await;
            }
        }
    })
    .await;
    let mut settings = settings(route(&[server.address]));
    settings.request_header = Duration::from_secs(1);
    let world = World::start(Setup { settings, ..Setup::default() }).await;
    let idle = connect(world.address).await;
    let waiting = connect(world.address).await;
    let asked = tokio::spawn(async move { exchange(&waiting, get("/")).await });
    until("the idle one is closed", || idle.is_closed()).await;
    go.send(true).unwrap();
    assert_eq!(asked.await.unwrap(), (200, "slow".to_owned()));
}

/// HTTP/2 forbids trailers of the connection, and a length for a response without content.
#[tokio::test]
async fn what_http_2_forbids_is_not_passed_on_to_its_clients() {
    let server = Scripted::start(|mut client: Client, _| async move {
        while let Some(head) = client.until(b"\r\n\r\n").await {
            let is_empty = String::from_utf8_lossy(&head).contains("/empty");
            client
                .send(match is_empty {
                    true => "HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n",
                    false => {
                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nConnection: close\r\n\r\n"
                    }
                })
                .await;
        }
    })
    .await;
    let world = World::of(route(&[server.address])).await;
    let client = connect(world.address).await;
    assert_eq!(exchange(&client, get("/")).await, (200, "hello".to_owned()));
    assert_eq!(exchange(&client, get("/empty")).await, (204, String::new()));
    assert_eq!(exchange(&client, get("/")).await, (200, "hello".to_owned()));
}

/// Whoever asks for much and takes nothing is cut off, and its server is free.
#[tokio::test]
async fn who_never_reads_its_answer_is_cut_off() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        let piece = vec![b'x'; 65_536];
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, &piece).await.is_ok() {}
    })
    .await;
    let settings = settings(route(&[server.address]));
    let read_within = Some(Duration::from_millis(100));
    let world = World::start(Setup { settings, read_within, ..Setup::default() }).await;
    let mut client = world.connect().await;
    client.send(GET).await;
    let settings = world.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    let n_busy = || route.upstream.states().map(|state| state.n_busy).sum::<u32>();
    until("it is under way", || n_busy() == 1).await;
    until("it is cut off", || n_busy() == 0).await;
}

/// A connection that has become a tunnel keeps its place.
#[tokio::test]
async fn a_tunnel_is_a_connection_too() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client
            .send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
            )
            .await;
        client.all_that_comes().await;
    })
    .await;
    let mut settings = settings(route(&[server.address]));
    settings.connections_per_address = NonZeroU32::new(2);
    let world = World::start(Setup { settings, ..Setup::default() }).await;
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut client = world.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        assert!(client.until(b"hello").await.is_some());
        tunnels.push(client);
    }
    assert_eq!(ask_anew(&world).await, None, "one too many");
}
