//! Decides several queries together: one call to the store, then at most two corrections.
//!
//! ```text
//!   queries ─select→ charges ─apply→ standings ─judge→ JointDecision ─► response
//!                                                           └── correct: refunds, records
//! ```

use std::convert::Infallible;

use super::Limiter;
use crate::decision::{Decision, Verdict};
use crate::joint_decision::{
    Corrections, JointCharges, JointDecision, JointQuery, JointTerms, hide_past, show_past,
};
use crate::observe::Observe;
use crate::policy::Mode;
use crate::shared_policies::LoadedPolicies;
use crate::standing::Standing;
use crate::store::Store;

impl<S: Store<Error = Infallible>, O: Observe> Limiter<S, O> {
    /// Decides several queries under one rule set: all are charged or none, except those that record. Makes one call to
    /// the store.
    ///
    /// After the response is sent, call [`Limiter::correct`].
    pub async fn decide_all(
        &self,
        policies: impl Into<LoadedPolicies>,
        queries: &[JointQuery<'_>],
        terms: JointTerms,
    ) -> JointDecision {
        let begun_at = self.observer.now();
        let mut decision = Decision::under(policies.into());
        let Decision { policies, standings, .. } = &mut decision;
        let mut joint = JointCharges::select(policies, queries);
        let Ok(()) = self.store.apply(&joint.charges, standings).await;
        Standing::complete(&joint.charges, standings);
        let is_over = joint.judge(standings);
        let corrections = Corrections::of(&joint, standings, is_over);
        let verdict = if is_over && terms.mode == Mode::Enforce { Verdict::Deny } else { Verdict::Allow };
        let past = if terms.is_report { hide_past(standings) } else { Default::default() };
        let observed = joint.observed(standings);
        let (members, refused) = joint.into_parts();
        if let Some((number, is_denied)) = observed {
            // A limit of zero has no policy, so no policy denied the request.
            decision.verdict = if is_denied { verdict } else { Verdict::Allow };
            decision.refused = refused;
            self.observer.observe(&queries[number].query, &decision, begun_at);
        }
        show_past(&mut decision.standings, &past);
        JointDecision { decision, verdict, members, corrections }
    }

    /// Makes the corrections that follow a decision. `queries` are those that were decided.
    pub async fn correct(&self, queries: &[JointQuery<'_>], decision: JointDecision) {
        let JointDecision { decision, mut corrections, .. } = decision;
        let refunds = corrections.take_refunds(&decision.policies, queries);
        if !refunds.is_empty() {
            let Ok(_) = self.store.refund(&refunds).await;
        }
        let records = corrections.records(&decision.policies, queries);
        if !records.is_empty() {
            let _unused = self.apply(&records).await;
        }
    }
}
