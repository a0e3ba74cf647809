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

/// An answer in JSON. It is of this moment, so nobody may store it.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response<String> {
    let mut text = Vec::with_capacity(BODY_USUAL);
    let written = serde_json::to_writer(&mut text, body).ok().and_then(|()| String::from_utf8(text).ok());
    let mut response = Response::new(written.unwrap_or_else(|| "{}".to_owned())); // strings and numbers only
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(FIELDS_USUAL);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
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
