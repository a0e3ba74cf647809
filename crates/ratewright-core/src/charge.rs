//! One policy's claim on one query.

use std::num::NonZeroU32;

use crate::inline_vec::InlineVec;
use crate::key::Key;
use crate::policies::LimitId;
use crate::quantity::{Micros, Timestamp};
use crate::quota::Quota;
use crate::rate::Rate;
use crate::standing::{Basis, Receipt};

/// What a charge does to its bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Spends, all or nothing with the other charges; vetoes if it does not fit.
    Take(NonZeroU32),
    /// Spends if it fits and nobody vetoes; never vetoes. What a policy in shadow mode does.
    Try(NonZeroU32),
    /// Spends even past the limit; never vetoes. `Record(0)` learns whether the bucket is past it.
    Record(u32),
    /// Spends nothing; vetoes if it would not fit. `Look(0)` only tells how things stand.
    Look(u32),
}

/// What stands in for the shared store when it gives no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// This instance's memory, with a share of the quota.
    #[default]
    Local,
    /// Nobody: the charge is let through, unchecked.
    Open,
    /// Nobody: the charge is denied.
    Closed,
}

/// A claim on one bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charge<'a> {
    /// On whose behalf, within the rule set that selected it.
    pub limit: LimitId,
    /// Which bucket.
    pub key: Key<'a>,
    /// How much it may hold.
    pub quota: &'a Quota,
    /// What to do with it.
    pub act: Act,
    /// The longest wait that the asker accepts, where a charge is paid with a wait.
    pub patience: Micros,
    /// What to do if the store gives no answer.
    pub on_failure: OnFailure,
}

/// The charges of one decision.
pub type Charges<'a> = InlineVec<Charge<'a>>;

/// A paid charge to be given back.
#[derive(Debug)]
pub struct Refund<'a> {
    /// Which bucket was charged.
    pub key: Key<'a>,
    /// Under which quota it was charged. It must still be in force.
    pub quota: &'a Quota,
    /// What its standing said. A receipt is good for one refund, so it moves in here.
    pub receipt: Receipt,
    /// On what ground it was paid, and so where it is to be given back.
    pub basis: Basis,
    /// Identifies a refund that may be requested twice or at two instances; it is made once.
    pub id: Option<u64>,
}

/// A charge that somebody paid, as they were told of it, to be given back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaidCharge<'a> {
    /// Under which policy.
    pub policy: &'a str,
    /// Under which of its overrides, if not under its own terms.
    pub override_name: Option<&'a str>,
    /// The quota's own name, if the policy has several.
    pub quota: Option<&'a str>,
    /// The quota's rate. It must still be in force.
    pub rate: Rate,
    /// The kind of quota, as [`Quota::kind`] tells it. It must still be in force.
    pub kind: &'a str,
    /// What the quota holds. It must still be in force.
    pub capacity: NonZeroU32,
    /// The partition values, as a key tells them.
    pub values: Vec<&'a str>,
    /// How many units.
    pub cost: u32,
    /// When, by the store's clock.
    pub paid_at: Timestamp,
    /// On what ground, and so where it is to be given back.
    pub basis: Basis,
    /// Identifies a refund that may be requested twice or at two instances; it is made once.
    pub id: u64,
}

impl Act {
    /// Units that the act speaks of.
    #[inline(always)]
    pub fn cost(self) -> u32 {
        match self {
            Self::Take(cost) | Self::Try(cost) => cost.get(),
            Self::Record(cost) | Self::Look(cost) => cost,
        }
    }

    /// True if not fitting forbids all charges of the call.
    #[inline(always)]
    pub fn vetoes(self) -> bool {
        match self {
            Self::Take(_) | Self::Look(_) => true,
            Self::Try(_) | Self::Record(_) => false,
        }
    }

    /// True if the act is no question, and nothing could speak against it: it only learns how things stand.
    #[inline(always)]
    pub fn only_tells(self) -> bool {
        self == Self::Look(0)
    }

    /// True if later charges of the same key must leave room for this one. A take that is short claims its
    /// units too: the query will need them when it comes back.
    #[inline(always)]
    pub fn claims(self, fits: bool) -> bool {
        match self {
            Self::Take(_) | Self::Record(_) => true,
            Self::Try(_) => fits,
            Self::Look(_) => false,
        }
    }

    /// True if the act spends, given whether it fits.
    #[inline(always)]
    pub fn spends(self, fits: bool) -> bool {
        match self {
            Self::Take(_) | Self::Try(_) => fits,
            Self::Record(_) => true,
            Self::Look(_) => false,
        }
    }
}
