//! Answers that all doors give alike.

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use http::{HeaderValue, Response, StatusCode, header};
use ratewright_http::Problem;
use serde::Serialize;

/// Room for a usual answer, so that it need not grow.
pub(crate) const BODY_USUAL: usize = 256;
const FIELDS_USUAL: usize = 12;

/// What a handler comes to.
pub(crate) type Answered = Result<Response<Body>, Refusal>;

/// A request that is not decided.
pub(crate) struct Refusal(Problem);

/// Goes with the response to a [`Refusal`], so that [`identify`] can add which request it was.
#[derive(Clone)]
struct Unidentified(Problem);

/// Adds the path and the id of its request to the response to a [`Refusal`]. Other responses stay as they are.
pub(crate) fn identify(response: Response<Body>, path: &str, id: &str) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let Some(Unidentified(problem)) = parts.extensions.remove() else {
        return Response::from_parts(parts, body);
    };
    let (rendered, body) = problem.of_request(Some(path), id).render().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(rendered.headers);
    Response::from_parts(parts, Body::from(body))
}

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

/// Writes text as JSON does. Most has nothing that needs an escape.
pub(crate) fn push_quoted(json: &mut String, text: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::Value::from(text).to_string());
    }
}

pub(crate) fn push_number(json: &mut String, number: u64) {
    json.push_str(itoa::Buffer::new().format(number));
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
        let mut response = self.0.render().map(Body::from);
        response.extensions_mut().insert(Unidentified(self.0));
        response
    }
}
