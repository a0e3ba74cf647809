//! HTTP/2 to clients and upstreams: concurrent streams, GOAWAY, and resets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use hyper::client::conn::http2::SendRequest;
use ratewright_gateway::route::HostPolicy;
use ratewright_gateway::upstream::Protocol;
use ratewright_gateway::{GatewaySettings, Route};
use ratewright_http::address::Proxies;
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_lab::within;
use tokio::task::JoinSet;

use crate::harness::{Client, ScriptedServer, Setup, TestGateway, route, route_to, settings, wait_until};
use crate::hyper_peers::{
    ChannelBody, HyperServer, InFlightCount, body, connect, exchange, get, pieces, send, whole,
};

/// An upstream that responds with method, path and body.
async fn echo() -> HyperServer {
    HyperServer::start(|request| async move {
        let line = format!("{} {} ", request.method(), request.uri().path());
        let text = whole(request.into_body()).await.0;
        Response::new(body(&(line + &text)))
    })
    .await
}

#[tokio::test]
async fn concurrent_streams_get_their_own_responses() {
    let (one, two) = (ScriptedServer::echo().await, echo().await);
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let gateway = TestGateway::with_route(route).await;
        let client = connect(gateway.address).await;
        let mut asked = JoinSet::new();
        for n in 0..200 {
            let client = client.clone();
            asked.spawn(async move {
                let (status, text) = exchange(&client, get(&format!("/{n}"))).await;
                assert_eq!((status, text.contains(&format!("GET /{n} "))), (200, true), "{text}");
            });
        }
        within("all responses", asked.join_all()).await;
    }
    assert!((1..=2).contains(&two.n_connections()), "{} connections for 200 streams", two.n_connections());
}

/// As many connections as were needed at once are reused, and no more are opened.
#[tokio::test]
async fn streams_of_one_connection_reuse_upstream_connections() {
    let (one, two) = (ScriptedServer::echo().await, echo().await);
    let n_connections = || one.n_connections.load(Ordering::SeqCst) + two.n_connections();
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let gateway = TestGateway::with_route(route).await;
        let client = connect(gateway.address).await;
        let before = n_connections();
        for _ in 0..200 {
            assert_eq!(exchange(&client, get("/")).await.0, 200);
        }
        assert_eq!(n_connections(), before + 1);
    }
}

#[tokio::test]
async fn an_upstream_connection_is_shared_and_replaced_after_goaway() {
    let server = echo().await;
    let gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(gateway.address).await;
    for n in 1..=5 {
        for _ in 0..5 {
            assert_eq!(exchange(&client, get("/")).await, (200, "GET / ".to_owned()));
            let post = Request::post("http://a/").body(body("hello")).unwrap();
            assert_eq!(exchange(&client, post).await, (200, "POST / hello".to_owned()));
        }
        assert_eq!(server.n_connections(), n);
        server.leave();
    }
}

/// GOAWAY arrives while a request is in flight: that one finishes, and others use another connection.
#[tokio::test]
async fn a_connection_after_goaway_finishes_its_streams() {
    let (sender, response) = pieces();
    let response = std::sync::Mutex::new(Some(response));
    let server = HyperServer::start(move |request| {
        let slow = (request.uri().path() == "/slow").then(|| response.lock().unwrap().take().unwrap());
        async move { Response::new(slow.unwrap_or_else(|| body("quick"))) }
    })
    .await;
    let gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(gateway.address).await;
    let slow = send(&client, get("/slow")).await;
    server.leave();
    for _ in 0..20 {
        assert_eq!(exchange(&client, get("/")).await, (200, "quick".to_owned()));
        let post = Request::post("http://a/").body(body("hello")).unwrap();
        assert_eq!(exchange(&client, post).await, (200, "quick".to_owned()));
    }
    sender.send("slow");
    drop(sender);
    assert_eq!(whole(slow.into_body()).await.0, "slow");
}

