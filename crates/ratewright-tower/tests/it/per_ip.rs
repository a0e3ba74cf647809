//! `RateLimitLayer::per_ip` as a program uses it: axum on real sockets.
//!
//! Quotas are a few requests an hour, so that no test depends on how fast it runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderName, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratewright_core::Policy;
use ratewright_core::policy::{CountedResponses, Missing};
use ratewright_core::query::AttributeName;
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_lab::within;
use ratewright_tower::{HeaderStyle, Peer, Quota, RateLimitLayer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tower::ServiceExt;

use crate::world::header_text;

/// Serves a router on a free port, with the peers' addresses.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// A connection from 127.0.0.`client`.
async fn connect(server: SocketAddr, client: u8) -> TokioIo<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, client], 0))).unwrap();
    TokioIo::new(socket.connect(server).await.unwrap())
}

fn request(uri: &str) -> Request<Empty<Bytes>> {
    Request::get(uri).header("host", "a.example").body(Empty::new()).unwrap()
}

/// Sends one request over a connection of its own.
async fn send(server: SocketAddr, client: u8, request: Request<Empty<Bytes>>) -> Response<Incoming> {
    let (mut sender, connection) = http1::handshake(connect(server, client).await).await.unwrap();
    tokio::spawn(connection);
    within("a response", sender.send_request(request)).await.unwrap()
}

/// The whole body of a response.
async fn whole(response: Response<Incoming>) -> Bytes {
    within("the whole body", response.into_body().collect()).await.unwrap().to_bytes()
}

/// The statuses of requests from 127.0.0.x, one after the other.
async fn statuses<const N: usize>(server: SocketAddr, requests: [(u8, &str); N]) -> [u16; N] {
    let mut statuses = [0; N];
    for ((client, path), status) in requests.into_iter().zip(&mut statuses) {
        *status = send(server, client, request(path)).await.status().as_u16();
    }
    statuses
}

async fn hello() -> &'static str {
    "hello"
}

