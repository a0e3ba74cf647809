//! What the configuration says of the service.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_core::Policies;
use ratewright_rls_rules::Domains;

/// What the configuration says of the service.
#[derive(Debug)]
pub struct Rules {
    /// Which descriptors meet which rules.
    pub domains: Arc<Domains>,
    /// The rule set that has the policies of these domains, and those of limits that requests bring along.
    pub policies: Arc<Policies>,
    /// How questions are answered.
    pub manner: Manner,
}

/// How questions are answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// How faithful to the original the answers are.
    pub compat: Compat,
    /// Which header fields answers add.
    pub headers: Vec<HeaderFamily>,
    /// Nobody is denied: the overall code is always OK, and the statuses tell what it would have been.
    pub shadow_mode: bool,
    /// Every rule is in quota mode.
    pub quota_mode: bool,
    /// Everything passes, and nothing is counted.
    pub is_off: bool,
}

/// Rules that can be replaced at any time.
pub type SharedRules = Arc<ArcSwap<Rules>>;

/// How faithful to envoyproxy/ratelimit the answers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compat {
    /// A request that is denied charges nothing.
    #[default]
    AllOrNothing,
    /// Every descriptor is charged, also past its limit, and also if another one denies.
    Strict,
}

/// Header fields that answers add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFamily {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    XRateLimit,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`, as the original calls them.
    RateLimit,
    /// `Retry-After`, on denials.
    RetryAfter,
}
