//! Responses that the REST and the admin API share.

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use http::{HeaderValue, Response, StatusCode, header};
use ratewright_http::Problem;
use serde::Serialize;

/// Capacity for a typical response, so that it need not grow.
pub(crate) const BODY_CAPACITY: usize = 256;
const HEADERS_CAPACITY: usize = 12;

/// The result of a handler.
pub(crate) type HandlerResult = Result<Response<Body>, ProblemResponse>;

/// The response to a rejected request.
pub(crate) struct ProblemResponse(Problem);

/// An extension of a problem's response, so that [`add_request_id`] can add the request.
#[derive(Clone)]
struct UnidentifiedProblem(Problem);

/// Adds the request's path and id to a [`ProblemResponse`]. Other responses are unchanged.
pub(crate) fn add_request_id(response: Response<Body>, path: &str, id: &str) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let Some(UnidentifiedProblem(problem)) = parts.extensions.remove() else {
        return Response::from_parts(parts, body);
    };
    let (rendered, body) = problem.of_request(Some(path), id).render().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(rendered.headers);
    Response::from_parts(parts, Body::from(body))
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response<String> {
    let mut text = Vec::with_capacity(BODY_CAPACITY);
    let written = serde_json::to_writer(&mut text, body).ok().and_then(|()| String::from_utf8(text).ok());
    json_text(status, written.unwrap_or_else(|| "{}".to_owned())) // strings and numbers only
}

/// A response with this JSON text. It must not be cached.
pub(crate) fn json_text(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(HEADERS_CAPACITY);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Appends a text as a JSON string. Most texts need no escape.
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

/// The response for an unknown path; `instead` names valid ones.
pub(crate) fn not_found(request: &Request, instead: &str) -> ProblemResponse {
    let path = request.uri().path();
    ProblemResponse(Problem::new(StatusCode::NOT_FOUND, format!("path {path} not found; use {instead}")))
}

/// The response for a method that the path does not support.
pub(crate) async fn method_not_allowed(request: Request) -> ProblemResponse {
    let detail = format!("method {} not allowed for {}", request.method(), request.uri().path());
    ProblemResponse(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail))
}

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response<Body> {
        let mut response = self.0.render().map(Body::from);
        response.extensions_mut().insert(UnidentifiedProblem(self.0));
        response
    }
}
