//! Where requests begin and end: as the gateway follows them, and as hyper reads what the gateway passes on.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;

use super::{Script, cut, run};
use crate::body::Body;
use crate::strict::{Strict, messages::Messages};

const HEADER_MAX: usize = 8192;

/// A request as the gateway follows it.
#[derive(Default, Debug)]
struct Followed {
    head: Vec<u8>,
    body: Vec<u8>,
    is_whole: bool,
}

/// A request as hyper gives it to a service.
#[derive(Debug)]
struct Seen {
    method: Method,
    n_fields: usize,
    /// Nothing, if it broke off.
    body: Option<Vec<u8>>,
    is_refused: bool,
}

/// Bytes of a client keep these laws:
/// - However they are cut, the gateway finds the same requests and the same end.
/// - Every request that hyper reads is one that the gateway has followed: the same head, the same body, to the byte.
/// - After a request that is refused, hyper reads none.
///
/// # Panics
/// If they do not.
pub fn request_framing(input: &[u8]) {
    let Some((_, piece, bytes)) = cut(input) else { return };
    check_cuts(bytes, piece);
    let followed = follow(bytes);
    let seen = read(bytes, piece);
    assert!(seen.len() <= followed.len(), "hyper reads more requests: {seen:?} of {followed:?}");
    for (n, (seen, followed)) in seen.iter().zip(&followed).enumerate() {
        if seen.is_refused {
            return;
        }
        let lines = followed.head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        assert!(lines[0].starts_with(seen.method.as_str().as_bytes()), "{n}: {seen:?} of {followed:?}");
        assert_eq!(seen.n_fields, lines.len() - 1, "{n}: {seen:?} of {followed:?}");
        if let Some(body) = &seen.body {
            assert!(followed.is_whole, "{n}: hyper reads an end: {seen:?} of {followed:?}");
            assert_eq!(body, &followed.body, "{n}");
        }
    }
}

fn check_cuts(bytes: &[u8], piece: usize) {
    let (mut whole, mut cut) = (Messages::new(HEADER_MAX), Messages::new(HEADER_MAX));
    let n_whole = whole.follow(bytes);
    let mut n_cut = 0;
    for piece in bytes.chunks(piece.min(bytes.len()).max(1)) {
        n_cut += cut.follow(piece);
        assert!(cut.n_kept() <= HEADER_MAX);
    }
    assert_eq!((whole.n_heads(), whole.end()), (cut.n_heads(), cut.end()));
    // Of a line that breaks a body, the pieces that came before its end are passed on.
    assert!(n_whole <= n_cut && n_cut <= bytes.len());
    assert!(n_whole == n_cut || whole.is_broken(), "{n_whole} {n_cut} {whole:?}");
}

/// The requests that the gateway finds, byte by byte.
fn follow(bytes: &[u8]) -> Vec<Followed> {
    let mut messages = Messages::new(HEADER_MAX);
    let (mut found, mut head) = (Vec::<Followed>::new(), Vec::new());
    for byte in bytes {
        let (n_heads, is_body) = (messages.n_heads(), messages.is_body());
        if messages.follow(&[*byte]) == 0 || messages.is_tunnel() {
            break;
        }
        match found.last_mut() {
            Some(last) if is_body => last.body.push(*byte),
            Some(last) if !last.is_whole => {} // a line between the pieces of a body
            _ => head.push(*byte),
        }
        if messages.n_heads() > n_heads {
            found.push(Followed { head: std::mem::take(&mut head), ..Followed::default() });
        }
        if let Some(last) = found.last_mut() {
            last.is_whole |= messages.is_between();
        }
    }
    found
}

/// The requests that hyper reads behind the gateway's own stream.
fn read(bytes: &[u8], piece: usize) -> Vec<Seen> {
    let stream = Strict::new(Script::new(bytes, piece), HEADER_MAX);
    let (flag, seen) = (stream.flag(), Rc::new(RefCell::new(Vec::new())));
    let kept = Rc::clone(&seen);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (is_refused, seen) = (flag.take().is_some(), Rc::clone(&kept));
        answer(request, is_refused, seen)
    });
    let mut builder = auto::Builder::new(NoTasks);
    builder.http1().max_buf_size(HEADER_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let _ended = run(pin!(connection));
    seen.take()
}

/// Takes note of a request, and answers it when its body has come to its end.
async fn answer(
    request: Request<Incoming>,
    is_refused: bool,
    seen: Rc<RefCell<Vec<Seen>>>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let mut answer = Response::new(Body::empty());
    if head.method == Method::CONNECT {
        *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED; // or it would become a tunnel
    }
    let n_fields = head.headers.len();
    seen.borrow_mut().push(Seen { method: head.method, n_fields, body: None, is_refused });
    if !is_refused && let Some(body) = collect(body).await {
        seen.borrow_mut().last_mut().expect("it was put there").body = Some(body);
    }
    Ok(answer)
}

/// Streams of HTTP/2 are tasks. They are not looked at here: a client that speaks HTTP/2 must be none that is followed.
#[derive(Clone, Copy)]
struct NoTasks;

impl<F> hyper::rt::Executor<F> for NoTasks {
    fn execute(&self, _: F) {}
}

/// All of a body, if it comes to its end.
async fn collect(body: Incoming) -> Option<Vec<u8>> {
    let (mut body, mut bytes) = (pin!(body), Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        bytes.extend(frame.ok()?.into_data().unwrap_or_default());
    }
    Some(bytes)
}
