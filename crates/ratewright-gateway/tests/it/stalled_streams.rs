//! HTTP/2 clients that do not open the window for their responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, WindowStart};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::Protocol;
use ratewright_gateway::{GatewaySettings, Route};
use ratewright_lab::within;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::harness::{Client, ScriptedServer, Setup, TestGateway, route, route_to, settings, wait_until};
use crate::hyper_peers::{ChannelBody, HyperServer, body, connect, exchange, get, pieces, send};

/// A client with a window of this size; and a future that ends with its connection.
async fn narrow(
    gateway: &TestGateway,
    window: u32,
) -> (SendRequest<ChannelBody>, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

/// Settings with short timeouts.
fn impatient(route: Route) -> GatewaySettings {
    let timeouts = Timeouts { idle: Duration::from_millis(200), ..Timeouts::default() };
    GatewaySettings { timeouts, ..settings(Route { timeouts, ..route }) }
}

/// At most ten in flight.
fn permits() -> Vec<Policy> {
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "10/s".parse().unwrap()).unwrap();
    vec![Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])]
}

/// An upstream with an endless response, and whether its connection is still open.
async fn endless() -> (ScriptedServer, Arc<AtomicBool>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let over = Arc::clone(&over);
        async move {
            client.read_until(b"\r\n\r\n").await;
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n").await;
            let piece = vec![b'x'; 65_536];
            while tokio::io::AsyncWriteExt::write_all(&mut client.stream, &piece).await.is_ok() {}
            over.store(true, Ordering::SeqCst);
        }
    })
    .await;
    (server, is_over)
}

#[tokio::test]
async fn a_stalled_response_is_reset_and_releases_its_resources() {
    for window in [0, 1, 100_000] {
        let (server, is_over) = endless().await;
        let settings = impatient(route(&[server.address]));
        let gateway = TestGateway::start(Setup { permits: permits(), settings, ..Setup::default() }).await;
        let (client, _) = narrow(&gateway, window).await;
        let response = send(&client, get("/")).await;
        assert_eq!(response.status(), 200);
        wait_until("the server is let go", || is_over.load(Ordering::SeqCst)).await;
        wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
        let broken = within("the end of the body", response.into_body().collect()).await.unwrap_err();
        assert!(!broken.is_closed(), "the stream is reset and the connection stays open: {broken:?}");
    }
}

/// The response is complete, but not read yet.
#[tokio::test]
async fn a_short_response_that_stalls_is_reset() {
    let server = HyperServer::start(|_| async { http::Response::new(body("short")) }).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let settings = impatient(route_to(&[server.url()], protocol));
        let gateway = TestGateway::start(Setup { permits: permits(), settings, ..Setup::default() }).await;
        let (client, _) = narrow(&gateway, 0).await;
        let response = send(&client, get("/")).await;
        assert_eq!(response.status(), 200);
        wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
        within("the end of the body", response.into_body().collect()).await.unwrap_err();
        // So is a response of the gateway.
        let refused = send(&client, http::Request::options("*").body(body("")).unwrap()).await;
        assert_eq!(refused.status(), 400);
        within("the end of the body", refused.into_body().collect()).await.unwrap_err();
    }
}

/// A slow upstream is not the client's fault, and a client that reads is not stalled.
#[tokio::test]
async fn a_response_that_is_read_arrives_complete() {
    let (sender, response) = pieces();
    let response = std::sync::Mutex::new(Some(response));
    let server = HyperServer::start(move |_| {
        let response = response.lock().unwrap().take().unwrap();
        async move { http::Response::new(response) }
    })
    .await;
    let gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let (client, _) = narrow(&gateway, 10).await;
    let response = send(&client, get("/")).await;
    let text = "0123456789".repeat(1_000);
    sender.send(&text);
    drop(sender);
    let whole = within("the end of the body", response.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(whole, text.as_bytes());
}

/// hyper holds the rest of the response and the window is closed: no stream is in flight, but the connection is open.
#[tokio::test]
async fn a_connection_with_finished_responses_does_not_wait_for_window() {
    let server = HyperServer::start(|_| async { http::Response::new(body("more than one byte")) }).await;
    let route = route_to(&[server.url()], Protocol::Http1);
    let settings = GatewaySettings { request_header: Duration::from_secs(1), ..impatient(route) };
    let gateway = TestGateway::start(Setup { settings, ..Setup::default() }).await;
    let (client, connection) = narrow(&gateway, 1).await;
    let response = send(&client, get("/")).await;
    drop(within("the connection ends", connection).await.unwrap());
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(exchange(&connect(gateway.address).await, get("/")).await.0, 200);
}
