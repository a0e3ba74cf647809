//! CORS with HTTP/2, retries, upgrades and explanations.

use http::{HeaderMap, Request};
use ratewright_gateway::ExplainTokens;

use super::*;
use crate::harness::Setup;
use crate::hyper_peers::{ChannelBody, body, connect, send};
use crate::upgrade::{HANDSHAKE, doubling};

fn over_http2(method: &str, headers: &[(&str, &str)]) -> Request<ChannelBody> {
    let request = Request::builder().method(method).uri("http://a/");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(body("")).unwrap()
}

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn cors_works_over_http2() {
    let (server, n_requests) = generous().await;
    let setup = Setup { policies: vec![bucket(1)], settings: settings(shared(&server)), ..Setup::default() };
    let gateway = TestGateway::start(setup).await;
    let client = connect(gateway.address).await;
    let asked = |origin, method| [("origin", origin), ("access-control-request-method", method)];
    let response = send(&client, over_http2("OPTIONS", &asked(APP, "POST"))).await;
    assert_eq!(response.status(), 204);
    assert_eq!(lines(response.headers(), "access-control-allow-origin"), [APP]);
    let response = send(&client, over_http2("OPTIONS", &asked(EVIL, "POST"))).await;
    assert_eq!(response.status(), 403);
    assert_eq!(lines(response.headers(), "access-control-allow-origin"), [""; 0]);
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    for status in [200, 429] {
        let response = send(&client, over_http2("GET", &[("origin", APP)])).await;
        assert_eq!(response.status(), status);
        assert_eq!(lines(response.headers(), "access-control-allow-origin"), [APP]);
        assert_eq!(lines(response.headers(), "access-control-expose-headers"), [EXPOSED]);
    }
    let two = over_http2("GET", &[("origin", APP), ("origin", EVIL)]);
    assert_eq!(lines(send(&client, two).await.headers(), "access-control-allow-origin"), [""; 0]);
}

#[tokio::test]
async fn a_retry_at_another_server_adds_headers_once() {
    let closing = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
    })
    .await;
    let (server, _) = generous().await;
    let route = Route { cors: cors(rules()), ..route(&[closing.address, server.address]) };
    let gateway = TestGateway::with_route(route).await;
    for _ in 0..2 {
        see(&gateway, &get(APP)).await.assert_readable(200, APP);
    }
    assert!(closing.n_connections.load(Ordering::SeqCst) > 0, "a request was sent again");
}

/// Browsers apply no CORS to WebSockets: the upstream checks the origin itself.
#[tokio::test]
async fn a_handshake_response_is_not_touched() {
    let gateway = TestGateway::with_route(shared(&doubling().await)).await;
    let handshake = HANDSHAKE.replace("Host: a\r\n", &format!("Host: a\r\nOrigin: {APP}\r\n"));
    let seen = see(&gateway, &handshake).await;
    assert_eq!((seen.status, seen.lines.len()), (101, 0), "{seen:?}");
}

#[tokio::test]
async fn preflights_and_responses_can_be_explained() {
    let server = plain().await;
    let settings = GatewaySettings {
        explain_tokens: Some(ExplainTokens::new(|token| token == "s3cret")),
        ..settings(shared(&server))
    };
    let gateway = TestGateway::start(Setup { policies: vec![bucket(1)], settings, ..Setup::default() }).await;
    let asked = preflight("/", APP, "GET", "X-Ratewright-Explain: s3cret\r\n");
    let response = gateway.connect().await.exchange(&asked).await;
    assert_eq!(
        response.headers["x-ratewright-explain"],
        "verdict=none; the gateway answered 204 before any policy was evaluated"
    );
    let request =
        format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\nX-Ratewright-Explain: s3cret\r\n\r\n");
    for (status, verdict) in [(200, "verdict=allow"), (429, "verdict=deny")] {
        let response = gateway.connect().await.exchange(&request).await;
        assert_eq!(
            (response.status, response.headers["access-control-allow-origin"].as_str()),
            (status, APP)
        );
        assert!(response.headers["x-ratewright-explain"].starts_with(verdict), "{response:?}");
    }
}

/// The body is drained, and the connection stays open.
#[tokio::test]
async fn a_preflight_with_a_body_is_a_preflight() {
    let (server, n_requests) = generous().await;
    let gateway = TestGateway::with_route(shared(&server)).await;
    let mut client = gateway.connect().await;
    let asked = preflight("/", APP, "POST", "Content-Length: 5\r\n");
    for _ in 0..3 {
        assert_eq!(see_on(&mut client, &format!("{asked}GET /")).await.status, 204);
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
}
