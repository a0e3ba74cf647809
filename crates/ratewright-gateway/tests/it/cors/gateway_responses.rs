//! Responses of the gateway itself: a script must be able to read why it was rejected.

use ratewright_core::policy::Missing;
use ratewright_core::quota::WindowStart;
use ratewright_gateway::Upstream;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::{Balance, Health, Protocol};

use super::*;
use crate::harness::Setup;

async fn started(policies: Vec<Policy>, permits: Vec<Policy>, route: Route) -> TestGateway {
    TestGateway::start(Setup { policies, permits, settings: settings(route), ..Setup::default() }).await
}

#[tokio::test]
async fn denials_have_cors_headers() {
    let server = plain().await;
    let gateway = started(vec![bucket(1)], Vec::new(), shared(&server)).await;
    see(&gateway, &get(APP)).await.assert_readable(200, APP);
    see(&gateway, &get(APP)).await.assert_readable(429, APP);
    let seen = see(&gateway, &get(EVIL)).await;
    assert!(seen.status == 429 && seen.says_nothing(), "{seen:?}");
    let quiet = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.").await;
        client.read_until(b"never").await;
    })
    .await;
    let one = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "1/s".parse().unwrap()).unwrap();
    let permits = vec![Policy::new("at-once", one).unwrap().by(&[AttributeName::Ip])];
    let gateway = started(Vec::new(), permits, shared(&quiet)).await;
    let mut first = gateway.connect().await;
    see_on(&mut first, &get(APP)).await.assert_readable(200, APP);
    see(&gateway, &get(APP)).await.assert_readable(429, APP);
    assert_eq!(
        see(&gateway, &preflight("/", APP, "POST", "")).await.status,
        204,
        "a preflight needs no permit"
    );
}

#[tokio::test]
async fn a_denial_in_shadow_mode_changes_nothing() {
    let server = plain().await;
    let policy = bucket(1).with_mode(ratewright_core::policy::Mode::Shadow);
    let gateway = started(vec![policy], Vec::new(), shared(&server)).await;
    for _ in 0..3 {
        see(&gateway, &get(APP)).await.assert_readable(200, APP);
    }
}

#[tokio::test]
async fn rejections_have_cors_headers() {
    let server = plain().await;
    let policy = bucket(9).by(&[AttributeName::Header("x-api-key")]).with_missing(Missing::Deny);
    let gateway = started(vec![policy], Vec::new(), shared(&server)).await;
    see(&gateway, &get(APP)).await.assert_readable(403, APP);
    let twice = format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\nX-Api-Key: a\r\nX-Api-Key: b\r\n\r\n");
    see(&gateway, &twice).await.assert_readable(400, APP);
}

/// Without a route, only the gateway's rules apply.
#[tokio::test]
async fn responses_without_a_route_follow_the_gateways_rules() {
    let server = plain().await;
    let only = |method: Method, cors| GatewaySettings {
        cors,
        ..routes(vec![(on("/a", &[method]), Route { cors: None, ..route(&[server.address]) })])
    };
    let with =
        TestGateway::start(Setup { settings: only(Method::GET, cors(rules())), ..Setup::default() }).await;
    let without = TestGateway::start(Setup { settings: only(Method::GET, None), ..Setup::default() }).await;
    for (line, more, status) in [
        ("GET /b", "", 404),
        ("PUT /a", "", 405),
        ("GET /a%00", "", 400),
        ("GET /a", "Authorization: a\r\nAuthorization: b\r\n", 400),
        ("GET /a", "Content-Length: 1\r\nContent-Length: 1\r\n", 400),
    ] {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\n{more}\r\n");
        see(&with, &request).await.assert_readable(status, APP);
        let seen = see(&without, &request).await;
        assert_eq!((seen.status, seen.lines.len()), (status, 0), "{request}");
    }
    let seen = see(&with, "GET /a HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example.com\r\n\r\n").await;
    assert_eq!((seen.status, seen.lines.len()), (200, 0), "the route has none");
}

/// The route was found, so its rules apply and not the gateway's.
#[tokio::test]
async fn a_rejected_method_override_follows_the_routes_rules() {
    let server = plain().await;
    let to = |id: &str, cors| Route { id: id.into(), cors, ..route(&[server.address]) };
    let gateway = TestGateway::start(Setup {
        settings: routes(vec![
            (on("/a", &[Method::POST]), to("post", cors(rules()))),
            (on("/a", &[Method::GET]), to("get", None)),
        ]),
        ..Setup::default()
    })
    .await;
    let request = |method: &str, other: &str| {
        format!(
            "{method} /a HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\nX-HTTP-Method-Override: {other}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    see(&gateway, &request("POST", "GET")).await.assert_readable(400, APP);
    let seen = see(&gateway, &request("GET", "POST")).await;
    assert_eq!((seen.status, seen.lines.len()), (400, 0));
}

#[tokio::test]
async fn body_errors_have_cors_headers() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"never").await;
    })
    .await;
    let short = Route { body_max: 3, ..shared(&server) };
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\nContent-Length: 4\r\n\r\n");
    see(&TestGateway::with_route(short).await, &(post.clone() + "1234")).await.assert_readable(413, APP);
    let idle = Timeouts { idle: Duration::from_millis(50), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts: idle, ..shared(&server) }).await;
    see(&gateway, &post).await.assert_readable(408, APP);
}

#[tokio::test]
async fn upstream_failures_have_cors_headers() {
    let closing = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
    })
    .await;
    see(&TestGateway::with_route(shared(&closing)).await, &get(APP)).await.assert_readable(502, APP);
    let none = Upstream::new(Vec::new(), Balance::default(), Protocol::Http1, Health::default());
    let nobody = Route { upstream: Arc::new(none), ..shared(&closing) };
    see(&TestGateway::with_route(nobody).await, &get(APP)).await.assert_readable(503, APP);
    let silent = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"never").await;
    })
    .await;
    let hasty = Timeouts { header: Duration::from_millis(50), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts: hasty, ..shared(&silent) }).await;
    see(&gateway, &get(APP)).await.assert_readable(504, APP);
}
