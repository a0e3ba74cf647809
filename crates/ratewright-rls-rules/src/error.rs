//! Errors in descriptors, with the messages of envoyproxy/ratelimit where it has the same check.

use ratewright_core::quota::QuotaError;

use crate::unit::Unit;

/// An error in a descriptor, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}")]
pub struct DescriptorError {
    /// The position of the descriptor: its index in the given list, then in that descriptor's list, and so on. Empty
    /// for the domain itself.
    pub path: Vec<usize>,
    /// The invalid field.
    pub field: DescriptorField,
    /// What is wrong.
    pub kind: DescriptorErrorKind,
}

/// A field of a descriptor. Rate limits are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescriptorField {
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
pub enum DescriptorErrorKind {
    /// A domain without a name.
    #[error("config file cannot have empty domain")]
    EmptyDomain,
    /// A domain that already exists.
    #[error("duplicate domain '{domain}' in config file; files of one domain need envoy.merge_domains")]
    DuplicateDomain {
        /// Its name.
        domain: String,
    },
    /// A descriptor without a key.
    #[error("descriptor has empty key")]
    EmptyKey,
    /// A descriptor that already exists, perhaps with key and value split at another `_`.
    #[error("duplicate descriptor composite key '{path}'")]
    DuplicateKey {
        /// The domain and the texts of all levels.
        path: String,
    },
    /// A descriptor nested too deep.
    #[error("descriptors are nested more than {} deep", crate::Domains::DEPTH_MAX)]
    TooDeep,
    /// A missing or unknown unit.
    #[error("invalid rate limit unit '{unit}'; use {}", Unit::ALL.map(Unit::name).join(", "))]
    UnknownUnit {
        /// The unit in the file.
        unit: String,
    },
    /// `unlimited` with a unit.
    #[error("should not specify rate limit unit when unlimited")]
    UnlimitedUnit,
    /// `unlimited` together with limits.
    #[error("unlimited cannot be combined with other limits; remove one of them")]
    UnlimitedWithLimits,
    /// An empty name in `replaces`.
    #[error("should not have an empty replaces entry")]
    EmptyReplaces,
    /// A limit that names itself in `replaces`.
    #[error("replaces should not contain name of same descriptor")]
    ReplacesItself,
    /// `share_threshold` without a wildcard.
    #[error("share_threshold can only be used with wildcard values (containing '*'), but found key '{key}'")]
    ShareWithoutWildcard {
        /// Key and value.
        key: String,
    },
    /// Two limits that would share their buckets.
    #[error(
        "duplicate limit: another limit of the descriptor has the same algorithm, unit and unit_multiplier; remove one"
    )]
    DuplicateLimit,
    /// A window that is empty or too long.
    #[error("unit_multiplier {multiplier} is out of range with unit {}; use at least 1, and a window of at most 100 years", unit.name())]
    WindowOutOfRange {
        /// `unit_multiplier`.
        multiplier: u32,
        /// `unit`.
        unit: Unit,
    },
    /// A burst of 0.
    #[error("a burst of 0 would deny everything; use at least 1")]
    ZeroBurst,
    /// A quota that the algorithm does not support.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}
