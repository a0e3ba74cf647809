//! Bodies of all sizes, in both directions, and requests that are rejected.

use ratewright_gateway::Route;

use crate::harness::{Client, ScriptedServer, TestGateway, route, text};

/// An upstream that responds with the length of the body.
async fn counting() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let mut n = 0;
            if let Some(rest) = head.split("content-length: ").nth(1) {
                let mut left: usize = rest.lines().next().unwrap().parse().unwrap();
                while left > 0 {
                    let piece = left.min(65_536);
                    client.read_exact(piece).await.unwrap();
                    (n, left) = (n + piece, left - piece);
                }
            } else if head.contains("transfer-encoding: chunked") {
                loop {
                    let size = String::from_utf8(client.read_until(b"\r\n").await.unwrap()).unwrap();
                    let size = usize::from_str_radix(size.trim(), 16).unwrap();
                    client.read_exact(size + 2).await.unwrap();
                    n += size;
                    if size == 0 {
                        break;
                    }
                }
            }
            client.send(text(&n.to_string())).await;
        }
    })
    .await
}

#[tokio::test]
async fn bodies_of_all_sizes_arrive_with_and_without_a_length() {
    let gateway = TestGateway::in_front_of(&[counting().await.address]).await;
    let mut client = gateway.connect().await;
    for size in [0, 1, 1_000, 100_000, 3_000_000] {
        let body = "x".repeat(size);
        let sized = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n{body}");
        assert_eq!(client.exchange(&sized).await.text(), size.to_string());
        let half = size / 2;
        let (first, last) = body.split_at(half);
        let mut chunks = String::new();
        for chunk in [first, last].into_iter().filter(|chunk| !chunk.is_empty()) {
            chunks.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        }
        let chunked =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
        assert_eq!(client.exchange(&chunked).await.text(), size.to_string());
    }
}

#[tokio::test]
async fn an_oversized_body_gets_413_with_and_without_a_length() {
    let server = counting().await;
    let gateway = TestGateway::with_route(Route { body_max: 10, ..route(&[server.address]) }).await;
    let sized = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n12345678901";
    assert_eq!(gateway.connect().await.exchange(sized).await.status, 413);
    let chunked =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n12345678901\r\n0\r\n\r\n";
    assert_eq!(gateway.connect().await.exchange(chunked).await.status, 413);
    let fits = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1234567890";
    assert_eq!(gateway.connect().await.exchange(fits).await.text(), "10");
}

#[tokio::test]
async fn the_upstream_sees_the_matched_path_and_no_hop_by_hop_headers() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            client.send(text(&String::from_utf8_lossy(&head).to_lowercase())).await;
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let request = "GET //a/./b/../c%2Fd?q=1 HTTP/1.1\r\nHost: shop.example\r\nConnection: close, X-Secret\r\n\
                   X-Secret: 1\r\nKeep-Alive: 5\r\nX-Forwarded-For: 1.2.3.4\r\nAccept: */*\r\n\r\n";
    let seen = gateway.connect().await.exchange(request).await.text();
    assert!(seen.starts_with("get /a/c/d?q=1 http/1.1\r\n"), "{seen}");
    for passed in [
        "host: shop.example\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
        "x-forwarded-proto: http\r\n",
        "x-forwarded-host: shop.example\r\n",
        "x-real-ip: 127.0.0.1\r\n",
        "accept: */*\r\n",
        "x-request-id: ",
    ] {
        assert!(seen.contains(passed), "{passed}: {seen}");
    }
    for stripped in ["x-secret", "keep-alive", "1.2.3.4", "connection: close"] {
        assert!(!seen.contains(stripped), "{stripped}: {seen}");
    }
}

#[tokio::test]
async fn requests_without_a_route_or_a_valid_form_get_4xx() {
    let gateway = TestGateway::in_front_of(&[ScriptedServer::echo().await.address]).await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ] {
        let response = gateway.connect().await.exchange(request).await;
        assert_eq!(
            (response.status, response.headers["content-type"].as_str()),
            (status, "application/problem+json"),
            "{request}"
        );
    }
}
