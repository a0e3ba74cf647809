//! The adapters over real sockets, against a server that answers by a script.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Full, StreamBody};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::TokioExecutor;
use ratewright_client::call::{ATTEMPT, BodyFactory, ReplayBody};
use ratewright_client::{Backoff, Client, Retry, RetryLayer, RetryPolicy, RetrySummary, Why};
use ratewright_lab::{PATIENCE, free_port, output, within, without_settings};
use reqwest::redirect::Policy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tower::{Service, ServiceExt};
use tower_layer::Layer;

/// A request as the server read it.
#[derive(Clone, Debug)]
struct Heard {
    connection: usize,
    at: Instant,
    head: String,
    body: Vec<u8>,
}

/// A server that sends the next reply of its script for each request; the last one is repeated.
struct Server {
    url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LIMITED: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 6\r\n\r\ndenied";
const FAILED: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad";
/// The connection is closed without a response.
const CLOSED: &str = "";

impl Server {
    async fn start(script: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/items", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Vec<String>> = Arc::new(script.iter().map(|reply| (*reply).to_owned()).collect());
        let to = heard.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, connection, script.clone(), to.clone()));
            }
        });
        Self { url, heard }
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    script: Arc<Vec<String>>,
    heard: Arc<Mutex<Vec<Heard>>>,
) {
    let mut buffer = Vec::new();
    loop {
        let Some((head, body)) = read_request(&mut stream, &mut buffer).await else { return };
        let index = {
            let mut heard = heard.lock().unwrap();
            heard.push(Heard { connection, at: Instant::now(), head, body });
            (heard.len() - 1).min(script.len() - 1)
        };
        let reply = &script[index];
        let is_cut = reply.is_empty() || reply.contains("Content-Length: 999");
        if stream.write_all(reply.as_bytes()).await.is_err() || is_cut {
            return;
        }
    }
}

/// A request with a length, or without a body, or in chunks, which are not decoded.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..head_end).collect()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let is_complete = |buffer: &[u8]| match length {
        Some(length) => buffer.len() >= length,
        None => !head.contains("chunked") || buffer.ends_with(b"0\r\n\r\n"),
    };
    while !is_complete(buffer) {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let end = length.unwrap_or(buffer.len());
    Some((head, buffer.drain(..end).collect()))
}

/// The default policy with short backoffs, where the server does not say how long.
pub(crate) fn quick() -> RetryPolicy {
    let backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_millis(20) };
    RetryPolicy::default().failure_backoff(backoff).throttle_backoff(backoff).spread(backoff)
}

/// No proxy of the environment, and no request that waits for ever.
fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().timeout(PATIENCE)
}

fn client() -> Client {
    Client::with(builder(), Policy::default(), Retry::builder().policy(quick()).build()).unwrap()
}

/// A hyper client in the layer, which sends one request.
async fn send_by_layer<B>(request: Request<B>) -> Response<hyper::body::Incoming>
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let http = HyperClient::builder(TokioExecutor::new()).build_http::<ReplayBody<B>>();
    let mut service = RetryLayer::new(Retry::builder().policy(quick()).build()).layer(http);
    let response = async { service.ready().await.unwrap().call(request).await };
    within("a response", response).await.unwrap()
}

/// A URL where nobody listens.
fn closed_address() -> String {
    format!("http://127.0.0.1:{}/", free_port())
}

fn summary(extensions: &http::Extensions) -> (u32, Why) {
    let summary = extensions.get::<RetrySummary>().unwrap();
    (summary.attempts, summary.why)
}

/// E3: through reqwest, the retry comes no earlier than the server said, on the same connection, and says that it is one.
#[tokio::test]
async fn e3_a_throttled_request_by_reqwest_waits_and_uses_its_connection_again() {
    let server = Server::start(&[LIMITED, OK]).await;
    let response = client().get(&server.url).send().await.unwrap();
    assert_eq!((response.status(), summary(response.extensions())), (StatusCode::OK, (2, Why::Done)));
    assert_eq!(response.text().await.unwrap(), "ok");
    let heard = server.heard();
    assert_eq!(heard.len(), 2);
    assert!(heard[1].at - heard[0].at >= Duration::from_secs(1), "{:?}", heard[1].at - heard[0].at);
    assert_eq!(heard[1].connection, heard[0].connection, "an unread response must not cost a connection");
    assert!(!heard[0].head.contains(ATTEMPT.as_str()));
    assert!(heard[1].head.contains("ratewright-attempt: 2"));
}

