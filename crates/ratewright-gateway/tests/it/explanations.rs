//! Explanations by header, and problems in place of hyper's own responses.

use http::Request;
use ratewright_core::policy::{Condition, Pattern, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::{ExplainTokens, GatewaySettings};
use ratewright_http::{HttpSettings, IdentityRules, address::Proxies};

use crate::harness::{Client, RawResponse, ScriptedServer, Setup, TestGateway, route, settings, text};
use crate::hyper_peers::{body, connect};

const HEADER: &str = "x-ratewright-explain";

fn bucket(name: &str, burst: u32) -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/h".parse().unwrap()).unwrap();
    Policy::new(name, quota.with_burst(burst.try_into().unwrap()).unwrap()).unwrap().by(&[AttributeName::Ip])
}

fn on(path: &str) -> Selector {
    let pattern = Pattern::new(path, AttributeName::<&str>::Path.separator()).unwrap();
    Selector::When(Condition::default().and_fits(AttributeName::Path, vec![pattern]))
}

/// An upstream that responds with the request head.
async fn showing_heads() -> ScriptedServer {
    ScriptedServer::start(|mut client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            client.send(text(&String::from_utf8_lossy(&head))).await;
        }
    })
    .await
}

async fn gateway(server: &ScriptedServer, policies: Vec<Policy>, trusted: &[&str]) -> TestGateway {
    let trusted = trusted.iter().map(|network| network.parse().unwrap()).collect();
    let rules = IdentityRules::default().proxies(Proxies::default().trusted(trusted));
    let settings = GatewaySettings {
        explain_tokens: Some(ExplainTokens::new(|token| token == "s3cret")),
        ..settings(route(&[server.address]))
    };
    let http_settings = HttpSettings::default().rules(rules);
    TestGateway::start(Setup { policies, settings, http_settings, ..Setup::default() }).await
}

async fn send(gateway: &TestGateway, path: &str, headers: &str) -> RawResponse {
    gateway.connect().await.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).await
}

#[tokio::test]
async fn a_request_with_a_token_is_explained_and_charged() {
    let server = showing_heads().await;
    let policies = vec![bucket("all", 2), bucket("admin", 5).with_selector(on("/admin/**"))];
    let gateway = gateway(&server, policies, &[]).await;
    let explained = send(&gateway, "/x", "X-Ratewright-Explain: s3cret\r\n").await;
    assert_eq!(explained.status, 200);
    assert_eq!(
        explained.headers[HEADER],
        "verdict=allow policy=all; ip 127.0.0.1 from the connection; \
         all: applies, it covers the request, 1 of 2 left; \
         admin: not_covered, path is /x, which does not match /admin/**"
    );
    assert_eq!(explained.headers["cache-control"], "no-store");
    assert!(!explained.text().to_lowercase().contains("explain"), "{}", explained.text());
    assert_eq!(send(&gateway, "/x", "").await.status, 200);
    let denied = send(&gateway, "/x", "X-Ratewright-Explain: s3cret\r\n").await;
    assert_eq!(denied.status, 429, "it is a real request: both before it were charged");
    assert!(
        denied.headers[HEADER].contains("verdict=deny policy=all")
            && denied.headers[HEADER].contains("0 of 2 left, retry after 3600 s"),
        "{}",
        denied.headers[HEADER]
    );
}

#[tokio::test]
async fn the_explain_header_never_reaches_the_upstream_and_needs_a_valid_token() {
    let server = showing_heads().await;
    let gateway = gateway(&server, vec![bucket("all", 100)], &[]).await;
    for headers in [
        "X-Ratewright-Explain: wrong\r\n",
        "X-Ratewright-Explain: \r\n",
        "X-Ratewright-Explain: \u{e4}\r\n",
        "X-Ratewright-Explain: s3cret\r\nX-Ratewright-Explain: s3cret\r\n",
        "x_ratewright_explain: s3cret\r\n",
    ] {
        let response = send(&gateway, "/", headers).await;
        assert_eq!(response.status, 200, "{headers}");
        assert_eq!(response.headers.get(HEADER), None, "{headers}");
        assert!(!response.text().to_lowercase().contains("explain"), "{headers}: {}", response.text());
    }
    let closed = GatewaySettings { explain_tokens: None, ..GatewaySettings::clone(&gateway.settings()) };
    gateway.reload(closed);
    let response = send(&gateway, "/", "X-Ratewright-Explain: s3cret\r\n").await;
    assert_eq!((response.status, response.headers.get(HEADER)), (200, None), "no token is configured");
    assert!(!response.text().to_lowercase().contains("explain"));
}

