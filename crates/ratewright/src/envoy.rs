//! The door for Envoy: what it needs of the program, how a reload reaches it, and the same over `POST /json`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use ratewright_core::{Entrypoint, Limiter, Observe, Policies};
use ratewright_listen::{ConnectionSetup, Shutdown, ShutdownPhase};
use ratewright_rls::wire::Code;
use ratewright_rls::{
    GrpcService, HitCounts, Listening, Refunds, Rls, RuleSet, SharedRuleSet, Unmatched, json,
};
use ratewright_store::WallClock;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::buckets::Buckets;
use crate::config::EnvoyConfig;

/// The longest body of `POST /json`, in bytes.
const BODY_MAX: usize = 1024 * 1024;

/// Envoy's rate limit service.
pub(crate) struct RateLimits<O> {
    rls: Arc<Rls<Arc<Buckets>, O, WallClock>>,
}

impl<O: Observe + 'static> RateLimits<O> {
    /// The service with these rules. Their policies are in force.
    pub(crate) fn new(limiter: Arc<Limiter<Arc<Buckets>, O>>, config: Option<&EnvoyConfig>) -> Self {
        let rules: SharedRuleSet = Arc::new(ArcSwap::from_pointee(rules(limiter.policies(), config)));
        Self { rls: Arc::new(Rls::new(limiter, rules, WallClock)) }
    }

    /// True if there are rules.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rls.rules.load().domains.is_empty()
    }

    /// Puts other rules in force. Their policies are in force already.
    pub(crate) fn replace(&self, config: Option<&EnvoyConfig>) {
        self.rls.rules.store(Arc::new(rules(self.rls.limiter.policies(), config)));
    }

    /// `POST /json`.
    pub(crate) fn routes(&self) -> Router {
        let layer = DefaultBodyLimit::max(BODY_MAX);
        Router::new().route("/json", post(ask::<O>)).layer(layer).with_state(Arc::clone(&self.rls))
    }

    /// What met a rule, and what met none.
    pub(crate) fn counts(&self) -> (&HitCounts, &Unmatched) {
        (&self.rls.hits, &self.rls.unmatched)
    }

    /// Serves until it is told to stop. Probes are told at once.
    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        listening: Listening,
        setup: ConnectionSetup,
        stop: Shutdown,
    ) {
        let (service, health) = GrpcService::new(Arc::clone(&self.rls));
        health.serve().await;
        let leaving = async {
            stop.reached(ShutdownPhase::NotReady).await;
            health.leave().await;
            std::future::pending().await
        };
        tokio::select! {
            () = ratewright_rls::serve(listener, service, listening, setup, stop.clone()) => {}
            () = leaving => {}
        }
    }
}

fn rules(policies: Arc<Policies>, config: Option<&EnvoyConfig>) -> RuleSet {
    let domains = config.map(|config| Arc::clone(&config.domains)).unwrap_or_default();
    let settings = config.map(|config| config.settings.clone()).unwrap_or_default();
    RuleSet { domains, policies, settings }
}

async fn ask<O: Observe + 'static>(
    State(rls): State<Arc<Rls<Arc<Buckets>, O, WallClock>>>,
    body: Bytes,
) -> Response {
    let request = match json::read(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    // Only authorised callers reach this handler, so their negative hits return units.
    // In a task of its own: corrections follow the response even if the caller has gone.
    let (reply, answered) = oneshot::channel();
    tokio::spawn(async move {
        let reply = |answer| drop(reply.send(answer));
        rls.answer_first(&request, Refunds::Allowed, Entrypoint::Json, reply).await;
    });
    let answered = answered.await;
    let Ok(answered) = answered else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    match answered {
        Err(refusal) => (StatusCode::BAD_REQUEST, format!("{refusal}\n")).into_response(),
        Ok(answer) => {
            let status = match answer.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
            (status, kind, json::write(&answer)).into_response()
        }
    }
}
