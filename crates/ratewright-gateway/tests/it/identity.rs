//! Requests with ambiguous identity, and ordinary ones.

use http::{HeaderName, Method, Request};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::upstream::Protocol;
use ratewright_http::{HttpSettings, IdentityRules};

use crate::harness::{
    Client, RawResponse, ScriptedServer, Setup, TestGateway, route, route_to, settings, text,
};
use crate::hyper_peers::{body, connect, exchange};

/// An upstream that responds with the request head in lower case.
async fn showing() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let head = String::from_utf8_lossy(&head).to_lowercase();
            if let Some(length) = head.split("content-length: ").nth(1) {
                client.read_exact(length.lines().next().unwrap().parse().unwrap()).await;
            }
            if head.contains("upgrade: websocket") {
                client.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
                return;
            }
            client.send(text(&head)).await;
        }
    })
    .await
}

/// A gateway that counts by key, and identifies users by a header.
async fn counting(server: &ScriptedServer) -> TestGateway {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1000/h".parse().unwrap()).unwrap();
    let policy = Policy::new("key", quota).unwrap().by(&[AttributeName::Header("x-api-key")]);
    let rules = IdentityRules::default().user_header(Some(HeaderName::from_static("x-user-id")));
    let http_settings = HttpSettings::default().rules(rules);
    let settings = settings(route(&[server.address]));
    TestGateway::start(Setup { policies: vec![policy], settings, http_settings, ..Setup::default() }).await
}

#[track_caller]
fn assert_refused(response: &RawResponse, detail: &str, request: &str) {
    assert_eq!(
        (response.status, response.headers["content-type"].as_str()),
        (400, "application/problem+json"),
        "{request}"
    );
    assert!(response.text().contains(detail), "{request}: {}", response.text());
}

#[tokio::test]
async fn a_request_with_ambiguous_identity_gets_400() {
    let server = showing().await;
    let gateway = counting(&server).await;
    for (request, detail) in [
        (
            "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b",
            "several Authorization",
        ),
        ("post / HTTP/1.1\r\nHost: a", "the method post contains lower-case letters"),
        ("Post / HTTP/1.1\r\nHost: a", "the method Post"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Api-Key\r\nX-Api-Key: 1", "Connection names x-api-key"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x-user-id", "Connection names x-user-id"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: Authorization",
            "Connection names authorization",
        ),
        ("GET / HTTP/1.0\r\nConnection: cookie", "Connection names cookie"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Host", "Connection names host"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For", "Connection names x-forwarded-for"),
        ("GET /static/..%00/login HTTP/1.1\r\nHost: a", "a control character"),
        ("GET /static/.%09./login HTTP/1.1\r\nHost: a", "a control character"),
        ("GET /static/%2e%00%2e/login HTTP/1.1\r\nHost: a", "a control character"),
        ("GET /static/%252e%252500./login HTTP/1.1\r\nHost: a", "a control character"),
    ] {
        let response = gateway.connect().await.exchange(&format!("{request}\r\n\r\n")).await;
        assert_refused(&response, detail, request);
    }
    let raw = gateway.connect().await.exchange("GET /static/.\t./login HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(raw.status, 400);
    assert_eq!(
        server.n_connections.load(std::sync::atomic::Ordering::SeqCst),
        0,
        "nothing reached the server"
    );
}

#[tokio::test]
async fn a_client_that_trickles_over_http2_gets_408() {
    let gateway = counting(&showing().await).await;
    let client = connect(gateway.address).await;
    let get = |path: &str| Request::get(format!("http://a{path}"));
    let twice = get("/").header("authorization", "Bearer a").header("authorization", "Bearer b");
    let method = |name: &[u8]| Request::builder().method(Method::from_bytes(name).unwrap()).uri("http://a/");
    let paths = ["/static/..%00/login", "/static/.%7f./login"];
    for request in [twice, method(b"post"), method(b"Get"), get(paths[0]), get(paths[1])] {
        let request = request.body(body("")).unwrap();
        let shown = format!("{request:?}", request = request.uri());
        assert_eq!(exchange(&client, request).await.0, 400, "{shown}");
    }
    let fine = get("/a").header("authorization", "Bearer a").body(body("")).unwrap();
    assert_eq!(exchange(&client, fine).await.0, 200, "the connection stays open");
}

/// An HTTP/2 request, frame by frame: hyper and curl do not send malformed ones.
fn frames(fields: &[(&str, &str)]) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let mut block = vec![0x82, 0x84, 0x86]; // GET, /, http
    for (name, value) in fields {
        block.push(0); // a literal that is not indexed
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let (settings, request) = (frame(4, 0, 0, &[]), frame(1, 0b101, 1, &block));
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &request].concat()
}

/// The status of an HTTP/2 request. None: reset, or the connection ended.
async fn status_of(gateway: &TestGateway, fields: &[(&str, &str)]) -> Option<u16> {
    let mut client = gateway.connect().await;
    client.send(frames(fields)).await;
    loop {
        let head = client.read_exact(9).await?;
        let length = usize::from_be_bytes([0, 0, 0, 0, 0, head[0], head[1], head[2]]);
        let payload = client.read_exact(length).await?;
        match head[3] {
            1 => match payload[0] {
                0x88 => return Some(200),
                0x8c => return Some(400),
                other => panic!("another status: {other:#x}"),
            },
            3 | 7 => return None, // RST_STREAM, GOAWAY
            _ => {}
        }
    }
}

