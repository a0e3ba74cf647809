//! Decisions whose buckets are on several nodes of a cluster.
//!
//! A script runs on one node. All buckets of a client are on one node, because its values are the hash tag; a bucket
//! for everybody is on another. So charges are sent in groups, one call after the other, those of the client first:
//!
//! ```text
//!   ratelimit:login:{10.0.0.1}  ratelimit:api:{10.0.0.1}  │  ratelimit:all
//!   ────────────── first call ──────────────────────────    second call
//!                  paid                                     vetoes  ─→  denied, then the first is refunded
//! ```
//!
//! All or nothing still holds for the caller. Between the two calls another instance may see units spent that are
//! about to be refunded, and deny the client for that moment. No request above a limit is ever admitted.
//!
//! The calls run in their own task. The caller may disconnect or time out; the task finishes, so that no decision stays
//! charged in part. All groups share one deadline. Refunds follow the decision, one call for each group, so a denied
//! caller does not wait for them. As on one node, a call without a reply may or may not have been applied.

use std::sync::Arc;

use futures_util::future::join_all;
use ratewright_core::policy::{LimitId, OnFailure};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::store::{Act, Basis, BucketName, Charge, Key, Outcome, Refund, Standing, Standings};
use ratewright_core::{Micros, Quota};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::name::Naming;
use super::script_codec::{self, DecisionReply};
use super::{RedisStoreInner, StoreError};
use crate::all_or_none::Purpose;

/// The charges on one node, by their number in the call.
type NodeCharges = SmallVec<[usize; 4]>;

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

/// True if the charges are on several nodes.
pub(super) fn is_spread(charges: &[Charge<'_>], naming: &Naming) -> bool {
    charges.iter().skip(1).any(|charge| !meet(&charges[0].key, &charge.key, naming))
}

/// True if two keys are certainly on one node: their hash tags are equal as written (one may be the digest of the other's value), or,
/// without values, the keys are equal.
pub(super) fn meet(one: &Key<'_>, other: &Key<'_>, naming: &Naming) -> bool {
    let has_values = one.values().next().is_some() && other.values().next().is_some();
    if !has_values {
        return one == other;
    }
    let tag = |key: &Key<'_>| naming.name(key).split_once('{').map(|(_, tag)| tag.to_owned());
    one.values().eq(other.values()) && tag(one) == tag(other)
}

/// Charges grouped by node, those with values first.
fn groups(charges: &[Charge<'_>], naming: &Naming) -> Vec<NodeCharges> {
    let mut groups: Vec<NodeCharges> = Vec::new();
    for (n, charge) in charges.iter().enumerate() {
        match groups.iter_mut().find(|group| meet(&charges[group[0]].key, &charge.key, naming)) {
            Some(group) => group.push(n),
            None => groups.push(SmallVec::from_slice(&[n])),
        }
    }
    groups.sort_by_key(|group| charges[group[0]].key.values().next().is_none());
    groups
}

impl RedisStoreInner {
    /// Applies charges group by group, in its own task.
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
        let applied = answered.await.map_err(|_| lost("cluster task ended without a result"))??;
        if applied.len() != charges.len() {
            return Err(lost("cluster nodes replied to only some charges"));
        }
        standings.extend(applied);
        Ok(())
    }

    /// Decides, then refunds what a denied decision was charged.
    async fn decide(&self, owned: &[Owned], answer: oneshot::Sender<Result<Vec<Standing>, StoreError>>) {
        let attributes: Vec<Vec<Attribute<'_>>> = owned.iter().map(Owned::attributes).collect();
        let charges: Vec<_> =
            owned.iter().zip(&attributes).filter_map(|(owned, of)| owned.charge(of)).collect();
        let mut paid = Vec::new();
        let told = self.apply_groups(&charges, &mut paid).await;
        let _gone_away = answer.send(told);
        // A refund without a reply is lost: sent again, it might be applied twice.
        let _lost = join_all(paid.iter().map(|(charges, answer)| self.give_back(charges, answer))).await;
    }

    /// Applies charges group by group. Groups left in `paid` must be refunded.
    async fn apply_groups<'a>(
        &self,
        charges: &[Charge<'a>],
        paid: &mut Vec<(Vec<Charge<'a>>, DecisionReply)>,
    ) -> Result<Vec<Standing>, StoreError> {
        let until = self.link.until();
        let mut told: Vec<Option<Standing>> = charges.iter().map(|_| None).collect();
        let mut paying = Vec::new();
        let mut is_vetoed = false;
        for group in groups(charges, &self.naming) {
            let of_group: Vec<_> = group.iter().map(|&n| charges[n].clone()).collect();
            // After a veto the rest is only looked at, so that `retry_after` holds for all.
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
                // A veto decides, whatever the other nodes reply.
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
                script_codec::derive(charges, Purpose::Weigh, answer, &mut standings);
                fill(&mut told, group, standings);
            }
        } else {
            paid.clear();
        }
        Ok(told.into_iter().flatten().collect())
    }

    /// Refunds a group in one call.
    async fn give_back(&self, charges: &[Charge<'_>], answer: &DecisionReply) -> Result<usize, StoreError> {
        let mut standings = Standings::new();
        script_codec::derive(charges, Purpose::Spend, answer, &mut standings);
        let refunds = charges.iter().zip(standings).filter_map(|(charge, standing)| match standing.outcome {
            Outcome::Charged(receipt) => {
                let (key, quota) = (charge.key, charge.quota);
                Some(Refund { key, quota, receipt, basis: Basis::Shared, share: None, id: None })
            }
            Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
        });
        self.refund_together(&refunds.collect::<Vec<_>>(), self.link.until()).await
    }
}

/// Puts the standings of a group into the order of the charges.
fn fill(told: &mut [Option<Standing>], group: &NodeCharges, standings: Standings) {
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

    /// The charge as borrowed data. All attributes of its partition are present, so this cannot fail.
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

    /// A user whose name equals another client's address must not make two nodes look like one: Redis would reject the call.
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