/// The client caused it, so the client gets the error and no server is ejected.
#[tokio::test]
async fn an_oversized_body_is_not_an_upstream_failure() {
    let server = HyperServer::start(|request| async move {
        let _ = http_body_util::BodyExt::collect(request.into_body()).await;
        Response::new(body("read"))
    })
    .await;
    let route = Route { body_max: 10, ..route_to(&[server.url()], Protocol::Http2) };
    let upstream = Arc::clone(&route.upstream);
    let gateway = TestGateway::with_route(route).await;
    let client = connect(gateway.address).await;
    for _ in 0..5 {
        let post = Request::post("http://a/").body(body("12345678901")).unwrap();
        assert_eq!(exchange(&client, post).await.0, 413);
    }
    assert!(upstream.states().all(|state| state.is_healthy));
}

/// A client that resets one stream keeps the others, and the upstream stream is reset too.
#[tokio::test]
async fn a_stream_reset_cancels_only_its_own_request() {
    let n_in_flight = Arc::new(AtomicUsize::new(0));
    let busy = Arc::clone(&n_in_flight);
    let one = ScriptedServer::start(move |mut client: Client, _| {
        let busy = Arc::clone(&busy);
        async move {
            let _busy = InFlightCount::new(&busy);
            client.read_until(b"\r\n\r\n").await;
            client.read_to_end().await;
        }
    })
    .await;
    let busy = Arc::clone(&n_in_flight);
    let two = HyperServer::start(move |_| {
        let busy = InFlightCount::new(&busy);
        async move {
            std::future::pending::<()>().await;
            drop(busy);
            Response::new(body(""))
        }
    })
    .await;
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let gateway = TestGateway::with_route(route).await;
        let client = connect(gateway.address).await;
        let mut asked: Vec<_> = (0..2).map(|_| tokio::spawn(client.clone().send_request(get("/")))).collect();
        wait_until("both are in flight", || n_in_flight.load(Ordering::SeqCst) == 2).await;
        asked.pop().unwrap().abort();
        wait_until("one has been called off", || n_in_flight.load(Ordering::SeqCst) == 1).await;
        asked.pop().unwrap().abort();
        wait_until("and the other", || n_in_flight.load(Ordering::SeqCst) == 0).await;
    }
}

/// The first 8 requests of each connection, and 5 more of the client: the next stream is refused, unprocessed.
#[tokio::test]
async fn streams_beyond_the_clients_limit_are_refused() {
    for is_proxy in [false, true] {
        let (release, released) = tokio::sync::watch::channel(false);
        let n_in_flight = Arc::<AtomicUsize>::default();
        let busy = Arc::clone(&n_in_flight);
        let server = HyperServer::start(move |_| {
            let (busy, mut released) = (InFlightCount::new(&busy), released.clone());
            async move {
                let _its_test_has_ended = released.wait_for(|released| *released).await;
                drop(busy);
                Response::new(body("late"))
            }
        })
        .await;
        let trusted = if is_proxy { vec!["127.0.0.1/32".parse().unwrap()] } else { Vec::new() };
        let rules = IdentityRules::default().proxies(Proxies::default().trusted(trusted));
        let settings = GatewaySettings {
            streams_per_address: std::num::NonZeroU32::new(5),
            ..settings(route(&[server.address]))
        };
        let http_settings = HttpSettings::default().rules(rules);
        let gateway = TestGateway::start(Setup { settings, http_settings, ..Setup::default() }).await;
        let (one, two) = (connect(gateway.address).await, connect(gateway.address).await);
        let ask = |client: &SendRequest<ChannelBody>| tokio::spawn(client.clone().send_request(get("/")));
        let mut asked: Vec<_> = (0..11).map(|_| ask(&one)).collect();
        wait_until("they are in flight", || n_in_flight.load(Ordering::SeqCst) == 11).await;
        asked.extend((0..10).map(|_| ask(&two)));
        wait_until("these too", || n_in_flight.load(Ordering::SeqCst) == 21).await;
        let more = ask(&one);
        if is_proxy {
            wait_until("a trusted proxy has no limit", || n_in_flight.load(Ordering::SeqCst) == 22).await;
            asked.push(more);
        } else {
            let refused = within("it is refused", more).await.unwrap().unwrap_err();
            let cause =
                std::error::Error::source(&refused).and_then(|cause| cause.downcast_ref::<h2::Error>());
            assert_eq!(cause.and_then(h2::Error::reason), Some(h2::Reason::REFUSED_STREAM), "{refused:?}");
        }
        release.send(true).unwrap();
        for asked in asked {
            assert_eq!(within("a response", asked).await.unwrap().unwrap().status(), 200);
        }
        let mut responses = JoinSet::new();
        for _ in 0..8 {
            responses.spawn(one.clone().send_request(get("/")));
        }
        for response in within("all responses", responses.join_all()).await {
            assert_eq!(response.unwrap().status(), 200);
        }
    }
}

