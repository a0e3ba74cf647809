//! The admin API, for operators and monitoring.
//!
//! | request | response |
//! |---|---|
//! | `GET /health`, `/actuator/health` | that the process is alive |
//! | `GET /ready` | whether it accepts requests: 200 or 503 |
//! | `GET /metrics`, `/actuator/prometheus` | all metrics, for Prometheus |
//! | `GET /actuator/info` | version, rule set and uptime |
//! | `GET /api/v1/admin/top?policy=&n=` | the most denied clients of the last five minutes |
//! | `GET /api/v1/admin/denials?policy=&n=` | the last denials, one by one |
//! | `POST /api/v1/admin/reload?force=` | reloads the policy file: what changed, or why it was rejected |
//! | `GET /`, `/page/…` | the live page |
//! | `GET /api/v1/admin/live` | its data: a line at once, then one each second |
//! | `GET /api/v1/admin/policies` | the policies in words |
//! | `GET /api/v1/admin/policy-file` | the policies as they are written in the file in force |
//! | `POST /api/v1/admin/simulate` | replays a log or recent decisions through other policies |
//! | `GET`, `DELETE /api/v1/admin/key?policy=&key=` | shows the buckets of a key, or resets them |
//! | `POST /api/v1/admin/reset` | resets a key that the body names |
//! | `GET`, `POST /api/v1/admin/client` | the buckets of a client under all policies |
//! | `POST /api/v1/explain` | why a request is limited or not |
//!
//! The calls for keys, resets, clients and explain need the limiter, so [`rest::key_router`](crate::rest::key_router) has
//! their routes.
//!
//! Health checks and the files of the page are [`open`] to all callers: probes have no token, and the page contains no
//! data. The others are [`guarded`], as are unknown paths; the program adds access control to those, then merges both.

mod instance;
mod labels;
mod live;
mod metrics;
mod page;
mod params;
mod simulate;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{Response, StatusCode, header};
use ratewright_core::Clock;

use crate::response::{HandlerResult, ProblemResponse, json, method_not_allowed, not_found};
use crate::settings::SharedServerSettings;
use crate::telemetry::Telemetry;
use crate::url::unknown_policy;
pub use instance::{
    DescribedPolicy, Info, Instance, InstanceFuture, LiveStatus, PolicyFileText, PolicyList, Readiness,
    ReloadStatus, Reloaded, StoreStatus, UpstreamStatus,
};
pub use labels::{Labels, LabelsError};
pub use live::sample_every_second;
use metrics::Format;
pub use metrics::{Figure, Metrics};
use params::{AdminParams, parse_force};
use simulate::SimulationSlot;
pub use simulate::{LogSource, SimulateRequest, SimulationError, SimulationPermit};

/// The state of the admin API.
pub struct Admin<C> {
    /// Counts of decisions and denials.
    pub telemetry: Arc<Telemetry<C>>,
    /// All metrics.
    pub metrics: Metrics,
    /// The current settings, for the access control of long responses.
    pub settings: SharedServerSettings,
    /// The running program.
    pub instance: Arc<dyn Instance>,
}

/// The routes that are open to all callers.
pub fn open<C: Clock + 'static>(admin: Arc<Admin<C>>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/actuator/health", get(health))
        .route("/ready", get(ready::<C>))
        .merge(page::router())
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
        .route("/api/v1/admin/live", get(live::<C>))
        .route("/api/v1/admin/policies", get(policies::<C>))
        .route("/api/v1/admin/policy-file", get(policy_file::<C>))
        .route(
            "/api/v1/admin/simulate",
            post(simulate::<C>).layer(Extension(Arc::new(SimulationSlot::default()))),
        )
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(admin)
}

async fn health() -> Response<Body> {
    json(StatusCode::OK, &wire::HealthBody { status: "UP", reason: None }).map(Body::from)
}

async fn ready<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    let (status, health) = wire::readiness(&admin.instance.readiness());
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
    json(StatusCode::OK, &wire::info(&admin.instance.info())).map(Body::from)
}

async fn top<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let AdminParams { policy, n } = AdminParams::parse(request.uri().query().unwrap_or_default())?;
    let telemetry = &admin.telemetry;
    let denied = telemetry.denials().top(policy.as_deref(), n, telemetry.clock().now());
    // A policy that a reload removed may have recent denials.
    if let Some(policy) = policy.filter(|policy| denied.is_empty() && !admin.instance.has_policy(policy)) {
        return Err(unknown_policy(&policy, None).into());
    }
    Ok(json(StatusCode::OK, &wire::top(&denied)).map(Body::from))
}

async fn denials<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let AdminParams { policy, n } = AdminParams::parse(request.uri().query().unwrap_or_default())?;
    let recent = admin.telemetry.denials().recent(policy.as_deref(), n);
    if let Some(policy) = policy.filter(|policy| recent.is_empty() && !admin.instance.has_policy(policy)) {
        return Err(unknown_policy(&policy, None).into());
    }
    Ok(json(StatusCode::OK, &wire::denials(&recent)).map(Body::from))
}

async fn reload<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let force = parse_force(request.uri().query().unwrap_or_default())?;
    let (status, body) = wire::reloaded(admin.instance.reload(force).await);
    Ok(json(status, &body).map(Body::from))
}

async fn live<C: Clock + 'static>(State(admin): State<Arc<Admin<C>>>, request: Request) -> HandlerResult {
    let (head, _) = request.into_parts();
    Ok(live::response(admin, head)?)
}

async fn policies<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    json(StatusCode::OK, &admin.instance.policies()).map(Body::from)
}

async fn policy_file<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    json(StatusCode::OK, &admin.instance.policy_file().await).map(Body::from)
}

async fn simulate<C: Clock>(
    State(admin): State<Arc<Admin<C>>>,
    Extension(slot): Extension<Arc<SimulationSlot>>,
    request: Request,
) -> HandlerResult {
    Ok(simulate::response(&*admin.instance, &slot, request).await?.map(Body::from))
}

async fn unknown_path(request: Request) -> ProblemResponse {
    not_found(&request, "/ (a page), /metrics, /health, /ready, /actuator/info or /api/v1/admin/top")
}

impl<C: fmt::Debug> fmt::Debug for Admin<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("telemetry", &self.telemetry)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}
