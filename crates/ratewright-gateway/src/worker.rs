//! One worker: a thread with its own runtime and connections.
//!
//! A client connection stays with its worker, as do the upstream connections of its requests. A request never wakes
//! another thread.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use ratewright_core::decision::Observe;
use ratewright_core::query::Entrypoint;
use ratewright_core::{Clock, Store};
use ratewright_http::address::network;
use ratewright_http::correlation::given_id;
use ratewright_http::{ProblemContext, SharedHttpSettings};
use ratewright_listen::client_slots::{ClientLimit, ClientSlot, ClientSlots};
use ratewright_tower::{InFlightLayer, RateLimitLayer, RequestReader};
use tower_layer::Layer;

use crate::abort::KeptExchanges;
use crate::body::Body;
use crate::forward::Forward;
use crate::forward_error::ForwardError;
use crate::gateway::Gateway;
use crate::headers::HeaderRules;
use crate::metrics::{NO_ROUTE, RouteCounters};
use crate::pool::Pool;
use crate::route::Route;
use crate::snapshot::Snapshot;
use crate::stages::RouteStages;
use crate::upstream_tls::ClientTls;

/// Shared by all requests of a worker.
pub(crate) struct WorkerContext {
    /// A monotonic clock, for durations.
    pub(crate) clock: Arc<dyn Clock>,
    /// The wall clock.
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) tls: ClientTls,
}

/// The slots for requests in flight of one connection: those of its client.
#[derive(Clone, Debug)]
pub(crate) struct StreamSlots {
    slots: ClientSlots,
    limit: ClientLimit,
}

impl StreamSlots {
    /// A slot for one more request in flight. None: the client has too many.
    pub(crate) fn take(&self) -> Option<ClientSlot> {
        self.slots.take(self.limit)
    }
}

/// One worker.
pub(crate) struct Worker<S, O> {
    pub(crate) gateway: Arc<Gateway<S, O>>,
    pub(crate) shared: Arc<WorkerContext>,
    /// The HTTP/2 requests in flight of each client, in all workers.
    streams: ClientSlots,
    /// The exchanges in all workers whose client has disconnected.
    pub(crate) kept: KeptExchanges,
    live: Mutex<Arc<LiveRoutes<S, O>>>,
}

/// The current routes with their stages.
pub(crate) struct LiveRoutes<S, O> {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Which headers are trusted and which are read by policies.
    pub(crate) rules: Arc<HeaderRules>,
    /// The stages and counters of each route, in file order.
    pub(crate) stages: Vec<(RouteStages<S, O>, Arc<RouteCounters>)>,
    /// The counters of requests without a route.
    pub(crate) no_route: Arc<RouteCounters>,
}

