//! Cross-origin requests: the headers that the gateway sends itself, and in place of the upstream.

mod gateway_responses;
mod interactions;
mod preflights;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::cors::{AllowedHeaders, Cors, CorsRules};
use ratewright_gateway::route::{Match, PathPattern};
use ratewright_gateway::{GatewaySettings, Route, RouteTable};
use ratewright_http::path::Case;

use crate::harness::{Client, ScriptedServer, TestGateway, route, settings, text};

pub(crate) const APP: &str = "https://app.example.com";
const EVIL: &str = "https://evil.example";

/// All headers that scripts may always read.
const EXPOSED: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After, X-Correlation-Id";

fn rules() -> CorsRules {
    CorsRules {
        origins: vec![APP.parse().unwrap(), "https://*.partner.example".parse().unwrap()],
        methods: vec![Method::GET, Method::POST],
        headers: AllowedHeaders::Listed(vec!["content-type".parse().unwrap()]),
        expose: Vec::new(),
        credentials: true,
        max_age: Duration::from_secs(600),
    }
}

fn cors(rules: CorsRules) -> Option<Arc<Cors>> {
    Some(Arc::new(Cors::new(rules).unwrap()))
}

/// A route for everything, whose responses the page may read.
fn shared(server: &ScriptedServer) -> Route {
    Route { cors: cors(rules()), ..route(&[server.address]) }
}

fn on(path: &str, methods: &[Method]) -> Match {
    let paths = vec![PathPattern::new(path, Case::Sensitive).unwrap()];
    Match { paths, methods: methods.to_vec(), ..Match::default() }
}

fn routes(routes: Vec<(Match, Route)>) -> GatewaySettings {
    GatewaySettings { routes: RouteTable::new(routes).unwrap(), ..GatewaySettings::default() }
}

fn bucket(burst: u32) -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/h".parse().unwrap()).unwrap();
    Policy::new("p", quota.with_burst(burst.try_into().unwrap()).unwrap()).unwrap().by(&[AttributeName::Ip])
}

/// A server that counts requests, and lets every origin read its responses.
async fn generous() -> (ScriptedServer, Arc<AtomicUsize>) {
    let n_requests = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&n_requests);
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let n_requests = Arc::clone(&counting);
        async move {
            while let Some(head) = client.read_until(b"\r\n\r\n").await {
                n_requests.fetch_add(1, Ordering::SeqCst);
                let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
                let head = "Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Origin: https://evil.example\r\n\
                    Access-Control-Allow-Methods: DELETE\r\nAccess-Control-Expose-Headers: ETag\r\n\
                    Access-Control-Expose-Headers: Retry-After\r\nVary: Accept-Encoding\r\nContent-Length";
                let length = if line.starts_with("HEAD") { "0".to_owned() } else { line.len().to_string() };
                let body = if line.starts_with("HEAD") { "" } else { &line };
                client.send(format!("HTTP/1.1 200 OK\r\n{head}: {length}\r\n\r\n{body}")).await;
            }
        }
    });
    (server.await, n_requests)
}

/// The head of a response: its status and header lines.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: u16,
    lines: BTreeMap<String, Vec<String>>,
}

impl Seen {
    fn of(head: &str) -> Self {
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            if name.starts_with("access-control-") || name == "vary" {
                lines.entry(name.to_owned()).or_default().push(value.to_owned());
            }
        }
        Self { status, lines }
    }

    /// The lines of one header.
    fn get(&self, name: &str) -> Vec<&str> {
        self.lines.get(name).into_iter().flatten().map(String::as_str).collect()
    }

    fn says_nothing(&self) -> bool {
        self.lines.keys().all(|name| name == "vary")
    }

    #[track_caller]
    fn assert_readable(&self, status: u16, origin: &str) {
        assert_eq!(self.status, status);
        assert_eq!(self.get("access-control-allow-origin"), [origin], "{self:?}");
        assert_eq!(self.get("access-control-allow-credentials"), ["true"]);
        assert_eq!(self.get("access-control-expose-headers"), [EXPOSED]);
        let vary = self.get("vary");
        assert_eq!(vary.len(), 1, "{self:?}");
        assert!(vary[0].split(", ").filter(|name| *name == "Origin").count() == 1, "{vary:?}");
    }
}

/// Sends one request on a new connection, and reads the response head.
async fn see(gateway: &TestGateway, request: &str) -> Seen {
    see_on(&mut gateway.connect().await, request).await
}

