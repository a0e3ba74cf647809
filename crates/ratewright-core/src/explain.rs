//! Why a policy applies to a query, or does not.
//!
//! [`Policies::select`] finds the few policies that apply. [`Policies::explain`] runs the same tests in the same order for all
//! policies, and reports a finding for each. It may allocate, because no decision calls it.
//!
//! # Laws
//! - The policies that [`Policies::explain`] reports as applying are those that [`Policies::select`] charges.

use smallvec::SmallVec;

use crate::policies::{Policies, UNSURE_MAX, UncountableReason, views};
use crate::policy::{Missing, Mode, Policy};
use crate::query::{Ask, Attribute, AttributeName, Query, Select};
use crate::selector::{Condition, ConditionMatch, Selector};

/// The findings of one policy for a query.
#[derive(Clone, Debug)]
pub struct Explained<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// One finding for each reading of the query, without repetition.
    pub findings: Vec<Finding<'a>>,
}

/// Whether a policy applies to one reading of a query, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding<'a> {
    /// The query is charged.
    Applies {
        /// The override that applies.
        override_name: Option<&'a str>,
        /// The mode that applies.
        mode: Mode,
    },
    /// The query is denied, because it cannot be counted.
    Refused(UncountableReason),
    /// The query is exempt by this condition.
    Exempt(&'a Condition),
    /// The policy applies only to queries that name it, and this query does not.
    NotNamed,
    /// Its condition does not hold.
    NotCovered(Vec<FailedTest<'a>>),
    /// Another policy of its group comes first.
    GroupTaken {
        /// That policy.
        by: &'a str,
    },
    /// The policy covers HEAD only because it covers GET, and a later policy of its group names HEAD.
    HeadTaken,
    /// The query lacks attributes of the policy's partition.
    Missing(Vec<AttributeName<&'a str>>),
    /// It is switched off, or an override switches it off.
    Off {
        /// The override that switches it off.
        override_name: Option<&'a str>,
    },
    /// The query costs nothing.
    Free,
}

/// A test that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedTest<'a> {
    /// What is tested.
    pub attribute: AttributeName<&'a str>,
    /// The values that the query has. Empty: it lacks the attribute.
    pub values: Vec<String>,
    /// The patterns or networks. One of them should have matched.
    pub expected: Vec<String>,
}

impl Policies {
    /// The findings of each policy for a query, in the order of the policies.
    pub fn explain<'a>(&'a self, query: &Query<'_>) -> Vec<Explained<'a>> {
        let mut explained: Vec<_> =
            self.iter().map(|policy| Explained { policy, findings: Vec::new() }).collect();
        let names: &[&str] = match query.select {
            Select::Named(names) | Select::Covering(names) | Select::CoveringReadings(names) => names,
            Select::EveryBucket(_) => &[],
        };
        let is_named_only = matches!(query.select, Select::Named(_) | Select::EveryBucket(_));
        for attributes in views(query) {
            let seen = Query { select: Select::Covering(&[]), attributes: &attributes, ..*query };
            let findings = self.findings(names, is_named_only, &seen, query);
            for (explained, finding) in explained.iter_mut().zip(findings) {
                if !explained.findings.contains(&finding) {
                    explained.findings.push(finding);
                }
            }
        }
        explained
    }

    /// The finding of each policy in one reading.
    fn findings<'a>(
        &'a self,
        names: &[&str],
        is_named_only: bool,
        seen: &Query<'_>,
        query: &Query<'_>,
    ) -> Vec<Finding<'a>> {
        let exempt = self.exempt().iter().find(|condition| !is_named_only && condition.spares(seen));
        if let Some(condition) = exempt {
            return self.iter().map(|_| Finding::Exempt(condition)).collect();
        }
        let mut groups: SmallVec<[(&str, &str); 4]> = SmallVec::new();
        let mut n_unsure = 0_u32;
        let mut covering = |n: u32, policy: &'a Policy| {
            let condition = match policy.selector() {
                Selector::When(condition) if !is_named_only => condition,
                Selector::When(_) | Selector::Named => return Finding::NotNamed,
            };
            let taken = groups.iter().find(|(group, _)| Some(*group) == policy.group()).map(|(_, by)| *by);
            let fit = match policy.mode() {
                Mode::Off if condition.spares(seen) => ConditionMatch::Yes,
                Mode::Off => ConditionMatch::No,
                Mode::Enforce | Mode::Shadow => condition.fit(seen, || policy.is_by_client()),
            };
            n_unsure += u32::from(fit == ConditionMatch::Maybe && taken.is_none());
            if fit == ConditionMatch::No || fit == ConditionMatch::Maybe && n_unsure > UNSURE_MAX {
                return Finding::NotCovered(condition.failures(seen));
            }
            if let Some(by) = taken {
                return Finding::GroupTaken { by };
            }
            if let Some(group) = policy.group() {
                let later: Vec<u32> =
                    (n + 1..).take(self.n_policies().saturating_sub(n as usize + 1)).collect();
                if self.is_head_of_another(policy, &later, seen) {
                    return Finding::HeadTaken;
                }
                let is_sure = fit == ConditionMatch::Yes && !policy.looks_at_too_many(seen);
                if is_sure && !policy.is_skipped(seen) && !policy.stands_in(seen) {
                    groups.push((group, policy.name()));
                }
            }
            policy.finding(seen, query)
        };
        let find = |(n, policy): (u32, &'a Policy)| {
            let finding = covering(n, policy);
            if finding.is_outside() && names.contains(&policy.name()) {
                policy.finding(seen, query)
            } else {
                finding
            }
        };
        (0..).zip(self.iter()).map(find).collect()
    }
}

