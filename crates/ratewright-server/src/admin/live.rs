//! The data of the live page: one JSON object per line, the first immediately, then one a second.
//!
//! ```text
//!   counters ─ sample_every_second ─► History ┐
//!   decisions of a sample ─► Recorder ────────┼─► a line ─► each open page
//!   Instance::status ─────────────────────────┘
//! ```
//!
//! A response ends when the program stops, and when its token is no longer valid: access is checked for each line.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use ratewright_core::Clock;
use ratewright_core::quantity::SECOND;
use ratewright_http::Problem;
use serde::Serialize;

use super::{Admin, Info, LiveStatus, Readiness};
use crate::access_control::Caller;
use crate::response::push_number;
use crate::telemetry::{HistoryUpdate, Telemetry};

/// The most pages that are open at once.
const PAGES_MAX: usize = 16;

/// Samples the counters once a second, shortly after the clock's second ends. Never returns.
pub async fn sample_every_second<C: Clock>(telemetry: Arc<Telemetry<C>>) {
    loop {
        let into_second = telemetry.clock().now().as_micros() % SECOND;
        tokio::time::sleep(Duration::from_micros(SECOND - into_second)).await;
        telemetry.sample();
    }
}

/// A line, up to the decisions, which are appended as text.
#[derive(Serialize)]
struct LiveLine<'a> {
    at: u64,
    status: StatusBody<'a>,
    #[serde(flatten)]
    history: HistoryUpdate,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    version: &'a str,
    uptime_seconds: u64,
    generation: u64,
    is_ready: bool,
    not_ready_reason: Option<&'a str>,
    #[serde(flatten)]
    status: LiveStatus,
}

/// An open page.
struct LiveStream<C: Clock> {
    admin: Arc<Admin<C>>,
    head: Parts,
    /// The last sample that was sent.
    sample: u64,
    /// The number of the next recorded decision.
    next_decision: u64,
    /// Decisions that could not be recorded before the page was opened.
    n_dropped_before: u64,
    /// Decisions that were overwritten before this page got them.
    n_missed: u64,
    is_first: bool,
}

/// The response to an authorized caller.
pub(super) fn response<C: Clock + 'static>(
    admin: Arc<Admin<C>>,
    head: Parts,
) -> Result<Response<Body>, Problem> {
    if !admin.telemetry.open_page(PAGES_MAX) {
        let detail = format!("too many live pages: {PAGES_MAX} are open; close one");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let recorded = admin.telemetry.recorder().read(u64::MAX);
    let (next_decision, n_dropped_before) = (recorded.next, recorded.n_dropped);
    let page =
        LiveStream { admin, head, sample: 0, next_decision, n_dropped_before, n_missed: 0, is_first: true };
    let lines = stream::unfold(page, async |mut page| {
        let line = page.next_line().await?;
        Some((Ok::<_, std::convert::Infallible>(line), page))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // nginx would collect lines until its buffer is full.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl<C: Clock> LiveStream<C> {
    /// The next line. `None`: the response ends.
    async fn next_line(&mut self) -> Option<Bytes> {
        if !std::mem::take(&mut self.is_first) {
            self.admin.telemetry.history().next_sample().await;
        }
        let is_allowed = self.admin.settings.load().access.allows(Caller::of_head(&self.head));
        if !is_allowed || self.admin.instance.is_stopping() {
            return None;
        }
        let telemetry = &self.admin.telemetry;
        let history = telemetry.history().read(self.sample);
        self.sample = history.sample;
        let Info { version, generation, uptime } = self.admin.instance.info();
        let readiness = self.admin.instance.readiness();
        let line = LiveLine {
            at: telemetry.clock().now().as_micros() / 1_000,
            status: StatusBody {
                version,
                uptime_seconds: uptime.as_micros() / SECOND,
                generation,
                is_ready: readiness == Readiness::Ready,
                not_ready_reason: match readiness {
                    Readiness::Ready => None,
                    Readiness::NotReady { reason } => Some(reason),
                },
                status: self.admin.instance.status(),
            },
            history,
        };
        let recorded = telemetry.recorder().read(self.next_decision);
        self.next_decision = recorded.next;
        self.n_missed += recorded.n_missed;
        let n_dropped = recorded.n_dropped.saturating_sub(self.n_dropped_before) + self.n_missed;
        let mut text = serde_json::to_string(&line).ok()?; // strings and numbers only
        text.pop();
        text.push_str(",\"oneIn\":");
        push_number(&mut text, recorded.one_in.into());
        text.push_str(",\"dropped\":");
        push_number(&mut text, n_dropped);
        text.push_str(",\"decisions\":[");
        text.push_str(&recorded.decisions.join(","));
        text.push_str("]}\n");
        Some(Bytes::from(text))
    }
}

impl<C: Clock> Drop for LiveStream<C> {
    fn drop(&mut self) {
        self.admin.telemetry.close_page();
    }
}

#[cfg(test)]
mod tests;
