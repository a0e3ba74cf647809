//! Request boundaries: where the gateway finds them, and where hyper finds them in the bytes that the gateway forwards.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;

use super::{FakePeer, MessageEnd, run, split_input};
use crate::body::Body;
use crate::framing_guard::{FramingGuard, messages::MessageScanner};
use crate::headers::{FramingError, check_framing};

const HEADER_MAX: usize = 8192;

/// Short enough for an input to exceed it.
const SHORT_HEADER_MAX: usize = 64;

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
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
    end: MessageEnd,
    is_rejected: bool,
}

/// The laws for the bytes of a client:
/// - Splitting them into other reads changes neither the requests that the gateway finds nor where it stops.
/// - hyper reads no request that the gateway did not find. Method, path and headers are the same.
/// - hyper never reads more of a body than the gateway found, and where the gateway finds its end, hyper does not wait
///   for more: it finds the same end, or rejects the body.
/// - After a rejected request, hyper reads no more. Of the others, only the host may be rejected later.
///
/// # Panics
/// If a law is broken.
pub fn request_framing(input: &[u8]) {
    let Some((_, piece, bytes)) = split_input(input) else { return };
    for header_max in [HEADER_MAX, SHORT_HEADER_MAX] {
        check_splits(bytes, piece, header_max);
    }
    let (found, read) = (find(bytes), read_by_hyper(bytes, piece));
    assert!(
        read.len() <= found.len(),
        "hyper read more requests than the gateway found: {read:?}, gateway {found:?}"
    );
    for (n, (hyper, gateway)) in read.iter().zip(&found).enumerate() {
        if hyper.is_rejected {
            assert_eq!(n + 1, read.len(), "hyper reads on after a rejected request: {read:?}");
            return;
        }
        let what = || format!("request {n}: hyper {hyper:?}, gateway {gateway:?}");
        check_head(hyper, &gateway.head, &what);
        assert!(gateway.body.starts_with(&hyper.body), "{}", what());
        match hyper.end {
            MessageEnd::Complete => assert!(gateway.is_complete && hyper.body == gateway.body, "{}", what()),
            MessageEnd::Rejected => {}
            MessageEnd::Incomplete => assert!(!gateway.is_complete, "{}", what()),
        }
    }
}

fn check_splits(bytes: &[u8], piece: usize, header_max: usize) {
    let (mut whole, mut split) = (MessageScanner::new(header_max), MessageScanner::new(header_max));
    let n_whole = whole.follow(bytes);
    let mut n_split = 0;
    for piece in bytes.chunks(piece.min(bytes.len()).max(1)) {
        n_split += split.follow(piece);
        assert!(split.n_kept() <= header_max.max(1024));
    }
    assert_eq!((whole.n_heads(), whole.end()), (split.n_heads(), split.end()));
    // When a chunk line is invalid, the parts of it that came before its end have already been forwarded.
    assert!(n_whole <= n_split && n_split <= bytes.len());
    assert!(n_whole == n_split || whole.is_broken(), "{n_whole} {n_split} {whole:?}");
}

fn check_head(hyper: &HyperRequest, head: &[u8], what: &dyn Fn() -> String) {
    let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut lines = lines.filter(|line| !line.is_empty());
    let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
    assert_eq!(words.next(), Some(hyper.method.as_str().as_bytes()), "{}", what());
    // http cuts a fragment off, and gives other forms of a target a path of their own.
    let target = words.next().filter(|target| target.starts_with(b"/") && !target.contains(&b'#'));
    let path = hyper.uri.path_and_query().map(|path| path.as_str().as_bytes());
    assert!(target.is_none() || target == path, "{}", what());
    let mut n_headers = 0;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or_else(|| panic!("{}", what()));
        let name = std::str::from_utf8(&line[..colon]).unwrap_or_else(|_| panic!("{}", what()));
        let mut values = hyper.headers.get_all(name).iter();
        assert!(values.any(|value| value == line[colon + 1..].trim_ascii()), "{}", what());
        n_headers += 1;
    }
    assert_eq!(hyper.headers.len(), n_headers, "{}", what());
}

/// The requests that the gateway finds, byte by byte.
fn find(bytes: &[u8]) -> Vec<GatewayRequest> {
    let mut messages = MessageScanner::new(HEADER_MAX);
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

/// The requests that hyper reads from the gateway's [`FramingGuard`] stream.
fn read_by_hyper(bytes: &[u8], piece: usize) -> Vec<HyperRequest> {
    // If it closed, hyper would drop the last request before its service is done.
    let stream = FramingGuard::new(FakePeer::new(bytes, piece).staying_open(), HEADER_MAX);
    let (guard, read) = (stream.handle(), Rc::new(RefCell::new(Vec::new())));
    let kept = Rc::clone(&read);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (is_rejected, read) = (guard.next_verdict().is_some(), Rc::clone(&kept));
        respond(request, is_rejected, read)
    });
    let mut builder = auto::Builder::new(DropTasks);
    builder.http1().max_buf_size(HEADER_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let _ended = run(pin!(connection));
    read.take()
}

/// Records a request, and responds when its body has ended.
async fn respond(
    request: Request<Incoming>,
    is_rejected: bool,
    read: Rc<RefCell<Vec<HyperRequest>>>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    if !is_rejected {
        let is_about_host = |framing| {
            matches!(
                framing,
                FramingError::MissingHost
                    | FramingError::DuplicateHost
                    | FramingError::InvalidHost
                    | FramingError::HostMismatch
            )
        };
        let checked = check_framing(&head);
        assert!(!checked.as_ref().is_err_and(|framing| !is_about_host(*framing)), "{checked:?}: {head:?}");
    }
    let mut response = Response::new(Body::empty());
    if head.method == Method::CONNECT {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED; // or it would become a tunnel
    }
    let (method, uri, headers) = (head.method, head.uri, head.headers);
    read.borrow_mut().push(HyperRequest {
        method,
        uri,
        headers,
        body: Vec::new(),
        end: MessageEnd::Incomplete,
        is_rejected,
    });
    if is_rejected {
        return Ok(response);
    }
    let mut body = pin!(body);
    let end = loop {
        match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            None => break MessageEnd::Complete,
            Some(Err(error)) => break MessageEnd::of(&error),
            Some(Ok(frame)) => {
                let mut read = read.borrow_mut();
                let last = read.last_mut().expect("pushed above");
                last.body.extend(frame.into_data().unwrap_or_default());
            }
        }
    };
    read.borrow_mut().last_mut().expect("pushed above").end = end;
    Ok(response)
}

/// Drops the tasks that hyper spawns for HTTP/2 streams: this law covers HTTP/1.1 only.
#[derive(Clone, Copy)]
struct DropTasks;

impl<F> hyper::rt::Executor<F> for DropTasks {
    fn execute(&self, _: F) {}
}
