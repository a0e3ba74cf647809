//! Decisions whose buckets lie on several nodes of a cluster.
//!
//! One script runs on one node. All buckets of a client lie together, because its values are the hash tag; a bucket
//! for everybody lies elsewhere. So charges go out in groups, one call after the other, those of the client first:
//!
//! ```text
//!   ratelimit:login:{10.0.0.1}  ratelimit:api:{10.0.0.1}  │  ratelimit:all
//!   ────────────── first call ──────────────────────────    second call
//!                  paid                                     vetoes  ─→  denied, then the first is refunded
//! ```
//!
//! All or nothing still holds for who asks. Between the two calls others may see the client's units gone that will
//! come back, and deny it for that moment; nobody is ever admitted that should not be.
//!
//! The calls are made by a task of their own. Who asked may go away or lose patience; the task goes on to its end, so
//! that nothing stays charged in part. All groups share one deadline. Refunds follow the answer, one call for each group:
//! who is denied need not wait for them. Only a call without an answer leaves that in doubt, as it does on one node.

use std::sync::Arc;

use futures_util::future::join_all;
use ratewright_core::policy::{LimitId, OnFailure};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::store::{Act, Basis, BucketName, Charge, Key, Outcome, Refund, Standing, Standings};
use ratewright_core::{Micros, Quota};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::frame::{self, Answer};
use super::name::Naming;
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
pub(super) fn is_spread(charges: &[Charge<'_>], naming: &Naming) -> bool {
    charges.iter().skip(1).any(|charge| !meet(&charges[0].key, &charge.key, naming))
}

/// True if two keys lie on one node for sure: the same tag as it is written, which for one may be a digest of the value that the
/// other has; or without values the same key.
pub(super) fn meet(one: &Key<'_>, other: &Key<'_>, naming: &Naming) -> bool {
    let has_values = one.values().next().is_some() && other.values().next().is_some();
    if !has_values {
        return one == other;
    }
    let tag = |key: &Key<'_>| naming.name(key).split_once('{').map(|(_, tag)| tag.to_owned());
    one.values().eq(other.values()) && tag(one) == tag(other)
}

/// Charges that meet on one node, those with values first.
fn groups(charges: &[Charge<'_>], naming: &Naming) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (n, charge) in charges.iter().enumerate() {
        match groups.iter_mut().find(|group| meet(&charges[group[0]].key, &charge.key, naming)) {
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
        let endpoint = self.link.endpoint().clone();
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move { self.decide(&owned, answer).await });
        let lost = |cause: &str| StoreError::Lost { endpoint: endpoint.clone(), cause: cause.to_owned() };
        let told = answered.await.map_err(|_| lost("cluster task ended without a result"))??;
        if told.len() != charges.len() {
            return Err(lost("cluster nodes answered only some charges"));
        }
        standings.extend(told);
        Ok(())
    }

    /// Answers, and then gives back what was charged in vain.
    async fn decide(&self, owned: &[Owned], answer: oneshot::Sender<Result<Vec<Standing>, StoreError>>) {
        let attributes: Vec<Vec<Attribute<'_>>> = owned.iter().map(Owned::attributes).collect();
        let charges: Vec<_> =
            owned.iter().zip(&attributes).filter_map(|(owned, of)| owned.charge(of)).collect();
        let mut paid = Vec::new();
        let told = self.apply_groups(&charges, &mut paid).await;
        let _gone_away = answer.send(told);
        // One that does not arrive is lost: sent again, it might be given back twice.
        let _lost = join_all(paid.iter().map(|(charges, answer)| self.give_back(charges, answer))).await;
    }

    /// Applies charges group by group. What is left in `paid` was charged in vain.
    async fn apply_groups<'a>(
        &self,
        charges: &[Charge<'a>],
        paid: &mut Vec<(Vec<Charge<'a>>, Answer)>,
    ) -> Result<Vec<Standing>, StoreError> {
        let until = self.link.until();
        let mut told: Vec<Option<Standing>> = charges.iter().map(|_| None).collect();
        let mut paying = Vec::new();
        let mut is_vetoed = false;
        for group in groups(charges, &self.naming) {
            let of_group: Vec<_> = group.iter().map(|&n| charges[n].clone()).collect();
            // After a veto the rest is only weighed, so that the wait holds for all.
            let purpose = if is_vetoed { Purpose::Weigh } else { Purpose::Spend };
            let mut standings = Standings::new();
            match self.apply_together(&of_group, purpose, &mut standings, until).await {
                Ok((fits, answer)) => {
                    if fits && !is_vetoed {
                        paid.push((of_group, answer));
                        paying.push(group.clone());
                    }
                    is_vetoed |= !fits;
                }
                // A veto stands, whatever the others would have said.
                Err(_) if is_vetoed => {
                    standings =
                        of_group.iter().map(|charge| Standing::unknown(charge, Basis::Shared)).collect();
                }
                Err(error) => return Err(error),
            }
            fill(&mut told, &group, standings);
        }
        if is_vetoed {
            for ((charges, answer), group) in paid.iter().zip(&paying) {
                let mut standings = Standings::new();
                frame::derive(charges, Purpose::Weigh, answer, &mut standings);
                fill(&mut told, group, standings);
            }
        } else {
            paid.clear();
        }
        Ok(told.into_iter().flatten().collect())
    }

    /// Gives back what a group was charged, in one call.
    async fn give_back(&self, charges: &[Charge<'_>], answer: &Answer) -> Result<usize, StoreError> {
        let mut standings = Standings::new();
        frame::derive(charges, Purpose::Spend, answer, &mut standings);
        let refunds = charges.iter().zip(standings).filter_map(|(charge, standing)| match standing.outcome {
            Outcome::Charged(receipt) => {
                let (key, quota) = (charge.key, charge.quota);
                Some(Refund { key, quota, receipt, basis: Basis::Shared, id: None })
            }
            Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
        });
        self.refund_together(&refunds.collect::<Vec<_>>(), self.link.until()).await
    }
}

/// Puts the standings of a group in their places.
fn fill(told: &mut [Option<Standing>], group: &Group, standings: Standings) {
    for (&n, standing) in group.iter().zip(standings) {
        told[n] = Some(standing);
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

#[cfg(test)]
mod tests {
    use super::*;
    use ratewright_core::quota::Algorithm;

    /// A client that calls itself like its address must not make two nodes look like one: Redis would refuse the call.
    #[test]
    fn a_digest_and_its_value_do_not_meet() {
        let quota = Quota::new(Algorithm::default(), "1/s".parse().unwrap()).unwrap();
        let secret = AttributeName::Header("x-api-key");
        let name = |part: AttributeName<&str>| BucketName::new("p", None, &quota, vec![part.into()]);
        let (by_ip, by_key, by_user) = (name(AttributeName::Ip), name(secret), name(AttributeName::User));
        let attributes = [AttributeName::Ip, secret, AttributeName::User]
            .map(|name| Attribute { name, value: "203.0.113.5" });
        let [ip, key, user] = [&by_ip, &by_key, &by_user].map(|name| Key::new(name, &attributes).unwrap());
        let naming = Naming { prefix: "ratelimit".to_owned(), is_tagged: true };
        assert!(meet(&ip, &user, &naming), "the same tag");
        assert!(!meet(&ip, &key, &naming), "one is a digest");
    }
}
