//! The HTTP client of the admin API.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http::request::Builder;
use http::{Method, Request, Response, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ratewright_telemetry::escape_hidden;
use serde_json::Value;

use crate::cli::AdminArgs;
use crate::fetch::{ClientCert, FetchError, FetchLimits, Fetcher, is_local};

/// A response of 1,000 rows with the longest texts is shorter than this.
const FETCH_LIMITS: FetchLimits =
    FetchLimits { timeout: Duration::from_secs(10), body_max: 16 * 1024 * 1024 };

/// Sends requests to the admin listener of one instance.
pub(crate) struct AdminClient {
    fetcher: Fetcher,
    /// Without a trailing slash.
    url: String,
    token: Option<String>,
}

fn read(option: &str, file: Option<&Path>) -> anyhow::Result<Option<Vec<u8>>> {
    let read =
        |file: &Path| std::fs::read(file).with_context(|| format!("cannot read {option} {}", file.display()));
    file.map(read).transpose()
}

impl AdminClient {
    /// A client with the URL and the token of the command line.
    pub(super) fn new(args: &AdminArgs) -> anyhow::Result<Self> {
        let client = Self { token: args.token.clone(), ..Self::without_token(args)? };
        if client.token.is_some() && args.url.scheme_str() == Some("http") && !is_local(&args.url) {
            let url = &client.url;
            eprintln!("warning: token sent to {url} over plain HTTP; anyone on the network path can read it");
        }
        Ok(client)
    }

    /// A client for paths that need no token.
    pub(super) fn without_token(args: &AdminArgs) -> anyhow::Result<Self> {
        let url = args.url.to_string().trim_end_matches('/').to_owned();
        let ca = read("--ca", args.ca.as_deref())?;
        let (cert, key) =
            (read("--cert", args.cert.as_deref())?, read("--cert-key", args.cert_key.as_deref())?);
        let client_cert = cert.zip(key).map(|(cert, key)| ClientCert { cert, key });
        let fetcher = Fetcher::new(&args.url, ca.as_deref(), client_cert.as_ref(), FETCH_LIMITS);
        let fetcher = fetcher.with_context(|| format!("cannot use {url}"))?;
        Ok(Self { fetcher, url, token: None })
    }

    /// Requests `/api/v1/admin/{what}`, and returns the JSON of a 200.
    pub(super) async fn ask(
        &self,
        method: Method,
        what: &str,
        params: &[(&str, String)],
    ) -> anyhow::Result<Value> {
        self.fetch(self.request(method, what, params)?).await
    }

    /// Requests `/api/v1/admin/{what}`, and returns the status and the JSON of a 200 or a 422.
    pub(super) async fn ask_status(
        &self,
        method: Method,
        what: &str,
        params: &[(&str, String)],
    ) -> anyhow::Result<(StatusCode, Value)> {
        let request = self.request(method, what, params)?;
        let response = self.fetcher.fetch(request).await.map_err(|error| self.no_response(&error))?;
        if ![StatusCode::OK, StatusCode::UNPROCESSABLE_ENTITY].contains(&response.status()) {
            bail!("{} rejected the request: {}", self.url, refusal(&response));
        }
        Ok((response.status(), self.json(&response)?))
    }

    /// Sends a body to `/api/v1/{what}`, and returns the JSON of a 200.
    pub(crate) async fn post(&self, what: &str, body: &Value) -> anyhow::Result<Value> {
        let request = Request::builder().method(Method::POST).uri(format!("{}/api/v1/{what}", self.url));
        let request = self.authorized(request).header(header::CONTENT_TYPE, "application/json");
        self.fetch(request.body(body.to_string()).context("invalid token: it does not fit into a header")?)
            .await
    }

    /// Requests a health path, and returns the status and the JSON of a 200 or a 503.
    pub(super) async fn probe(&self, path: &str) -> anyhow::Result<(StatusCode, Value)> {
        let request = Request::builder().uri(format!("{}{path}", self.url)).body(String::new());
        let request = request.context("invalid URL")?;
        let response = self.fetcher.fetch(request).await.map_err(|error| self.no_response(&error))?;
        if ![StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status()) {
            bail!("{} rejected the request: {}", self.url, refusal(&response));
        }
        Ok((response.status(), self.json(&response)?))
    }

    async fn fetch(&self, request: Request<String>) -> anyhow::Result<Value> {
        let response = self.fetcher.fetch(request).await.map_err(|error| self.no_response(&error))?;
        if response.status() != StatusCode::OK {
            bail!("{} rejected the request: {}", self.url, refusal(&response));
        }
        self.json(&response)
    }

    fn json(&self, response: &Response<axum::body::Bytes>) -> anyhow::Result<Value> {
        serde_json::from_slice(response.body()).with_context(|| {
            format!("response of {} is not JSON; is it Ratewright's admin listener? See --admin", self.url)
        })
    }

    fn request(
        &self,
        method: Method,
        what: &str,
        params: &[(&str, String)],
    ) -> anyhow::Result<Request<String>> {
        let encode = |(name, value): &(&str, String)| {
            format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
        };
        let query = params.iter().map(encode).collect::<Vec<_>>().join("&");
        let url = format!("{}/api/v1/admin/{what}?{query}", self.url);
        let request = Request::builder().method(method).uri(url);
        self.authorized(request)
            .body(String::new())
            .context("invalid key or token: it does not fit into a request")
    }

    fn authorized(&self, request: Builder) -> Builder {
        match &self.token {
            None => request,
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        }
    }

    /// Why there is no response, and what to do.
    fn no_response(&self, error: &FetchError) -> anyhow::Error {
        let (url, reason) = (&self.url, reason(error));
        match error {
            FetchError::Unreachable { .. } if url.starts_with("https:") => anyhow!(
                "cannot reach {url} ({reason}); is Ratewright running, is listen.admin this address, and is its certificate trusted? See --admin and --ca"
            ),
            FetchError::Unreachable { .. } => anyhow!(
                "cannot reach {url} ({reason}); is Ratewright running, and is listen.admin this address? See --admin"
            ),
            FetchError::TimedOut { .. } | FetchError::TooLong { .. } | FetchError::Interrupted { .. } => {
                anyhow!("no response from {url} ({reason}); is it Ratewright's admin listener? See --admin")
            }
        }
    }
}

/// The innermost cause of an error.
fn reason(error: &FetchError) -> String {
    let errors = std::iter::successors(Some(error as &dyn Error), |&error| error.source());
    errors.last().map(ToString::to_string).unwrap_or_default()
}

/// The problem detail of a rejected request, and what to do.
fn refusal(response: &Response<axum::body::Bytes>) -> String {
    let problem: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let detail = problem["detail"].as_str().map_or_else(|| response.status().to_string(), escape_hidden);
    match response.status() {
        StatusCode::UNAUTHORIZED => format!("{detail}; see --token"),
        _ => detail,
    }
}
