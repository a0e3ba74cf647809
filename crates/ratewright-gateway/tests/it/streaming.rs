//! Bodies pass as they come: nobody waits for the end of one to begin with it, and what comes after it passes too.

use http::{Request, Response, Version};
use ratewright_gateway::Protocol;
use tokio::sync::mpsc;

use crate::peers::{Speaking, ask, body, connect, get, piece, pieces, whole};
use crate::world::{Client, Scripted, World, route_to, within};

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";

/// A server that sends its second event only when it is told that the first one has been seen.
async fn events() -> (Scripted, mpsc::UnboundedSender<()>) {
    let (tell, told) = mpsc::unbounded_channel::<()>();
    let told = std::sync::Arc::new(tokio::sync::Mutex::new(told));
    let server = Scripted::start(move |mut client: Client, _| {
        let told = std::sync::Arc::clone(&told);
        async move {
            while client.until(b"\r\n\r\n").await.is_some() {
                client.send(EVENTS).await;
                told.lock().await.recv().await;
                client.send("9\r\ndata: 2\n\n\r\n0\r\n\r\n").await;
            }
        }
    })
    .await;
    (server, tell)
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    let (server, tell) = events().await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.until(b"data: 1\n\n\r\n").await.is_some());
    tell.send(()).unwrap();
    assert_eq!(client.until(b"0\r\n\r\n").await.unwrap(), b"9\r\ndata: 2\n\n\r\n0\r\n\r\n");

    let mut answer = ask(&connect(world.address).await, get("/")).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(piece(answer.body_mut()).await, "data: 1\n\n");
    tell.send(()).unwrap();
    assert_eq!(whole(answer.into_body()).await.0, "data: 2\n\n");
}

#[tokio::test]
async fn an_upload_reaches_the_server_piece_by_piece() {
    let (tell, mut seen) = mpsc::unbounded_channel();
    let server = Scripted::start(move |mut client: Client, _| {
        let tell = tell.clone();
        async move {
            client.until(b"\r\n\r\n").await;
            while let Some(size) = client.until(b"\r\n").await {
                let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
                let piece = client.exactly(size + 2).await.unwrap();
                tell.send(String::from_utf8(piece).unwrap()).unwrap();
                if size == 0 {
                    client.send(crate::world::text("done")).await;
                }
            }
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await;
    assert_eq!(within(seen.recv()).await.unwrap(), "one\r\n");
    client.send("3\r\ntwo\r\n").await;
    assert_eq!(within(seen.recv()).await.unwrap(), "two\r\n");
    client.send("0\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().text(), "done");
    within(seen.recv()).await.unwrap();

    let (sender, upload) = pieces();
    let (client, request) = (connect(world.address).await, Request::post("http://a/").body(upload).unwrap());
    let asked = tokio::spawn(async move { ask(&client, request).await });
    for word in ["one", "two"] {
        sender.send(word);
        assert_eq!(within(seen.recv()).await.unwrap(), format!("{word}\r\n"));
    }
    drop(sender);
    assert_eq!(whole(asked.await.unwrap().into_body()).await.0, "done");
}

/// What gRPC needs: both ways at once, `TE: trailers`, and the status behind the body.
#[tokio::test]
async fn grpc_passes_both_ways_at_once_and_its_status_arrives() {
    let server = Speaking::start(|request| async move {
        assert_eq!(
            (request.version(), &request.headers()["te"]),
            (Version::HTTP_2, &"trailers".parse().unwrap())
        );
        let (sender, echo) = pieces();
        let mut upload = request.into_body();
        tokio::spawn(async move {
            for _ in 0..2 {
                sender.send(&piece(&mut upload).await);
            }
            assert_eq!(whole(upload).await.0, "");
            sender.send_trailer("grpc-status", "7");
        });
        Response::builder().header("content-type", "application/grpc").body(echo).unwrap()
    })
    .await;
    let world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let (sender, upload) = pieces();
    let request = Request::post("http://a/pkg.Service/Method").header("te", "trailers").body(upload).unwrap();
    let mut answer = ask(&connect(world.address).await, request).await;
    for word in ["one", "two"] {
        sender.send(word);
        assert_eq!(piece(answer.body_mut()).await, word);
    }
    drop(sender);
    let (rest, trailers) = whole(answer.into_body()).await;
    assert_eq!((rest.as_str(), &trailers["grpc-status"]), ("", &"7".parse().unwrap()));
}

/// An answer of gRPC that is trouble from the start has no body, and its status in front.
#[tokio::test]
async fn grpc_without_a_body_passes_too() {
    let server = Speaking::start(|_| async {
        Response::builder().header("grpc-status", "12").body(body("")).unwrap()
    })
    .await;
    let world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let request = Request::post("http://a/x").header("te", "trailers").body(body("hello")).unwrap();
    let answer = ask(&connect(world.address).await, request).await;
    assert_eq!(answer.headers()["grpc-status"], "12");
    assert_eq!(whole(answer.into_body()).await.0, "");
}

#[tokio::test]
async fn trailers_of_http_1_arrive_in_http_2_and_in_http_1_where_they_are_taken() {
    let server = Scripted::start(|mut client: Client, _| async move {
        while client.until(b"\r\n\r\n").await.is_some() {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
            client.send(format!("{head}4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n")).await;
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let http2 = connect(world.address).await;
    for _ in 0..2 {
        let (text, trailers) = whole(ask(&http2, get("/")).await.into_body()).await;
        assert_eq!((text.as_str(), &trailers["x-sum"]), ("body", &"5".parse().unwrap()));
    }
    let mut client = world.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: trailers\r\n\r\n").await;
    assert!(client.until(b"4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n").await.is_some());
    let plain = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(plain.text(), "body", "who does not take them gets none");
}
