//! Upstream responses: as the gateway's parser reads them, and as hyper's client does.

use std::pin::pin;

use bytes::BytesMut;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body as _;
use hyper_util::rt::TokioIo;

use super::{FakePeer, run, split_input};
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
    /// Whether the body came to its end.
    is_complete: bool,
}

/// The laws for the bytes of an upstream:
/// - Splitting them into other reads does not change the response.
/// - hyper reads every complete response that the gateway forwards with the same status, body and trailers.
///
/// # Panics
/// If a law is broken.
pub fn upstream_response(input: &[u8]) {
    let Some((choice, piece, bytes)) = split_input(input) else { return };
    let method = [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS][usize::from(choice % 4)].clone();
    let ours = read(&method, bytes, usize::MAX);
    assert_eq!(ours, read(&method, bytes, piece), "split into other reads");
    let Some(ours) = ours.filter(|ours| ours.is_complete) else { return };
    let Some(theirs) = read_by_hyper(&method, bytes, piece) else {
        panic!("hyper reads no response; gateway {ours:?}");
    };
    assert_eq!(ours.status, theirs.status);
    if ours.status == StatusCode::SWITCHING_PROTOCOLS {
        return; // what follows belongs to another protocol
    }
    assert!(theirs.is_complete, "incomplete for hyper only: {theirs:?}, gateway {ours:?}");
    assert_eq!((&ours.body, &ours.trailers), (&theirs.body, &theirs.trailers));
    for (name, value) in &ours.headers {
        let mut values = theirs.headers.get_all(name).iter();
        assert!(values.any(|theirs| theirs == value), "{name:?}: hyper {theirs:?}, gateway {ours:?}");
    }
}

/// What the gateway reads.
fn read(method: &Method, bytes: &[u8], piece: usize) -> Option<ParsedResponse> {
    let mut pieces = bytes.chunks(piece.min(bytes.len()).max(1));
    let (mut seen, of_request) = (BytesMut::new(), Decoder::of_request(method));
    let parsed = loop {
        seen.extend_from_slice(pieces.next()?);
        if let Some(parsed) = head::parse(&mut seen, of_request).ok()? {
            break parsed;
        }
    };
    let (status, mut decoder) = (parsed.response.status(), parsed.decoder);
    let headers = parsed.response.into_parts().0.headers;
    let mut read =
        ParsedResponse { status, headers, body: Vec::new(), trailers: HeaderMap::new(), is_complete: false };
    loop {
        match decoder.decode(&mut seen) {
            Ok(Decoded::Data(data)) => read.body.extend_from_slice(&data),
            Ok(Decoded::Trailers(trailers)) => read.trailers = trailers,
            Ok(Decoded::End) => {
                read.is_complete = true;
                return Some(read);
            }
            Ok(Decoded::More) => match pieces.next() {
                Some(piece) => seen.extend_from_slice(piece),
                None => {
                    read.is_complete = decoder.ends_with_connection();
                    return Some(read);
                }
            },
            Err(_) => return Some(read),
        }
    }
}

/// What hyper reads.
fn read_by_hyper(method: &Method, bytes: &[u8], piece: usize) -> Option<ParsedResponse> {
    let stream = TokioIo::new(FakePeer::new(bytes, piece).after_request());
    let mut builder = hyper::client::conn::http1::Builder::new();
    let handshake = pin!(builder.max_headers(head::FIELDS_MAX).handshake::<_, Body>(stream));
    let (mut sender, connection) = run(handshake)?.ok()?;
    let request = Request::builder().method(method).uri("/").header("host", "a").body(Body::empty()).ok()?;
    let reading = async {
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        let (status, headers, trailers) = (head.status, head.headers, HeaderMap::new());
        let mut read = ParsedResponse { status, headers, body: Vec::new(), trailers, is_complete: false };
        let mut body = pin!(body);
        loop {
            match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                None => {
                    read.is_complete = true;
                    return Some(read);
                }
                Some(Err(_)) => return Some(read),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => read.body.extend_from_slice(&data),
                    Err(frame) => read.trailers = frame.into_trailers().unwrap_or_default(),
                },
            }
        }
    };
    // Polls both, and keeps reading the body after the connection future has ended.
    let (mut reading, mut connection) = (pin!(reading), pin!(connection));
    let mut is_over = false;
    let both = std::future::poll_fn(|cx| {
        is_over = is_over || connection.as_mut().poll(cx).is_ready();
        reading.as_mut().poll(cx)
    });
    run(pin!(both)).flatten()
}