#[tokio::test]
async fn an_explanation_says_which_header_made_two_clients_look_like_one() {
    let server = showing_heads().await;
    let forwarded = "X-Forwarded-For: 203.0.113.7\r\nX-Ratewright-Explain: s3cret\r\n";
    let untrusting = gateway(&server, vec![bucket("all", 9)], &[]).await;
    let explained = send(&untrusting, "/", forwarded).await;
    assert!(
        explained.headers[HEADER].contains(
            "ip 127.0.0.1 from the connection; X-Forwarded-For is ignored, since this address is not in clients.trusted_proxies"
        ),
        "{}",
        explained.headers[HEADER]
    );
    let trusting = gateway(&server, vec![bucket("all", 9)], &["127.0.0.0/8"]).await;
    let explained = send(&trusting, "/", forwarded).await;
    assert!(
        explained.headers[HEADER].contains(
            "ip 203.0.113.7 from X-Forwarded-For, entry 1 of 1 from the right, sent by a trusted proxy"
        ),
        "{}",
        explained.headers[HEADER]
    );
}

#[tokio::test]
async fn an_explanation_is_bounded_and_hides_secrets() {
    let server = showing_heads().await;
    let by_key = bucket("by-key", 9).by(&[AttributeName::Header("x-api-key")]);
    let many = (0..200).map(|n| bucket(&format!("policy-{n}"), 9).with_selector(on("/elsewhere")));
    let gateway = gateway(&server, many.chain([by_key]).collect(), &[]).await;
    let headers = "X-Api-Key: topsecret\r\nX-Ratewright-Explain: s3cret\r\n";
    let explanation = send(&gateway, "/\u{e4}", headers).await.headers[HEADER].clone();
    assert!(explanation.len() <= 2_048, "{}", explanation.len());
    assert!(
        explanation.contains("by-key: applies") && explanation.contains("; policies left out: "),
        "{explanation}"
    );
    assert!(!explanation.contains("topsecret"), "{explanation}");
}

#[tokio::test]
async fn a_request_without_a_route_and_one_over_http2_are_explained_too() {
    let server = showing_heads().await;
    let gateway = gateway(&server, vec![bucket("all", 9)], &[]).await;
    let lost = gateway
        .connect()
        .await
        .exchange("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nX-Ratewright-Explain: s3cret\r\n\r\n")
        .await;
    assert_eq!(
        lost.headers[HEADER],
        "verdict=none; the gateway answered 400 before any policy was evaluated"
    );
    let client = connect(gateway.address).await;
    let request = Request::get("http://a/x").header(HEADER, "s3cret").body(body("")).unwrap();
    let response = crate::hyper_peers::send(&client, request).await;
    let explanation = response.headers()[HEADER].to_str().unwrap();
    assert!(explanation.starts_with("verdict=allow policy=all"), "{explanation}");
}

/// Requests that hyper rejects.
#[tokio::test]
async fn a_request_that_cannot_be_parsed_gets_a_problem_with_an_id() {
    let server = ScriptedServer::echo().await;
    let gateway = gateway(&server, vec![], &[]).await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(40_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-A: b\r\n".repeat(200));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", 400),
        ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400),
        (&*long, 431),
        (&*many, 431),
    ] {
        for before in ["", "GET /first HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let mut client = gateway.connect().await;
            if !before.is_empty() {
                assert_eq!(client.exchange(before).await.status, 200);
            }
            check_problem(&mut client, request, status).await;
        }
    }
}

async fn check_problem(client: &mut Client, request: &str, status: u16) {
    let line = request.lines().next().unwrap();
    let response = client.exchange(request).await;
    assert_eq!(response.status, status, "{line}");
    assert_eq!(response.headers["content-type"], "application/problem+json", "{line}");
    let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(problem["status"], status, "{line}");
    assert_eq!(problem["correlationId"], *response.headers["x-correlation-id"], "{line}");
    assert_eq!(client.response().await, None, "the connection ends");
}

/// An upstream's response may look exactly like hyper's.
#[tokio::test]
async fn a_bare_400_of_an_upstream_stays_as_it_is() {
    let bare = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let server = ScriptedServer::start(move |mut client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send(bare).await;
        }
    })
    .await;
    let gateway = gateway(&server, vec![], &[]).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        let response = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!((response.status, response.text().as_str()), (400, ""));
        assert_eq!(response.headers.get("content-type"), None);
    }
    check_problem(&mut client, "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400).await;
}