async fn see_on(client: &mut Client, request: &str) -> Seen {
    client.send(request).await;
    Seen::of(&String::from_utf8(client.read_until(b"\r\n\r\n").await.expect("a response")).unwrap())
}

fn get(origin: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n\r\n")
}

fn preflight(path: &str, origin: &str, method: &str, more: &str) -> String {
    format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: {method}\r\n{more}\r\n"
    )
}

#[tokio::test]
async fn cors_headers_of_the_upstream_are_replaced() {
    let (server, _) = generous().await;
    let gateway = TestGateway::with_route(shared(&server)).await;
    for origin in [APP, "https://shop.partner.example"] {
        let seen = see(&gateway, &get(origin)).await;
        seen.assert_readable(200, origin);
        assert_eq!(seen.get("vary"), ["Accept-Encoding, Origin"]);
        assert_eq!(seen.lines.len(), 4, "{seen:?}");
    }
    let head = format!("HEAD / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\n\r\n");
    see(&gateway, &head).await.assert_readable(200, APP);
    let none = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let two = format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {APP}\r\nOrigin: {APP}\r\n\r\n");
    for request in [none, two, get(EVIL), get("null"), get("https://evilpartner.example")] {
        let seen = see(&gateway, &request).await;
        assert!(seen.status == 200 && seen.says_nothing(), "{request} {seen:?}");
        assert_eq!(seen.get("vary"), ["Accept-Encoding, Origin"], "a cache must keep both apart");
    }
}

#[tokio::test]
async fn a_route_without_cors_passes_everything_on() {
    let (server, n_requests) = generous().await;
    let gateway = TestGateway::with_route(route(&[server.address])).await;
    let seen = see(&gateway, &get(APP)).await;
    assert_eq!(seen.get("access-control-allow-origin"), ["*", EVIL]);
    assert_eq!(seen.get("vary"), ["Accept-Encoding"]);
    let seen = see(&gateway, &preflight("/", APP, "PUT", "")).await;
    assert_eq!((seen.status, seen.get("access-control-allow-methods")), (200, vec!["DELETE"]));
    assert_eq!(n_requests.load(Ordering::SeqCst), 2, "the preflight too");
}

/// Every origin is allowed, so responses do not depend on it.
#[tokio::test]
async fn a_star_is_sent_without_vary() {
    let (server, _) = generous().await;
    let any = CorsRules { origins: vec!["*".parse().unwrap()], credentials: false, ..rules() };
    let gateway = TestGateway::with_route(Route { cors: cors(any), ..route(&[server.address]) }).await;
    for request in [get(EVIL), get("null"), "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()] {
        let seen = see(&gateway, &request).await;
        assert_eq!(seen.get("access-control-allow-origin"), ["*"]);
        assert_eq!(seen.get("access-control-allow-credentials"), [""; 0]);
        assert_eq!(seen.get("vary"), ["Accept-Encoding"]);
    }
}

#[tokio::test]
async fn vary_star_of_an_upstream_stays() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send("HTTP/1.1 200 OK\r\nVary: *\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let gateway = TestGateway::with_route(shared(&server)).await;
    assert_eq!(see(&gateway, &get(APP)).await.get("vary"), ["*"]);
}

#[tokio::test]
async fn a_reload_changes_and_removes_it_on_open_connections() {
    let (server, n_requests) = generous().await;
    let gateway = TestGateway::with_route(shared(&server)).await;
    let mut client = gateway.connect().await;
    let asked = preflight("/", APP, "POST", "");
    assert_eq!(see_on(&mut client, &asked).await.status, 204);
    let other = CorsRules { origins: vec![EVIL.parse().unwrap()], ..rules() };
    gateway.reload(settings(Route { cors: cors(other), ..route(&[server.address]) }));
    let seen = see_on(&mut client, &asked).await;
    assert!(seen.status == 403 && seen.says_nothing(), "{seen:?}");
    see(&gateway, &get(EVIL)).await.assert_readable(200, EVIL);
    gateway.reload(settings(route(&[server.address])));
    let before = n_requests.load(Ordering::SeqCst);
    let seen = see(&gateway, &asked).await;
    assert_eq!((seen.status, n_requests.load(Ordering::SeqCst)), (200, before + 1), "it is forwarded again");
}

/// The server of other tests.
async fn plain() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send(text("ok")).await;
        }
    })
    .await
}
