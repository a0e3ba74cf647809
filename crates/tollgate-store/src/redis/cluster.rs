//! Decisions whose buckets lie on several nodes of a cluster.
//!
//! One script runs on one node. All buckets of a client lie together, because its values are the hash tag; a bucket
//! for everybody lies elsewhere. So charges go out in groups, one call after the other, those of the client first:
//!
//! ```text
//!   ratelimit:login:{10.0.0.1}  ratelimit:api:{10.0.0.1}  │  ratelimit:all
//!   ────────────── first call ──────────────────────────    second call
//!                  paid                                     vetoes  ─→  the first is refunded
//! ```
//!
//! All or nothing still holds for who asks. Between the two calls others may see the client's units gone that will
//! come back, and deny it for that moment; nobody is ever admitted that should not be. If the asker goes away in
//! between, or a later call gives no answer, what was charged in vain is refunded too.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use tollgate_core::{Act, Basis, Charge, Outcome, Receipt, Refund, Standing, Standings};

use super::frame::{self, Packed};
use super::link::Link;
use super::{RedisStore, StoreError};

/// Charges by their place in the call that meet on one node.
type Group = SmallVec<[usize; 4]>;

/// What was charged and must be given back, unless all is paid.
struct InVain {
    link: Arc<Link>,
    refunds: Vec<Packed>,
}

impl RedisStore {
    /// Applies charges group by group.
    pub(super) async fn apply_in_groups(
        &self,
        charges: &[Charge<'_>],
        standings: &mut Standings,
        until: Instant,
    ) -> Result<(), StoreError> {
        let groups = groups(charges);
        if let [_] | [] = groups.as_slice() {
            return self.apply_together(charges, standings, until).await.map(drop);
        }
        let mut told: Vec<Option<Standing>> = charges.iter().map(|_| None).collect();
        let mut in_vain = InVain { link: self.link.clone(), refunds: Vec::new() };
        let mut vetoing = None;
        for (n, group) in groups.iter().enumerate() {
            let of_group: SmallVec<[_; 4]> = group.iter().map(|&n| charges[n].clone()).collect();
            let mut of_standings = Standings::new();
            let paid = self.apply_together(&of_group, &mut of_standings, until).await?;
            in_vain.add(self, &of_group, &of_standings);
            fill(&mut told, group, of_standings);
            if !paid {
                vetoing = Some(n);
                break;
            }
        }
        match vetoing {
            None => in_vain.refunds.clear(),
            Some(vetoing) => {
                in_vain.give_back(until).await;
                // Nothing is spent. How the others stand is looked up, so that the wait holds for all.
                for (_, group) in groups.iter().enumerate().filter(|(n, _)| *n != vetoing) {
                    let looking =
                        |&n: &usize| Charge { act: Act::Look(charges[n].act.cost()), ..charges[n].clone() };
                    let of_group: SmallVec<[_; 4]> = group.iter().map(looking).collect();
                    let mut of_standings = Standings::new();
                    self.apply_together(&of_group, &mut of_standings, until).await?;
                    fill(&mut told, group, of_standings);
                }
            }
        }
        standings.extend(told.into_iter().flatten());
        Ok(())
    }
}

/// Charges by the values that say on which node they lie, those with values first.
fn groups(charges: &[Charge<'_>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (n, charge) in charges.iter().enumerate() {
        // Without values the name is all there is.
        let has_values = |charge: &Charge<'_>| charge.key.values().next().is_some();
        let meets = |other: &Charge<'_>| {
            has_values(other) == has_values(charge)
                && other.key.values().eq(charge.key.values())
                && (has_values(charge) || other.key == charge.key)
        };
        match groups.iter_mut().find(|group| meets(&charges[group[0]])) {
            Some(group) => group.push(n),
            None => groups.push(SmallVec::from_slice(&[n])),
        }
    }
    groups.sort_by_key(|group| charges[group[0]].key.values().next().is_none());
    groups
}

fn fill(told: &mut [Option<Standing>], group: &Group, standings: Standings) {
    for (&n, standing) in group.iter().zip(standings) {
        told[n] = Some(standing);
    }
}

impl InVain {
    /// Notes what a group was charged.
    fn add(&mut self, store: &RedisStore, charges: &[Charge<'_>], standings: &[Standing]) {
        for (charge, standing) in charges.iter().zip(standings) {
            if let Outcome::Paid(Receipt { cost, paid_at }) = standing.outcome {
                let receipt = Receipt { cost, paid_at };
                let refund = Refund { key: charge.key, quota: charge.quota, receipt, basis: Basis::Shared };
                self.refunds.push(frame::pack_refunds(&[refund], &store.naming));
            }
        }
    }

    /// Gives all of it back, and waits for that.
    async fn give_back(&mut self, until: Instant) {
        while let Some(packed) = self.refunds.pop() {
            let _lost_if_it_does_not_arrive = self.link.ask(packed, until).await;
        }
    }
}

/// The asker went away, or a later group gave no answer.
impl Drop for InVain {
    fn drop(&mut self) {
        let refunds = std::mem::take(&mut self.refunds);
        if refunds.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut late = Self { link: self.link.clone(), refunds };
        let until = self.link.until();
        runtime.spawn(async move { late.give_back(until).await });
    }
}
