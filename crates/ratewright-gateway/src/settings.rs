//! The gateway's part of the policy file.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::body_rate::BodyRate;
use crate::cors::Cors;
use crate::explain_header::ExplainTokens;
use crate::route::Timeouts;
use crate::route_table::RouteTable;

/// The gateway's settings.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The routes. Defaults below are already applied to them.
    pub routes: RouteTable,
    /// The most client connections in total.
    pub connections_max: NonZeroU32,
    /// The most connections per address. None: no limit per address.
    pub connections_per_address: Option<NonZeroU32>,
    /// The most HTTP/2 requests in flight per address, beyond the first 8 of each connection. None: no limit per address.
    pub streams_per_address: Option<NonZeroU32>,
    /// The longest request head, in bytes.
    pub header_max: u32,
    /// The longest request body, in bytes, unless a route says otherwise.
    pub body_max: u64,
    /// The minimum rate of a request body, unless a route says otherwise. None: no minimum.
    pub body_rate_min: Option<BodyRate>,
    /// Timeouts, unless a route says otherwise.
    pub timeouts: Timeouts,
    /// How long a client may take to send a request head.
    pub request_header: Duration,
    /// True if every request is logged.
    pub has_access_log: bool,
    /// True if method override headers are removed.
    pub strips_method_override: bool,
    /// Which tokens may request an explanation by `X-Ratewright-Explain`. None: no token.
    pub explain_tokens: Option<ExplainTokens>,
    /// CORS rules for requests without a route. Routes have their own.
    pub cors: Option<Arc<Cors>>,
}

impl GatewaySettings {
    /// The smallest `header_max`: HTTP servers should accept this much.
    pub const HEADER_MAX_MIN: u32 = 8 * 1024;

    /// The largest `header_max`: each connection may use this much memory.
    pub const HEADER_MAX_MAX: u32 = 1024 * 1024;
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            routes: RouteTable::default(),
            connections_max: const { NonZeroU32::new(10_000).expect("not zero") },
            connections_per_address: NonZeroU32::new(1_000),
            streams_per_address: NonZeroU32::new(1_000),
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
