//! How a program's requests are read.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::request::Parts;
use ratewright_core::{Clock, Entrypoint, Micros, Policies};
use ratewright_http::{Dialect, SharedDialect};

/// Who is at the other end of the connection: an extension of requests, for those who have no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub IpAddr);

/// How a program's requests are read: who the peer is, what else to count by, what a request costs, how long it may be made
/// to wait.
#[derive(Clone)]
pub struct Door {
    pub(crate) dialect: SharedDialect,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) peer: Arc<PeerOf>,
    pub(crate) route: Option<Arc<str>>,
    pub(crate) policies: Vec<Arc<str>>,
    /// The rule set to decide by. None: whichever the limiter has in force.
    pub(crate) rule_set: Option<Arc<ArcSwap<Policies>>>,
    pub(crate) attributes: Vec<(Arc<str>, Arc<ValueOf>)>,
    pub(crate) cost: Option<Arc<CostOf>>,
    pub(crate) patience: Micros,
    pub(crate) entrypoint: Entrypoint,
    pub(crate) keeps_decisions: bool,
    pub(crate) meters_bodies: bool,
}

type PeerOf = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;
type ValueOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type CostOf = dyn Fn(&Parts) -> NonZeroU32 + Send + Sync;

impl Door {
    /// The longest that a request is made to wait, unless said otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(30);

    /// A door that takes the peer from the extension [`Peer`], trusts no proxy and shows all fields. `clock` is the wall
    /// clock: it tells the time of day that answers name, and when tokens expire.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self {
            dialect: Dialect::default().shared(),
            clock: Arc::new(clock),
            peer: Arc::new(|request| request.extensions.get::<Peer>().map(|Peer(address)| *address)),
            route: None,
            policies: Vec::new(),
            rule_set: None,
            attributes: Vec::new(),
            cost: None,
            patience: Micros::from_secs(Self::PATIENCE.as_secs()),
            entrypoint: Entrypoint::Tower,
            keeps_decisions: true,
            meters_bodies: false,
        }
    }

    /// Says whom to believe and what answers carry. What is shared can be replaced at any time.
    #[must_use]
    pub fn speaking(mut self, dialect: SharedDialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Says how to learn who is at the other end of a request's connection. A request of which that is not known is answered
    /// with 500: it must not pass unlimited because a program forgot to tell.
    #[must_use]
    pub fn peer(mut self, peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.peer = Arc::new(peer);
        self
    }

    /// Counts by something of your own: policies name it `attribute:name`. It is asked for only if one does.
    #[must_use]
    pub fn attribute(
        mut self,
        name: &str,
        value: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.attributes.push((name.into(), Arc::new(value)));
        self
    }

    /// Sets what a request costs. Default: 1.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> NonZeroU32 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Says that the service calls [`BodyMeter::take`](crate::BodyMeter::take) for every piece of a body of unknown length. Otherwise a policy
    /// with [`Cost::RequestBytes`](ratewright_core::Cost::RequestBytes) denies requests of unknown length, since nothing would count them.
    #[must_use]
    pub fn metering_bodies(mut self) -> Self {
        self.meters_bodies = true;
        self
    }

    /// Names the route that the requests are on, for policies that count by it.
    #[must_use]
    pub fn route(mut self, route: impl Into<Arc<str>>) -> Self {
        self.route = Some(route.into());
        self
    }

    /// Names policies that apply too, besides those whose selectors cover a request.
    #[must_use]
    pub fn policies<P: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = P>) -> Self {
        self.policies = names.into_iter().map(Into::into).collect();
        self
    }

    /// Decides by this rule set, whichever the limiter has in force: for programs that replace the door and the policies that
    /// it names together, so that no request meets one of them without the other.
    #[must_use]
    pub fn under(mut self, policies: Arc<Policies>) -> Self {
        self.rule_set = Some(Arc::new(ArcSwap::new(policies)));
        self
    }

    /// Sets the longest that a request is made to wait, where a charge is paid with a wait. One that would have to wait
    /// longer is denied.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Micros::new(u64::try_from(patience.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// Says what the metrics call this way in. Default: [`Entrypoint::Tower`].
    #[must_use]
    pub fn entrypoint(mut self, entrypoint: Entrypoint) -> Self {
        self.entrypoint = entrypoint;
        self
    }

    /// Leaves the decision out of an answer's extensions, where nobody looks for it.
    #[must_use]
    pub fn without_decisions(mut self) -> Self {
        self.keeps_decisions = false;
        self
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("dialect", &self.dialect)
            .field("route", &self.route)
            .field("policies", &self.policies)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
