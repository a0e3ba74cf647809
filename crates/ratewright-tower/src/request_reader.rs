//! How requests are read: the peer, further attributes, the cost, and how long a request may wait.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use ratewright_core::policy::SharedPolicies;
use ratewright_core::query::Entrypoint;
use ratewright_core::{Clock, Micros, Policies};
use ratewright_http::{HttpSettings, SharedHttpSettings};

/// The peer of a connection, as an extension of its requests, for frameworks that do not provide it.
///
/// ```
/// # use ratewright_tower::Peer;
/// let request = http::Request::get("/").extension(Peer([192, 0, 2, 1].into())).body(())?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub IpAddr);

/// How requests are read: the peer, further attributes to count by, the cost, and how long a request may wait.
///
/// ```
/// use ratewright_store::WallClock;
/// use ratewright_tower::RequestReader;
///
/// let reader = RequestReader::new(WallClock)
///     .attribute("tenant", |request| request.uri.host().map(str::to_owned)) // policies name it attribute:tenant
///     .cost(|request| if request.uri.path() == "/export" { 10 } else { 1 }.try_into().expect("not zero"));
/// ```
#[derive(Clone)]
pub struct RequestReader {
    pub(crate) http_settings: SharedHttpSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) peer: Arc<PeerOf>,
    pub(crate) route: Option<Arc<str>>,
    pub(crate) policies: Vec<Arc<str>>,
    /// The rule set to decide by. None: the limiter's current one.
    pub(crate) rule_set: Option<Arc<SharedPolicies>>,
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

impl RequestReader {
    /// The default of [`RequestReader::patience`].
    pub const PATIENCE: Duration = Duration::from_secs(30);

    /// A reader that takes the peer from the extension [`Peer`] or, with the feature `axum`, from `ConnectInfo<SocketAddr>`.
    /// It trusts no proxy and renders all rate limit headers.
    /// `clock` is the wall clock: for timestamps in responses, and for the expiry of tokens.
    pub fn new(clock: impl Clock + 'static) -> Self {
        Self {
            http_settings: HttpSettings::default().shared(),
            clock: Arc::new(clock),
            peer: Arc::new(peer_of),
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

    /// Sets which proxies and tokens are trusted and which headers responses carry. Shared HTTP settings can be replaced at
    /// any time.
    #[must_use]
    pub fn http_settings(mut self, http_settings: SharedHttpSettings) -> Self {
        self.http_settings = http_settings;
        self
    }

    /// Sets how to find the peer of a request's connection. A request without a peer gets 500: a program that forgets
    /// this setting must not leave requests unlimited.
    #[must_use]
    pub fn peer(mut self, peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.peer = Arc::new(peer);
        self
    }

    /// Adds an attribute of your own, which policies name `attribute:name`. `value` is called only if a policy needs
    /// it.
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

    /// Declares that the service calls [`BodyMeter::take`](crate::BodyMeter::take) for every chunk of a body of unknown
    /// length. Otherwise a policy with [`Cost::RequestBytes`](ratewright_core::policy::Cost::RequestBytes) denies requests of
    /// unknown length, since nothing would count them.
    #[must_use]
    pub fn metering_bodies(mut self) -> Self {
        self.meters_bodies = true;
        self
    }

    /// Names the route of the requests, for policies that count by route.
    #[must_use]
    pub fn route(mut self, route: impl Into<Arc<str>>) -> Self {
        self.route = Some(route.into());
        self
    }

    /// Names policies that apply in addition to those whose selectors cover a request.
    #[must_use]
    pub fn policies<P: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = P>) -> Self {
        self.policies = names.into_iter().map(Into::into).collect();
        self
    }

    /// Decides by this rule set instead of the limiter's current one: for programs that replace the reader and the
    /// policies that it names together, so that no request sees one without the other.
    #[must_use]
    pub fn rule_set(mut self, policies: Arc<Policies>) -> Self {
        self.rule_set = Some(Arc::new(SharedPolicies::new(policies)));
        self
    }

    /// Sets how long a request may wait in the queue of a leaky bucket. A request that would wait longer is denied.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Micros::new(u64::try_from(patience.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// Sets the entrypoint's name in metrics. Default: [`Entrypoint::Tower`].
    #[must_use]
    pub fn entrypoint(mut self, entrypoint: Entrypoint) -> Self {
        self.entrypoint = entrypoint;
        self
    }

    /// Leaves the decision out of the extensions of responses.
    #[must_use]
    pub fn without_decisions(mut self) -> Self {
        self.keeps_decisions = false;
        self
    }
}

/// The peer, if the program or its framework has put it into the request's extensions.
fn peer_of(request: &Parts) -> Option<IpAddr> {
    if let Some(Peer(address)) = request.extensions.get() {
        return Some(*address);
    }
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        use std::net::SocketAddr;

        let connected = request.extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| peer);
        let mocked = || request.extensions.get().map(|MockConnectInfo::<SocketAddr>(peer)| peer);
        connected.or_else(mocked).map(SocketAddr::ip)
    }
    #[cfg(not(feature = "axum"))]
    None
}

impl fmt::Debug for RequestReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestReader")
            .field("http_settings", &self.http_settings)
            .field("route", &self.route)
            .field("policies", &self.policies)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
