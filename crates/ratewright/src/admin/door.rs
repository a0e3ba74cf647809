//! The admin door of a running program, from outside.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http::request::Builder;
use http::{Method, Request, Response, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::cli::AdminArgs;
use crate::fetch::{Bounds, FetchError, Fetcher, Shown, is_local};

/// A thousand rows with the longest texts are shorter.
const BOUNDS: Bounds = Bounds { timeout: Duration::from_secs(10), body_max: 16 * 1024 * 1024 };

/// Where to ask, and as whom.
pub(crate) struct Door {
    fetcher: Fetcher,
    /// Without a slash at the end.
    url: String,
    token: Option<String>,
}

fn read(option: &str, file: Option<&Path>) -> anyhow::Result<Option<Vec<u8>>> {
    let read =
        |file: &Path| std::fs::read(file).with_context(|| format!("cannot read {option} {}", file.display()));
    file.map(read).transpose()
}

impl Door {
    /// The door that the command line names.
    pub(super) fn new(args: &AdminArgs) -> anyhow::Result<Self> {
        let door = Self { token: args.token.clone(), ..Self::without_token(args)? };
        if door.token.is_some() && args.admin.scheme_str() == Some("http") && !is_local(&args.admin) {
            let url = &door.url;
            eprintln!("warning: the token goes to {url} over plain HTTP; who listens on the way can use it");
        }
        Ok(door)
    }

    /// The same for paths that are open to all.
    pub(super) fn without_token(args: &AdminArgs) -> anyhow::Result<Self> {
        let url = args.admin.to_string().trim_end_matches('/').to_owned();
        let ca = read("--ca", args.ca.as_deref())?;
        let (cert, key) =
            (read("--cert", args.cert.as_deref())?, read("--cert-key", args.cert_key.as_deref())?);
        let shown = cert.zip(key).map(|(cert, key)| Shown { cert, key });
        let fetcher = Fetcher::new(&args.admin, ca.as_deref(), shown.as_ref(), BOUNDS);
        let fetcher = fetcher.with_context(|| format!("cannot ask {url}"))?;
        Ok(Self { fetcher, url, token: None })
    }

    /// Asks `/api/v1/admin/{what}`, and gives the answer if it is a good one.
    pub(super) async fn ask(
        &self,
        method: Method,
        what: &str,
        params: &[(&str, String)],
    ) -> anyhow::Result<Value> {
        self.fetch(self.request(method, what, params)?).await
    }

    /// Asks `/api/v1/admin/{what}`, and gives the answer if it is one: 200, or 422 for what cannot be done.
    pub(super) async fn ask_status(
        &self,
        method: Method,
        what: &str,
        params: &[(&str, String)],
    ) -> anyhow::Result<(StatusCode, Value)> {
        let request = self.request(method, what, params)?;
        let answer = self.fetcher.fetch(request).await.map_err(|error| self.unanswered(&error))?;
        if ![StatusCode::OK, StatusCode::UNPROCESSABLE_ENTITY].contains(&answer.status()) {
            bail!("{} refuses: {}", self.url, refusal(&answer));
        }
        Ok((answer.status(), self.json(&answer)?))
    }

    /// Sends a body to `/api/v1/{what}`, and gives the answer if it is a good one.
    pub(crate) async fn post(&self, what: &str, body: &Value) -> anyhow::Result<Value> {
        let request = Request::builder().method(Method::POST).uri(format!("{}/api/v1/{what}", self.url));
        let request = self.authorized(request).header(header::CONTENT_TYPE, "application/json");
        self.fetch(request.body(body.to_string()).context("the token cannot be sent")?).await
    }

    /// Asks a path for health, and gives the answer if it is one: 200 or 503.
    pub(super) async fn probe(&self, path: &str) -> anyhow::Result<(StatusCode, Value)> {
        let request = Request::builder().uri(format!("{}{path}", self.url)).body(String::new());
        let request = request.context("the URL cannot be asked")?;
        let answer = self.fetcher.fetch(request).await.map_err(|error| self.unanswered(&error))?;
        if ![StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&answer.status()) {
            bail!("{} refuses: {}", self.url, refusal(&answer));
        }
        Ok((answer.status(), self.json(&answer)?))
    }

    async fn fetch(&self, request: Request<String>) -> anyhow::Result<Value> {
        let answer = self.fetcher.fetch(request).await.map_err(|error| self.unanswered(&error))?;
        if answer.status() != StatusCode::OK {
            bail!("{} refuses: {}", self.url, refusal(&answer));
        }
        self.json(&answer)
    }

    fn json(&self, answer: &Response<axum::body::Bytes>) -> anyhow::Result<Value> {
        serde_json::from_slice(answer.body()).with_context(|| {
            format!("the answer of {} is no JSON; is it Ratewright's admin door? See --admin", self.url)
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
        self.authorized(request).body(String::new()).context("the key or the token cannot be sent")
    }

    fn authorized(&self, request: Builder) -> Builder {
        match &self.token {
            None => request,
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        }
    }

    /// Why there is no answer, and what to do.
    fn unanswered(&self, error: &FetchError) -> anyhow::Error {
        let (url, reason) = (&self.url, reason(error));
        match error {
            FetchError::Unreachable { .. } if url.starts_with("https:") => anyhow!(
                "cannot reach {url} ({reason}); is Ratewright running, is listen.admin this address, and who signed its certificate? See --admin and --ca"
            ),
            FetchError::Unreachable { .. } => anyhow!(
                "cannot reach {url} ({reason}); is Ratewright running, and is listen.admin this address? See --admin"
            ),
            FetchError::TimedOut { .. } | FetchError::TooLong { .. } | FetchError::BrokenOff { .. } => {
                anyhow!("{url} does not answer ({reason}); is it Ratewright's admin door? See --admin")
            }
        }
    }
}

/// What lies at the bottom of an error.
fn reason(error: &FetchError) -> String {
    let errors = std::iter::successors(Some(error as &dyn Error), |&error| error.source());
    errors.last().map(ToString::to_string).unwrap_or_default()
}

/// What the program says of a request that it does not answer, and what to do.
fn refusal(answer: &Response<axum::body::Bytes>) -> String {
    let problem: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    let detail = problem["detail"].as_str().map_or_else(|| answer.status().to_string(), super::table::plain);
    match answer.status() {
        StatusCode::UNAUTHORIZED => format!("{detail}; see --token"),
        _ => detail,
    }
}
