//! The door's answers.

use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{Info, Readiness, Reloaded};
use crate::watch::{Denial, Denied, basis_name};

/// The answer to `health` and `ready`.
#[derive(Serialize)]
pub(super) struct Health {
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
}

/// The answer to `info`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    name: &'static str,
    version: &'static str,
    generation: u64,
    uptime_seconds: u64,
}

/// The answer to `top`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Top<'a> {
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
    /// `enforce`, or `shadow` for requests that were let through.
    mode: &'static str,
}

/// The answer to `denials`.
#[derive(Serialize)]
pub(super) struct Recent<'a> {
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
    /// Null if it will never be allowed.
    retry_after_seconds: Option<u64>,
    basis: &'static str,
    /// `enforce`, or `shadow` for a request that was let through.
    mode: &'static str,
    /// Empty for Envoy's calls, and for queries of a batch without an id.
    correlation_id: &'a str,
}

/// The answer to `reload`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ReloadAnswer {
    Done { generation: u64, changes: Vec<Value>, warnings: Vec<String> },
    Rejected { status: u16, title: &'static str, detail: String, errors: Vec<String> },
}

pub(super) fn reloaded(reloaded: Reloaded) -> (StatusCode, ReloadAnswer) {
    match reloaded {
        Reloaded::Done { generation, changes, warnings } => {
            (StatusCode::OK, ReloadAnswer::Done { generation, changes, warnings })
        }
        Reloaded::Rejected { errors } => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let detail =
                format!("the policy file was not put in force; the one before stays: {}", errors.join("; "));
            let title = "Policy file rejected";
            (status, ReloadAnswer::Rejected { status: status.as_u16(), title, detail, errors })
        }
    }
}

pub(super) fn readiness(readiness: &Readiness) -> (StatusCode, Health) {
    match readiness {
        Readiness::Ready => (StatusCode::OK, Health { status: "UP", reason: None }),
        Readiness::NotReady { reason } => {
            (StatusCode::SERVICE_UNAVAILABLE, Health { status: "OUT_OF_SERVICE", reason: Some(reason) })
        }
    }
}

pub(super) fn info(info: &Info) -> Told {
    let Info { version, generation, uptime } = *info;
    let uptime_seconds = uptime.as_micros() / ratewright_core::quantity::SECOND;
    Told { name: "ratewright", version, generation, uptime_seconds }
}

pub(super) fn top(denied: &[Denied]) -> Top<'_> {
    let rows = denied.iter().map(|Denied { policy, client, at_least, at_most, mode }| TopRow {
        policy,
        client,
        at_least: *at_least,
        at_most: *at_most,
        mode: mode.name(),
    });
    Top { window_seconds: Denied::WINDOW.as_secs_ceil(), top: rows.collect() }
}

pub(super) fn denials(recent: &[Arc<Denial>]) -> Recent<'_> {
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
    Recent { denials: rows.collect() }
}
