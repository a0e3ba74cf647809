//! Answers that all doors give alike.

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use tollgate_http::Problem;

/// Room for a usual answer, so that it need not grow.
const BODY_USUAL: usize = 256;
const FIELDS_USUAL: usize = 12;

/// What a handler comes to.
pub(crate) type Answered = Result<Response<Body>, Refusal>;

/// A request that is not decided.
pub(crate) struct Refusal(Problem);

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response<String> {
    let mut text = Vec::with_capacity(BODY_USUAL);
    let written = serde_json::to_writer(&mut text, body).ok().and_then(|()| String::from_utf8(text).ok());
    of_text(status, written.unwrap_or_else(|| "{}".to_owned())) // strings and numbers only
}

/// An answer whose JSON is written. It is of this moment, so nobody may store it.
pub(crate) fn of_text(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(FIELDS_USUAL);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A JSON object that is written as it is read: member after member, the names as they stand.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self(String::with_capacity(BODY_USUAL))
    }

    /// Adds text. Most has nothing that needs an escape.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        self.name(name);
        if value.bytes().all(plain) {
            self.0.push('"');
            self.0.push_str(value);
            self.0.push('"');
        } else {
            self.0.push_str(&serde_json::Value::from(value).to_string());
        }
        self
    }

    pub(crate) fn number(self, name: &str, value: u64) -> Self {
        self.bare(name, itoa::Buffer::new().format(value))
    }

    pub(crate) fn flag(self, name: &str, value: bool) -> Self {
        self.bare(name, if value { "true" } else { "false" })
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn bare(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push_str(value);
        self
    }

    fn name(&mut self, name: &str) {
        self.0.push_str(if self.0.is_empty() { "{\"" } else { ",\"" });
        self.0.push_str(name);
        self.0.push_str("\":");
    }
}

/// Refuses a path that leads nowhere; `instead` says what does lead somewhere.
pub(crate) fn nowhere(request: &Request, instead: &str) -> Refusal {
    let path = request.uri().path();
    Refusal(Problem::new(StatusCode::NOT_FOUND, format!("there is nothing at {path}; try {instead}")))
}

/// Refuses a method that does not go with the path.
pub(crate) async fn wrong_method(request: Request) -> Refusal {
    let detail = format!("{} does not go with {}", request.method(), request.uri().path());
    Refusal(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail))
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        self.0.render().map(Body::from)
    }
}
