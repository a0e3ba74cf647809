//! The gRPC door: the rate limit service, health and reflection, each found by its path.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use tollgate_core::{Clock, Observe, Store};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_service::Service;

use crate::rls::Rls;
use crate::wire::{DESCRIBED, RateLimitRequest, RateLimitResponse, RateLimitService, RateLimitServiceServer};

/// The name under which probes ask for the service, besides the empty one.
const PROBED: &str = "ratelimit";

/// The longest request, in bytes.
const REQUEST_MAX: usize = 1024 * 1024;

type Other = BoxCloneSyncService<Request<Incoming>, Response<Body>, Infallible>;

/// Answers all calls of a connection.
#[derive(Debug)]
pub struct Door<S, O, C> {
    rls: RateLimitServiceServer<Rls<S, O, C>>,
    health: Other,
    reflection: Option<Other>,
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
        let described = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIBED)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let reflection = described.build_v1().ok().map(Other::new);
        let rls = RateLimitServiceServer::from_arc(rls).max_decoding_message_size(REQUEST_MAX);
        (Self { rls, health: Other::new(health), reflection }, Health(reporter))
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
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // so are all behind it
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let service = request.uri().path().strip_prefix('/').and_then(|path| path.split('/').next());
        let other = match service {
            Some("envoy.service.ratelimit.v3.RateLimitService") => return self.rls.call(request),
            Some("grpc.health.v1.Health") => Some(&self.health),
            Some("grpc.reflection.v1.ServerReflection") => self.reflection.as_ref(),
            _ => None,
        };
        match other {
            Some(other) => Box::pin(other.clone().oneshot(request)),
            None => {
                let status = Status::new(Code::Unimplemented, "there is no such service here");
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}

impl<S, O, C> Clone for Door<S, O, C> {
    fn clone(&self) -> Self {
        let Self { rls, health, reflection } = self;
        Self { rls: rls.clone(), health: health.clone(), reflection: reflection.clone() }
    }
}

#[tonic::async_trait]
impl<S, O, C> RateLimitService for Rls<S, O, C>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        match self.answer(request.get_ref()).await {
            Ok(answer) => Ok(tonic::Response::new(answer)),
            // The code that the original has for everything.
            Err(refusal) => Err(Status::unknown(refusal.to_string())),
        }
    }
}
