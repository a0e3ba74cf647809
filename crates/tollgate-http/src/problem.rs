//! Error bodies after RFC 9457, `application/problem+json`.

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

/// What went wrong, for programs and for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: String,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'static str>,
}

impl Problem {
    /// A problem that its status names; `detail` says what is wrong here, and what to do.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error").to_owned();
        Self { kind: "about:blank", title, status: status.as_u16(), detail: detail.into(), parameter: None }
    }

    /// Names the parameter that is to blame.
    #[must_use]
    pub fn about(mut self, parameter: &'static str) -> Self {
        self.parameter = Some(parameter);
        self
    }

    /// The answer. It is of this moment, so nobody may store it.
    pub fn render(&self) -> Response<String> {
        let body = serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned()); // strings and numbers only
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_what_is_wrong() {
        let problem = Problem::new(StatusCode::BAD_REQUEST, "permits is \"0\"").about("permits");
        let response = problem.render();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(
            response.body(),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"permits is \"0\"","parameter":"permits"}"#
        );
    }
}
