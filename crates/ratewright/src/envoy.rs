//! The program's handle on Envoy's rate limit service: its gRPC listener, `POST /json`, and new rules after a reload.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use ratewright_core::decision::Observe;
use ratewright_core::query::Entrypoint;
use ratewright_core::{Limiter, Policies};
use ratewright_listen::{ConnectionSetup, Shutdown, ShutdownPhase};
use ratewright_rls::wire::Code;
use ratewright_rls::{
    GrpcListenerSettings, GrpcService, HitCounts, Refunds, Rls, RuleSet, SharedRuleSet, Unmatched, json,
};
use ratewright_store::WallClock;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::config::EnvoyConfig;
use crate::store::ConfiguredStore;

/// The longest body of `POST /json`, in bytes.
const BODY_MAX: usize = 1024 * 1024;

/// Envoy's rate limit service.
pub(crate) struct RlsHandle<O> {
    rls: Arc<Rls<Arc<ConfiguredStore>, O, WallClock>>,
}

impl<O: Observe + 'static> RlsHandle<O> {
    /// The service with these rules. The limiter already has their policies.
    pub(crate) fn new(limiter: Arc<Limiter<Arc<ConfiguredStore>, O>>, config: Option<&EnvoyConfig>) -> Self {
        let rules: SharedRuleSet = Arc::new(ArcSwap::from_pointee(rules(limiter.policies(), config)));
        Self { rls: Arc::new(Rls::new(limiter, rules, WallClock)) }
    }

    /// True if the service has rules.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rls.rules.load().domains.is_empty()
    }

    /// Puts new rules in force. The limiter already has their policies.
    pub(crate) fn replace(&self, config: Option<&EnvoyConfig>) {
        self.rls.rules.store(Arc::new(rules(self.rls.limiter.policies(), config)));
    }

    /// `POST /json`.
    pub(crate) fn routes(&self) -> Router {
        let layer = DefaultBodyLimit::max(BODY_MAX);
        Router::new().route("/json", post(ask::<O>)).layer(layer).with_state(Arc::clone(&self.rls))
    }

    /// Hits of rules, and requests that match no rule.
    pub(crate) fn counts(&self) -> (&HitCounts, &Unmatched) {
        (&self.rls.hits, &self.rls.unmatched)
    }

    /// Serves until `stop`. Health checks report NOT_SERVING as soon as the instance is not ready.
    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        listening: GrpcListenerSettings,
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
    State(rls): State<Arc<Rls<Arc<ConfiguredStore>, O, WallClock>>>,
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
