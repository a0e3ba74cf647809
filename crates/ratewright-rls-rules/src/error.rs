//! What is wrong with descriptors, in the words of envoyproxy/ratelimit where it has words for it.

use ratewright_core::QuotaError;

use crate::unit::Unit;

/// Something wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{wrong}")]
pub struct Error {
    /// Which descriptor: its number in the list that was given, then its number in that one's list, and so on. Empty for the
    /// domain itself.
    pub path: Vec<usize>,
    /// What of it.
    pub field: Field,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What of a descriptor is wrong. Rate limits are told by their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The domain's name.
    Domain,
    /// The descriptor's key, or key and value.
    Key,
    /// `share_threshold`.
    ShareThreshold,
    /// A rate limit as a whole.
    RateLimit(usize),
    /// `unit`.
    Unit(usize),
    /// One of `replaces`.
    Replaces(usize, usize),
    /// `burst`.
    Burst(usize),
    /// `unit_multiplier`.
    UnitMultiplier(usize),
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// A domain without a name.
    #[error("config file cannot have empty domain")]
    EmptyDomain,
    /// A domain that is there already.
    #[error("duplicate domain '{domain}' in config file; files of one domain need envoy.merge_domains")]
    DuplicateDomain {
        /// Its name.
        domain: String,
    },
    /// A descriptor without a key.
    #[error("descriptor has empty key")]
    EmptyKey,
    /// A descriptor that is there already, perhaps with key and value split elsewhere.
    #[error("duplicate descriptor composite key '{path}'")]
    DuplicateKey {
        /// The domain and the texts of all levels.
        path: String,
    },
    /// A descriptor so deep that no request has so many entries.
    #[error("descriptors are nested more than {} deep", crate::Domains::DEPTH_MAX)]
    TooDeep,
    /// No unit, or none that is known.
    #[error("invalid rate limit unit '{unit}'; use {}", Unit::ALL.map(Unit::name).join(", "))]
    UnknownUnit {
        /// What is written.
        unit: String,
    },
    /// Something without a limit has a unit.
    #[error("should not specify rate limit unit when unlimited")]
    UnlimitedUnit,
    /// Something without a limit has other limits.
    #[error("unlimited cannot stand beside other limits; leave one of them out")]
    UnlimitedBeside,
    /// A limit that replaces nothing.
    #[error("should not have an empty replaces entry")]
    ReplacesNothing,
    /// A limit that replaces itself.
    #[error("replaces should not contain name of same descriptor")]
    ReplacesItself,
    /// Nothing to share.
    #[error("share_threshold can only be used with wildcard values (containing '*'), but found key '{key}'")]
    NothingToShare {
        /// Key and value.
        key: String,
    },
    /// Two limits whose buckets could not be told apart.
    #[error("another limit of the descriptor has the same algorithm, unit and multiplier; leave one out")]
    SameLimit,
    /// No window, or one that never ends.
    #[error("a window of {multiplier} times one {} is out of range; use 1 or more, and 100 years at most", unit.name())]
    Window {
        /// How many units.
        multiplier: u32,
        /// Of what.
        unit: Unit,
    },
    /// Nothing at once.
    #[error("a burst of 0 would deny everything; use at least 1")]
    NoBurst,
    /// What the algorithm cannot do.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}
