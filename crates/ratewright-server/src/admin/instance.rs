//! The running program, as the admin API sees it.

use std::pin::Pin;

use ratewright_core::Micros;
use serde::Serialize;
use serde_json::Value;

use super::simulate::{SimulateRequest, SimulationError};

/// The future of a call that takes time.
pub type InstanceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The running program.
pub trait Instance: Send + Sync {
    /// True if a policy of that name exists.
    fn has_policy(&self, name: &str) -> bool;

    /// Version, policies and uptime.
    fn info(&self) -> Info;

    /// Whether the program accepts requests.
    fn readiness(&self) -> Readiness;

    /// True once the program is about to end: long responses end then.
    fn is_stopping(&self) -> bool;

    /// Reloads the policy file; with `is_forced`, even if it removes most policies.
    fn reload(&self, is_forced: bool) -> InstanceFuture<'_, Reloaded>;

    /// What the live page shows besides decisions.
    fn status(&self) -> LiveStatus;

    /// The policies in force, in words.
    fn policies(&self) -> PolicyList;

    /// The policies as they are written in the file in force.
    fn policy_file(&self) -> InstanceFuture<'_, PolicyFileText>;

    /// Replays a log through other policies: the report, and warnings on the policies.
    fn simulate(&self, request: SimulateRequest) -> InstanceFuture<'_, Result<Value, SimulationError>>;
}

/// The result of a reload.
#[derive(Clone, PartialEq, Debug)]
pub enum Reloaded {
    /// The file was applied.
    Done {
        /// The number of the current set of policies.
        generation: u64,
        /// What changed.
        changes: Vec<Value>,
        /// What is valid, but probably a mistake.
        warnings: Vec<String>,
    },
    /// The file was rejected; the previous one stays.
    Rejected {
        /// Why, and what to do.
        errors: Vec<String>,
    },
}

/// Version, policies and uptime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    /// The program's version.
    pub version: &'static str,
    /// The number of the current set of policies.
    pub generation: u64,
    /// How long it has been running.
    pub uptime: Micros,
}

/// Whether the program accepts requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It does.
    Ready,
    /// Requests should go to another instance.
    NotReady {
        /// Why.
        reason: &'static str,
    },
}

/// What the live page shows besides decisions.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveStatus {
    /// The store of the buckets.
    pub store: StoreStatus,
    /// The last reload.
    pub reload: ReloadStatus,
    /// The upstreams of the gateway.
    pub upstreams: Vec<UpstreamStatus>,
}

/// The store of the buckets.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// `memory`, or `Redis at …`.
    pub location: String,
    /// `shared` (Redis decides), `local` (this instance decides alone, because Redis is unreachable) or `memory`.
    pub mode: &'static str,
    /// How long the store has been in this mode.
    pub since_seconds: u64,
    /// The average duration of calls to Redis in the last 10 s.
    pub latency_ms: Option<f64>,
    /// Buckets in the memory of this instance.
    pub keys: usize,
    /// The most buckets.
    pub keys_max: usize,
    /// The memory that they use.
    pub bytes: usize,
    /// Buckets that were evicted before they expired.
    pub evictions: u64,
    /// Instances on the same Redis, if they are counted.
    pub instances: Option<u32>,
}

/// The last reload.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadStatus {
    /// When the policy file in force was read, in milliseconds of Unix time.
    pub loaded_at: u64,
    /// Reloads that put a file in force.
    pub succeeded: u64,
    /// Reloads that rejected a file.
    pub failed: u64,
    /// Why the file that was read last is not in force.
    pub last_error: Option<String>,
}

/// An upstream of the gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamStatus {
    /// The route.
    pub route: String,
    /// Its address.
    pub address: String,
    /// True if it gets requests.
    pub is_healthy: bool,
    /// How often it was ejected.
    pub ejections: u64,
}

/// The policies in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyList {
    /// The number of the set of policies.
    pub generation: u64,
    /// In the order of the file; those on requests in flight last.
    pub policies: Vec<DescribedPolicy>,
    /// Remarks about several policies.
    pub notes: Vec<String>,
}

/// A policy in words.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DescribedPolicy {
    /// Its name.
    pub policy: String,
    /// Its group: only the first matching policy of a group applies.
    pub group: Option<String>,
    /// `enforce`, `shadow` or `off`.
    pub mode: &'static str,
    /// What it means.
    pub meaning: String,
    /// What its overrides mean.
    pub overrides: Vec<String>,
    /// Its limits, in short.
    pub limits: Vec<String>,
    /// What it counts by. Empty: all requests together.
    pub by: Vec<String>,
}

/// The policies as they are written in the file in force.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyFileText {
    /// The text, if it can be shown.
    pub text: Option<String>,
    /// Why it cannot be shown.
    pub reason: Option<String>,
}
