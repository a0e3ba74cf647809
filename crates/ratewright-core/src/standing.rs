//! The standing: the units left under a key after a charge, and when more return.

use std::borrow::Cow;
use std::num::NonZeroU32;

use crate::algorithm::{Fit, Level};
use crate::charge::{Charge, OnFailure};
use crate::inline_vec::InlineVec;
use crate::policies::LimitId;
use crate::policy::Limit;
use crate::quantity::{Micros, Timestamp};
use crate::quota::{Algorithm, Quota, Refill, Share};

/// The units left under one key after one charge.
#[derive(PartialEq, Eq, Debug)]
pub struct Standing {
    /// The limit that charged, within the rule set that selected it.
    pub limit: LimitId,
    /// What happened to the charge.
    pub outcome: Outcome,
    /// Whole units that could be spent now.
    pub remaining: u32,
    /// For a bucket, the time until it is full again; for a window, until it ends or its oldest entry expires.
    pub reset_after: Micros,
    /// An allowed query may proceed after this time. Zero, unless the quota is a queue.
    pub wait: Micros,
    /// Where the standing comes from.
    pub basis: Basis,
    /// The share of the quota that was charged, if the instance fell back to its own memory. `None`: the whole quota.
    pub share: Option<Share>,
}

/// What happened to a charge.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The units were spent.
    Charged(Receipt),
    /// It would fit, but was not spent: it only looked, or another charge vetoed.
    WouldPass,
    /// It does not fit now. It fits after this time if no other query spends; not a microsecond earlier.
    Denied {
        /// The shortest wait after which it fits.
        retry_after: Micros,
    },
    /// It exceeds the quota's capacity, so it never fits.
    Never,
    /// The store did not reply; the basis says whether the query passes.
    Unknown,
}

/// Proof of a charge. With its key and quota it can be refunded once.
#[derive(PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Units that may be refunded.
    pub cost: u32,
    /// When, by the store's clock.
    pub paid_at: Timestamp,
    /// True if it was recorded although it did not fit.
    pub is_past: bool,
}

/// What a standing is based on, the most reliable first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Basis {
    /// The store that all instances share.
    Shared,
    /// This instance's memory.
    Local,
    /// No store: it did not reply, and the policy's `on_failure` is open.
    FailOpen,
    /// No store: it did not reply, and the policy's `on_failure` is closed.
    FailClosed,
}

/// The standings of one decision, in the order of its charges.
pub type Standings = InlineVec<Standing>;

impl Receipt {
    /// The receipt for units that were counted. Units beyond one capacity are not refunded.
    #[inline(always)]
    pub fn new(counted: u32, quota: &Quota, paid_at: Timestamp) -> Self {
        Self { cost: counted.min(quota.capacity().get()), paid_at, is_past: false }
    }
}

impl Standing {
    /// The standing that follows from how a charge fits and what is left. `receipt` is there if it was
    /// spent. Every store derives its standings here.
    #[inline(always)]
    pub fn derive(
        charge: &Charge<'_>,
        fit: Fit,
        receipt: Option<Receipt>,
        level: Level,
        basis: Basis,
    ) -> Self {
        let (outcome, wait) = match (receipt, fit) {
            (Some(receipt), Fit::Fits { wait }) => (Outcome::Charged(receipt), wait),
            (Some(receipt), Fit::Short { .. } | Fit::Never) => {
                (Outcome::Charged(Receipt { is_past: true, ..receipt }), Micros::ZERO)
            }
            (None, Fit::Fits { wait }) => (Outcome::WouldPass, wait),
            (None, Fit::Short { retry_after }) => (Outcome::Denied { retry_after }, Micros::ZERO),
            (None, Fit::Never) => (Outcome::Never, Micros::ZERO),
        };
        let Level { remaining, reset_after } = level;
        Self { limit: charge.limit, outcome, remaining, reset_after, wait, basis, share: None }
    }

