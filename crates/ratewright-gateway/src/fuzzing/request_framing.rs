//! Request boundaries: where the gateway finds them, and where hyper finds them in the bytes that the gateway forwards.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;

use super::{FakePeer, run, split_input};
use crate::body::Body;
use crate::strict::{Strict, messages::Messages};

const HEADER_MAX: usize = 8192;

/// A request as the gateway's parser finds it.
#[derive(Default, Debug)]
struct GatewayRequest {
    head: Vec<u8>,
    body: Vec<u8>,
    is_complete: bool,
}

/// A request as hyper gives it to a service.
#[derive(Debug)]
struct HyperRequest {
    method: Method,
    n_headers: usize,
    /// None if the body is incomplete.
    body: Option<Vec<u8>>,
    is_refused: bool,
}

/// The laws for the bytes of a client:
/// - Splitting them into other reads changes neither the requests that the gateway finds nor where it stops.
/// - hyper reads no request that the gateway did not find; head and body agree to the byte.
/// - After a rejected request, hyper reads no more.
///
/// # Panics
/// If a law is broken.
pub fn request_framing(input: &[u8]) {
    let Some((_, piece, bytes)) = split_input(input) else { return };
    check_splits(bytes, piece);
    let followed = follow(bytes);
    let seen = read(bytes, piece);
    assert!(
        seen.len() <= followed.len(),
        "hyper read more requests than the gateway found: {seen:?}, gateway {followed:?}"
    );
    for (n, (seen, followed)) in seen.iter().zip(&followed).enumerate() {
        if seen.is_refused {
            return;
        }
        let lines = followed.head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        assert!(
            lines[0].starts_with(seen.method.as_str().as_bytes()),
            "request {n}: hyper {seen:?}, gateway {followed:?}"
        );
        assert_eq!(seen.n_headers, lines.len() - 1, "request {n}: hyper {seen:?}, gateway {followed:?}");
        if let Some(body) = &seen.body {
            assert!(
                followed.is_complete,
                "request {n}: complete for hyper only: {seen:?}, gateway {followed:?}"
            );
            assert_eq!(body, &followed.body, "request {n}");
        }
    }
}

fn check_splits(bytes: &[u8], piece: usize) {
    let (mut whole, mut split) = (Messages::new(HEADER_MAX), Messages::new(HEADER_MAX));
    let n_whole = whole.follow(bytes);
    let mut n_split = 0;
    for piece in bytes.chunks(piece.min(bytes.len()).max(1)) {
        n_split += split.follow(piece);
        assert!(split.n_kept() <= HEADER_MAX);
    }
    assert_eq!((whole.n_heads(), whole.end()), (split.n_heads(), split.end()));
    // When a chunk line is invalid, the parts of it that came before its end have already been forwarded.
    assert!(n_whole <= n_split && n_split <= bytes.len());
    assert!(n_whole == n_split || whole.is_broken(), "{n_whole} {n_split} {whole:?}");
}

/// The requests that the gateway finds, byte by byte.
fn follow(bytes: &[u8]) -> Vec<GatewayRequest> {
    let mut messages = Messages::new(HEADER_MAX);
    let (mut found, mut head) = (Vec::<GatewayRequest>::new(), Vec::new());
    for byte in bytes {
        let (n_heads, is_body) = (messages.n_heads(), messages.is_body());
        if messages.follow(&[*byte]) == 0 || messages.is_tunnel() {
            break;
        }
        match found.last_mut() {
            Some(last) if is_body => last.body.push(*byte),
            Some(last) if !last.is_complete => {} // a line between chunks
            _ => head.push(*byte),
        }
        if messages.n_heads() > n_heads {
            found.push(GatewayRequest { head: std::mem::take(&mut head), ..GatewayRequest::default() });
        }
        if let Some(last) = found.last_mut() {
            last.is_complete |= messages.is_between_messages();
        }
    }
    found
}

/// The requests that hyper reads from the gateway's [`Strict`] stream.
fn read(bytes: &[u8], piece: usize) -> Vec<HyperRequest> {
    let stream = Strict::new(FakePeer::new(bytes, piece), HEADER_MAX);
    let (flag, seen) = (stream.flag(), Rc::new(RefCell::new(Vec::new())));
    let kept = Rc::clone(&seen);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (is_refused, seen) = (flag.take().is_some(), Rc::clone(&kept));
        respond(request, is_refused, seen)
    });
    let mut builder = auto::Builder::new(DropTasks);
    builder.http1().max_buf_size(HEADER_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let _ended = run(pin!(connection));
    seen.take()
}

/// Records a request, and responds when its body has ended.
async fn respond(
    request: Request<Incoming>,
    is_refused: bool,
    seen: Rc<RefCell<Vec<HyperRequest>>>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Body::empty());
    if head.method == Method::CONNECT {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED; // or it would become a tunnel
    }
    let n_headers = head.headers.len();
    seen.borrow_mut().push(HyperRequest { method: head.method, n_headers, body: None, is_refused });
    if !is_refused && let Some(body) = collect(body).await {
        seen.borrow_mut().last_mut().expect("pushed above").body = Some(body);
    }
    Ok(response)
}

/// Drops the tasks that hyper spawns for HTTP/2 streams: this law covers HTTP/1.1 only.
#[derive(Clone, Copy)]
struct DropTasks;

impl<F> hyper::rt::Executor<F> for DropTasks {
    fn execute(&self, _: F) {}
}

/// The whole body, or None if it is incomplete.
async fn collect(body: Incoming) -> Option<Vec<u8>> {
    let (mut body, mut bytes) = (pin!(body), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        bytes.extend(frame.ok()?.into_data().unwrap_or_default());
    }
    Some(bytes)
}
