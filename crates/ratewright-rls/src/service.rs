//! The gRPC service: rate limits, health and reflection, routed by path.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use ratewright_core::decision::Observe;
use ratewright_core::query::Entrypoint;
use ratewright_core::{Clock, Store};
use tokio::sync::mpsc;
use tokio::time::Timeout;
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::listen::GrpcListenerSettings;
use crate::refund_access::Refunds;
use crate::rls::Rls;
use crate::run_to_completion::RunToCompletion;
use crate::unary::{self, ResponseBody};
use crate::wire::{DESCRIBED, RateLimitRequest};

/// The name under which probes ask for the service, besides the empty one.
const PROBED: &str = "ratelimit";

/// What Envoy calls.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

type TonicService = BoxCloneSyncService<Request<Incoming>, Response<Body>, Infallible>;

/// Answers all calls of a connection.
#[derive(Debug)]
pub struct GrpcService<S, O, C> {
    rls: Arc<Rls<S, O, C>>,
    health: TonicService,
    reflection: Option<TonicService>,
    /// The same for clients of version v1alpha.
    old_reflection: Option<TonicService>,
    /// Time in which a call's message must arrive.
    message_within: Duration,
    /// Whether negative hits of this client give units back.
    refunds: Refunds,
    /// Dropped when the last call ends.
    alive: Option<mpsc::Sender<Infallible>>,
}

impl<S, O, C> GrpcService<S, O, C>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    /// The service, which reports that it is serving until `health` says otherwise.
    pub fn new(rls: Arc<Rls<S, O, C>>) -> (Self, GrpcHealth) {
        let (reporter, health) = tonic_health::server::health_reporter();
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIBED)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let reflection = described().build_v1().ok().map(TonicService::new);
        let old_reflection = described().build_v1alpha().ok().map(TonicService::new);
        let (health, message_within) =
            (TonicService::new(health), GrpcListenerSettings::default().message_within);
        let refunds = Refunds::Ignored { peer: Ipv4Addr::UNSPECIFIED.into() }; // until its client is known
        let service = Self { rls, health, reflection, old_reflection, message_within, refunds, alive: None };
        (service, GrpcHealth(reporter))
    }
}

/// What health checks are answered.
#[derive(Clone, Debug)]
pub struct GrpcHealth(tonic_health::server::HealthReporter);

impl GrpcHealth {
    /// Answers health checks with SERVING.
    pub async fn serve(&self) {
        for name in ["", PROBED] {
            self.0.set_service_status(name, tonic_health::ServingStatus::Serving).await;
        }
    }

    /// Answers health checks with NOT_SERVING.
    pub async fn leave(&self) {
        for name in ["", PROBED] {
            self.0.set_service_status(name, tonic_health::ServingStatus::NotServing).await;
        }
    }
}

impl<S, O, C> GrpcService<S, O, C> {
    /// The same service with this timeout for messages. Calls in flight keep `alive`.
    pub(crate) fn serving(self, message_within: Duration, alive: mpsc::Sender<Infallible>) -> Self {
        Self { message_within, alive: Some(alive), ..self }
    }

    /// The same service, for a client whose negative hits give units back, or do not.
    pub(crate) fn with_refunds(self, refunds: Refunds) -> Self {
        Self { refunds, ..self }
    }
}

impl<S, O, C> Service<Request<Incoming>> for GrpcService<S, O, C>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        if path == SHOULD_RATE_LIMIT {
            let rls = Arc::clone(&self.rls);
            let (within, refunds, alive) = (self.message_within, self.refunds, self.alive.clone());
            let reading = tokio::time::timeout(within, unary::read(request.into_body()));
            return Box::pin(should_rate_limit(rls, reading, refunds, alive).map(Ok));
        }
        let other = match path.strip_prefix('/').and_then(|path| path.split('/').next()) {
            Some("grpc.health.v1.Health") => Some(&self.health),
            Some("grpc.reflection.v1.ServerReflection") => self.reflection.as_ref(),
            Some("grpc.reflection.v1alpha.ServerReflection") => self.old_reflection.as_ref(),
            _ => None,
        };
        match other {
            Some(other) => {
                let answer = other.clone().oneshot(request);
                Box::pin(async { answer.await.map(|answer| answer.map(ResponseBody::Other)) })
            }
            None => {
                let nothing = Status::unimplemented("unknown method");
                Box::pin(std::future::ready(Ok(unary::refuse(nothing))))
            }
        }
    }
}

/// Answers `ShouldRateLimit`.
async fn should_rate_limit<S, O, C>(
    rls: Arc<Rls<S, O, C>>,
    reading: Timeout<impl Future<Output = Result<RateLimitRequest, Status>>>,
    refunds: Refunds,
    alive: Option<mpsc::Sender<Infallible>>,
) -> Response<ResponseBody>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let request = match reading.await {
        Ok(Ok(request)) => request,
        Ok(Err(status)) => return unary::refuse(status),
        Err(_) => return unary::refuse(Status::deadline_exceeded("message not received in time")),
    };
    let answering = RunToCompletion::new(|reply| async move {
        let reply = |answer| drop(reply.send(answer)); // the caller may be gone
        rls.answer_first(&request, refunds, Entrypoint::Grpc, reply).await;
        drop(alive);
    });
    match answering.await {
        Some(Ok(answer)) => unary::answer(&answer),
        // envoyproxy/ratelimit uses this code for every error.
        Some(Err(refusal)) => unary::refuse(Status::unknown(refusal.to_string())),
        None => unary::refuse(Status::internal("decision task ended without a response")),
    }
}

impl<S, O, C> Clone for GrpcService<S, O, C> {
    fn clone(&self) -> Self {
        Self {
            rls: Arc::clone(&self.rls),
            health: self.health.clone(),
            reflection: self.reflection.clone(),
            old_reflection: self.old_reflection.clone(),
            message_within: self.message_within,
            refunds: self.refunds,
            alive: self.alive.clone(),
        }
    }
}