    /// The quota that was in force: `whole`, or the share of it that the instance granted.
    #[inline]
    pub fn quota_in_force<'a>(&self, whole: &'a Quota) -> Cow<'a, Quota> {
        self.share.map_or(Cow::Borrowed(whole), |share| Cow::Owned(whole.share(share)))
    }

    /// What the limit holds when full, under the quota that was in force.
    #[inline]
    pub fn capacity(&self, limit: &Limit) -> NonZeroU32 {
        self.quota_in_force(limit.quota()).capacity()
    }

    /// The standing of a charge without a reply from the store: all units are left if it passes, none if it is denied.
    pub fn unknown(charge: &Charge<'_>, basis: Basis) -> Self {
        let remaining = if basis == Basis::FailClosed { 0 } else { charge.quota.capacity().get() };
        let (reset_after, wait) = (Micros::ZERO, Micros::ZERO);
        Self {
            limit: charge.limit,
            outcome: Outcome::Unknown,
            remaining,
            reset_after,
            wait,
            basis,
            share: None,
        }
    }

    /// Adds standings until there is one for each charge. Charges that a store left out were not checked: they are denied, unless the
    /// policy's `on_failure` is open.
    #[inline(always)]
    pub fn complete(charges: &[Charge<'_>], standings: &mut Standings) {
        if standings.len() != charges.len() {
            Self::complete_rare(charges, standings);
        }
    }

    #[cold]
    fn complete_rare(charges: &[Charge<'_>], standings: &mut Standings) {
        standings.truncate(charges.len());
        let missing = charges.iter().skip(standings.len());
        standings.extend(missing.map(|charge| match charge.on_failure {
            OnFailure::Open => Self::unknown(charge, Basis::FailOpen),
            OnFailure::Local | OnFailure::Closed => Self::unknown(charge, Basis::FailClosed),
        }));
    }

    /// True if it denies the query: there is no room, or the store did not reply and the policy denies then.
    #[inline(always)]
    pub fn is_against(&self) -> bool {
        match self.outcome {
            Outcome::Charged(_) | Outcome::WouldPass => false,
            Outcome::Denied { .. } | Outcome::Never => true,
            Outcome::Unknown => self.basis == Basis::FailClosed,
        }
    }

    /// True if the charge was recorded past the limit: it was spent, and did not fit.
    pub fn is_past(&self) -> bool {
        matches!(&self.outcome, Outcome::Charged(receipt) if receipt.is_past)
    }

    /// True if the limit has no room: it denies the query, or the charge was recorded past it.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_against() || self.is_past()
    }

    /// Takes the receipt out for a refund. The outcome becomes [`Outcome::WouldPass`].
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        match std::mem::replace(&mut self.outcome, Outcome::WouldPass) {
            Outcome::Charged(receipt) => Some(receipt),
            other @ (Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown) => {
                self.outcome = other;
                None
            }
        }
    }

    /// Adds refunded units to the standing. If all units are back, `reset_after` is zero. Otherwise a bucket is full earlier,
    /// rounded up (by whole windows if it refills in steps), and a window ends as before. `whole` is the quota of the charge,
    /// before its share.
    pub(crate) fn give_back(&mut self, units: u32, whole: &Quota) {
        let quota = self.quota_in_force(whole);
        let capacity = quota.capacity().get();
        let remaining = self.remaining.saturating_add(units).min(capacity);
        let n_steps = |remaining: u32| u64::from(capacity.saturating_sub(remaining).div_ceil(quota.units()));
        let earlier = match quota.algorithm() {
            _ if remaining == capacity => self.reset_after,
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
                Micros::new(quota.time_to_earn(units.into()).micros())
            }
            Algorithm::TokenBucket(Refill::Stepped) => {
                let n_fewer = n_steps(self.remaining) - n_steps(remaining);
                Micros::new(n_fewer.saturating_mul(quota.window().as_micros()))
            }
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter | Algorithm::FixedWindow(_) => {
                Micros::ZERO
            }
        };
        self.reset_after = self.reset_after.saturating_sub(earlier);
        self.remaining = remaining;
    }

    /// How long until the charge would fit: zero if it does, `None` if it never will. After a record past the limit it is the time until
    /// the bucket is reset. After a denial because the store did not reply it is one second.
    pub fn retry_after(&self) -> Option<Micros> {
        match self.outcome {
            Outcome::Unknown if self.basis == Basis::FailClosed => Some(Micros::from_secs(1)),
            Outcome::Charged(_) if self.is_past() => Some(self.reset_after),
            Outcome::Charged(_) | Outcome::WouldPass | Outcome::Unknown => Some(Micros::ZERO),
            Outcome::Denied { retry_after } => Some(retry_after),
            Outcome::Never => None,
        }
    }
}

impl Basis {
    /// The name in responses, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Local => "local",
            Self::FailOpen => "fail_open",
            Self::FailClosed => "fail_closed",
        }
    }
}
