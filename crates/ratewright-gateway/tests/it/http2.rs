//! HTTP/2 in and out: many requests on one connection, connections that leave, requests that are called off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use ratewright_gateway::{HostPolicy, Protocol, Route};
use tokio::task::JoinSet;

use crate::peers::{Count, Speaking, ask, body, connect, exchange, get, pieces, whole};
use crate::world::{Client, Scripted, World, route, route_to, until};

/// A server that answers with method, path and body.
async fn echo() -> Speaking {
    Speaking::start(|request| async move {
        let line = format!("{} {} ", request.method(), request.uri().path());
        let text = whole(request.into_body()).await.0;
        Response::new(body(&(line + &text)))
    })
    .await
}

#[tokio::test]
async fn many_streams_of_one_connection_are_answered_each_with_its_own() {
    let (one, two) = (Scripted::echo().await, echo().await);
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let world = World::of(route).await;
        let client = connect(world.address).await;
        let mut asked = JoinSet::new();
        for n in 0..200 {
            let client = client.clone();
            asked.spawn(async move {
                let (status, text) = exchange(&client, get(&format!("/{n}"))).await;
                assert_eq!((status, text.contains(&format!("GET /{n} "))), (200, true), "{text}");
            });
        }
        asked.join_all().await;
    }
    assert!((1..=2).contains(&two.n_connections()), "{} connections for 200 streams", two.n_connections());
}

/// So many as were needed at once are there afterwards, and nobody connects again.
#[tokio::test]
async fn streams_of_one_connection_use_connections_to_servers_again() {
    let (one, two) = (Scripted::echo().await, echo().await);
    let n_connections = || one.n_connections.load(Ordering::SeqCst) + two.n_connections();
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let world = World::of(route).await;
        let client = connect(world.address).await;
        let before = n_connections();
        for _ in 0..200 {
            assert_eq!(exchange(&client, get("/")).await.0, 200);
        }
        assert_eq!(n_connections(), before + 1);
    }
}

#[tokio::test]
async fn a_connection_to_a_server_is_shared_and_replaced_when_it_leaves() {
    let server = echo().await;
    let world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(world.address).await;
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

/// The connection says goodbye while a request is under way on it: that one is finished, and others go elsewhere.
#[tokio::test]
async fn a_connection_that_leaves_finishes_what_it_has() {
    let (sender, answer) = pieces();
    let answer = std::sync::Mutex::new(Some(answer));
    let server = Speaking::start(move |request| {
        let slow = (request.uri().path() == "/slow").then(|| answer.lock().unwrap().take().unwrap());
        async move { Response::new(slow.unwrap_or_else(|| body("quick"))) }
    })
    .await;
    let world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(world.address).await;
    let slow = ask(&client, get("/slow")).await;
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

/// It is the client's doing, so it is the client that is told, and no server is left alone for it.
#[tokio::test]
async fn a_body_that_is_too_long_is_not_the_servers_fault() {
    let server = Speaking::start(|request| async move {
        let _ = http_body_util::BodyExt::collect(request.into_body()).await;
        Response::new(body("read"))
    })
    .await;
    let route = Route { body_max: 10, ..route_to(&[server.url()], Protocol::Http2) };
    let upstream = Arc::clone(&route.upstream);
    let world = World::of(route).await;
    let client = connect(world.address).await;
    for _ in 0..5 {
        let post = Request::post("http://a/").body(body("12345678901")).unwrap();
        assert_eq!(exchange(&client, post).await.0, 413);
    }
    assert!(upstream.states().all(|state| state.is_healthy));
}

/// A client that calls off one request keeps the others, and the server hears of it.
#[tokio::test]
async fn a_stream_that_is_reset_takes_its_request_along_and_no_other() {
    let n_busy = Arc::new(AtomicUsize::new(0));
    let busy = Arc::clone(&n_busy);
    let one = Scripted::start(move |mut client: Client, _| {
        let busy = Arc::clone(&busy);
        async move {
            let _busy = Count::new(&busy);
            client.until(b"\r\n\r\n").await;
            client.all_that_comes().await;
        }
    })
    .await;
    let busy = Arc::clone(&n_busy);
    let two = Speaking::start(move |_| {
        let busy = Count::new(&busy);
        async move {
            std::future::pending::<()>().await;
            drop(busy);
            Response::new(body(""))
        }
    })
    .await;
    for route in [route(&[one.address]), route_to(&[two.url()], Protocol::Http2)] {
        let world = World::of(route).await;
        let client = connect(world.address).await;
        let mut asked: Vec<_> = (0..2).map(|_| tokio::spawn(client.clone().send_request(get("/")))).collect();
        until("both are under way", || n_busy.load(Ordering::SeqCst) == 2).await;
        asked.pop().unwrap().abort();
        until("one has been called off", || n_busy.load(Ordering::SeqCst) == 1).await;
        asked.pop().unwrap().abort();
        until("and the other", || n_busy.load(Ordering::SeqCst) == 0).await;
    }
}

/// Forty kilobytes of fields: longer than the library takes unless it is told, shorter than we do.
#[tokio::test]
async fn the_head_of_an_answer_may_be_long() {
    let server = Speaking::start(|_| async {
        let mut answer = Response::new(body("here"));
        for n in 0..10 {
            let name = http::HeaderName::try_from(format!("x-long-{n}")).unwrap();
            answer.headers_mut().insert(name, "x".repeat(4_096).parse().unwrap());
        }
        answer
    })
    .await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let world = World::of(route_to(&[server.url()], protocol)).await;
        let answer = world.get("/").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "here"), "{protocol:?}");
        assert_eq!(answer.headers["x-long-9"].len(), 4_096);
    }
}

#[tokio::test]
async fn the_host_is_passed_on_from_both_to_both() {
    let server = Speaking::start(|request| async move {
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
        let world = World::of(Route { host: policy, ..route_to(&[server.url()], protocol) }).await;
        let seen = world.connect().await.ask("GET / HTTP/1.1\r\nHost: shop.example:81\r\n\r\n").await;
        assert_eq!(seen.text(), expected);
        let request = Request::get("http://shop.example:81/").body(body("")).unwrap();
        assert_eq!(exchange(&connect(world.address).await, request).await, (200, expected));
    }
}

/// The server is gone without a word, in the middle of a request and between two.
#[tokio::test]
async fn a_connection_that_breaks_is_replaced() {
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
    let world = World::of(route_to(&[url], Protocol::Http2)).await;
    let client = connect(world.address).await;
    for n in 0..20 {
        assert_eq!(exchange(&client, get("/")).await, (200, "here".to_owned()), "{n}");
        cut.send_replace(());
    }
}
