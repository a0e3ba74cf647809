//! The gRPC door: the rate limit service, health and reflection, each found by its path.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use tollgate_core::{Clock, Observe, Store};
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::rls::Rls;
use crate::unary::{self, Answer};
use crate::wire::{DESCRIBED, RateLimitRequest};

/// The name under which probes ask for the service, besides the empty one.
const PROBED: &str = "ratelimit";

/// What Envoy calls.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

type Other = BoxCloneSyncService<Request<Incoming>, Response<Body>, Infallible>;

/// Answers all calls of a connection.
#[derive(Debug)]
pub struct Door<S, O, C> {
    rls: Arc<Rls<S, O, C>>,
    health: Other,
    reflection: Option<Other>,
    /// The same for clients that know only its first version.
    old_reflection: Option<Other>,
}

impl<S, O, C> Door<S, O, C>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    /// A door to the service, which says that it is well until `health` says otherwise.
    pub fn new(rls: Arc<Rls<S, O, C>>) -> (Self, Health) {
        let (reporter, health) = tonic_health::server::health_reporter();
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIBED)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let reflection = described().build_v1().ok().map(Other::new);
        let old_reflection = described().build_v1alpha().ok().map(Other::new);
        (Self { rls, health: Other::new(health), reflection, old_reflection }, Health(reporter))
    }
}

/// Says whether calls should come.
#[derive(Clone, Debug)]
pub struct Health(tonic_health::server::HealthReporter);

impl Health {
    /// Tells probes that all is well.
    pub async fn serve(&self) {
        for name in ["", PROBED] {
            self.0.set_service_status(name, tonic_health::ServingStatus::Serving).await;
        }
    }

    /// Tells probes to look elsewhere.
    pub async fn leave(&self) {
        for name in ["", PROBED] {
            self.0.set_service_status(name, tonic_health::ServingStatus::NotServing).await;
        }
    }
}

impl<S, O, C> Service<Request<Incoming>> for Door<S, O, C>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        if path == SHOULD_RATE_LIMIT {
            let rls = Arc::clone(&self.rls);
            return Box::pin(async move { Ok(should_rate_limit(&rls, request.into_body()).await) });
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
                Box::pin(async { answer.await.map(|answer| answer.map(Answer::Other)) })
            }
            None => {
                let nothing = Status::unimplemented("there is no such call here");
                Box::pin(std::future::ready(Ok(unary::refuse(nothing))))
            }
        }
    }
}

/// Answers the one call that matters.
async fn should_rate_limit<S, O, C>(rls: &Rls<S, O, C>, body: Incoming) -> Response<Answer>
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let request = match unary::read::<RateLimitRequest>(body).await {
        Ok(request) => request,
        Err(status) => return unary::refuse(status),
    };
    match rls.answer(&request).await {
        Ok(answer) => unary::answer(&answer),
        // The code that the original has for everything.
        Err(refusal) => unary::refuse(Status::unknown(refusal.to_string())),
    }
}

impl<S, O, C> Clone for Door<S, O, C> {
    fn clone(&self) -> Self {
        let Self { rls, health, reflection, old_reflection } = self;
        let (rls, health) = (Arc::clone(rls), health.clone());
        Self { rls, health, reflection: reflection.clone(), old_reflection: old_reflection.clone() }
    }
}
