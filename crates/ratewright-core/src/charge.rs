//! A charge: what one policy asks of one bucket for one query.

use std::num::NonZeroU32;

use crate::inline_vec::InlineVec;
use crate::key::Key;
use crate::policies::LimitId;
use crate::quantity::{Micros, Timestamp};
use crate::quota::{Quota, Share};
use crate::rate::Rate;
use crate::standing::{Basis, Receipt};

/// What a charge does to its bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Spends, all or nothing with the other charges; vetoes if it does not fit.
    Take(NonZeroU32),
    /// Spends if it fits and no other charge vetoes; never vetoes. A policy in shadow mode does this.
    Try(NonZeroU32),
    /// As [`Act::Try`], together with the `Try` or `Join` before it: all of them spend, or none. A policy in shadow mode with
    /// several quotas does this, so that it spends as it would if it were enforced.
    Join(NonZeroU32),
    /// Spends even past the limit; never vetoes. `Record(0)` reads whether the bucket is past its limit.
    Record(u32),
    /// Spends nothing; vetoes if it would not fit. `Look(0)` only reads the standing.
    Look(u32),
}

/// What decides if the shared store does not reply: the policy's `on_failure`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// This instance's memory, with a share of the quota.
    #[default]
    Local,
    /// Nothing: the charge passes unchecked.
    Open,
    /// Nothing: the charge is denied.
    Closed,
}

/// A claim on one bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charge<'a> {
    /// The limit that charges, within the rule set that selected it.
    pub limit: LimitId,
    /// The bucket.
    pub key: Key<'a>,
    /// The bucket's quota.
    pub quota: &'a Quota,
    /// What the charge does to the bucket.
    pub act: Act,
    /// The longest wait that the caller accepts, if the quota is a queue.
    pub patience: Micros,
    /// What happens if the store does not reply.
    pub on_failure: OnFailure,
}

/// The charges of one decision.
pub type Charges<'a> = InlineVec<Charge<'a>>;

/// A charge to refund.
#[derive(Debug)]
pub struct Refund<'a> {
    /// The bucket that was charged.
    pub key: Key<'a>,
    /// The quota that it was charged under. It must still be in force.
    pub quota: &'a Quota,
    /// The receipt from its standing. A receipt is good for one refund, so it moves in here.
    pub receipt: Receipt,
    /// The basis of the charge: the refund goes to the same place.
    pub basis: Basis,
    /// The share of the quota that it was charged under, from its standing.
    pub share: Option<Share>,
    /// Identifies a refund that may be requested twice or at two instances; it is made once.
    pub id: Option<u64>,
}

/// A charge to refund, as its receipt describes it to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaidCharge<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The name of the override that applied, if one did.
    pub override_name: Option<&'a str>,
    /// The quota's own name, if the policy has several.
    pub quota: Option<&'a str>,
    /// The quota's rate. It must still be in force.
    pub rate: Rate,
    /// The kind of quota, from [`Quota::kind`]. It must still be in force.
    pub kind: &'a str,
    /// The quota's capacity. It must still be in force.
    pub capacity: NonZeroU32,
    /// The partition values, as in the key.
    pub values: Vec<&'a str>,
    /// Units that were charged.
    pub cost: u32,
    /// When it was charged, by the store's clock.
    pub paid_at: Timestamp,
    /// The basis of the charge: the refund goes to the same place.
    pub basis: Basis,
    /// The share of the quota that it was charged under, from its standing.
    pub share: Option<Share>,
    /// Identifies a refund that may be requested twice or at two instances; it is made once.
    pub id: u64,
}

impl Charge<'_> {
    /// True if it spends only together with the charge before it, which is of the same policy.
    #[inline(always)]
    pub fn joins(&self, before: &Self) -> bool {
        matches!(self.act, Act::Join(_))
            && matches!(before.act, Act::Try(_) | Act::Join(_))
            && self.limit.policy() == before.limit.policy()
    }
}

impl Act {
    /// The units of the act.
    #[inline(always)]
    pub fn cost(self) -> u32 {
        match self {
            Self::Take(cost) | Self::Try(cost) | Self::Join(cost) => cost.get(),
            Self::Record(cost) | Self::Look(cost) => cost,
        }
    }

    /// True if the act vetoes all charges of the call when it does not fit.
    #[inline(always)]
    pub fn vetoes(self) -> bool {
        match self {
            Self::Take(_) | Self::Look(_) => true,
            Self::Try(_) | Self::Join(_) | Self::Record(_) => false,
        }
    }

    /// True if the act only reads the standing, so it always fits.
    #[inline(always)]
    pub fn is_read_only(self) -> bool {
        self == Self::Look(0)
    }

    /// True if later charges of the same key must leave room for this one. A take that does not fit claims its
    /// units too: the query will need them when it is retried.
    #[inline(always)]
    pub fn claims(self, fits: bool) -> bool {
        match self {
            Self::Take(_) | Self::Record(_) => true,
            Self::Try(_) | Self::Join(_) => fits,
            Self::Look(_) => false,
        }
    }

    /// The act of a further charge of a policy, after a charge of the same policy.
    #[inline(always)]
    pub(crate) fn of_further_quota(self) -> Self {
        if let Self::Try(cost) = self { Self::Join(cost) } else { self }
    }

    /// True if the act spends, given whether it fits.
    #[inline(always)]
    pub fn spends(self, fits: bool) -> bool {
        match self {
            Self::Take(_) | Self::Try(_) | Self::Join(_) => fits,
            Self::Record(_) => true,
            Self::Look(_) => false,
        }
    }
}
