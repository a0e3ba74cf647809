//! Limits over real sockets, with a manual clock.

use std::net::SocketAddr;
use std::sync::Arc;

use ratewright_core::policy::{CountedResponses, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill, WindowStart};
use ratewright_core::{Micros, Policy, Quota};
use ratewright_http::identify::TokenUser;
use ratewright_http::jwt::{KeySet, TokenRules, Verifier};
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_lab::within;

use crate::harness::{Client, ScriptedServer, Setup, TestGateway, route, settings, text, wait_until};

fn bucket(name: &str, rate: &str, burst: u32) -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate.parse().unwrap()).unwrap();
    Policy::new(name, quota.with_burst(burst.try_into().unwrap()).unwrap()).unwrap().by(&[AttributeName::Ip])
}

async fn limited(server: SocketAddr, policies: Vec<Policy>) -> TestGateway {
    TestGateway::start(Setup { policies, settings: settings(route(&[server])), ..Setup::default() }).await
}

/// A login that fails.
async fn failing() -> ScriptedServer {
    ScriptedServer::start(|mut client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await
}

/// How many of fifteen logins are allowed and denied, with this pause in seconds between them.
async fn logins(policy: Policy, pause: u64) -> (usize, usize) {
    let server = failing().await;
    let gateway = limited(server.address, vec![policy]).await;
    let mut statuses = Vec::new();
    for _ in 0..15 {
        statuses.push(gateway.get("/login").await.status);
        gateway.clock.advance(Micros::from_secs(pause));
    }
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    (count(401), count(429))
}

#[tokio::test]
async fn b8_fifteen_logins_at_once_and_one_each_second_with_and_without_the_window() {
    let login = || bucket("login", "1/6s", 10);
    let window = Quota::new(Algorithm::SlidingWindow, "10/min".parse().unwrap()).unwrap();
    assert_eq!(logins(login(), 0).await, (10, 5));
    assert_eq!(logins(login().and("window", window.clone()), 0).await, (10, 5));
    assert_eq!(logins(login(), 1).await, (12, 3));
    assert_eq!(logins(login().and("window", window), 1).await, (10, 5));
}

#[tokio::test]
async fn e1_the_hundred_and_first_is_denied_by_a_bucket_and_strictly() {
    let server = ScriptedServer::echo().await;
    let strict = Quota::new(Algorithm::SlidingWindow, "100/60s".parse().unwrap()).unwrap();
    let strict = Policy::new("strict", strict).unwrap().by(&[AttributeName::Ip]);
    for (policy, comes_back_after) in [(bucket("bucket", "100/min", 100), 1), (strict, 60)] {
        let gateway = limited(server.address, vec![policy]).await;
        for n in 1..=100 {
            assert_eq!(gateway.get("/").await.status, 200, "{n}");
        }
        let denied = gateway.get("/").await;
        assert_eq!(denied.status, 429);
        assert_eq!(denied.headers["retry-after"], comes_back_after.to_string());
        gateway.clock.advance(Micros::from_secs(comes_back_after));
        assert_eq!(gateway.get("/").await.status, 200, "after retry_after");
    }
}

#[tokio::test]
async fn a_denied_request_never_reaches_the_upstream_and_keeps_its_connection() {
    let server = ScriptedServer::start(|mut client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let length = String::from_utf8_lossy(&head).to_lowercase();
            let length = length
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
            client.read_exact(length).await;
            client.send(text("seen")).await;
        }
    })
    .await;
    let gateway = limited(server.address, vec![bucket("p", "1/h", 1)]).await;
    let mut client = gateway.connect().await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nGET /x HTTP/";
    assert_eq!(client.exchange(post).await.status, 200);
    for _ in 0..3 {
        let denied = client.exchange(post).await;
        assert_eq!(
            (denied.status, denied.headers.get("connection")),
            (429, None),
            "the body is not parsed as a request"
        );
    }
    // Too long to drain: the response arrives, and the connection closes.
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
    let mut client = gateway.connect().await;
    assert_eq!(client.exchange(head).await.status, 429);
    let patient = vec![b'x'; 65_536];
    let sends = async {
        let mut n_sent = 0;
        while tokio::io::AsyncWriteExt::write_all(&mut client.stream, &patient).await.is_ok() {
            n_sent += patient.len();
            assert!(n_sent < 90_000_000, "it is cut off");
        }
    };
    within("it is cut off", sends).await;
    assert_eq!(server.n_connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failed_login_counts_and_a_good_one_does_not() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let status = if head.starts_with(b"GET /right ") { "200 OK" } else { "401 Unauthorized" };
            client.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).await;
        }
    })
    .await;
    let policy = bucket("login", "3/h", 3).with_count(CountedResponses::only(vec![401..=401]));
    let gateway = limited(server.address, vec![policy]).await;
    for _ in 0..10 {
        assert_eq!(gateway.get("/right").await.status, 200);
    }
    for status in [401, 401, 401, 429] {
        assert_eq!(gateway.get("/wrong").await.status, status);
    }
}