/// HTTP/2 has no `Connection` header, so it cannot be used to remove a key.
#[tokio::test]
async fn connection_headers_over_http2_are_not_forwarded() {
    let server = showing().await;
    let gateway = counting(&server).await;
    let n_connections = || server.n_connections.load(std::sync::atomic::Ordering::SeqCst);
    for options in ["x-api-key", "close, X-Api-Key", "close"] {
        let fields = [(":authority", "a"), ("x-api-key", "1"), ("connection", options)];
        assert!(matches!(status_of(&gateway, &fields).await, None | Some(400)), "{options}");
        assert_eq!(n_connections(), 0, "{options}");
    }
    assert_eq!(status_of(&gateway, &[(":authority", "a"), ("x-api-key", "1")]).await, Some(200));
    assert_eq!(n_connections(), 1);
}

/// Upstreams that speak CGI or WSGI read these as the headers with a hyphen, which were counted or checked.
#[tokio::test]
async fn aliases_with_an_underscore_are_removed() {
    let server = showing().await;
    let gateway = counting(&server).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\ncontent_length: 7\r\nTransfer_Encoding: chunked\r\n\
                   X_Api_Key: 1\r\nx-api_key: 1\r\nContent_Type: x\r\nX_User_Id: root\r\nx_mine: kept\r\n\r\nhi";
    let seen = gateway.connect().await.exchange(request).await.text();
    for dropped in ["content_length", "transfer_encoding", "api_key", "content_type", "x_user_id"] {
        assert!(!seen.contains(dropped), "{dropped}: {seen}");
    }
    assert!(seen.contains("x_mine: kept") && seen.contains("content-length: 2"), "{seen}");
    let over_2 = Request::post("http://a/").header("content_length", "7").header("x_mine", "kept");
    let seen = exchange(&connect(gateway.address).await, over_2.body(body("")).unwrap()).await.1;
    assert!(!seen.contains("content_length") && seen.contains("x_mine: kept"), "{seen}");
}

/// Requests of browsers, gRPC clients, WebDAV clients and WebSockets.
const ORDINARY: [&str; 17] = [
    "GET /shop?q=a%20b HTTP/1.1\r\nHost: a\r\nUser-Agent: Mozilla/5.0\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n\
     Accept-Language: de\r\nCookie: sid=1; theme=dark; sid=2\r\nConnection: keep-alive\r\nSec-Fetch-Mode: navigate\r\n\
     Upgrade-Insecure-Requests: 1\r\nReferer: http://a/",
    "POST /form HTTP/1.1\r\nHost: a:8080\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n\
     Origin: http://a:8080\r\nCookie: sid=1\r\nConnection: keep-alive",
    "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic dTpw\r\nConnection: close",
    "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nConnection: TE\r\nTE: trailers, deflate;q=0.3",
    "GET / HTTP/1.1\r\nHost: a\r\nTE: gzip\r\nConnection: TE, close",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-My-Hop\r\nX-My-Hop: 1\r\nKeep-Alive: timeout=5",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: keep-alive\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4",
    "PROPFIND /dav/ HTTP/1.1\r\nHost: a\r\nDepth: 1\r\nContent-Length: 0",
    "REPORT /dav/calendar HTTP/1.1\r\nHost: a\r\nContent-Length: 0",
    "VERSION-CONTROL /dav/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0",
    "MKCALENDAR /dav/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0",
    "PURGE /cached HTTP/1.1\r\nHost: a",
    "M-SEARCH /x HTTP/1.1\r\nHost: a",
    "GET /caf%C3%A9/100%25/a%20b/%E2%82%AC;v=1/?x=%00%0a HTTP/1.1\r\nHost: a",
    "GET / HTTP/1.0\r\nConnection: Keep-Alive",
    "OPTIONS /api HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nAccess-Control-Request-Method: PUT",
];

#[tokio::test]
async fn ordinary_requests_pass() {
    let gateway = counting(&showing().await).await;
    for request in ORDINARY {
        let response = gateway.connect().await.exchange(&format!("{request}\r\n\r\n")).await;
        assert_eq!(response.status, 200, "{request}: {}", response.text());
    }
    let handshake = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://a\r\n\r\n";
    assert_eq!(gateway.connect().await.exchange(handshake).await.status, 101);
}

#[tokio::test]
async fn ordinary_requests_over_http_2_pass() {
    let server = crate::hyper_peers::HyperServer::start(|_| async { http::Response::new(body("")) }).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let gateway = TestGateway::with_route(route_to(&[server.url()], protocol)).await;
        let client = connect(gateway.address).await;
        let grpc = Request::post("http://a/pkg.Service/Call")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "1S");
        let browser = Request::get("http://a/x?y=%00")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("authorization", "Bearer a");
        let dav = Request::builder().method("PROPFIND").uri("http://a/dav/");
        for request in [grpc, browser, dav] {
            let request = request.body(body("")).unwrap();
            assert_eq!(exchange(&client, request).await.0, 200);
        }
    }
}

/// Other parsers may join the line with the one before.
#[tokio::test]
async fn a_response_whose_head_has_a_bare_line_feed_gets_502() {
    for head in
        ["HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nA: 1\nContent-Length: 0\r\n\r\n"]
    {
        let server = ScriptedServer::start(move |mut client: Client, _| async move {
            while client.read_until(b"\r\n\r\n").await.is_some() {
                client.send(head).await;
            }
        })
        .await;
        let gateway = TestGateway::in_front_of(&[server.address]).await;
        assert_eq!(gateway.get("/").await.status, 502, "{head}");
    }
}
