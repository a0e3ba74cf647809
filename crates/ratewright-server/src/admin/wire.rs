//! The responses of the admin API.

use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{Info, Readiness, Reloaded};
use crate::telemetry::{Denial, DeniedClient, basis_name};

/// The response of `health` and `ready`.
#[derive(Serialize)]
pub(super) struct HealthBody {
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
}

/// The response of `info`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InfoBody {
    name: &'static str,
    version: &'static str,
    generation: u64,
    uptime_seconds: u64,
}

/// The response of `top`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopBody<'a> {
    window_seconds: u64,
    top: Vec<TopRow<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopRow<'a> {
    policy: &'a str,
    client: &'a str,
    at_least: u64,
    at_most: u64,
    /// `enforce`, or `shadow` for requests that were allowed.
    mode: &'static str,
}

/// The response of `denials`.
#[derive(Serialize)]
pub(super) struct DenialsBody<'a> {
    denials: Vec<DenialRow<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DenialRow<'a> {
    at_unix_ms: u64,
    policy: &'a str,
    client: &'a str,
    method: &'a str,
    path: &'a str,
    /// Null if the request will never be allowed.
    retry_after_seconds: Option<u64>,
    basis: &'static str,
    /// `enforce`, or `shadow` for a request that was allowed.
    mode: &'static str,
    /// Empty for Envoy's calls, and for queries of a batch without an id.
    correlation_id: &'a str,
}

/// The response of `reload`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ReloadBody {
    Done { generation: u64, changes: Vec<Value>, warnings: Vec<String> },
    Rejected { status: u16, title: &'static str, detail: String, errors: Vec<String> },
}

pub(super) fn reloaded(reloaded: Reloaded) -> (StatusCode, ReloadBody) {
    match reloaded {
        Reloaded::Done { generation, changes, warnings } => {
            (StatusCode::OK, ReloadBody::Done { generation, changes, warnings })
        }
        Reloaded::Rejected { errors } => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let detail = format!("policy file rejected; the previous one stays: {}", errors.join("; "));
            let title = "Policy file rejected";
            (status, ReloadBody::Rejected { status: status.as_u16(), title, detail, errors })
        }
    }
}

pub(super) fn readiness(readiness: &Readiness) -> (StatusCode, HealthBody) {
    match readiness {
        Readiness::Ready => (StatusCode::OK, HealthBody { status: "UP", reason: None }),
        Readiness::NotReady { reason } => {
            (StatusCode::SERVICE_UNAVAILABLE, HealthBody { status: "OUT_OF_SERVICE", reason: Some(reason) })
        }
    }
}

pub(super) fn info(info: &Info) -> InfoBody {
    let Info { version, generation, uptime } = *info;
    let uptime_seconds = uptime.as_micros() / ratewright_core::quantity::SECOND;
    InfoBody { name: "ratewright", version, generation, uptime_seconds }
}

pub(super) fn top(denied: &[DeniedClient]) -> TopBody<'_> {
    let rows = denied.iter().map(|DeniedClient { policy, client, at_least, at_most, mode }| TopRow {
        policy,
        client,
        at_least: *at_least,
        at_most: *at_most,
        mode: mode.name(),
    });
    TopBody { window_seconds: DeniedClient::WINDOW.as_secs_ceil(), top: rows.collect() }
}

pub(super) fn denials(recent: &[Arc<Denial>]) -> DenialsBody<'_> {
    let rows = recent.iter().map(|denial| DenialRow {
        at_unix_ms: denial.at.as_micros() / 1_000,
        policy: &denial.policy,
        client: &denial.client,
        method: &denial.method,
        path: &denial.path,
        retry_after_seconds: denial.retry_after.map(|wait| wait.as_secs_ceil().max(1)),
        basis: basis_name(denial.basis),
        mode: denial.mode.name(),
        correlation_id: &denial.correlation_id,
    });
    DenialsBody { denials: rows.collect() }
}