/// E3: the same through a layer around hyper.
#[tokio::test]
async fn e3_a_throttled_request_by_the_layer_waits_and_uses_its_connection_again() {
    let server = Server::start(&[LIMITED, OK]).await;
    let request = Request::get(&server.url).body(Full::new(Bytes::new())).unwrap();
    let response = send_by_layer(request).await;
    assert_eq!((response.status(), summary(response.extensions())), (StatusCode::OK, (2, Why::Done)));
    let heard = server.heard();
    assert!(heard[1].at - heard[0].at >= Duration::from_secs(1));
    assert_eq!(heard[1].connection, heard[0].connection);
}

/// A date in Retry-After, and our clock years off: the server's own Date counts.
#[tokio::test]
async fn a_date_is_compared_with_the_servers_clock() {
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let date = |after: u64| httpdate::fmt_http_date(long_ago + Duration::from_secs(after));
    let limited = format!(
        "HTTP/1.1 503 Service Unavailable\r\nDate: {}\r\nRetry-After: {}\r\nContent-Length: 0\r\n\r\n",
        date(0),
        date(1)
    );
    let server = Server::start(&[&limited, OK]).await;
    assert_eq!(client().get(&server.url).send().await.unwrap().status(), 200);
    let heard = server.heard();
    assert!(heard[1].at - heard[0].at >= Duration::from_secs(1));
}

/// Every attempt sends the same bytes; 64 KiB at the most are kept for that.
#[tokio::test]
async fn bodies_are_sent_again_whole_or_not_at_all() {
    let bytes = |length: usize| (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<u8>>();
    for (length, n_sends) in [(0, 3), (1, 3), (65_536, 3), (65_537, 1)] {
        let server = Server::start(&[FAILED, FAILED, OK]).await;
        client().put(&server.url).body(bytes(length)).send().await.unwrap();
        let by_layer = Server::start(&[FAILED, FAILED, OK]).await;
        send_by_layer(Request::put(&by_layer.url).body(Full::new(Bytes::from(bytes(length)))).unwrap()).await;
        for heard in [server.heard(), by_layer.heard()] {
            assert_eq!(heard.len(), n_sends, "{length} bytes");
            assert!(heard.iter().all(|heard| heard.body == bytes(length)), "{length} bytes");
        }
    }
}

#[tokio::test]
async fn a_stream_is_sent_once_and_one_from_a_factory_again() {
    let stream = || {
        let frames =
            ["one ", "two"].map(|text| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text))));
        StreamBody::new(futures_util::stream::iter(frames))
    };
    let server = Server::start(&[FAILED, OK]).await;
    let response = send_by_layer(Request::put(&server.url).body(stream()).unwrap()).await;
    assert_eq!(
        (response.status(), summary(response.extensions())),
        (StatusCode::BAD_GATEWAY, (1, Why::Body))
    );
    assert_eq!(server.heard().len(), 1);

    let server = Server::start(&[FAILED, OK]).await;
    let request = Request::put(&server.url).extension(BodyFactory::new(stream)).body(stream()).unwrap();
    assert_eq!(send_by_layer(request).await.status(), 200);
    let heard = server.heard();
    assert_eq!((heard.len(), &heard[0].body), (2, &heard[1].body));

    let server = Server::start(&[FAILED, OK]).await;
    let factory = BodyFactory::reqwest(move || reqwest::Body::wrap(stream()));
    let once = client().put(&server.url).body(reqwest::Body::wrap(stream())).send().await.unwrap();
    assert_eq!((once.status().as_u16(), server.heard().len()), (502, 1));
    let server = Server::start(&[FAILED, OK]).await;
    let twice = client().put(&server.url).with_extension(factory).send().await.unwrap();
    assert_eq!((twice.status().as_u16(), server.heard().len()), (200, 2));
}

/// Nothing was sent where nobody listens, so even a POST is tried again; the last error goes to the caller.
#[tokio::test]
async fn a_refused_connection_is_tried_again() {
    let url = closed_address();
    let sends = Arc::new(Mutex::new(0));
    let count = sends.clone();
    let retry =
        Retry::builder().policy(quick()).on_event(move |event| *count.lock().unwrap() = event.attempts);
    let error = Client::with(builder(), Policy::default(), retry.build())
        .unwrap()
        .post(&url)
        .body("x")
        .send()
        .await
        .unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert_eq!(*sends.lock().unwrap(), 4);
}

