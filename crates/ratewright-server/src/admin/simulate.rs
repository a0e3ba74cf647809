//! Replays a log, or the recent decisions of the live page, through other policies.
//!
//! The body is a policy file, whose length is in the URL, followed by the log: a browser sends both without copying, and
//! the log may be compressed. One simulation runs at a time, because each takes memory and a core.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use http::{Response, StatusCode};
use ratewright_http::Problem;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Instance;
use crate::body::{self, BodyLimits};
use crate::response::{json, json_text};
use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// The most bytes of a policy file and a log together, and the time to send them.
const BODY_LIMITS: BodyLimits = BodyLimits { bytes_max: 32 * 1024 * 1024, timeout: Duration::from_secs(120) };

/// The most bytes of a policy file.
const POLICY_BYTES_MAX: usize = 1024 * 1024;

/// What to replay, through which policies.
#[derive(Debug)]
pub struct SimulateRequest {
    /// The policy file.
    pub policy_text: String,
    /// Where the requests come from.
    pub source: LogSource,
    /// The log.
    pub log: Bytes,
    /// Held until the simulation ends, also if the caller has gone.
    pub slot: SimulationPermit,
}

/// The permission to simulate. One exists at a time.
#[derive(Debug)]
pub struct SimulationPermit {
    _permit: OwnedSemaphorePermit,
}

/// Where requests come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogSource {
    /// Recent decisions, as the live page gets them: one JSON object in a line.
    Decisions,
    /// An access log.
    Log {
        /// Its name in the report.
        name: String,
        /// Its format; `None`: detected from the log.
        format: Option<String>,
        /// The field map of a format that needs one.
        fields: Option<String>,
        /// True if requests do not have the attributes that the log does not record. False: policies that need them are not
        /// simulated.
        assume_absent: bool,
    },
}

/// Why a simulation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimulationError {
    /// The policies are invalid: all errors, with line and column.
    Policies(Vec<String>),
    /// The log cannot be replayed.
    Log(String),
}

/// Lets one simulation run at a time.
#[derive(Debug)]
pub(super) struct SimulationSlot(Arc<Semaphore>);

impl Default for SimulationSlot {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// A problem with a list of errors.
#[derive(Serialize)]
struct InvalidPolicies {
    status: u16,
    title: &'static str,
    detail: String,
    errors: Vec<String>,
}

pub(super) async fn response(
    instance: &dyn Instance,
    slot: &SimulationSlot,
    request: Request,
) -> Result<Response<String>, Problem> {
    let params = SimulateParams::parse(request.uri().query().unwrap_or_default())?;
    let (head, body) = request.into_parts();
    let Ok(permit) = Arc::clone(&slot.0).try_acquire_owned() else {
        body::discard(body, BODY_LIMITS).await;
        let detail = "another simulation is running; try again in a moment, or use `ratewright simulate`";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let mut log = body::read(&head.headers, body, BODY_LIMITS).await?;
    if params.policy_bytes > log.len() {
        let detail = format!(
            "policyBytes is {}, but the body has {} bytes; send the whole policy file, then the log",
            params.policy_bytes,
            log.len()
        );
        return Err(bad("policyBytes", detail));
    }
    let policies = log.split_to(params.policy_bytes);
    let policy_text = String::from_utf8(policies.into())
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "policy file is not UTF-8; convert it"))?;
    match instance
        .simulate(SimulateRequest {
            policy_text,
            source: params.source,
            log,
            slot: SimulationPermit { _permit: permit },
        })
        .await
    {
        Ok(report) => Ok(json_text(StatusCode::OK, report.to_string())),
        Err(SimulationError::Log(detail)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)),
        Err(SimulationError::Policies(errors)) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let body = InvalidPolicies {
                status: status.as_u16(),
                title: "Invalid policies",
                detail: format!("the policies are invalid: {}", errors.join("; ")),
                errors,
            };
            Ok(json(status, &body))
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
struct SimulateParams {
    policy_bytes: usize,
    source: LogSource,
}

impl SimulateParams {
    fn parse(query: &str) -> Result<Self, Problem> {
        let (mut policy_bytes, mut from, mut name, mut format, mut fields) = (None, None, None, None, None);
        let mut assume_absent = None;
        for (parameter, value) in pairs(query) {
            match parameter {
                "policyBytes" => {
                    let value = decode("policyBytes", value)?;
                    once(&mut policy_bytes, parse_policy_bytes(&value)?, "policyBytes")?;
                }
                "from" => once(&mut from, decode("from", value)?.into_owned(), "from")?,
                "name" => once(&mut name, decode("name", value)?.into_owned(), "name")?,
                "format" => once(&mut format, decode("format", value)?.into_owned(), "format")?,
                "fields" => once(&mut fields, decode("fields", value)?.into_owned(), "fields")?,
                "assumeAbsent" => {
                    let value = decode("assumeAbsent", value)?;
                    once(&mut assume_absent, parse_bool("assumeAbsent", &value)?, "assumeAbsent")?;
                }
                _ => {
                    return Err(unknown(
                        parameter,
                        "policyBytes, from, name, format, fields and assumeAbsent",
                    ));
                }
            }
        }
        let policy_bytes = policy_bytes.ok_or_else(|| {
            bad("policyBytes", "policyBytes is missing; send the length of the policy file")
        })?;
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let source = match from.as_deref() {
            Some("decisions") => LogSource::Decisions,
            Some("log") | None => LogSource::Log {
                name: given(name).unwrap_or_else(|| "log".to_owned()),
                format: given(format),
                fields: given(fields),
                assume_absent: assume_absent.unwrap_or(false),
            },
            Some(other) => {
                return Err(bad("from", format!("from is {}; use log or decisions", quoted(other))));
            }
        };
        Ok(Self { policy_bytes, source })
    }
}

fn parse_bool(name: &'static str, text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| bad(name, format!("{name} is {}; use true or false", quoted(text))))
}

fn parse_policy_bytes(text: &str) -> Result<usize, Problem> {
    let bytes = text.parse().ok().filter(|bytes| *bytes <= POLICY_BYTES_MAX);
    bytes.ok_or_else(|| {
        let detail = format!("policyBytes is {}; use a whole number up to {POLICY_BYTES_MAX}", quoted(text));
        bad("policyBytes", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_or_rejected() {
        let parsed =
            SimulateParams::parse("policyBytes=3&name=a%20b.log&format=csv&fields=time%3D1").unwrap();
        let source = LogSource::Log {
            name: "a b.log".to_owned(),
            format: Some("csv".to_owned()),
            fields: Some("time=1".to_owned()),
            assume_absent: false,
        };
        assert_eq!(parsed, SimulateParams { policy_bytes: 3, source });
        let parsed = SimulateParams::parse("from=decisions&policyBytes=0").unwrap();
        assert_eq!(parsed.source, LogSource::Decisions);
        for invalid in
            ["", "policyBytes=", "policyBytes=-1", "policyBytes=1048577", "policyBytes=1&policyBytes=1"]
        {
            assert!(SimulateParams::parse(invalid).is_err(), "{invalid}");
        }
        for invalid in ["policyBytes=1&from=file", "policyBytes=1&n=1", "policyBytes=1&assumeAbsent=1"] {
            assert!(SimulateParams::parse(invalid).is_err(), "{invalid}");
        }
    }
}
