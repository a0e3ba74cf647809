//! The admin API, for operators and monitoring.
//!
//! | request | response |
//! |---|---|
//! | `GET /health`, `/actuator/health` | that the process is alive |
//! | `GET /ready` | whether it accepts requests: 200 or 503 |
//! | `GET /metrics`, `/actuator/prometheus` | all metrics, for Prometheus |
//! | `GET /actuator/info` | version, rule set and uptime |
//! | `GET /api/v1/admin/top?policy=&n=` | the most denied clients of the last five minutes |
//! | `GET /api/v1/admin/denials?n=` | the last denials, one by one |
//! | `POST /api/v1/admin/reload?force=` | reloads the policy file: what changed, or why it was rejected |
//!
//! The first three paths are [`open`] to all callers: probes have no token, and learn nothing but yes or no. The
//! others are [`guarded`], as are unknown paths; the program adds access control to those, then merges both.

mod labels;
mod metrics;
mod params;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use http::{Response, StatusCode, header};
use ratewright_core::{Clock, Micros};
use serde_json::Value;

use crate::response::{HandlerResult, ProblemResponse, json, method_not_allowed, not_found};
use crate::telemetry::Telemetry;
use crate::url::unknown_policy;
pub use labels::{Labels, LabelsError};
use metrics::Format;
pub use metrics::{Figure, Metrics};
use params::{AcceptedAdminParams, AdminParams, parse_force};

/// The state of the admin API.
pub struct Admin<C> {
    /// Counts of decisions and denials.
    pub telemetry: Arc<Telemetry<C>>,
    /// All metrics.
    pub metrics: Metrics,
    /// Whether a policy of that name exists. Called for each request.
    pub is_policy: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Version, rule set and uptime. Called for each request.
    pub info: Box<dyn Fn() -> Info + Send + Sync>,
    /// Whether the program accepts requests. Called for each request.
    pub readiness: Box<dyn Fn() -> Readiness + Send + Sync>,
    /// Reloads the policy file. True: even if it removes most policies.
    pub reload: Box<dyn Fn(bool) -> BoxFuture<'static, Reloaded> + Send + Sync>,
}

/// The result of a reload.
#[derive(Clone, PartialEq, Debug)]
pub enum Reloaded {
    /// The file was applied.
    Done {
        /// The number of the current rule set.
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

/// Version, rule set and uptime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    /// The program's version.
    pub version: &'static str,
    /// The number of the current rule set.
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

/// The routes that are open to all callers.
pub fn open<C: Clock + 'static>(admin: Arc<Admin<C>>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/actuator/health", get(health))
        .route("/ready", get(ready::<C>))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(admin)
}

/// The routes with data about clients and limits, and all unknown paths.
pub fn guarded<C: Clock + 'static>(admin: Arc<Admin<C>>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page::<C>))
        .route("/actuator/prometheus", get(metrics_page::<C>))
        .route("/actuator/info", get(info::<C>))
        .route("/api/v1/admin/top", get(top::<C>))
        .route("/api/v1/admin/denials", get(denials::<C>))
        .route("/api/v1/admin/reload", post(reload::<C>))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(admin)
}

async fn health() -> Response<Body> {
    json(StatusCode::OK, &wire::HealthBody { status: "UP", reason: None }).map(Body::from)
}

async fn ready<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    let (status, health) = wire::readiness(&(admin.readiness)());
    json(status, &health).map(Body::from)
}

async fn metrics_page<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> Response<Body> {
    let accepts = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accepts.unwrap_or_default());
    let mut response = Response::new(Body::from(admin.metrics.render(format)));
    response.headers_mut().insert(header::CONTENT_TYPE, format.content_type());
    response
}

async fn info<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    json(StatusCode::OK, &wire::info(&(admin.info)())).map(Body::from)
}

async fn top<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let AdminParams { policy, n } =
        AdminParams::parse(request.uri().query().unwrap_or_default(), AcceptedAdminParams::Policy)?;
    let telemetry = &admin.telemetry;
    let denied = telemetry.denials().top(policy.as_deref(), n, telemetry.clock().now());
    // A policy that a reload removed may have recent denials.
    if let Some(policy) = policy.filter(|policy| denied.is_empty() && !(admin.is_policy)(policy)) {
        return Err(unknown_policy(&policy, None).into());
    }
    Ok(json(StatusCode::OK, &wire::top(&denied)).map(Body::from))
}

async fn denials<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let AdminParams { n, .. } =
        AdminParams::parse(request.uri().query().unwrap_or_default(), AcceptedAdminParams::Number)?;
    let recent = admin.telemetry.denials().recent(n);
    Ok(json(StatusCode::OK, &wire::denials(&recent)).map(Body::from))
}

async fn reload<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let force = parse_force(request.uri().query().unwrap_or_default())?;
    let (status, body) = wire::reloaded((admin.reload)(force).await);
    Ok(json(status, &body).map(Body::from))
}

async fn unknown_path(request: Request) -> ProblemResponse {
    not_found(&request, "/metrics, /health, /ready, /actuator/info or /api/v1/admin/top")
}

impl<C: fmt::Debug> fmt::Debug for Admin<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("watch", &self.telemetry)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}
