//! Clients that disconnect while their requests are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use ratewright_core::policy::{AfterAbort, Mode};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, WindowStart};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::Route;
use ratewright_gateway::upstream::Protocol;
use ratewright_http::address::Proxies;
use ratewright_http::{HttpSettings, IdentityRules};
use tokio::sync::watch;

use crate::harness::{ScriptedServer, Setup, TestGateway, route, route_to, settings, wait_until};
use crate::hyper_peers::{ChannelBody, HyperServer, body, connect, exchange, get, pieces, whole};

/// An upstream that does not notice that its client has left. It responds when the test says so.
struct SlowUpstream {
    server: HyperServer,
    /// Requests so far.
    n_begun: Arc<AtomicUsize>,
    response: watch::Sender<bool>,
}

impl SlowUpstream {
    async fn start() -> Self {
        let n_begun = Arc::<AtomicUsize>::default();
        let (response, may_respond) = watch::channel(false);
        let counting = Arc::clone(&n_begun);
        let server = HyperServer::start(move |request| {
            let (counting, mut may_respond) = (Arc::clone(&counting), may_respond.clone());
            async move {
                if request.uri().path() == "/read" {
                    whole(request.into_body()).await;
                }
                counting.fetch_add(1, Ordering::SeqCst);
                let _its_test_has_ended = may_respond.wait_for(|may| *may).await;
                Response::new(body("late"))
            }
        })
        .await;
        Self { server, n_begun, response }
    }

    async fn wait_for(&self, n: usize) {
        wait_until("the upstream gets it", || self.n_begun.load(Ordering::SeqCst) == n).await;
    }

    fn routes(&self) -> [Route; 2] {
        [route(&[self.server.address]), route_to(&[self.server.url()], Protocol::Http2)]
    }
}

/// So many requests at once for each value of an attribute.
fn at_once(n: u32, by: AttributeName<&str>) -> Policy {
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), format!("{n}/s").parse().unwrap());
    Policy::new("at-once", quota.unwrap()).unwrap().by(&[by])
}

async fn gateway(policy: Policy, route: Route) -> TestGateway {
    TestGateway::start(Setup { permits: vec![policy], settings: settings(route), ..Setup::default() }).await
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Waits until the gateway has noticed that so many requests were aborted.
async fn wait_until_noticed(gateway: &TestGateway, n: usize) {
    wait_until("the gateway notices", || gateway.metrics_text().contains(&format!("{n} of 499"))).await;
}

/// Sends requests over HTTP/1.1, and leaves each when the upstream has it.
async fn abort(gateway: &TestGateway, upstream: &SlowUpstream, requests: &[&str]) {
    for (n, request) in (1..).zip(requests) {
        let mut client = gateway.connect().await;
        client.send(request).await;
        upstream.wait_for(n).await;
        drop(client);
        wait_until_noticed(gateway, n).await;
    }
}

/// The same, each over HTTP/2 on a connection of its own.
async fn abort_streams(gateway: &TestGateway, upstream: &SlowUpstream, n_streams: usize) {
    for n in 1..=n_streams {
        let client = connect(gateway.address).await;
        let asked = tokio::spawn(client.clone().send_request(get("/")));
        upstream.wait_for(n).await;
        asked.abort();
        let _aborted = asked.await;
        wait_until_noticed(gateway, n).await;
    }
}

#[tokio::test]
async fn aborted_requests_stay_in_flight_until_the_upstream_responds() {
    for (is_http2, n_route) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let upstream = SlowUpstream::start().await;
        let [http1, http2] = upstream.routes();
        let route = if n_route == 0 { http1 } else { http2 };
        let gateway = gateway(at_once(3, AttributeName::Ip), route).await;
        if is_http2 {
            abort_streams(&gateway, &upstream, 3).await;
        } else {
            // Most upstreams ignore an upgrade that they do not know.
            let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
            abort(&gateway, &upstream, &[GET, upgrade, GET]).await;
        }
        assert_eq!(gateway.get("/").await.status, 429);
        assert_eq!(upstream.n_begun.load(Ordering::SeqCst), 3);
        upstream.response.send(true).unwrap();
        wait_until("the permits are back", || gateway.permits.n_keys() == 0).await;
        assert_eq!(gateway.get("/").await.text(), "late");
    }
}

