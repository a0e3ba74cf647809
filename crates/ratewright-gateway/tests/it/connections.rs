//! Client connections: limits on their number, and timeouts.

use std::num::NonZeroU32;
use std::time::Duration;

use ratewright_gateway::GatewaySettings;
use ratewright_lab::within;

use crate::harness::{Client, RawResponse, ScriptedServer, Setup, TestGateway, route, settings, wait_until};
use crate::hyper_peers::{connect, exchange, get};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn gateway(change: impl FnOnce(&mut GatewaySettings)) -> TestGateway {
    let server = ScriptedServer::echo().await;
    let mut settings = settings(route(&[server.address]));
    change(&mut settings);
    TestGateway::start(Setup { settings, ..Setup::default() }).await
}

/// Sends a request on a new connection. None: closed without a response.
async fn exchange_on_new_connection(gateway: &TestGateway) -> Option<RawResponse> {
    let mut client = gateway.connect().await;
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, GET.as_bytes()).await;
    client.response().await
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_and_slots_are_released() {
    let per_address: fn(&mut GatewaySettings) =
        |settings| settings.connections_per_address = NonZeroU32::new(3);
    let in_all: fn(&mut GatewaySettings) = |settings| settings.connections_max = NonZeroU32::new(3).unwrap();
    for change in [per_address, in_all] {
        let gateway = gateway(change).await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = gateway.connect().await;
            assert_eq!(client.exchange(GET).await.status, 200);
            clients.push(client);
        }
        for _ in 0..3 {
            assert_eq!(exchange_on_new_connection(&gateway).await, None, "one too many");
        }
        for client in &mut clients {
            assert_eq!(client.exchange(GET).await.status, 200, "those before are not touched");
        }
        clients.pop();
        let response = async {
            loop {
                if let Some(response) = exchange_on_new_connection(&gateway).await {
                    return response;
                }
            }
        };
        let response = within("the free slot", response).await;
        assert_eq!(response.status, 200, "the last free slot");
    }
}

/// Silent, in the middle of a head, in the middle of the HTTP/2 preface, and after a response.
#[tokio::test]
async fn a_late_request_head_closes_the_connection() {
    let gateway = gateway(|settings| settings.request_header = Duration::from_secs(1)).await;
    for beginning in ["", "GET / HTTP/1.1\r\nHost: ", "PRI * HTTP/2.0\r\n"] {
        let mut client = gateway.connect().await;
        client.send(beginning).await;
        let said = String::from_utf8(client.read_to_end().await).unwrap();
        assert!(!said.contains("200 OK"), "{beginning:?}: {said}");
    }
    let mut client = gateway.connect().await;
    assert_eq!(client.exchange(GET).await.status, 200);
    assert_eq!(client.read_to_end().await, b"", "it has been idle for too long");
}

/// A byte now and then does not help.
#[tokio::test]
async fn a_trickling_request_head_closes_the_connection() {
    let gateway = gateway(|settings| settings.request_header = Duration::from_secs(1)).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nX: ").await;
    wait_until("it is cut off", || client.stream.try_write(b"x").is_err()).await;
}

/// An HTTP/2 client without requests is disconnected, one that waits for its response is not.
#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let mut gone = gone.clone();
        async move {
            while client.read_until(b"\r\n\r\n").await.is_some() {
                gone.wait_for(|go| *go).await.unwrap();
                client.send(crate::harness::text("slow")).await;
            }
        }
    })
    .await;
    let mut settings = settings(route(&[server.address]));
    settings.request_header = Duration::from_secs(1);
    let gateway = TestGateway::start(Setup { settings, ..Setup::default() }).await;
    let idle = connect(gateway.address).await;
    let waiting = connect(gateway.address).await;
    let asked = tokio::spawn(async move { exchange(&waiting, get("/")).await });
    wait_until("the idle one is closed", || idle.is_closed()).await;
    go.send(true).unwrap();
    assert_eq!(asked.await.unwrap(), (200, "slow".to_owned()));
}

/// HTTP/2 forbids connection headers in trailers, and a length in a 204.
#[tokio::test]
async fn headers_forbidden_in_http2_are_not_forwarded() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
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
    let gateway = TestGateway::with_route(route(&[server.address])).await;
    let client = connect(gateway.address).await;
    assert_eq!(exchange(&client, get("/")).await, (200, "hello".to_owned()));
    assert_eq!(exchange(&client, get("/empty")).await, (204, String::new()));
    assert_eq!(exchange(&client, get("/")).await, (200, "hello".to_owned()));
}

/// A client that requests much and reads nothing is disconnected, and the upstream connection is released.
#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        let piece = vec![b'x'; 65_536];
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, &piece).await.is_ok() {}
    })
    .await;
    let settings = settings(route(&[server.address]));
    let write_timeout = Some(Duration::from_millis(100));
    let gateway = TestGateway::start(Setup { settings, write_timeout, ..Setup::default() }).await;
    let mut client = gateway.connect().await;
    client.send(GET).await;
    let settings = gateway.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    let n_in_flight = || route.upstream.states().map(|state| state.n_in_flight).sum::<u32>();
    wait_until("it is in flight", || n_in_flight() == 1).await;
    wait_until("it is cut off", || n_in_flight() == 0).await;
}

/// hyper waits for the acknowledgement of its GOAWAY's PING: without a deadline of ours, for 50 s.
#[tokio::test]
async fn an_idle_http2_client_that_acknowledges_no_ping_is_disconnected() {
    let server = ScriptedServer::echo().await;
    let mut settings = settings(route(&[server.address]));
    settings.request_header = Duration::from_millis(100);
    let gateway = TestGateway::start(Setup { settings, ..Setup::default() }).await;
    let mut client = gateway.connect().await;
    let (settings_frame, acknowledgement) = ([0, 0, 0, 4, 0, 0, 0, 0, 0], [0, 0, 0, 4, 1, 0, 0, 0, 0]);
    client
        .send([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings_frame, &acknowledgement].concat())
        .await;
    let read = tokio::time::timeout(Duration::from_secs(30), client.read_to_end()).await;
    let goaway = [7, 0, 0, 0, 0, 0]; // type, flags, connection
    assert!(read.expect("it is closed").windows(6).any(|frame| frame == goaway));
}

/// A tunnel keeps its connection slot.
#[tokio::test]
async fn a_tunnel_counts_as_a_connection() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client
            .send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
            )
            .await;
        client.read_to_end().await;
    })
    .await;
    let mut settings = settings(route(&[server.address]));
    settings.connections_per_address = NonZeroU32::new(2);
    let gateway = TestGateway::start(Setup { settings, ..Setup::default() }).await;
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        assert!(client.read_until(b"hello").await.is_some());
        tunnels.push(client);
    }
    assert_eq!(exchange_on_new_connection(&gateway).await, None, "one too many");
}
