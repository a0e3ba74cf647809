//! One route: which requests it takes, and where they go on what terms.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use ratewright_core::Pattern;

use crate::cors::Cors;
use crate::pace::BodyRate;
use crate::path_pattern::PathPattern;
use crate::upstream::Upstream;

/// Where requests go, and on what terms.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, for logs and for `by: route`.
    pub id: Arc<str>,
    /// What it is called in metrics: its first path, without the stars at the end.
    pub label: Arc<str>,
    /// Policies that apply to its requests, beside those whose `when` covers them.
    pub policies: Vec<String>,
    /// The servers.
    pub upstream: Arc<Upstream>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The longest body of a request, in bytes.
    pub body_max: u64,
    /// The minimum rate of a request body while the client is waited for. None: no minimum.
    pub body_rate_min: Option<BodyRate>,
    /// Which `Host` the server sees.
    pub host: HostPolicy,
    /// How often a request that certainly did no harm is sent again.
    pub retries_max: u32,
    /// Which other origins may read its responses. None: the upstream says so itself.
    pub cors: Option<Arc<Cors>>,
}

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until there is a connection to a server.
    pub connect: Duration,
    /// From the end of the request, or from when the server takes no more of it, until the head of its answer.
    pub header: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
    /// For all of it, bodies too. None: as long as it takes.
    pub total: Option<Duration>,
    /// Between two pieces of what is no HTTP any more, either way.
    pub tunnel_idle: Duration,
}

/// Which `Host` the server sees.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HostPolicy {
    /// The one that the client asked for.
    #[default]
    Keep,
    /// The server's own, as its url has it.
    Upstream,
    /// This one.
    Fixed(HeaderValue),
}

/// Which requests a route takes: each list that is not empty has something that fits.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Hosts, in lower case and without a port.
    pub hosts: Vec<Pattern>,
    /// Paths.
    pub paths: Vec<PathPattern>,
    /// Methods. `GET` also means `HEAD`, unless a route for the same host and path names that.
    pub methods: Vec<Method>,
}

/// Why routes cannot stand beside each other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RouteError {
    /// Two routes have one name.
    #[error("there are two routes named {id:?}; give each its own name")]
    Twice {
        /// The name.
        id: String,
    },
    /// Two routes take the same requests, so one of them would never get any.
    #[error("routes {first:?} and {second:?} both match {what}; leave it out of one of them")]
    Same {
        /// The route that comes first.
        first: String,
        /// The other.
        second: String,
        /// What both match: method, host and path.
        what: String,
    },
    /// There are more than can be numbered.
    #[error("{n} routes are too many; use at most {}", crate::Routes::MAX)]
    TooMany {
        /// How many hosts and paths they have.
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
    /// What a route with this match is called in metrics: `/api/orders` for `/api/orders/**`, `/` for everything.
    pub fn label(&self) -> &str {
        self.paths.first().map_or("/", PathPattern::label)
    }
}
