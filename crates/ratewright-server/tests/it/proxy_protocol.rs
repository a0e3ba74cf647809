//! The PROXY protocol in front of the REST listener: callers behind a local load balancer are not local.

use std::time::Duration;

use ratewright_listen::{ConnectionSetup, ProxyProtocol};
use ratewright_server::HttpListenerSettings;

use crate::test_server::{LAST_CHECK, TestServer, read_to_end, send};

/// Starts a server that requires the PROXY protocol from local load balancers.
async fn start(listening: HttpListenerSettings) -> (TestServer, ProxyProtocol) {
    let proxy = ProxyProtocol::new("listen.api", vec!["127.0.0.0/8".parse().unwrap()]);
    let setup = ConnectionSetup { proxy_protocol: Some(proxy.clone()), tls: None };
    (TestServer::start(listening, setup).await, proxy)
}

/// The response to a check that follows these bytes.
async fn response_after(server: &TestServer, before: &str) -> String {
    let mut stream = server.connect().await;
    send(&mut stream, format!("{before}{LAST_CHECK}").as_bytes()).await.unwrap_or_default()
}

fn is_unauthorized(response: &str) -> bool {
    response.starts_with("HTTP/1.1 401 ")
}

/// Why connections were rejected, and how often.
fn rejected(proxy: &ProxyProtocol) -> Vec<(&'static str, u64)> {
    proxy.n_refused().filter(|(_, n)| *n > 0).map(|(refusal, n)| (refusal.name(), n)).collect()
}

#[tokio::test]
async fn callers_behind_a_local_load_balancer_are_not_local() {
    let (server, proxy) = start(HttpListenerSettings::default()).await;
    for stranger in ["TCP4 192.0.2.7 10.0.0.9", "TCP6 2001:db8::7 ::1", "TCP6 ::ffff:192.0.2.7 ::1"] {
        let response = response_after(&server, &format!("PROXY {stranger} 40000 8080\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 401 "), "{stranger}: {response}");
    }
    for forged in
        ["TCP4 127.0.0.1 127.0.0.1", "TCP6 ::1 ::1", "TCP6 ::ffff:127.0.0.1 ::1", "TCP4 0.0.0.0 10.0.0.9"]
    {
        let response = response_after(&server, &format!("PROXY {forged} 40000 8080\r\n")).await;
        assert_eq!(response, "", "{forged}");
    }
    // Without an address: the balancer's own health check, or a client of a unix socket.
    assert!(is_unauthorized(&response_after(&server, "PROXY UNKNOWN\r\n").await));
    assert!(is_unauthorized(&response_after(&server, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").await));
    assert_eq!(response_after(&server, "").await, "", "without a header no request is served");
    assert_eq!(rejected(&proxy), [("missing", 1), ("address", 4)]);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_without_a_header_times_out() {
    let head_within = Duration::from_millis(500);
    let (server, proxy) =
        start(HttpListenerSettings { connections_max: 1, head_within, ..HttpListenerSettings::default() })
            .await;
    let mut silent = server.connect().await;
    assert!(
        is_unauthorized(&response_after(&server, "PROXY UNKNOWN\r\n").await),
        "the silent client's slot is free"
    );
    assert_eq!(read_to_end(&mut silent).await.unwrap_or_default(), "");
    assert_eq!(rejected(&proxy), [("timeout", 1)]);
    server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_proxy_headers() {
    let hour = Duration::from_secs(3_600);
    let (server, _) = start(HttpListenerSettings {
        head_within: hour,
        drain_timeout: hour,
        ..HttpListenerSettings::default()
    })
    .await;
    let mut silent = server.connect().await;
    assert!(is_unauthorized(&response_after(&server, "PROXY UNKNOWN\r\n").await));
    server.stop().await;
    assert_eq!(read_to_end(&mut silent).await.unwrap_or_default(), "");
}
