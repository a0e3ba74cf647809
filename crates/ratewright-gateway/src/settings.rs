//! What the policy file says of the gateway.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::cors::Cors;
use crate::explain::ExplainTokens;
use crate::pace::BodyRate;
use crate::route::Timeouts;
use crate::routes::Routes;

/// What the gateway goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where requests go. What else stands here for single routes is in them already.
    pub routes: Routes,
    /// The most connections of clients, in all.
    pub connections_max: NonZeroU32,
    /// The most connections from one address. None: as many as there are in all.
    pub connections_per_address: Option<NonZeroU32>,
    /// The longest head of a request, in bytes.
    pub header_max: u32,
    /// The longest body of a request, in bytes, where a route says nothing else.
    pub body_max: u64,
    /// The minimum rate of a request body, where a route says nothing else. None: no minimum.
    pub body_rate_min: Option<BodyRate>,
    /// How long things may take, where a route says nothing else.
    pub timeouts: Timeouts,
    /// How long a client may take to send a request's head.
    pub request_header: Duration,
    /// True if every request is logged.
    pub has_access_log: bool,
    /// Whether headers are removed by which a client asks for another method than its own.
    pub strips_method_override: bool,
    /// Which tokens may ask for an explanation by `X-Ratewright-Explain`. None: no token may.
    pub explain_tokens: Option<ExplainTokens>,
    /// Which other origins may read responses to requests without a route. Routes have their own.
    pub cors: Option<Arc<Cors>>,
}

impl Settings {
    /// The shortest `header_max`: less than this, HTTP servers do not do.
    pub const HEADER_MAX_MIN: u32 = 8 * 1024;

    /// The longest `header_max`: each connection may hold as much.
    pub const HEADER_MAX_MAX: u32 = 1024 * 1024;
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            routes: Routes::default(),
            connections_max: const { NonZeroU32::new(10_000).expect("not zero") },
            connections_per_address: NonZeroU32::new(1_000),
            header_max: 32 * 1024,
            body_max: 1024 * 1024 * 1024,
            body_rate_min: Some(BodyRate { n_bytes: 16 * 1024, window: Duration::from_secs(60) }),
            timeouts: Timeouts::default(),
            request_header: Duration::from_secs(10),
            has_access_log: false,
            strips_method_override: false,
            explain_tokens: None,
            cors: None,
        }
    }
}
