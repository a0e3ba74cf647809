//! Upstream responses: as the gateway's parser reads them, and as hyper's client does.

use std::pin::pin;

use bytes::BytesMut;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body as _;
use hyper_util::rt::TokioIo;

use super::{FakePeer, MessageEnd, run, split_input};
use crate::body::Body;
use crate::h1::decode::{Decoded, Decoder};
use crate::h1::head;

/// A response, possibly incomplete.
#[derive(PartialEq, Debug)]
struct ParsedResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
    end: MessageEnd,
    /// True if the connection may carry another request.
    is_reusable: bool,
}

/// The laws for the bytes of an upstream:
/// - Splitting them into other reads does not change the response.
/// - hyper reads every complete response that the gateway forwards with the same status, body and trailers.
/// - A response that is incomplete for the gateway is not complete for hyper: the gateway never waits for bytes that
///   would belong to the next response. Of a body that is cut off or invalid, both have read the same bytes, as far as
///   both came.
/// - A connection that the gateway uses again, hyper uses again.
///
/// # Panics
/// If a law is broken.
pub fn upstream_response(input: &[u8]) {
    let Some((choice, piece, bytes)) = split_input(input) else { return };
    let method = [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS][usize::from(choice % 4)].clone();
    let ours = read(&method, bytes, usize::MAX);
    assert_eq!(ours, read(&method, bytes, piece), "split into other reads");
    let theirs = read_by_hyper(&method, FakePeer::new(bytes, piece));
    let what = || format!("gateway {ours:?}, hyper {theirs:?}");
    let (ours, theirs) = match (&ours, &theirs) {
        (Err(MessageEnd::Rejected), _) => return,
        (Err(_), theirs) => {
            assert!(theirs.is_err(), "a response for hyper only: {}", what());
            return;
        }
        (Ok(_), Err(_)) => panic!("a response for the gateway only: {}", what()),
        (Ok(ours), Ok(theirs)) => (ours, theirs),
    };
    assert_eq!(ours.status, theirs.status);
    if ours.status == StatusCode::SWITCHING_PROTOCOLS {
        return; // what follows belongs to another protocol
    }
    for (name, value) in &ours.headers {
        assert!(theirs.headers.get_all(name).iter().any(|theirs| theirs == value), "{name:?}: {}", what());
    }
    assert!(ours.body.starts_with(&theirs.body) || theirs.body.starts_with(&ours.body), "{}", what());
    match ours.end {
        MessageEnd::Complete => {
            assert_eq!(theirs.end, MessageEnd::Complete, "{}", what());
            assert_eq!((&ours.body, &ours.trailers), (&theirs.body, &theirs.trailers));
        }
        MessageEnd::Rejected => {}
        MessageEnd::Incomplete => assert_ne!(theirs.end, MessageEnd::Complete, "{}", what()),
    }
    if ours.is_reusable {
        let theirs = read_by_hyper(&method, FakePeer::new(bytes, piece).staying_open());
        assert!(
            theirs.as_ref().is_ok_and(|theirs| theirs.is_reusable),
            "used again: {ours:?}, hyper {theirs:?}"
        );
    }
}

/// What the gateway reads.
fn read(method: &Method, bytes: &[u8], piece: usize) -> Result<ParsedResponse, MessageEnd> {
    let mut pieces = bytes.chunks(piece.min(bytes.len()).max(1));
    let (mut buffer, of_request, mut n_interim) = (BytesMut::new(), Decoder::of_request(method), 0);
    let parsed = loop {
        buffer.extend_from_slice(pieces.next().ok_or(MessageEnd::Incomplete)?);
        if let Some(parsed) =
            head::parse(&mut buffer, of_request, &mut n_interim).map_err(|_| MessageEnd::Rejected)?
        {
            break parsed;
        }
    };
    let mut decoder = parsed.decoder;
    let head = parsed.response.into_parts().0;
    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
    let end = loop {
        match decoder.decode(&mut buffer) {
            Ok(Decoded::Data(data)) => body.extend_from_slice(&data),
            Ok(Decoded::Trailers(found)) => trailers = found,
            Ok(Decoded::End) => break MessageEnd::Complete,
            Ok(Decoded::More) => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None if decoder.ends_with_connection() => break MessageEnd::Complete,
                None => break MessageEnd::Incomplete,
            },
            Err(_) => break MessageEnd::Rejected,
        }
    };
    let is_over = decoder.is_done() && buffer.is_empty() && pieces.next().is_none();
    let is_reusable = parsed.is_kept_alive && end == MessageEnd::Complete && is_over;
    Ok(ParsedResponse { status: head.status, headers: head.headers, body, trailers, end, is_reusable })
}

/// What hyper reads.
fn read_by_hyper(method: &Method, peer: FakePeer) -> Result<ParsedResponse, MessageEnd> {
    let mut builder = hyper::client::conn::http1::Builder::new();
    let handshake = builder.max_headers(head::HEADERS_MAX).handshake(TokioIo::new(peer.after_request()));
    let (mut sender, connection) = run(pin!(handshake)).and_then(Result::ok).expect("a connection");
    let request = Request::builder().method(method).uri("/").header("host", "a");
    let request = request.body(Body::empty()).expect("a request");
    let reading = async {
        let response = sender.send_request(request).await.map_err(|error| MessageEnd::of(&error))?;
        let (head, body) = response.into_parts();
        let (status, headers, trailers) = (head.status, head.headers, HeaderMap::new());
        let (end, is_reusable) = (MessageEnd::Incomplete, false);
        let mut read = ParsedResponse { status, headers, body: Vec::new(), trailers, end, is_reusable };
        let mut body = pin!(body);
        read.end = loop {
            match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                None => break MessageEnd::Complete,
                Some(Err(error)) => break MessageEnd::of(&error),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => read.body.extend_from_slice(&data),
                    Err(frame) => read.trailers = frame.into_trailers().unwrap_or_default(),
                },
            }
        };
        Ok(read)
    };
    // Polls both, and keeps reading the body after the connection future has ended.
    let mut connection = pin!(connection);
    let mut is_over = false;
    let read = {
        let mut reading = pin!(reading);
        let both = std::future::poll_fn(|cx| {
            is_over = is_over || connection.as_mut().poll(cx).is_ready();
            reading.as_mut().poll(cx)
        });
        run(pin!(both)).unwrap_or(Err(MessageEnd::Incomplete))
    };
    if !is_over {
        is_over = run(connection.as_mut()).is_some();
    }
    let is_reusable = !is_over && sender.is_ready();
    read.map(|read| ParsedResponse { is_reusable, ..read })
}
