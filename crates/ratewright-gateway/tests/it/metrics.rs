//! Metrics of requests whose client disconnects, and of unparsable ones.

use std::sync::atomic::Ordering;

use ratewright_gateway::upstream::Protocol;

use crate::harness::{ScriptedServer, TestGateway, route, route_to, wait_until};
use crate::hyper_peers::{connect, get};

/// An upstream that never responds.
async fn silent() -> ScriptedServer {
    ScriptedServer::start(|mut client, _| async move {
        client.read_until(b"never").await;
    })
    .await
}

async fn counted(gateway: &TestGateway, expected: &str) {
    wait_until(expected, || gateway.metrics_text() == expected).await;
}

#[tokio::test]
async fn a_client_that_disconnects_early_counts_as_499() {
    let server = silent().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    for n in 1..=3 {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        wait_until("it is in flight", || server.n_connections.load(Ordering::SeqCst) == n).await;
        drop(client);
        counted(&gateway, &format!("/: {n} of 499")).await;
    }
}

#[tokio::test]
async fn a_stream_reset_before_the_response_counts_as_499() {
    let server = silent().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let client = connect(gateway.address).await;
    for n in 1..=3 {
        let asked = tokio::spawn(client.clone().send_request(get("/")));
        wait_until("it is in flight", || server.n_connections.load(Ordering::SeqCst) == n).await;
        asked.abort();
        counted(&gateway, &format!("/: {n} of 499")).await;
    }
}

/// In the middle of the body, over HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn an_aborted_upload_counts_as_499_and_an_invalid_one_gets_400() {
    let server = silent().await;
    let other = crate::hyper_peers::HyperServer::start(|request| async move {
        let _ = http_body_util::BodyExt::collect(request.into_body()).await;
        http::Response::new(crate::hyper_peers::body(""))
    })
    .await;
    for route in [route(&[server.address]), route_to(&[other.url()], Protocol::Http2)] {
        let gateway = TestGateway::with_route(route).await;
        let mut client = gateway.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf.").await;
        drop(client);
        counted(&gateway, "/: 1 of 499").await;
        let nonsense = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n";
        assert_eq!(gateway.connect().await.exchange(nonsense).await.status, 400);
        assert_eq!(gateway.metrics_text(), "/: 1 of 400, 1 of 499");
    }
}

#[tokio::test]
async fn unparsable_requests_are_counted_without_a_route() {
    let gateway = TestGateway::in_front_of(&[silent().await.address]).await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(40_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Many: x\r\n".repeat(200));
    for (n, (head, status)) in
        [("no request\r\n\r\n", 400), ("GET / HTTP/3.0\r\n\r\n", 400), (&long, 431), (&many, 431)]
            .into_iter()
            .enumerate()
    {
        let mut client = gateway.connect().await;
        client.send(head).await;
        assert_eq!(client.response().await.expect("a response").status, status, "{n}");
    }
    counted(&gateway, "none: 2 of 400, 2 of 431").await;
}