#[tokio::test]
async fn a_permit_is_held_until_the_response_is_read_or_the_client_disconnects() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.").await;
        client.read_until(b"never").await;
    })
    .await;
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "1/s".parse().unwrap()).unwrap();
    let permits = vec![Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])];
    let settings = settings(route(&[server.address]));
    let gateway = TestGateway::start(Setup { permits, settings, ..Setup::default() }).await;
    let mut first = gateway.connect().await;
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    first.read_until(b"half.").await.unwrap();
    let second = gateway.get("/").await;
    assert_eq!((second.status, second.headers["retry-after"].as_str()), (429, "1"));
    drop(first);
    wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
}

/// Anna's token, signed with the secret below, until 2096.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIiwiZXhwIjo0MDAwMDAwMDAwfQ.6tJmnXbQWQ2Qlg96ePo9008Hfzf1AuOYopIFrTp5qH4";

/// Verifying a token costs more than the rest of a decision: it is done once for each request, however many policies
/// count by user.
#[tokio::test]
async fn a_token_is_verified_once_for_each_request() {
    let server = ScriptedServer::echo().await;
    let at_once = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "9/s".parse().unwrap()).unwrap();
    let at_once = Policy::new("at-once", at_once).unwrap();
    for (by, n_each) in [(AttributeName::User, 1), (AttributeName::Claim("sub"), 1), (AttributeName::Ip, 0)] {
        let keys = KeySet::secret(b"a secret of at least thirty-two bytes").unwrap();
        let verifier = Arc::new(Verifier::new(keys, TokenRules::default()));
        let token = TokenUser { verifier: Arc::clone(&verifier), claim: "sub".to_owned() };
        let rules = IdentityRules::default().token(Some(token));
        let gateway = TestGateway::start(Setup {
            policies: vec![bucket("rate", "1/h", 2).by(&[by]), bucket("more", "1/h", 9).by(&[by])],
            permits: vec![at_once.clone().by(&[by])],
            settings: settings(route(&[server.address])),
            http_settings: HttpSettings::default().rules(rules),
            ..Setup::default()
        })
        .await;
        let mut client = gateway.connect().await;
        for (n, status) in (1..).zip([200, 200, 429]) {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
            assert_eq!(client.exchange(&request).await.status, status);
            assert_eq!(verifier.n_verified(), n * n_each, "by {by}");
        }
        let refused = "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a.b.c\r\n\r\n";
        gateway.connect().await.exchange(refused).await;
        assert_eq!(verifier.n_verified(), 4 * n_each, "by {by}");
    }
}

#[tokio::test]
async fn a_routes_own_policies_apply_there_and_count_by_route() {
    let server = ScriptedServer::echo().await;
    let named = bucket("mine", "1/h", 1).with_selector(Selector::Named);
    let mut route = route(&[server.address]);
    route.policies = vec!["mine".to_owned()];
    let setup = Setup { policies: vec![named], settings: settings(route), ..Setup::default() };
    let gateway = TestGateway::start(setup).await;
    assert_eq!([gateway.get("/").await.status, gateway.get("/").await.status], [200, 429]);
}

#[tokio::test]
async fn rate_limit_headers_of_the_upstream_are_kept_and_never_loosened() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client
                .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Remaining: 2\r\nRateLimit: \"own\";r=2\r\n\r\n")
                .await;
        }
    })
    .await;
    let gateway = limited(server.address, vec![bucket("p", "100/h", 100)]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = String::from_utf8(client.read_until(b"\r\n\r\n").await.unwrap()).unwrap();
    assert!(head.contains("x-ratelimit-remaining: 2\r\n"), "{head}");
    assert!(
        head.contains("ratelimit: \"own\";r=2\r\n") && head.contains("ratelimit: \"p\";r=99;t=36\r\n"),
        "{head}"
    );
}
