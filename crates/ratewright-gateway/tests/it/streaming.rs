//! Bodies are streamed in both directions, with trailers.

use http::{Request, Response, Version};
use ratewright_gateway::upstream::Protocol;
use ratewright_lab::within;
use tokio::sync::mpsc;

use crate::harness::{Client, ScriptedServer, TestGateway, route_to};
use crate::hyper_peers::{HyperServer, body, connect, get, piece, pieces, send, whole};

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";

/// An upstream that sends its second event only after the first was received.
async fn events() -> (ScriptedServer, mpsc::UnboundedSender<()>) {
    let (sender, receiver) = mpsc::unbounded_channel::<()>();
    let receiver = std::sync::Arc::new(tokio::sync::Mutex::new(receiver));
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let receiver = std::sync::Arc::clone(&receiver);
        async move {
            while client.read_until(b"\r\n\r\n").await.is_some() {
                client.send(EVENTS).await;
                receiver.lock().await.recv().await;
                client.send("9\r\ndata: 2\n\n\r\n0\r\n\r\n").await;
            }
        }
    })
    .await;
    (server, sender)
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    let (server, sender) = events().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.read_until(b"data: 1\n\n\r\n").await.is_some());
    sender.send(()).unwrap();
    assert_eq!(client.read_until(b"0\r\n\r\n").await.unwrap(), b"9\r\ndata: 2\n\n\r\n0\r\n\r\n");

    let mut response = send(&connect(gateway.address).await, get("/")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(piece(response.body_mut()).await, "data: 1\n\n");
    sender.send(()).unwrap();
    assert_eq!(whole(response.into_body()).await.0, "data: 2\n\n");
}

#[tokio::test]
async fn an_upload_is_streamed_to_the_upstream() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let sender = sender.clone();
        async move {
            client.read_until(b"\r\n\r\n").await;
            while let Some(size) = client.read_until(b"\r\n").await {
                let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
                let piece = client.read_exact(size + 2).await.unwrap();
                sender.send(String::from_utf8(piece).unwrap()).unwrap();
                if size == 0 {
                    client.send(crate::harness::text("done")).await;
                }
            }
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n").await;
    assert_eq!(within("the upstream has it", seen.recv()).await.unwrap(), "one\r\n");
    client.send("3\r\ntwo\r\n").await;
    assert_eq!(within("the upstream has it", seen.recv()).await.unwrap(), "two\r\n");
    client.send("0\r\n\r\n").await;
    assert_eq!(client.response().await.unwrap().text(), "done");
    within("the upstream has it", seen.recv()).await.unwrap();

    let (sender, upload) = pieces();
    let (client, request) =
        (connect(gateway.address).await, Request::post("http://a/").body(upload).unwrap());
    let asked = tokio::spawn(async move { send(&client, request).await });
    for word in ["one", "two"] {
        sender.send(word);
        assert_eq!(within("the upstream has it", seen.recv()).await.unwrap(), format!("{word}\r\n"));
    }
    drop(sender);
    assert_eq!(whole(asked.await.unwrap().into_body()).await.0, "done");
}

/// What gRPC needs: both directions at once, `TE: trailers`, and the status in trailers.
#[tokio::test]
async fn grpc_passes_both_ways_at_once_and_its_status_arrives() {
    let server = HyperServer::start(|request| async move {
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
    let gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let (sender, upload) = pieces();
    let request = Request::post("http://a/pkg.Service/Method").header("te", "trailers").body(upload).unwrap();
    let mut response = send(&connect(gateway.address).await, request).await;
    for word in ["one", "two"] {
        sender.send(word);
        assert_eq!(piece(response.body_mut()).await, word);
    }
    drop(sender);
    let (rest, trailers) = whole(response.into_body()).await;
    assert_eq!((rest.as_str(), &trailers["grpc-status"]), ("", &"7".parse().unwrap()));
}

/// A gRPC error response has no body, and its status in the head.
#[tokio::test]
async fn grpc_without_a_body_passes_too() {
    let server = HyperServer::start(|_| async {
        Response::builder().header("grpc-status", "12").body(body("")).unwrap()
    })
    .await;
    let gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let request = Request::post("http://a/x").header("te", "trailers").body(body("hello")).unwrap();
    let response = send(&connect(gateway.address).await, request).await;
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(whole(response.into_body()).await.0, "");
}

#[tokio::test]
async fn http1_trailers_arrive_in_http2_and_in_http1_if_accepted() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
            client.send(format!("{head}4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n")).await;
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let http2 = connect(gateway.address).await;
    for _ in 0..2 {
        let (text, trailers) = whole(send(&http2, get("/")).await.into_body()).await;
        assert_eq!((text.as_str(), &trailers["x-sum"]), ("body", &"5".parse().unwrap()));
    }
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: trailers\r\n\r\n").await;
    assert!(client.read_until(b"4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n").await.is_some());
    let plain = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(plain.text(), "body", "who does not take them gets none");
}