impl Finding<'_> {
    /// True if the policy does not cover the query, but applies to queries that name it.
    fn is_outside(&self) -> bool {
        matches!(self, Self::NotNamed | Self::NotCovered(_) | Self::GroupTaken { .. } | Self::HeadTaken)
    }
}

impl Policy {
    /// The finding for a query that the policy covers or that names it.
    fn finding<'a>(&'a self, seen: &Query<'_>, query: &Query<'_>) -> Finding<'a> {
        let terms = self.terms(seen);
        let override_name = self.override_of(seen);
        let refuse = |why| match terms.mode {
            Mode::Enforce => Finding::Refused(why),
            Mode::Shadow | Mode::Off => Finding::Off { override_name },
        };
        if self.looks_at_too_many(seen) {
            return if self.is_ever_enforced() {
                Finding::Refused(UncountableReason::TooMany)
            } else {
                Finding::Off { override_name }
            };
        }
        if self.missing() == Missing::Deny && self.is_missing(seen) {
            return refuse(UncountableReason::Missing);
        }
        if terms.mode == Mode::Off {
            return Finding::Off { override_name };
        }
        if self.act(seen, terms.mode).is_none() {
            return Finding::Free;
        }
        let lacking = self.partition().iter().filter(|part| part.value(seen.attributes).is_none());
        let lacking: Vec<_> = lacking.flat_map(|part| part.names()).map(AttributeName::as_deref).collect();
        if !lacking.is_empty() {
            return Finding::Missing(lacking);
        }
        if let Some(why) = self.uncountable(query) {
            return refuse(why);
        }
        Finding::Applies { override_name, mode: terms.mode }
    }
}

impl Condition {
    /// The tests that do not hold.
    fn failures<'a>(&'a self, query: &Query<'_>) -> Vec<FailedTest<'a>> {
        let failed = self.tests().zip(self.holding(query)).filter(|(_, holds)| !holds);
        failed
            .map(|((attribute, expected), _)| FailedTest {
                values: if attribute == AttributeName::Ip {
                    query.address.iter().map(ToString::to_string).collect()
                } else {
                    query.values(&attribute).map(readable).collect()
                },
                attribute,
                expected,
            })
            .collect()
    }
}

/// A value for display.
fn readable(value: &str) -> String {
    match value {
        Attribute::UNREADABLE => "(cannot be read)".to_owned(),
        Attribute::TOO_MANY => "(too many values)".to_owned(),
        Attribute::REPEATED => "(sent more than once)".to_owned(),
        value => value.to_owned(),
    }
}

impl Ask {
    /// The same units, without spending them.
    #[must_use]
    pub fn look(self) -> Self {
        match self {
            Self::Spend(cost) => Self::Look(cost.get()),
            Self::Record(cost) | Self::Look(cost) => Self::Look(cost),
        }
    }
}