#[tokio::test]
async fn a_policy_says_whether_aborted_requests_stay_in_flight() {
    let (ip, route) = (at_once(1, AttributeName::Ip), at_once(1, AttributeName::Route));
    let ip_in_shadow = ip.clone().with_mode(Mode::Shadow);
    for (policy, is_kept) in [
        (ip.clone(), true),
        (ip.with_after_abort(AfterAbort::Free), false),
        (ip_in_shadow, false),
        (route.clone(), false),
        (route.with_after_abort(AfterAbort::Keep), true),
    ] {
        let upstream = SlowUpstream::start().await;
        let gateway = gateway(policy.clone(), upstream.routes()[0].clone()).await;
        abort(&gateway, &upstream, &[GET]).await;
        if is_kept {
            assert_eq!(gateway.get("/").await.status, 429, "{policy:?}");
            upstream.response.send(true).unwrap();
        }
        wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
    }
}

#[tokio::test]
async fn a_kept_request_ends_when_the_upstream_does_not_respond_in_time() {
    let upstream = SlowUpstream::start().await;
    let mut route = upstream.routes()[0].clone();
    route.timeouts.header = Duration::from_millis(300);
    let gateway = gateway(at_once(1, AttributeName::Ip), route).await;
    abort(&gateway, &upstream, &[GET]).await;
    wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
}

/// The upstream closes the connection of the first request. A retry would only do what nobody waits for.
#[tokio::test]
async fn a_kept_request_is_not_retried() {
    let (close, closing) = watch::channel(false);
    let n_requests = Arc::<AtomicUsize>::default();
    let counting = Arc::clone(&n_requests);
    let server = ScriptedServer::start(move |mut client, _| {
        let (mut closing, counting) = (closing.clone(), Arc::clone(&counting));
        async move {
            client.read_until(b"\r\n\r\n").await;
            counting.fetch_add(1, Ordering::SeqCst);
            let _its_test_has_ended = closing.wait_for(|closing| *closing).await;
        }
    })
    .await;
    let gateway = gateway(at_once(1, AttributeName::Ip), route(&[server.address])).await;
    let mut client = gateway.connect().await;
    client.send(GET).await;
    let n_connections = || server.n_connections.load(Ordering::SeqCst);
    wait_until("the upstream gets it", || n_requests.load(Ordering::SeqCst) == 1).await;
    drop(client);
    wait_until_noticed(&gateway, 1).await;
    assert_eq!(gateway.get("/").await.status, 429);
    close.send(true).unwrap();
    wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
    assert_eq!(n_connections(), 1);
}

#[tokio::test]
async fn an_unfinished_body_ends_at_once_and_a_finished_one_is_kept() {
    for (path, sent, is_kept) in [("/read", "1234", true), ("/", "123", false)] {
        let upstream = SlowUpstream::start().await;
        let gateway = gateway(at_once(1, AttributeName::Ip), upstream.routes()[0].clone()).await;
        let mut client = gateway.connect().await;
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{sent}")).await;
        upstream.wait_for(1).await;
        drop(client);
        wait_until_noticed(&gateway, 1).await;
        if is_kept {
            assert_eq!(gateway.get("/").await.status, 429, "{sent}");
            upstream.response.send(true).unwrap();
        }
        wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
    }
}

/// The same over HTTP/2, where a client resets the stream of an unfinished body.
#[tokio::test]
async fn a_stream_with_an_unfinished_body_ends_at_once() {
    let upstream = SlowUpstream::start().await;
    let gateway = gateway(at_once(1, AttributeName::Ip), upstream.routes()[1].clone()).await;
    let client = connect(gateway.address).await;
    let (sender, unfinished) = pieces();
    let request: Request<ChannelBody> = Request::post("http://a/").body(unfinished).unwrap();
    let asked = tokio::spawn(client.clone().send_request(request));
    upstream.wait_for(1).await;
    asked.abort();
    drop((asked.await, sender));
    wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
}

/// An attacker needs a new connection for each hundred aborted requests. A trusted proxy relays those of many clients.
#[tokio::test]
async fn a_connection_with_many_aborted_requests_is_closed_unless_it_is_a_trusted_proxys() {
    for is_proxy in [false, true] {
        let upstream = SlowUpstream::start().await;
        let trusted = if is_proxy { vec!["127.0.0.1/32".parse().unwrap()] } else { Vec::new() };
        let rules = IdentityRules::default().proxies(Proxies::default().trusted(trusted));
        let gateway = TestGateway::start(Setup {
            permits: vec![at_once(1_000, AttributeName::Ip)],
            settings: settings(upstream.routes()[1].clone()),
            http_settings: HttpSettings::default().rules(rules),
            ..Setup::default()
        })
        .await;
        let client = connect(gateway.address).await;
        for n in 1..=101 {
            let asked = tokio::spawn(client.clone().send_request(get("/")));
            upstream.wait_for(n).await;
            asked.abort();
            let _aborted = asked.await;
        }
        if is_proxy {
            upstream.response.send(true).unwrap();
            assert_eq!(exchange(&client, get("/")).await.0, 200);
        } else {
            wait_until("the connection closes", || client.is_closed()).await;
        }
    }
}
