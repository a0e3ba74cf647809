//! The admin door: for those who run it, and their machines.
//!
//! | request | tells |
//! |---|---|
//! | `GET /health`, `/actuator/health` | that the process is alive |
//! | `GET /ready` | whether to send it requests: 200 or 503 |
//! | `GET /metrics`, `/actuator/prometheus` | all figures, for Prometheus |
//! | `GET /actuator/info` | what runs here, and since when |
//! | `GET /api/v1/admin/top?policy=&n=` | who was denied most in the last five minutes |
//! | `GET /api/v1/admin/denials?n=` | the last denials, one by one |
//! | `POST /api/v1/admin/reload?force=` | that the policy file is in force now and what changed, or why it is not |
//!
//! The first three paths are [`open`] to all: who probes has no token, and learns nothing but yes or no. The others are
//! [`guarded`]; who puts the door together lays its access control around those, then merges both. Unknown paths are
//! guarded too.

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

use crate::answer::{Answered, Refusal, json, nowhere, wrong_method};
use crate::url::no_policy;
use crate::watch::Watch;
pub use labels::{Labels, LabelsError};
use metrics::Format;
pub use metrics::{Figure, Metrics};
use params::{Accepts, Params, parse_force};

/// What the door needs.
pub struct Admin<C> {
    /// What was seen of the decisions.
    pub watch: Arc<Watch<C>>,
    /// All figures.
    pub metrics: Metrics,
    /// Whether there is a policy of that name. Asked at each request.
    pub is_policy: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// What runs here. Asked at each request.
    pub info: Box<dyn Fn() -> Info + Send + Sync>,
    /// Whether requests should come. Asked at each request.
    pub readiness: Box<dyn Fn() -> Readiness + Send + Sync>,
    /// Puts the policy file in force; if it is true, also one that drops most policies.
    pub reload: Box<dyn Fn(bool) -> BoxFuture<'static, Reloaded> + Send + Sync>,
}

/// What a reload came to.
#[derive(Clone, PartialEq, Debug)]
pub enum Reloaded {
    /// The file is in force.
    Done {
        /// The number of the rule set in force.
        generation: u64,
        /// What changed.
        changes: Vec<Value>,
        /// What is valid, but probably not what was meant.
        warnings: Vec<String>,
    },
    /// The one before stays.
    Rejected {
        /// Why, and what to do.
        errors: Vec<String>,
    },
}

/// What runs here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    /// The program's version.
    pub version: &'static str,
    /// The number of the rule set in force.
    pub generation: u64,
    /// How long it has been running.
    pub uptime: Micros,
}

/// Whether requests should come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// They should.
    Ready,
    /// They should go elsewhere.
    NotReady {
        /// Why.
        reason: &'static str,
    },
}

/// The routes that anybody may ask.
pub fn open<C: Clock + 'static>(admin: Arc<Admin<C>>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/actuator/health", get(health))
        .route("/ready", get(ready::<C>))
        .method_not_allowed_fallback(wrong_method)
        .with_state(admin)
}

/// The routes that tell of clients and limits, and all paths that lead nowhere.
pub fn guarded<C: Clock + 'static>(admin: Arc<Admin<C>>) -> Router {
    Router::new()
        .route("/metrics", get(figures::<C>))
        .route("/actuator/prometheus", get(figures::<C>))
        .route("/actuator/info", get(info::<C>))
        .route("/api/v1/admin/top", get(top::<C>))
        .route("/api/v1/admin/denials", get(denials::<C>))
        .route("/api/v1/admin/reload", post(reload::<C>))
        .fallback(elsewhere)
        .method_not_allowed_fallback(wrong_method)
        .with_state(admin)
}

async fn health() -> Response<Body> {
    json(StatusCode::OK, &wire::Health { status: "UP", reason: None }).map(Body::from)
}

async fn ready<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    let (status, health) = wire::readiness(&(admin.readiness)());
    json(status, &health).map(Body::from)
}

async fn figures<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> Response<Body> {
    let accepts = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accepts.unwrap_or_default());
    let mut response = Response::new(Body::from(admin.metrics.render(format)));
    response.headers_mut().insert(header::CONTENT_TYPE, format.content_type());
    response
}

async fn info<C: Clock>(State(admin): State<Arc<Admin<C>>>) -> Response<Body> {
    json(StatusCode::OK, &wire::info(&(admin.info)())).map(Body::from)
}

async fn top<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> Answered {
    let Params { policy, n } = Params::parse(request.uri().query().unwrap_or_default(), Accepts::Policy)?;
    let watch = &admin.watch;
    let denied = watch.denials().top(policy.as_deref(), n, watch.clock().now());
    // A policy that a reload removed may have denied somebody a moment ago.
    if let Some(policy) = policy.filter(|policy| denied.is_empty() && !(admin.is_policy)(policy)) {
        return Err(no_policy(&policy).into());
    }
    Ok(json(StatusCode::OK, &wire::top(&denied)).map(Body::from))
}

async fn denials<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> Answered {
    let Params { n, .. } = Params::parse(request.uri().query().unwrap_or_default(), Accepts::Number)?;
    let recent = admin.watch.denials().recent(n);
    Ok(json(StatusCode::OK, &wire::denials(&recent)).map(Body::from))
}

async fn reload<C: Clock>(State(admin): State<Arc<Admin<C>>>, request: Request) -> Answered {
    let force = parse_force(request.uri().query().unwrap_or_default())?;
    let (status, body) = wire::reloaded((admin.reload)(force).await);
    Ok(json(status, &body).map(Body::from))
}

async fn elsewhere(request: Request) -> Refusal {
    nowhere(&request, "/metrics, /health, /ready, /actuator/info or /api/v1/admin/top")
}

impl<C: fmt::Debug> fmt::Debug for Admin<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("watch", &self.watch)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}
