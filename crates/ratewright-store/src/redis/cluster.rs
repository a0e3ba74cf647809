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
//! come back, and deny it for that moment; nobody is ever admitted that should not be.
//!
//! The calls are made by a task of their own. Who asked may go away or lose patience; the task goes on to its end, so
//! that nothing stays charged in part. Only a call without an answer leaves that in doubt, as it does on one node.

use std::sync::Arc;

use ratewright_core::{
    Act, Attribute, AttributeName, Basis, BucketName, Charge, Key, LimitId, Micros, OnFailure, Outcome,
    Quota, Refund, Standing, Standings,
};
use smallvec::SmallVec;

use super::frame::{self, Answer};
use super::{Shared, StoreError};
use crate::settle::Purpose;

/// Charges by their place in the call that meet on one node.
type Group = SmallVec<[usize; 4]>;

/// A charge that borrows nothing.
struct Owned {
    limit: LimitId,
    name: BucketName,
    attributes: Vec<(AttributeName<String>, String)>,
    reading: u8,
    quota: Quota,
    act: Act,
    patience: Micros,
    on_failure: OnFailure,
}

/// True if the charges do not all lie on one node.
pub(super) fn is_spread(charges: &[Charge<'_>]) -> bool {
    charges.iter().skip(1).any(|charge| !meet(&charges[0], charge))
}

/// True if two charges lie on one node for sure: the same values, or without values the same key.
fn meet(one: &Charge<'_>, other: &Charge<'_>) -> bool {
    let has_values = one.key.values().next().is_some();
    one.key.values().eq(other.key.values()) && (has_values || one.key == other.key)
}

/// Charges that meet on one node, those with values first.
fn groups(charges: &[Charge<'_>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (n, charge) in charges.iter().enumerate() {
        match groups.iter_mut().find(|group| meet(&charges[group[0]], charge)) {
            Some(group) => group.push(n),
            None => groups.push(SmallVec::from_slice(&[n])),
        }
    }
    groups.sort_by_key(|group| charges[group[0]].key.values().next().is_none());
    groups
}

impl Shared {
    /// Applies charges group by group, in a task of their own.
    pub(super) async fn apply_in_groups(
        self: Arc<Self>,
        charges: &[Charge<'_>],
        standings: &mut Standings,
    ) -> Result<(), StoreError> {
        let owned: Vec<_> = charges.iter().map(Owned::of).collect();
        let task = tokio::spawn(async move { self.apply_owned(&owned).await });
        // A task ends without its result only with the runtime, and then nobody waits for this either.
        let told = task.await.unwrap_or_else(|_| Ok(Vec::new()))?;
        standings.extend(told);
        Ok(())
    }

    async fn apply_owned(&self, owned: &[Owned]) -> Result<Vec<Standing>, StoreError> {
        let attributes: Vec<Vec<Attribute<'_>>> = owned.iter().map(Owned::attributes).collect();
        let charges: Vec<_> =
            owned.iter().zip(&attributes).filter_map(|(owned, of)| owned.charge(of)).collect();
        let until = self.link.until();
        let groups = groups(&charges);
        let of = |group: &Group| -> Vec<Charge<'_>> { group.iter().map(|&n| charges[n].clone()).collect() };
        let mut told: Vec<Option<Standing>> = charges.iter().map(|_| None).collect();
        let mut fill = |group: &Group, standings: Standings| {
            for (&n, standing) in group.iter().zip(standings) {
                told[n] = Some(standing);
            }
        };
        let mut paid: Vec<(Vec<Charge<'_>>, &Group, Answer)> = Vec::new();
        let mut is_vetoed = false;
        for group in &groups {
            let charges = of(group);
            // After a veto the rest is only weighed, so that the wait holds for all.
            let purpose = if is_vetoed { Purpose::Weigh } else { Purpose::Spend };
            let mut standings = Standings::new();
            match self.apply_together(&charges, purpose, &mut standings, until).await {
                Ok((fits, answer)) => {
                    fill(group, standings);
                    if fits && !is_vetoed {
                        paid.push((charges, group, answer));
                    }
                    is_vetoed |= !fits;
                }
                // A veto stands, whatever the others would have said.
                Err(_) if is_vetoed => {
                    fill(
                        group,
                        charges.iter().map(|charge| Standing::unknown(charge, Basis::Shared)).collect(),
                    );
                }
                Err(error) => {
                    for (charges, _, answer) in &paid {
                        self.give_back(charges, answer).await;
                    }
                    return Err(error);
                }
            }
        }
        if is_vetoed {
            for (charges, group, answer) in &paid {
                self.give_back(charges, answer).await;
                let mut standings = Standings::new();
                frame::derive(charges, Purpose::Weigh, answer, &mut standings);
                fill(group, standings);
            }
        }
        Ok(told.into_iter().flatten().collect())
    }

    /// Gives back what a group was charged in vain.
    async fn give_back(&self, charges: &[Charge<'_>], answer: &Answer) {
        let mut standings = Standings::new();
        frame::derive(charges, Purpose::Spend, answer, &mut standings);
        for (charge, standing) in charges.iter().zip(standings) {
            if let Outcome::Paid(receipt) = standing.outcome {
                let refund =
                    Refund { key: charge.key, quota: charge.quota, receipt, basis: Basis::Shared, id: None };
                // One that does not arrive is lost: sent again, it might be given back twice.
                let _lost = self.refund(&[refund]).await;
            }
        }
    }
}

impl Owned {
    fn of(charge: &Charge<'_>) -> Self {
        let name = charge.key.name();
        let (attributes, reading) = charge.key.source();
        Self {
            limit: charge.limit,
            reading,
            attributes: attributes
                .iter()
                .map(|attribute| (attribute.name.to_owned(), attribute.value.to_owned()))
                .collect(),
            name: name.clone(),
            quota: charge.quota.clone(),
            act: charge.act,
            patience: charge.patience,
            on_failure: charge.on_failure,
        }
    }

    fn attributes(&self) -> Vec<Attribute<'_>> {
        self.attributes.iter().map(|(name, value)| Attribute { name: name.as_deref(), value }).collect()
    }

    /// The charge again. It has all attributes of its partition, so it is there.
    fn charge<'a>(&'a self, attributes: &'a [Attribute<'a>]) -> Option<Charge<'a>> {
        let Self { limit, quota, act, patience, on_failure, .. } = self;
        let key = Key::read(&self.name, attributes, self.reading)?;
        Some(Charge { limit: *limit, key, quota, act: *act, patience: *patience, on_failure: *on_failure })
    }
}