/// A connection that closes without a response: a GET is sent again, a POST is not, since it may have been processed.
#[tokio::test]
async fn a_lost_response_is_asked_for_again_only_if_that_is_safe() {
    let server = Server::start(&[CLOSED, OK]).await;
    assert_eq!(client().get(&server.url).send().await.unwrap().status(), 200);
    let server = Server::start(&[CLOSED, OK]).await;
    client().post(&server.url).body("x").send().await.unwrap_err();
    assert_eq!(server.heard().len(), 1);
    let server = Server::start(&[CLOSED, OK]).await;
    let response = client().post(&server.url).header("Idempotency-Key", "k1").body("x").send().await.unwrap();
    assert_eq!((response.status().as_u16(), server.heard().len()), (200, 2));
}

/// The caller's policy for redirects holds; reqwest's builder cannot be asked for its own.
#[tokio::test]
async fn a_client_follows_the_redirects_that_its_policy_allows() {
    let redirect = "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n";
    for (policy, status) in [(Policy::none(), 302), (Policy::limited(1), 200)] {
        let server = Server::start(&[redirect, OK]).await;
        let client = Client::with(builder(), policy, Retry::new()).unwrap();
        assert_eq!(client.get(&server.url).send().await.unwrap().status(), status);
    }
}

/// After a redirect neither a 429 nor a refused connection proves that the first hop did nothing: a POST is not repeated.
#[tokio::test]
async fn a_redirected_post_is_not_sent_twice() {
    let limited = Server::start(&[LIMITED]).await;
    let nobody = closed_address();
    for target in [&limited.url, &nobody] {
        let redirect = format!("HTTP/1.1 303 See Other\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n");
        let server = Server::start(&[&redirect]).await;
        let result = client().post(&server.url).body("order").send().await;
        assert_eq!(server.heard().len(), 1, "{target}: {result:?}");
        let server = Server::start(&[&redirect]).await;
        let _ = client().get(&server.url).send().await;
        assert_eq!(server.heard().len(), 4, "a GET is repeated all the same");
    }
}

/// A redirect to the request's own URL counts, too. The middleware cannot see it, so it repeats a POST after no 429.
#[tokio::test]
async fn a_post_that_is_redirected_to_its_own_url_is_not_sent_twice() {
    let middleware = || {
        let retry = Retry::builder().policy(quick()).build();
        reqwest_middleware::ClientBuilder::new(builder().build().unwrap()).with(retry).build()
    };
    let redirect = "HTTP/1.1 303 See Other\r\nLocation: /items\r\nContent-Length: 0\r\n\r\n";
    for is_middleware in [false, true] {
        let server = Server::start(&[redirect, LIMITED, OK]).await;
        let post = if is_middleware { middleware().post(&server.url) } else { client().post(&server.url) };
        let response = post.body("order").send().await.unwrap();
        let expected = (StatusCode::TOO_MANY_REQUESTS, (1, Why::Unsafe));
        assert_eq!((response.status(), summary(response.extensions())), expected, "{is_middleware}");
        assert_eq!(server.heard().len(), 2, "the POST, and the GET of the redirect");

        let server = Server::start(&[LIMITED, OK]).await;
        let post = if is_middleware { middleware().post(&server.url) } else { client().post(&server.url) };
        let status = post.body("order").send().await.unwrap().status();
        assert_eq!(status.as_u16(), if is_middleware { 429 } else { 200 }, "no redirect");
    }
    let server = Server::start(&[LIMITED, OK]).await;
    let post = middleware().post(&server.url).header("Idempotency-Key", "k1").body("order");
    assert_eq!(post.send().await.unwrap().status(), 200);
}

