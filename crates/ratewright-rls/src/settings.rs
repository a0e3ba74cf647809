//! The configuration of the service.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_core::Policies;
use ratewright_rls_rules::Domains;

/// The configuration of the service.
#[derive(Debug)]
pub struct RuleSet {
    /// The rules of each domain.
    pub domains: Arc<Domains>,
    /// The policies behind these rules, and behind limit overrides.
    pub policies: Arc<Policies>,
    /// Settings of all domains.
    pub settings: RlsSettings,
}

/// Settings of all domains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RlsSettings {
    /// How closely responses follow envoyproxy/ratelimit.
    pub compat: Compat,
    /// Which headers responses add.
    pub headers: Vec<HeaderFamily>,
    /// No request is denied: the overall code is always OK, and the statuses show what it would have been.
    pub shadow_mode: bool,
    /// Every rule is in quota mode.
    pub quota_mode: bool,
    /// Everything passes, and nothing is counted.
    pub is_off: bool,
}

/// A rule set that can be replaced at any time.
pub type SharedRuleSet = Arc<ArcSwap<RuleSet>>;

/// How closely responses follow envoyproxy/ratelimit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compat {
    /// A denied request charges nothing.
    #[default]
    AllOrNothing,
    /// Every descriptor is charged, even past its limit, and even if another one denies.
    Strict,
}

/// Headers that responses add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFamily {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    XRateLimit,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`, as envoyproxy/ratelimit calls them.
    RateLimit,
    /// `Retry-After`, on denials.
    RetryAfter,
}
