//! Reads request bodies of bounded length, within a timeout.
//!
//! A body that is too long is still read for a while: closing the connection while the client sends would reset it,
//! and the client would lose the response. A client that sends `Expect` gets the response at once.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use ratewright_http::Problem;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// The most bytes read beyond the limit.
const DRAIN_MAX: usize = 16 * 1024 * 1024;

/// How long a body may be, and in which time it must arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes_max: usize,
    pub(crate) timeout: Duration,
}

impl BodyLimits {
    /// For a body of JSON.
    pub(crate) const fn json(bytes_max: usize) -> Self {
        Self { bytes_max, timeout: Duration::from_secs(10) }
    }
}

/// A JSON object. Derived deserializers would also accept a list of the members' values.
#[derive(Debug, Default)]
pub(crate) struct Object<T>(pub(crate) T);

/// Reads a body.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limits: BodyLimits) -> Result<Bytes, Problem> {
    let BodyLimits { bytes_max, timeout } = limits;
    let is_long = body.size_hint().lower() > bytes_max as u64;
    if is_long && headers.contains_key(header::EXPECT) {
        return Err(too_long(bytes_max));
    }
    let slow = |_| {
        let detail = format!("body not received within {} s; send it faster", timeout.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    };
    tokio::time::timeout(timeout, collect(body, bytes_max)).await.map_err(slow)?
}

/// Reads a body within the limits and discards it; otherwise a client that is still sending would lose the response.
pub(crate) async fn discard(body: Body, limits: BodyLimits) {
    let discard = async {
        let mut chunks = body.into_data_stream();
        let mut n_bytes = 0;
        while let Some(Ok(chunk)) = chunks.next().await {
            n_bytes += chunk.len();
            if n_bytes > limits.bytes_max {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(limits.timeout, discard).await;
}

/// Reads a JSON object.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map(|Object(value)| value).map_err(|error| {
        let detail = format!("body is not valid: {error}; see /openapi.json");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

async fn collect(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let mut chunks = body.into_data_stream();
    let (mut first, mut rest, mut n_bytes) = (Bytes::new(), Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let broken = |_| {
            Problem::new(StatusCode::BAD_REQUEST, "body is incomplete: the connection ended before it did")
        };
        let chunk = chunk.map_err(broken)?;
        n_bytes += chunk.len();
        if n_bytes > bytes_max.saturating_add(DRAIN_MAX) {
            break;
        }
        if first.is_empty() {
            first = chunk;
        } else if n_bytes <= bytes_max {
            rest.extend_from_slice(&chunk);
        }
    }
    if n_bytes > bytes_max {
        return Err(too_long(bytes_max));
    }
    // Most bodies are one chunk, which is not copied.
    Ok(if rest.is_empty() { first } else { [&first[..], &rest].concat().into() })
}

fn too_long(bytes_max: usize) -> Problem {
    let detail = format!("body is longer than {bytes_max} bytes; send a shorter one");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Object<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<fn() -> T>);
        impl<'d, T: Deserialize<'d>> Visitor<'d> for ObjectVisitor<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'d>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}
