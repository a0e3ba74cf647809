//! The decision: a verdict, and the standings that it is based on.
//!
//! A [`Decision`] keeps the rule set that it was made under, so a response can name its policies even after a reload.

use std::sync::Arc;

pub use crate::observe::{Observe, Unobserved};

use crate::charge::Charge;
use crate::policies::{LimitId, Policies, Refused, UncountableReason};
use crate::policy::{Cost, Limit, Mode, Policy};
use crate::quantity::Micros;
use crate::shared_policies::LoadedPolicies;
use crate::standing::{Basis, Outcome, Standing, Standings};

/// The result of a query: a verdict, and the standing of each charged key.
///
/// See [`Limiter`](crate::Limiter) for an example.
#[derive(Debug)]
pub struct Decision {
    pub(crate) policies: LoadedPolicies,
    pub(crate) verdict: Verdict,
    pub(crate) standings: Standings,
    pub(crate) refused: Option<Refused>,
}

/// Limits that are charged while a request's body arrives: see [`Decision::open_charges`].
#[derive(Clone, Debug)]
pub struct OpenCharges {
    pub(crate) policies: Arc<Policies>,
    pub(crate) limits: Vec<LimitId>,
}

/// The result of [`Limiter::take_more`](crate::Limiter::take_more).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtraCharge {
    /// The units were taken.
    Charged,
    /// The units did not fit, and none were taken.
    Denied {
        /// When they would fit; `None` if never.
        retry_after: Option<Micros>,
    },
}

/// Whether the query may pass.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It may pass.
    Allow,
    /// It must not pass: not yet, or not ever.
    Deny,
}

