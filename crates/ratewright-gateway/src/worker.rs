//! One worker: a thread with a runtime and connections of its own.
//!
//! A client's connection stays with its worker, and so do the connections to servers that its requests use. Nothing of a
//! request ever wakes another thread.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use ratewright_core::{Clock, Entrypoint, Limiter, Observe, Store};
use ratewright_http::{ProblemContext, SharedDialect, given_id};
use ratewright_tower::{Door, InFlightLayer, Permits, RateLimitLayer};
use tower_layer::Layer;

use crate::body::Body;
use crate::client_tls::ClientTls;
use crate::counts::{Count, NOWHERE};
use crate::forward::Forward;
use crate::gateway::Gateway;
use crate::headers::HeaderRules;
use crate::pool::Pool;
use crate::route::Route;
use crate::snapshot::Snapshot;
use crate::stages::Limited;
use crate::trouble::Trouble;

/// What all requests of a worker need.
pub(crate) struct Shared {
    /// Tells how long things take.
    pub(crate) clock: Arc<dyn Clock>,
    /// Tells the time of day.
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) tls: ClientTls,
}

/// One worker.
pub(crate) struct Worker<S, O> {
    pub(crate) gateway: Arc<Gateway<S, O>>,
    pub(crate) shared: Arc<Shared>,
    live: Mutex<Arc<Live<S, O>>>,
}

/// The routes in force, each with its stages.
pub(crate) struct Live<S, O> {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Which headers are believed, and read.
    pub(crate) rules: Arc<HeaderRules>,
    /// The stages of each route and what is counted of it, in the order of the routes.
    pub(crate) limited: Vec<(Limited<S, O>, Arc<Count>)>,
    /// Of requests that have no route.
    pub(crate) nowhere: Arc<Count>,
}

impl<S, O> Worker<S, O>
where
    S: Store<Error = std::convert::Infallible> + 'static,
    O: Observe + 'static,
{
    pub(crate) fn new(gateway: Arc<Gateway<S, O>>, kept_for: Duration) -> Self {
        let shared = Arc::new(Shared {
            clock: Arc::clone(&gateway.clock),
            wall: Arc::clone(&gateway.wall),
            pool: Arc::new(Pool::new(kept_for)),
            tls: gateway.client_tls.clone(),
        });
        let live = Mutex::new(Arc::new(Live::of(&gateway, &shared)));
        Self { gateway, shared, live }
    }

    /// Counts what hyper could not read and answered itself, so that it came to no stage.
    pub(crate) fn count_unread(&self, error: &(dyn Error + 'static)) {
        let Some(error) = error.downcast_ref::<hyper::Error>().filter(|error| error.is_parse()) else {
            return;
        };
        let status = match error.is_parse_too_large() {
            true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            false => StatusCode::BAD_REQUEST,
        };
        let clock = &*self.shared.clock;
        self.live().nowhere.begin(clock, clock.now()).answered(status);
    }

    /// The routes in force. After a reload, they are made anew.
    pub(crate) fn live(&self) -> Arc<Live<S, O>> {
        let mut live = self.live.lock();
        if !Arc::ptr_eq(&live.snapshot, &self.gateway.snapshot.load()) {
            *live = Arc::new(Live::of(&self.gateway, &self.shared));
        }
        Arc::clone(&live)
    }
}

impl<S, O> Live<S, O>
where
    S: Store<Error = std::convert::Infallible> + 'static,
    O: Observe + 'static,
{
    fn of(gateway: &Gateway<S, O>, shared: &Arc<Shared>) -> Self {
        let snapshot = gateway.snapshot.load_full();
        let (rules, door) = (Arc::new(HeaderRules::of(&snapshot)), door(gateway, &snapshot));
        let made = Made { gateway, shared, snapshot: &snapshot, rules, door };
        let with_count = |route: &Arc<Route>| (made.limited(route), gateway.counts.of(&route.label));
        let limited = snapshot.settings.routes.iter().map(|(_, route)| with_count(route)).collect();
        let rules = Arc::clone(&made.rules);
        Self { limited, nowhere: gateway.counts.of(NOWHERE), rules, snapshot }
    }
}

/// How requests of a snapshot are read.
fn door<S, O>(gateway: &Gateway<S, O>, snapshot: &Snapshot) -> Door {
    let dialect: SharedDialect = Arc::new(ArcSwap::new(Arc::clone(&snapshot.dialect)));
    Door::new(Arc::clone(&gateway.wall))
        .speaking(dialect)
        .entrypoint(Entrypoint::Gateway)
        .without_decisions()
        .metering_bodies()
}

/// What the stages of all routes of a snapshot are made of.
struct Made<'a, S, O> {
    gateway: &'a Gateway<S, O>,
    shared: &'a Arc<Shared>,
    snapshot: &'a Snapshot,
    rules: Arc<HeaderRules>,
    door: Door,
}

impl<S, O> Made<'_, S, O>
where
    S: Store<Error = std::convert::Infallible> + 'static,
    O: Observe + 'static,
{
    /// The stages of one route, from the outside in: a permit, the rates, the server.
    fn limited(&self, route: &Arc<Route>) -> Limited<S, O> {
        let Snapshot { policies, permits, .. } = self.snapshot;
        let named = route.policies.iter().map(String::as_str);
        let door = self.door.clone().route(Arc::clone(&route.id)).policies(named);
        let forward = Forward::new(Arc::clone(route), Arc::clone(&self.rules), Arc::clone(self.shared));
        let rates =
            RateLimitLayer::new(Arc::clone(&self.gateway.limiter), door.clone().under(Arc::clone(policies)));
        let rated = rates.layer(forward);
        if permits.n_policies() == 0 {
            return Limited::Rated(rated);
        }
        let door = door.under(Arc::clone(permits));
        Limited::Permitted(InFlightLayer::new(Arc::clone(&self.gateway.permits), door).layer(rated))
    }
}

impl Shared {
    /// Tells the client what went wrong.
    pub(crate) fn tell(&self, trouble: &Trouble, request: &Parts) -> Response<Body> {
        let id = given_id(&request.headers).unwrap_or_default();
        let path = Some(request.uri.path());
        trouble.render(&ProblemContext { kind: "", instance: path, correlation_id: id, now: self.wall.now() })
    }
}

/// A limiter of permits.
pub(crate) type PermitLimiter<O> = Limiter<Arc<Permits>, O>;