impl<S, O> Worker<S, O>
where
    S: Store<Error = std::convert::Infallible> + 'static,
    O: Observe + 'static,
{
    pub(crate) fn new(
        gateway: Arc<Gateway<S, O>>,
        pool_idle_timeout: Duration,
        (streams, kept): (ClientSlots, KeptExchanges),
    ) -> Self {
        let shared = Arc::new(WorkerContext {
            clock: Arc::clone(&gateway.clock),
            wall: Arc::clone(&gateway.wall),
            pool: Arc::new(Pool::new(pool_idle_timeout)),
            tls: gateway.client_tls.clone(),
        });
        let live = Mutex::new(Arc::new(LiveRoutes::of(&gateway, &shared)));
        Self { gateway, shared, streams, kept, live }
    }

    /// The slots for requests in flight of a connection from this address. A trusted proxy has many clients.
    pub(crate) fn stream_slots(&self, address: IpAddr) -> StreamSlots {
        let snapshot = self.gateway.snapshot.load();
        let rules = &snapshot.http_settings.rules;
        let max = snapshot.settings.streams_per_address.filter(|_| !rules.proxies.trust(address));
        let limit =
            ClientLimit { client: network(address, rules.ipv6_prefix), max: max.map_or(u32::MAX, u32::from) };
        StreamSlots { slots: self.streams.clone(), limit }
    }

    /// Counts a request that hyper could not parse, which reaches no stage.
    pub(crate) fn count_parse_error(&self, error: &(dyn Error + 'static)) {
        let Some(error) = error.downcast_ref::<hyper::Error>().filter(|error| error.is_parse()) else {
            return;
        };
        let status = match error.is_parse_too_large() {
            true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            false => StatusCode::BAD_REQUEST,
        };
        let clock = &*self.shared.clock;
        self.live().no_route.begin(clock, clock.now()).responded(status);
    }

    /// The current routes, rebuilt after a reload.
    pub(crate) fn live(&self) -> Arc<LiveRoutes<S, O>> {
        let mut live = self.live.lock();
        if !Arc::ptr_eq(&live.snapshot, &self.gateway.snapshot.load()) {
            *live = Arc::new(LiveRoutes::of(&self.gateway, &self.shared));
        }
        Arc::clone(&live)
    }
}

impl<S, O> LiveRoutes<S, O>
where
    S: Store<Error = std::convert::Infallible> + 'static,
    O: Observe + 'static,
{
    fn of(gateway: &Gateway<S, O>, shared: &Arc<WorkerContext>) -> Self {
        let snapshot = gateway.snapshot.load_full();
        let (rules, reader) = (Arc::new(HeaderRules::of(&snapshot)), reader(gateway, &snapshot));
        let builder = StageBuilder { gateway, shared, snapshot: &snapshot, rules, reader };
        let counting = |route: &Arc<Route>| (builder.stages(route), gateway.metrics.of(&route.label));
        let stages = snapshot.settings.routes.iter().map(|(_, route)| counting(route)).collect();
        let rules = Arc::clone(&builder.rules);
        Self { stages, no_route: gateway.metrics.of(NO_ROUTE), rules, snapshot }
    }
}

/// How requests of a snapshot are identified.
fn reader<S, O>(gateway: &Gateway<S, O>, snapshot: &Snapshot) -> RequestReader {
    let http_settings: SharedHttpSettings = Arc::new(ArcSwap::new(Arc::clone(&snapshot.http_settings)));
    RequestReader::new(Arc::clone(&gateway.wall))
        .http_settings(http_settings)
        .entrypoint(Entrypoint::Gateway)
        .without_decisions()
        .metering_bodies()
}

/// Builds the stages of all routes of a snapshot.
struct StageBuilder<'a, S, O> {
    gateway: &'a Gateway<S, O>,
    shared: &'a Arc<WorkerContext>,
    snapshot: &'a Snapshot,
    rules: Arc<HeaderRules>,
    reader: RequestReader,
}

impl<S, O> StageBuilder<'_, S, O>
where
    S: Store<Error = std::convert::Infallible> + 'static,
    O: Observe + 'static,
{
    /// The stages of a route, from the outside in: permit, rates, forwarding.
    fn stages(&self, route: &Arc<Route>) -> RouteStages<S, O> {
        let Snapshot { policies, permits, .. } = self.snapshot;
        let named = route.policies.iter().map(String::as_str);
        let reader = self.reader.clone().route(Arc::clone(&route.id)).policies(named);
        let forward = Forward::new(Arc::clone(route), Arc::clone(&self.rules), Arc::clone(self.shared));
        let rates = RateLimitLayer::new(
            Arc::clone(&self.gateway.limiter),
            reader.clone().rule_set(Arc::clone(policies)),
        );
        let rated = rates.layer(forward);
        if permits.n_policies() == 0 {
            return RouteStages::RateOnly(rated);
        }
        let reader = reader.rule_set(Arc::clone(permits));
        RouteStages::WithPermit(InFlightLayer::new(&self.gateway.permits, reader).layer(rated))
    }
}

impl WorkerContext {
    /// The response to a request that could not be forwarded.
    pub(crate) fn error_response(&self, error: &ForwardError, request: &Parts) -> Response<Body> {
        let id = given_id(&request.headers).unwrap_or_default();
        let path = Some(request.uri.path());
        error.render(&ProblemContext { kind: "", instance: path, correlation_id: id, now: self.wall.now() })
    }
}
