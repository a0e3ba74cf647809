//! One route: which requests it matches, and how they are forwarded.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use ratewright_core::policy::Pattern;

use crate::cors::Cors;
use crate::upstream::Upstream;

pub use crate::body_rate::BodyRate;
pub use crate::path_pattern::{PathPattern, PathPatternError};
pub use crate::route_table::RouteLookup;

/// How matching requests are forwarded.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, for logs and for `by: route`.
    pub id: Arc<str>,
    /// The label in metrics: its first path, without stars at the end.
    pub label: Arc<str>,
    /// Policies that apply to its requests, besides those whose `when` matches.
    pub policies: Vec<String>,
    /// The servers.
    pub upstream: Arc<Upstream>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The longest request body, in bytes.
    pub body_max: u64,
    /// The minimum rate of a request body while the gateway waits for the client. None: no minimum.
    pub body_rate_min: Option<BodyRate>,
    /// Which `Host` the upstream gets.
    pub host: HostPolicy,
    /// The most retries after a request was sent.
    pub retries_max: u32,
    /// Which other origins may read its responses. None: the upstream sets CORS headers.
    pub cors: Option<Arc<Cors>>,
}

/// Timeouts of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a connection is open.
    pub connect: Duration,
    /// From the end of the request, or from when the upstream stops reading it, until the response head.
    pub header: Duration,
    /// Between two frames of a body.
    pub idle: Duration,
    /// For the whole request with both bodies. None: no limit.
    pub total: Option<Duration>,
    /// Between two reads of a tunnel, in either direction.
    pub tunnel_idle: Duration,
}

/// Which `Host` the upstream gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HostPolicy {
    /// The client's.
    #[default]
    Keep,
    /// The host of the server's URL.
    Upstream,
    /// A fixed value.
    Fixed(HeaderValue),
}

/// Which requests a route matches. Each list that is not empty must match.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Hosts, in lower case and without a port.
    pub hosts: Vec<Pattern>,
    /// Paths.
    pub paths: Vec<PathPattern>,
    /// Methods. `GET` also means `HEAD`, unless a route for the same host and path names that.
    pub methods: Vec<Method>,
}

/// Why routes are rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RouteError {
    /// Two routes have the same name.
    #[error("duplicate route name {id:?}; give each route its own name")]
    DuplicateId {
        /// The name.
        id: String,
    },
    /// Two routes match the same requests, so one would never get any.
    #[error("routes {first:?} and {second:?} both match {what}; leave it out of one of them")]
    Conflict {
        /// The first route.
        first: String,
        /// The second route.
        second: String,
        /// What both match: method, host and path.
        what: String,
    },
    /// The limit is exceeded.
    #[error("too many routes: {n}; use at most {}", crate::RouteTable::MAX)]
    TooMany {
        /// The number of pairs of host and path.
        n: usize,
    },
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            header: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: None,
            tunnel_idle: Duration::from_secs(3_600),
        }
    }
}

impl Match {
    /// The label in metrics: `/api/orders` for `/api/orders/**`, `/` for everything.
    pub fn label(&self) -> &str {
        self.paths.first().map_or("/", PathPattern::label)
    }
}