/// 40 KB of headers: more than hyper accepts by default, less than our limit.
#[tokio::test]
async fn a_response_head_may_be_long() {
    let server = HyperServer::start(|_| async {
        let mut response = Response::new(body("here"));
        for n in 0..10 {
            let name = http::HeaderName::try_from(format!("x-long-{n}")).unwrap();
            response.headers_mut().insert(name, "x".repeat(4_096).parse().unwrap());
        }
        response
    })
    .await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let gateway = TestGateway::with_route(route_to(&[server.url()], protocol)).await;
        let response = gateway.get("/").await;
        assert_eq!((response.status, response.text().as_str()), (200, "here"), "{protocol:?}");
        assert_eq!(response.headers["x-long-9"].len(), 4_096);
    }
}

#[tokio::test]
async fn the_host_is_forwarded_between_all_versions() {
    let server = HyperServer::start(|request| async move {
        let field = |name: &str| request.headers().get(name).map_or("-", |value| value.to_str().unwrap());
        let authority = request.uri().authority().map_or("-", |authority| authority.as_str());
        let text = format!("{authority} {} {}", field("host"), field("x-forwarded-host"));
        Response::new(body(&text))
    })
    .await;
    let own = server.address.to_string();
    for (protocol, policy, expected) in [
        (Protocol::Http1, HostPolicy::Keep, "- shop.example:81 shop.example:81".to_owned()),
        (Protocol::Http2, HostPolicy::Keep, "shop.example:81 - shop.example:81".to_owned()),
        (Protocol::Http1, HostPolicy::Upstream, format!("- {own} shop.example:81")),
        (Protocol::Http2, HostPolicy::Upstream, format!("{own} - shop.example:81")),
        (Protocol::Http1, HostPolicy::Fixed("b".parse().unwrap()), "- b shop.example:81".to_owned()),
        (Protocol::Http2, HostPolicy::Fixed("b".parse().unwrap()), "b - shop.example:81".to_owned()),
    ] {
        let gateway =
            TestGateway::with_route(Route { host: policy, ..route_to(&[server.url()], protocol) }).await;
        let seen = gateway.connect().await.exchange("GET / HTTP/1.1\r\nHost: shop.example:81\r\n\r\n").await;
        assert_eq!(seen.text(), expected);
        let request = Request::get("http://shop.example:81/").body(body("")).unwrap();
        assert_eq!(exchange(&connect(gateway.address).await, request).await, (200, expected));
    }
}

/// The server disappears in the middle of a request, and between two.
#[tokio::test]
async fn a_broken_connection_is_replaced() {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto;
    use tokio::sync::watch;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (cut, is_cut) = watch::channel(());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut is_cut = is_cut.clone();
            is_cut.mark_unchanged();
            let service = hyper::service::service_fn(|_| async {
                Ok::<_, std::convert::Infallible>(Response::new(body("here")))
            });
            let connection = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .into_owned();
            tokio::spawn(async move {
                tokio::select! {
                    _ = connection => {}
                    _ = is_cut.changed() => {}
                }
            });
        }
    });
    let gateway = TestGateway::with_route(route_to(&[url], Protocol::Http2)).await;
    let client = connect(gateway.address).await;
    for n in 0..20 {
        assert_eq!(exchange(&client, get("/")).await, (200, "here".to_owned()), "{n}");
        cut.send_replace(());
    }
}
