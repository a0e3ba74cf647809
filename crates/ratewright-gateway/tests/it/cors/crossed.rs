//! CORS beside everything else: HTTP/2, retries, upgrades, explanations.

use http::{HeaderMap, Request};
use ratewright_gateway::ExplainTokens;

use super::*;
use crate::peers::{Pieces, ask, body, connect};
use crate::upgrade::{HANDSHAKE, doubling};
use crate::world::Setup;

fn over_http2(method: &str, headers: &[(&str, &str)]) -> Request<Pieces> {
    let request = Request::builder().method(method).uri("http://a/");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(body("")).unwrap()
}

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn the_same_holds_over_http2() {
    let (server, n_requests) = generous().await;
    let setup = Setup { policies: vec![bucket(1)], settings: settings(shared(&server)), ..Setup::default() };
    let world = World::start(setup).await;
    let client = connect(world.address).await;
    let asked = |origin, method| [("origin", origin), ("access-control-request-method", method)];
    let answer = ask(&client, over_http2("OPTIONS", &asked(APP, "POST"))).await;
    assert_eq!(answer.status(), 204);
    assert_eq!(lines(answer.headers(), "access-control-allow-origin"), [APP]);
    let answer = ask(&client, over_http2("OPTIONS", &asked(EVIL, "POST"))).await;
    assert_eq!(answer.status(), 403);
    assert_eq!(lines(answer.headers(), "access-control-allow-origin"), [""; 0]);
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
    for status in [200, 429] {
        let answer = ask(&client, over_http2("GET", &[("origin", APP)])).await;
        assert_eq!(answer.status(), status);
        assert_eq!(lines(answer.headers(), "access-control-allow-origin"), [APP]);
        assert_eq!(lines(answer.headers(), "access-control-expose-headers"), [EXPOSED]);
    }
    let two = over_http2("GET", &[("origin", APP), ("origin", EVIL)]);
    assert_eq!(lines(ask(&client, two).await.headers(), "access-control-allow-origin"), [""; 0]);
}

#[tokio::test]
async fn a_retry_at_another_upstream_adds_nothing_twice() {
    let closing = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
    })
    .await;
    let (server, _) = generous().await;
    let route = Route { cors: cors(rules()), ..route(&[closing.address, server.address]) };
    let world = World::of(route).await;
    for _ in 0..2 {
        see(&world, &get(APP)).await.assert_readable(200, APP);
    }
    assert!(closing.n_connections.load(Ordering::SeqCst) > 0, "a request was sent again");
}

/// Browsers apply no CORS to WebSockets: the upstream checks the origin itself.
#[tokio::test]
async fn a_handshake_response_is_not_touched() {
    let world = World::of(shared(&doubling().await)).await;
    let handshake = HANDSHAKE.replace("Host: a\r\n", &format!("Host: a\r\nOrigin: {APP}\r\n"));
    let seen = see(&world, &handshake).await;
    assert_eq!((seen.status, seen.lines.len()), (101, 0), "{seen:?}");
}

#[tokio::test]
async fn preflights_and_responses_can_be_explained() {
    let server = plain().await;
    let settings = Settings {
        explain_tokens: Some(ExplainTokens::new(|token| token == "s3cret")),
        ..settings(shared(&server))
    };
    let world = World::start(Setup { policies: vec![bucket(1)], settings, ..Setup::default() }).await;
    let asked = preflight("/", APP, "GET", "X-Ratewright-Explain: s3cret\r\n");
    let answer = world.connect().await.ask(&asked).await;
    assert_eq!(
        answer.headers["x-ratewright-explain"],
        "verdict=none; the gateway answered 204 before any policy was evaluated"
    );
    let request =
        format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\nX-Ratewright-Explain: s3cret\r\n\r\n");
    for (status, verdict) in [(200, "verdict=allow"), (429, "verdict=deny")] {
        let answer = world.connect().await.ask(&request).await;
        assert_eq!((answer.status, answer.headers["access-control-allow-origin"].as_str()), (status, APP));
        assert!(answer.headers["x-ratewright-explain"].starts_with(verdict), "{answer:?}");
    }
}

/// The body is thrown away, and the connection goes on.
#[tokio::test]
async fn a_preflight_with_a_body_is_a_preflight() {
    let (server, n_requests) = generous().await;
    let world = World::of(shared(&server)).await;
    let mut client = world.connect().await;
    let asked = preflight("/", APP, "POST", "Content-Length: 5\r\n");
    for _ in 0..3 {
        assert_eq!(see_on(&mut client, &format!("{asked}GET /")).await.status, 204);
    }
    assert_eq!(n_requests.load(Ordering::SeqCst), 0);
}