#[tokio::test]
async fn each_client_has_its_own_quota_and_responses_carry_the_headers() {
    let layer = RateLimitLayer::per_ip(Quota::per_hour(2));
    let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
    let response = send(server, 1, request("/")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(header_text(response.headers(), "ratelimit-policy"), r#""per-ip";q=2;w=3600"#);
    assert_eq!(header_text(response.headers(), "x-ratelimit-remaining"), "1");
    assert_eq!(whole(response).await, "hello");
    assert_eq!(statuses(server, [(1, "/"), (1, "/"), (2, "/")]).await, [200, 429, 200]);
}

#[tokio::test]
async fn a_denied_request_gets_429_with_retry_after_and_a_problem_body() {
    let layer = RateLimitLayer::per_ip(Quota::per_hour(1));
    let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
    send(server, 1, request("/")).await;
    let denied = send(server, 1, request("/")).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    let retry_after: u32 = header_text(denied.headers(), "retry-after").parse().unwrap();
    assert!((3_000..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(header_text(denied.headers(), "content-type"), "application/problem+json");
    assert_eq!(header_text(denied.headers(), "x-ratelimit-remaining"), "0");
    let body = whole(denied).await;
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&problem["status"], &problem["limitType"]), (&429.into(), &"per-ip".into()));
}

#[tokio::test]
async fn a_router_served_without_connect_info_answers_500_and_runs_no_handler() {
    let n_served = Arc::new(AtomicUsize::new(0));
    let counter = n_served.clone();
    let handler = move || async move { counter.fetch_add(1, Ordering::Relaxed).to_string() };
    let app = Router::new().route("/", get(handler)).layer(RateLimitLayer::per_ip(Quota::per_second(1_000)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    let response = send(server, 1, request("/")).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(n_served.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn forwarding_headers_count_only_from_trusted_proxies() {
    let forwarded = |client: &str| {
        let mut request = request("/");
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        request
    };
    let route = Router::new().route("/", get(hello));
    let trusting =
        RateLimitLayer::per_ip(Quota::per_hour(1)).trusted_proxies(["127.0.0.1/32".parse().unwrap()]);
    for (layer, expected) in [
        (RateLimitLayer::per_ip(Quota::per_hour(1)), [200, 429, 200, 429]),
        // 127.0.0.2 is not trusted, so its header changes nothing.
        (trusting, [200, 200, 200, 429]),
    ] {
        let server = serve(route.clone().layer(layer)).await;
        let mut statuses = [0; 4];
        let requests = [(1, "192.0.2.1"), (1, "192.0.2.2"), (2, "192.0.2.3"), (2, "192.0.2.4")];
        for ((peer, client), status) in requests.into_iter().zip(&mut statuses) {
            *status = send(server, peer, forwarded(client)).await.status().as_u16();
        }
        assert_eq!(statuses, expected);
    }
}

/// Reset HTTP settings would forget how users are identified, so policies by user would silently not apply.
#[tokio::test]
async fn trusted_proxies_keep_the_other_http_settings() {
    let rules = IdentityRules::default().user_header(Some(HeaderName::from_static("x-user")));
    let http_settings = HttpSettings::default().rules(rules).shared();
    let policy = Policy::new("per-user", Quota::per_hour(1)).unwrap().by(&[AttributeName::User]);
    let layer = RateLimitLayer::in_memory([policy])
        .unwrap()
        .with_reader(|reader| reader.http_settings(http_settings))
        .trusted_proxies(["127.0.0.1/32".parse().unwrap()]);
    let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
    let mut statuses = [0; 2];
    for status in &mut statuses {
        let mut request = request("/");
        request.headers_mut().insert("x-user", "anna".parse().unwrap());
        *status = send(server, 1, request).await.status().as_u16();
    }
    assert_eq!(statuses, [200, 429]);
}

/// Either setting keeps the other, in any order.
#[tokio::test]
async fn the_chosen_headers_are_sent_beside_trusted_proxies() {
    let layer = || RateLimitLayer::per_ip(Quota::per_hour(1));
    let proxies = || ["127.0.0.1/32".parse().unwrap()];
    let style = HeaderStyle::default().ietf(false);
    for layer in
        [layer().headers(style).trusted_proxies(proxies()), layer().trusted_proxies(proxies()).headers(style)]
    {
        let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
        for (client, status, n_headers) in
            [("192.0.2.1", 200, 3), ("192.0.2.2", 200, 3), ("192.0.2.1", 429, 4)]
        {
            let mut request = request("/");
            request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
            let response = send(server, 1, request).await;
            assert_eq!(response.status(), status, "{client}");
            let names = response.headers().keys().map(HeaderName::as_str);
            let sent: Vec<_> =
                names.filter(|name| name.contains("ratelimit") || *name == "retry-after").collect();
            assert_eq!(sent.len(), n_headers, "{sent:?}");
            assert!(sent.iter().all(|name| !name.starts_with("ratelimit")), "{sent:?}");
        }
    }
}

/// A header line that is repeated must not give a client a second quota.
#[tokio::test]
async fn a_repeated_forwarding_header_names_the_nearest_client() {
    let layer = RateLimitLayer::per_ip(Quota::per_hour(1)).trusted_proxies(["127.0.0.1/32".parse().unwrap()]);
    let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
    let mut found = [0; 2];
    for (written_by_client, status) in ["6.6.6.6", "7.7.7.7"].into_iter().zip(&mut found) {
        let mut request = request("/");
        for value in [written_by_client, "192.0.2.1"] {
            request.headers_mut().append("x-forwarded-for", value.parse().unwrap());
        }
        *status = send(server, 1, request).await.status().as_u16();
    }
    assert_eq!(found, [200, 429]);
}

#[tokio::test]
async fn two_layers_on_one_router_count_apart_and_the_tighter_one_decides() {
    let layers = |route: Router| {
        route
            .layer(RateLimitLayer::per_ip(Quota::per_hour(1)))
            .layer(RateLimitLayer::per_ip(Quota::per_hour(3)))
    };
    let server = serve(layers(Router::new().route("/", get(hello)))).await;
    let response = send(server, 1, request("/")).await;
    let limits: Vec<_> = response.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(limits, [r#""per-ip";q=1;w=3600"#, r#""per-ip";q=3;w=3600"#]);
    assert_eq!(header_text(response.headers(), "x-ratelimit-remaining"), "0", "of the tighter one");
    // The outer layer charges a request before the inner one denies it, so the third denial is its own.
    let mut found = Vec::new();
    for _ in 0..3 {
        let response = send(server, 1, request("/")).await;
        found.push((
            response.status().as_u16(),
            response.headers().get_all("ratelimit-policy").iter().count(),
        ));
    }
    assert_eq!(found, [(429, 2), (429, 2), (429, 1)]);
}

#[tokio::test]
async fn clones_of_a_layer_share_their_buckets_and_layers_of_routes_do_not() {
    let shared = RateLimitLayer::per_ip(Quota::per_hour(1));
    let app = Router::new()
        .route("/a", get(hello).layer(shared.clone()))
        .route("/b", get(hello).layer(shared))
        .route("/c", get(hello).layer(RateLimitLayer::per_ip(Quota::per_hour(1))));
    let server = serve(app).await;
    let requests = [(1, "/a"), (1, "/b"), (1, "/c"), (1, "/c"), (2, "/b")];
    assert_eq!(statuses(server, requests).await, [200, 429, 200, 429, 200]);
}

#[tokio::test]
async fn a_layer_of_a_nested_router_covers_only_its_routes() {
    let nested =
        Router::new().route("/limited", get(hello)).layer(RateLimitLayer::per_ip(Quota::per_hour(1)));
    let server = serve(Router::new().route("/free", get(hello)).nest("/api", nested)).await;
    let requests = [(1, "/api/limited"), (1, "/api/limited"), (1, "/free"), (1, "/free")];
    assert_eq!(statuses(server, requests).await, [200, 429, 200, 200]);
}

#[tokio::test]
async fn streams_of_one_http_2_connection_and_http_1_requests_share_a_quota() {
    let server =
        serve(Router::new().route("/", get(hello)).layer(RateLimitLayer::per_ip(Quota::per_hour(3)))).await;
    assert_eq!(statuses(server, [(1, "/")]).await, [200]);
    let io = connect(server, 1).await;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut found = [0; 3];
    for status in &mut found {
        let request = Request::get("http://a.example/").body(Empty::<Bytes>::new()).unwrap();
        let response = within("a response", sender.clone().send_request(request)).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        *status = response.status().as_u16();
    }
    assert_eq!(found, [200, 200, 429]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn simultaneous_requests_get_exactly_the_quota() {
    let layer = RateLimitLayer::per_ip(Quota::per_hour(50));
    let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
    let senders: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn(async move {
                let (mut sender, connection) = http1::handshake(connect(server, 1).await).await.unwrap();
                tokio::spawn(connection);
                let mut n_allowed = 0;
                for _ in 0..10 {
                    sender.ready().await.unwrap();
                    let response = sender.send_request(request("/")).await.unwrap();
                    n_allowed += u32::from(response.status() == 200);
                    response.into_body().collect().await.unwrap();
                }
                n_allowed
            })
        })
        .collect();
    let mut n_allowed = 0;
    for sender in senders {
        n_allowed += within("all responses", sender).await.unwrap();
    }
    assert_eq!(n_allowed, 50);
}

/// A failing handler is counted: otherwise a client could retry it without limit.
#[tokio::test]
async fn failures_of_the_service_count_unless_the_policy_says_otherwise() {
    let failing = || get(|| async { StatusCode::INTERNAL_SERVER_ERROR });
    let only_ok = Policy::new("only-ok", Quota::per_hour(1)).unwrap().by(&[AttributeName::Ip]);
    let only_ok = only_ok.with_count(CountedResponses::only(vec![200..=299]));
    let app = Router::new()
        .route("/counted", failing().layer(RateLimitLayer::per_ip(Quota::per_hour(1))))
        .route("/refunded", failing().layer(RateLimitLayer::in_memory([only_ok]).unwrap()));
    let requests = [(1, "/counted"), (1, "/counted"), (1, "/refunded"), (1, "/refunded")];
    assert_eq!(statuses(serve(app).await, requests).await, [500, 429, 500, 500]);
}

#[tokio::test]
async fn policies_in_memory_count_by_a_header_and_deny_requests_without_it() {
    let by_key =
        Policy::new("per-key", Quota::per_hour(1)).unwrap().by(&[AttributeName::Header("x-api-key")]);
    let layer = RateLimitLayer::in_memory([by_key.with_missing(Missing::Deny)]).unwrap();
    let server = serve(Router::new().route("/", get(hello)).layer(layer)).await;
    let mut found = [0; 4];
    for (key, status) in [Some("a"), Some("a"), Some("b"), None].into_iter().zip(&mut found) {
        let mut request = request("/");
        if let Some(key) = key {
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
        }
        *status = send(server, 1, request).await.status().as_u16();
    }
    assert_eq!(found, [200, 429, 200, 403]);
}

#[tokio::test]
async fn an_ipv6_network_of_64_bits_is_one_client() {
    let app = Router::new().route("/", get(hello)).layer(RateLimitLayer::per_ip(Quota::per_hour(1)));
    let mut found = [0; 4];
    let peers = ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:192.0.2.1"];
    for (peer, status) in peers.into_iter().zip(&mut found) {
        let peer = SocketAddr::new(IpAddr::V6(peer.parse::<Ipv6Addr>().unwrap()), 1);
        let app = app.clone().layer(MockConnectInfo(peer));
        let request = Request::get("/").body(axum::body::Body::empty()).unwrap();
        *status = app.oneshot(request).await.unwrap().status().as_u16();
    }
    assert_eq!(found, [200, 429, 200, 200]);
}

/// For servers in front of axum that know better, such as one that reads the PROXY protocol.
#[tokio::test]
async fn the_extension_peer_is_preferred_to_the_connections_address() {
    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::per_ip(Quota::per_hour(1)))
        .layer(axum::Extension(Peer(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)))));
    assert_eq!(statuses(serve(app).await, [(1, "/"), (2, "/")]).await, [200, 429]);
}

#[tokio::test]
async fn a_layer_with_another_reader_charges_the_same_buckets() {
    let layer = RateLimitLayer::per_ip(Quota::per_hour(4));
    let costly = layer.clone().with_reader(|reader| reader.cost(|_| 3.try_into().unwrap()));
    let app = Router::new().route("/", get(hello).layer(layer)).route("/costly", get(hello).layer(costly));
    let requests = [(1, "/costly"), (1, "/costly"), (1, "/"), (1, "/")];
    assert_eq!(statuses(serve(app).await, requests).await, [200, 429, 200, 429]);
}
