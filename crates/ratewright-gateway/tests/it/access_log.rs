//! The access log.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::GatewaySettings;
use ratewright_gateway::access_log::{AccessLog, AccessLogEntry};

use crate::harness::{ScriptedServer, Setup, TestGateway, route, settings, wait_until};

/// Collects entries.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl AccessLog for Lines {
    fn record(&self, entry: &AccessLogEntry<'_>) {
        let AccessLogEntry { client, method, path, id, version, .. } = entry;
        let (host, route) = (entry.host.unwrap_or("-"), entry.route.unwrap_or("-"));
        let status = entry.status.map_or("-".to_owned(), |status| status.as_u16().to_string());
        let agent = String::from_utf8_lossy(entry.user_agent.unwrap_or(b"-"));
        let line = format!("{client} {method} {host} {path} {route} {status} {id} {agent:?} {version:?}");
        self.0.lock().unwrap().push(line);
    }
}

impl Lines {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn logged(server: SocketAddr) -> (TestGateway, Arc<Lines>) {
    let lines = Arc::new(Lines::default());
    let settings = GatewaySettings { has_access_log: true, ..settings(route(&[server])) };
    let log: Arc<dyn AccessLog> = lines.clone();
    (TestGateway::start(Setup { settings, access_log: Some(log), ..Setup::default() }).await, lines)
}

async fn check(request: &str, expected: Expect) {
    let (gateway, lines) = logged(ScriptedServer::echo().await.address).await;
    gateway.connect().await.exchange(request).await;
    expected.assert_eq(&lines.all().join("\n"));
}

#[tokio::test]
async fn a_request_is_logged_as_forwarded_and_without_its_query() {
    check(
        "GET //a/./b%20c/?password=secret HTTP/1.1\r\nHost: Shop.Example:8000\r\nX-Request-Id: r-1\r\nUser-Agent: x\\\"yä\r\n\r\n",
        expect![[r#"127.0.0.1 GET shop.example /a/b%20c/ all 200 r-1 "x\\\"yä" HTTP/1.1"#]],
    )
    .await;
}

#[tokio::test]
async fn a_request_without_a_route_is_logged() {
    check(
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nX-Request-Id: r-2\r\n\r\n",
        expect![[r#"127.0.0.1 CONNECT a  - 400 r-2 "-" HTTP/1.1"#]],
    )
    .await;
    check(
        "POST /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-3\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        expect![[r#"127.0.0.1 POST a /x - 400 r-3 "-" HTTP/1.1"#]],
    )
    .await;
}

#[tokio::test]
async fn a_client_that_disconnects_is_logged_without_a_status() {
    let server = ScriptedServer::start(|mut client, _| async move {
        client.read_until(b"never").await;
    })
    .await;
    let (gateway, lines) = logged(server.address).await;
    let mut client = gateway.connect().await;
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-4\r\n\r\n").await;
    wait_until("it is in flight", || server.n_connections.load(std::sync::atomic::Ordering::SeqCst) == 1)
        .await;
    drop(client);
    wait_until("it is logged", || !lines.all().is_empty()).await;
    assert_eq!(lines.all(), [r#"127.0.0.1 GET a /slow all - r-4 "-" HTTP/1.1"#]);
}

/// Collects the policies and verdicts of requests.
#[derive(Default)]
struct Deciding(Mutex<Vec<(Option<String>, bool, u16)>>);

impl AccessLog for Deciding {
    fn record(&self, entry: &AccessLogEntry<'_>) {
        let status = entry.status.map_or(0, |status| status.as_u16());
        self.0.lock().unwrap().push((entry.policy.map(str::to_owned), entry.is_denied, status));
    }
}

#[tokio::test]
async fn the_deciding_policy_is_logged() {
    let server = ScriptedServer::echo().await;
    let lines = Arc::new(Deciding::default());
    let log: Arc<dyn AccessLog> = lines.clone();
    let settings = GatewaySettings { has_access_log: true, ..settings(route(&[server.address])) };
    let quota =
        |rate: &str| Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate.parse().unwrap()).unwrap();
    let policies = ["wide", "tight"].map(|name| {
        let rate = if name == "wide" { "100/h" } else { "2/h" };
        Policy::new(name, quota(rate)).unwrap().by(&[AttributeName::Ip])
    });
    let setup = Setup { policies: policies.to_vec(), settings, access_log: Some(log), ..Setup::default() };
    let gateway = TestGateway::start(setup).await;
    for _ in 0..3 {
        gateway.get("/").await;
    }
    gateway.connect().await.exchange("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").await;
    let tight = || Some("tight".to_owned());
    let expected = [(tight(), false, 200), (tight(), false, 200), (tight(), true, 429), (None, false, 400)];
    assert_eq!(*lines.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_reload_switches_it_on_and_off() {
    let server = ScriptedServer::echo().await;
    let (gateway, lines) = logged(server.address).await;
    for (has_access_log, n) in [(false, 0), (true, 1), (false, 1), (true, 2)] {
        gateway.reload(GatewaySettings { has_access_log, ..settings(route(&[server.address])) });
        assert_eq!(gateway.get("/").await.status, 200);
        assert_eq!(lines.all().len(), n);
    }
}