impl Verdict {
    /// Denies if a charge that may veto found no room.
    #[inline(always)]
    pub fn judge(charges: &[Charge<'_>], standings: &[Standing]) -> Self {
        debug_assert_eq!(charges.len(), standings.len(), "one standing for each charge, in their order");
        let denies =
            |(charge, standing): (&Charge<'_>, &Standing)| charge.act.vetoes() && standing.is_against();
        if charges.iter().zip(standings).any(denies) { Self::Deny } else { Self::Allow }
    }
}

impl Decision {
    /// An allowed decision without charges, under a rule set: for [`Limiter::decide_into`](crate::Limiter::decide_into).
    #[doc(hidden)]
    #[inline(always)]
    pub fn under(policies: LoadedPolicies) -> Self {
        Self { policies, verdict: Verdict::Allow, standings: Standings::new(), refused: None }
    }

    /// The rule set that it was made under.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Allow or deny.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The standing of each charged key, with its policy and limit, in the order of selection.
    pub fn standings(&self) -> impl Iterator<Item = (&Policy, &Limit, &Standing)> {
        self.standings.iter().filter_map(|standing| {
            let (policy, limit) = self.policies.limit(standing.limit)?;
            Some((policy, limit, standing))
        })
    }

    /// The least reliable basis of the enforced standings; of all standings if none is enforced. `None` if nothing was charged.
    pub fn basis(&self) -> Option<Basis> {
        let is_enforced = |standing: &&Standing| standing.limit.mode() == Mode::Enforce;
        let enforced = self.standings.iter().filter(is_enforced).map(|standing| standing.basis).max();
        enforced.or_else(|| self.standings.iter().map(|standing| standing.basis).max())
    }

    /// The policy that denied the query because it cannot be counted, and the reason. Nothing was charged.
    pub fn refused(&self) -> Option<(&Policy, UncountableReason)> {
        self.policies.refused(self.refused?)
    }

    /// How long until the same query would pass if no other query spends, but at least the policy's `retry_after_min`. Zero if it is
    /// allowed, `None` if it never will be. Policies in shadow mode do not count.
    pub fn retry_after(&self) -> Option<Micros> {
        match self.verdict {
            Verdict::Allow => Some(Micros::ZERO),
            Verdict::Deny if self.refused.is_some() => None,
            Verdict::Deny => {
                let mut waits = self.enforced().map(|(policy, _, standing)| retry_wait(policy, standing));
                waits.try_fold(Micros::ZERO, |longest, wait| Some(longest.max(wait?)))
            }
        }
    }

    /// The standing to show where only one can be shown: after a denial the one with the longest wait, otherwise the one with
    /// the smallest share left. Never one in shadow mode.
    pub fn tightest(&self) -> Option<(&Policy, &Limit, &Standing)> {
        // Shares are compared by cross-multiplication, so that nothing is rounded.
        let share = |(_, limit, standing): &(&Policy, &Limit, &Standing)| {
            (u64::from(standing.remaining), u64::from(standing.capacity(limit).get()))
        };
        let smallest = |a: &_, b: &_| {
            let ((left_a, of_a), (left_b, of_b)) = (share(a), share(b));
            (left_a * of_b).cmp(&(left_b * of_a))
        };
        match self.verdict {
            Verdict::Allow => self.enforced().min_by(smallest),
            // `None` is longest: it never fits.
            Verdict::Deny => self.enforced().max_by_key(|(policy, _, standing)| {
                retry_wait(policy, standing).map_or((true, Micros::ZERO), |wait| (false, wait))
            }),
        }
    }

    /// The standings that count: those of policies in shadow mode do not.
    pub fn enforced(&self) -> impl Iterator<Item = (&Policy, &Limit, &Standing)> {
        self.standings().filter(|(_, _, standing)| standing.limit.mode() == Mode::Enforce)
    }

    /// How long an allowed query must wait before it proceeds. Policies in shadow mode do not delay.
    pub fn wait(&self) -> Micros {
        self.enforced().map(|(_, _, standing)| standing.wait).max().unwrap_or(Micros::ZERO)
    }

    /// True if a charge depends on the status of the response: see [`Policy::count`].
    pub fn awaits_response(&self) -> bool {
        self.policies.counts_by_response()
            && self.standings().any(|(policy, _, _)| !policy.count().is_everything())
    }

    /// True if all charged policies count a response with this status, so that nothing is refunded.
    pub fn counts_response(&self, status: u16) -> bool {
        !self.policies.counts_by_response()
            || self.standings().all(|(policy, _, _)| policy.count().covers(status))
    }

    /// The limits that count the bytes of a body whose length was unknown when the request was decided: for
    /// [`Limiter::take_more`](crate::Limiter::take_more). `None` if there are none.
    pub fn open_charges(&self) -> Option<OpenCharges> {
        if !self.policies.counts_bytes() {
            return None; // most rule sets count no bytes
        }
        let is_open = |(policy, _, standing): &(&Policy, &Limit, &Standing)| {
            *policy.cost() == Cost::RequestBytes
                && matches!(standing.outcome, Outcome::WouldPass | Outcome::Unknown)
        };
        let limits: Vec<_> =
            self.standings().filter(is_open).map(|(_, _, standing)| standing.limit).collect();
        (!limits.is_empty()).then(|| OpenCharges { policies: Arc::clone(&self.policies), limits })
    }

    /// The same decision, to be kept longer than one request. Loading a rule set is cheap only while a thread holds few of them,
    /// and this holds one no longer.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.policies = self.policies.kept();
        self
    }

    /// Moves the decision out, as [`kept`](Self::kept), and leaves an allowed decision without charges in its place.
    #[must_use]
    pub fn take_kept(&mut self) -> Self {
        let policies = Arc::clone(&self.policies).into();
        std::mem::replace(self, Self::under(policies)).kept()
    }

    /// What a refund needs: the rule set, and the standings with their receipts.
    pub(crate) fn parts_mut(&mut self) -> (&Policies, &mut Standings) {
        (&self.policies, &mut self.standings)
    }
}

/// How long until a standing allows the query, at least its policy's `retry_after_min`. `None` if never.
fn retry_wait(policy: &Policy, standing: &Standing) -> Option<Micros> {
    let wait = standing.retry_after()?;
    Some(if wait.is_zero() { wait } else { wait.max(policy.retry_after_min()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::{Act, OnFailure};
    use crate::key::{BucketName, Key};
    use crate::quota::{Algorithm, Quota};
    use std::num::NonZeroU32;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn verdict(act: Act, outcome: Outcome, basis: Basis) -> Verdict {
        let quota = Quota::new(Algorithm::SlidingWindow, "1/s".parse().unwrap()).unwrap();
        let name = BucketName::new("p", None, &quota, Vec::new());
        let limit = LimitId::default();
        let charge = Charge {
            limit,
            key: Key::new(&name, &[]).unwrap(),
            quota: &quota,
            act,
            patience: Micros::ZERO,
            on_failure: OnFailure::Local,
        };
        let (reset_after, wait) = (Micros::ZERO, Micros::ZERO);
        let standing = Standing { limit, outcome, remaining: 0, reset_after, wait, basis, share: None };
        Verdict::judge(&[charge], &[standing])
    }

    #[test]
    fn only_a_charge_that_may_veto_denies() {
        let short = || Outcome::Denied { retry_after: Micros::new(1) };
        assert_eq!(verdict(Act::Take(ONE), short(), Basis::Local), Verdict::Deny);
        assert_eq!(verdict(Act::Take(ONE), Outcome::Never, Basis::Local), Verdict::Deny);
        assert_eq!(verdict(Act::Look(1), short(), Basis::Local), Verdict::Deny);
        assert_eq!(verdict(Act::Try(ONE), short(), Basis::Local), Verdict::Allow);
        assert_eq!(verdict(Act::Record(1), short(), Basis::Local), Verdict::Allow);
        assert_eq!(verdict(Act::Take(ONE), Outcome::WouldPass, Basis::Local), Verdict::Allow);
    }

    #[test]
    fn without_an_answer_the_basis_decides() {
        assert_eq!(verdict(Act::Take(ONE), Outcome::Unknown, Basis::FailOpen), Verdict::Allow);
        assert_eq!(verdict(Act::Take(ONE), Outcome::Unknown, Basis::FailClosed), Verdict::Deny);
        assert_eq!(verdict(Act::Try(ONE), Outcome::Unknown, Basis::FailClosed), Verdict::Allow);
    }
}
