//! The body of a request: read as a whole, neither too long nor too slow, and an object.
//!
//! Who sends too much is heard out for a while. A connection that is closed on somebody who still speaks is reset, and
//! with it the answer that says why is lost. Who waits to be asked for the body (`Expect`) is told at once.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use ratewright_http::Problem;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Time to send a body.
const WITHIN: Duration = Duration::from_secs(10);

/// What is heard of a body that is too long, at most.
const HEARD_MAX: usize = 16 * 1024 * 1024;

/// A JSON object. What is derived takes a list of the members' values too, which nobody means.
#[derive(Debug, Default)]
pub(super) struct Object<T>(pub(super) T);

/// Reads a body.
pub(super) async fn read(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let is_long = body.size_hint().lower() > bytes_max as u64;
    if is_long && headers.contains_key(header::EXPECT) {
        return Err(too_long(bytes_max));
    }
    let slow =
        |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come within 10 s; send it faster");
    tokio::time::timeout(WITHIN, collect(body, bytes_max)).await.map_err(slow)?
}

/// Reads a JSON object.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map(|Object(value)| value).map_err(|error| {
        let detail = format!("the body is not understood: {error}; /openapi.json says what it looks like");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

async fn collect(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let mut chunks = body.into_data_stream();
    let (mut first, mut rest, mut n_bytes) = (Bytes::new(), Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let broken = |_| Problem::new(StatusCode::BAD_REQUEST, "the body broke off");
        let chunk = chunk.map_err(broken)?;
        n_bytes += chunk.len();
        if n_bytes > HEARD_MAX {
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
    // Most bodies are one chunk, and need not be copied.
    Ok(if rest.is_empty() { first } else { [&first[..], &rest].concat().into() })
}

fn too_long(bytes_max: usize) -> Problem {
    let detail = format!("the body is longer than {bytes_max} bytes; send less at once");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Object<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<fn() -> T>);
        impl<'d, T: Deserialize<'d>> Visitor<'d> for Visit<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'d>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }
        deserializer.deserialize_map(Visit(PhantomData)).map(Self)
    }
}

/// Described as what it holds.
impl<T: JsonSchema> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
