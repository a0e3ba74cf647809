//! HTTP/2 over real sockets: which streams are proof that a request was not processed, and which are not.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::TokioExecutor;
use ratewright_client::call::BodyFactory;
use ratewright_client::{Retry, RetryLayer};
use ratewright_lab::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::{BoxError, Service, ServiceExt};
use tower_layer::Layer;

use crate::sockets::quick;

/// What a server does with its first request. It serves all others.
#[derive(Clone, Copy, Debug)]
enum First {
    /// RST_STREAM with REFUSED_STREAM.
    Refuse,
    /// The same, on a connection that ends with it.
    RefuseAndGoAway,
    /// No response.
    Hang,
    /// GOAWAY with NO_ERROR and this last stream, then the connection ends. The request is on stream 1.
    GoAway { last_stream: u32 },
}

/// Frame types and the flag of RFC 9113 §6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
/// What a client sends before its first frame.
const PREFACE: usize = 24;

/// A refused stream was not processed, also on a connection that ends with it; a POST is sent again.
#[tokio::test]
async fn e3_streams_that_http2_did_not_process_are_sent_again() {
    for first in [First::Refuse, First::RefuseAndGoAway, First::GoAway { last_stream: 0 }] {
        assert_eq!(send(Method::POST, first).await, (Some(StatusCode::OK), 2), "{first:?}");
    }
}

/// A stream that GOAWAY includes may have been processed. If its connection is lost then, a POST is not sent again.
#[tokio::test]
async fn e3_a_stream_that_goaway_includes_is_sent_again_only_if_that_is_safe() {
    let first = First::GoAway { last_stream: 1 };
    assert_eq!(send(Method::POST, first).await, (None, 1));
    assert_eq!(send(Method::GET, first).await, (Some(StatusCode::OK), 2));
}

/// A body that fails because another server refused its stream makes hyper reset this stream with the same code. The
/// server did not refuse it, so a POST is not sent again.
#[tokio::test]
async fn e3_a_stream_that_the_client_resets_is_not_sent_again() {
    let request = |n_requests: watch::Receiver<u32>| {
        let body = move || {
            let mut n_requests = n_requests.clone();
            let fails = async move {
                n_requests.wait_for(|n| *n > 0).await.unwrap();
                Err::<Frame<Bytes>, _>(h2::Error::from(h2::Reason::REFUSED_STREAM))
            };
            StreamBody::new(Box::pin(futures_util::stream::once(fails)))
        };
        Request::post("/").extension(BodyFactory::new(body.clone())).body(body()).unwrap()
    };
    assert_eq!(send_request(request, First::Hang).await, (None, 1));
}

async fn send(method: Method, first: First) -> (Option<StatusCode>, u32) {
    let request = Request::builder().method(method).uri("/").body(Full::new(Bytes::from("x"))).unwrap();
    send_request(|_| request, first).await
}

/// Sends one request through the layer: the status of its response, and how many requests the server got. The request may know
/// that too.
async fn send_request<B>(
    request: impl FnOnce(watch::Receiver<u32>) -> Request<B>,
    first: First,
) -> (Option<StatusCode>, u32)
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (count, n_requests) = watch::channel(0);
    let mut request = request(n_requests.clone());
    *request.uri_mut() = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            match first {
                First::GoAway { last_stream } if connection == 0 => {
                    tokio::spawn(go_away(stream, last_stream, count.clone()))
                }
                First::GoAway { .. } | First::Refuse | First::RefuseAndGoAway | First::Hang => {
                    tokio::spawn(serve(stream, first, count.clone()))
                }
            };
        }
    });
    let http = HyperClient::builder(TokioExecutor::new()).http2_only(true).build_http();
    let mut service = RetryLayer::new(Retry::builder().policy(quick()).build()).layer(http);
    let response = async { service.ready().await.unwrap().call(request).await };
    let response: Result<_, BoxError> = within("the end of the call", response).await;
    let status = match response {
        Ok(response) => {
            let status = response.status();
            let body = within("the whole body", response.into_body().collect()).await;
            assert_eq!(body.unwrap().to_bytes(), "");
            Some(status)
        }
        Err(_) => None,
    };
    let n_requests = *n_requests.borrow();
    (status, n_requests)
}

/// Refuses the first request that it gets, on any connection, or leaves it without a response, and serves the others.
async fn serve(stream: TcpStream, first: First, n_requests: watch::Sender<u32>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut hanging = Vec::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        n_requests.send_modify(|n| *n += 1);
        if *n_requests.borrow() > 1 {
            respond.send_response(Response::new(()), true).unwrap();
            continue;
        }
        if matches!(first, First::Hang) {
            hanging.push((request, respond));
            continue;
        }
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        if matches!(first, First::RefuseAndGoAway) {
            connection.graceful_shutdown();
        }
    }
}

/// Reads one whole request, sends GOAWAY without a reset, and closes: by hand, since h2 would finish the stream first.
async fn go_away(mut stream: TcpStream, last_stream: u32, n_requests: watch::Sender<u32>) {
    stream.write_all(&frame(SETTINGS, &[])).await.unwrap();
    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let [high, middle, low, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            break;
        }
    }
    n_requests.send_modify(|n| *n += 1);
    let no_error = 0_u32;
    let payload = [last_stream.to_be_bytes(), no_error.to_be_bytes()].concat();
    stream.write_all(&frame(GOAWAY, &payload)).await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await; // data left unread would reset the connection before GOAWAY arrives
}

/// A frame of the connection, without flags.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}
