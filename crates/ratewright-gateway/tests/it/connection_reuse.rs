//! Responses of every shape end at the right byte, and the next ones on the same connections are right.

use std::sync::atomic::Ordering;

use http::Request;

use crate::harness::{Client, ScriptedServer, TestGateway, text};
use crate::hyper_peers::{body, connect, send, whole};

/// An upstream that responds in the shape named by the path, and counts requests per connection.
async fn shaping() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let head = String::from_utf8(head).unwrap();
            let path = head.split(' ').nth(1).unwrap();
            let response = match path {
                "/sized" if head.starts_with("HEAD") => {
                    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned()
                }
                "/chunked" if head.starts_with("HEAD") => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
                }
                "/sized" => text("sized"),
                "/chunked" => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
                        .to_owned()
                }
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                "/304" => {
                    "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: \"x\"\r\n\r\n".to_owned()
                }
                "/empty" => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
                "/empty-chunked" => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()
                }
                _ => "HTTP/1.1 200 OK\r\n\r\nto the end".to_owned(),
            };
            client.send(response).await;
            if path == "/close" {
                return;
            }
        }
    })
    .await
}

/// Requests, with the expected responses.
const SHAPES: [(&str, &str, u16, &str); 9] = [
    ("HEAD", "/sized", 200, ""),
    ("HEAD", "/chunked", 200, ""),
    ("GET", "/sized", 200, "sized"),
    ("GET", "/chunked", 200, "onetwo"),
    ("GET", "/204", 204, ""),
    ("GET", "/304", 304, ""),
    ("GET", "/empty", 200, ""),
    ("GET", "/empty-chunked", 200, ""),
    ("GET", "/close", 200, "to the end"),
];

/// Every shape after every other.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str, u16, &'static str)> {
    SHAPES.into_iter().flat_map(|first| SHAPES.into_iter().flat_map(move |second| [first, second]))
}

#[tokio::test]
async fn every_shape_is_right_after_every_other_on_one_connection() {
    let server = shaping().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    for (method, path, status, expected) in pairs() {
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let response = match method {
            "HEAD" => {
                let head = String::from_utf8(client.read_until(b"\r\n\r\n").await.unwrap()).unwrap();
                assert_eq!(head.contains("content-length: 5\r\n"), path == "/sized", "{head}");
                (head.get(9..12).unwrap().parse().unwrap(), String::new())
            }
            _ => {
                let response =
                    client.response().await.unwrap_or_else(|| panic!("no response to {method} {path}"));
                (response.status, response.text())
            }
        };
        assert_eq!(response, (status, expected.to_owned()), "{method} {path}");
    }
    let n_closed = pairs().filter(|(_, path, ..)| *path == "/close").count();
    assert_eq!(server.n_connections.load(Ordering::SeqCst), n_closed, "one more after each that was closed");
}

#[tokio::test]
async fn every_shape_is_right_in_http_2() {
    let server = shaping().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let client = connect(gateway.address).await;
    for (method, path, status, expected) in pairs() {
        let request =
            Request::builder().method(method).uri(format!("http://a{path}")).body(body("")).unwrap();
        let response = send(&client, request).await;
        assert_eq!(response.status(), status, "{method} {path}");
        assert_eq!(whole(response.into_body()).await.0, expected, "{method} {path}");
    }
}

/// HTTP/1.0 has no chunks: the response ends with the connection.
#[tokio::test]
async fn http_1_0_clients_get_every_shape() {
    let server = shaping().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    for (_, path, status, expected) in SHAPES {
        let mut client = gateway.connect().await;
        client.send(format!("GET {path} HTTP/1.0\r\nHost: a\r\n\r\n")).await;
        let all = String::from_utf8(client.read_to_end().await).unwrap();
        let (head, rest) = all.split_once("\r\n\r\n").unwrap();
        let expected = match path {
            "/sized" => "sized",
            "/chunked" => "onetwo",
            _ => expected,
        };
        assert_eq!(
            (head.get(9..12).unwrap(), rest),
            (status.to_string().as_str(), expected),
            "{path}: {head}"
        );
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
}

/// Pipelined requests get their responses in order.
#[tokio::test]
async fn pipelined_requests_get_responses_in_order() {
    let server = ScriptedServer::echo().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    let requests: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(requests).await;
    for n in 0..20 {
        assert_eq!(client.response().await.unwrap().text(), format!("GET /{n} HTTP/1.1"));
    }
}