/// A body that is read from elsewhere can fail with a refused connection. That proves nothing: a part may have been sent.
#[tokio::test]
async fn a_failing_body_is_no_proof_that_nothing_was_sent() {
    let refused = Arc::new(builder().build().unwrap().get(closed_address()).send().await.unwrap_err());
    assert!(refused.is_connect());
    let body = move || {
        let parts = [Ok(http_body::Frame::data(Bytes::from("half an order"))), Err(refused.clone())];
        StreamBody::new(futures_util::stream::iter(parts))
    };
    for is_layer in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        // It opens connections and reads nothing. When the call is over, all of its connections are in the queue.
        if is_layer {
            let http = HyperClient::builder(TokioExecutor::new()).build_http();
            let service = RetryLayer::new(Retry::builder().policy(quick()).build()).layer(http);
            let request = Request::post(&url).extension(BodyFactory::new(body.clone())).body(body()).unwrap();
            within("a failure", service.oneshot(request)).await.unwrap_err();
        } else {
            let body = body.clone();
            let factory = BodyFactory::reqwest(move || reqwest::Body::wrap(body()));
            client().post(&url).with_extension(factory).send().await.unwrap_err();
        }
        let listener = listener.into_std().unwrap();
        let n_connections = std::iter::from_fn(|| listener.accept().ok()).count();
        assert_eq!(n_connections, 1, "layer: {is_layer}");
    }
}

/// A factory makes every body, also if the request itself has none.
#[tokio::test]
async fn a_factory_beside_an_empty_body_is_used() {
    let server = Server::start(&[FAILED, OK]).await;
    let factory = BodyFactory::new(|| Full::new(Bytes::from_static(b"made")));
    let request = Request::put(&server.url).extension(factory).body(Full::new(Bytes::new())).unwrap();
    assert_eq!(send_by_layer(request).await.status(), 200);
    assert!(server.heard().iter().all(|heard| heard.body == b"made"));
}

/// A response that breaks off belongs to the caller: nobody asks for it again behind its back.
#[tokio::test]
async fn a_response_that_breaks_off_is_not_repeated() {
    let server = Server::start(&["HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nhalf", OK]).await;
    let response = client().get(&server.url).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.bytes().await.unwrap_err();
    assert_eq!(server.heard().len(), 1);
}

/// A large body of a 502 is not read to its end, and the caller still gets the next response.
#[tokio::test]
async fn a_large_error_body_is_abandoned() {
    let large =
        format!("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    let server = Server::start(&[&large, OK]).await;
    let response = client().get(&server.url).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "ok"));
}

/// The example runs, and says what it waits for.
#[tokio::test]
async fn the_example_waits_and_gets_its_response() {
    let server = Server::start(&[LIMITED, OK]).await;
    let mut example = std::env::current_exe().unwrap();
    example.pop(); // deps
    example.set_file_name("examples/get");
    if !example.exists() {
        ratewright_lab::skip("the example is not built; `cargo test -p ratewright-client` builds it");
        return;
    }
    let url = server.url.clone();
    let run = move || output(without_settings(&mut std::process::Command::new(example)).arg(url));
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("attempt 1 failed, waiting 1."), "{text}");
    assert!(text.ends_with("200 OK after 2 attempts: ok\n"), "{text}");
}

/// A policy for one attempt, whose deadline leaves room for one send after a wait of one second.
fn short() -> Retry {
    let deadline = Duration::from_millis(1_200);
    Retry::builder().policy(quick().attempts(1).deadline(deadline)).build()
}

fn is_unsent(end: RetrySummary) -> bool {
    (end.attempts, end.why) == (0, Why::Deadline) && end.retry_at.is_some()
}

/// Whether a call ends with a response or at its deadline, by reqwest or by the layer: its summary is found the same way.
#[tokio::test]
async fn a_summary_is_found_in_responses_and_in_errors() {
    let server = Server::start(&[LIMITED, OK]).await;
    let client = Client::with(builder(), Policy::default(), short()).unwrap();
    let send = || client.get(&server.url).send();
    let throttled = RetrySummary::of(&send().await).unwrap();
    assert_eq!((throttled.attempts, throttled.why), (1, Why::Attempts));
    let ends = futures_util::future::join_all((0..3).map(|_| send())).await;
    assert!(ends.iter().any(|end| end.is_err() && RetrySummary::of(end).is_some_and(is_unsent)), "{ends:?}");

    let server = Server::start(&[LIMITED, OK]).await;
    let http = HyperClient::builder(TokioExecutor::new()).build_http::<ReplayBody<Full<Bytes>>>();
    let service = RetryLayer::new(short()).layer(http);
    let request = || Request::get(&server.url).body(Full::default()).unwrap();
    let send = || within("the end of a call", service.clone().oneshot(request()));
    assert_eq!(RetrySummary::of(&send().await).map(|end| end.why), Some(Why::Attempts));
    let ends = futures_util::future::join_all((0..3).map(|_| send())).await;
    assert!(ends.iter().any(|end| end.is_err() && RetrySummary::of(end).is_some_and(is_unsent)), "{ends:?}");
}
