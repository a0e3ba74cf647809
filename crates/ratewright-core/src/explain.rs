//! Why a query falls under a policy, or does not.
//!
//! Selecting finds the few policies that apply; explaining looks at all of them, by the same tests and in the same order, and tells for
//! each what came of it. It is for people who ask why a request was limited or not, so it may allocate, and no decision waits for it.
//!
//! # Laws
//! - The policies that [`Policies::explain`] finds to apply are those that [`Policies::select`] charges.

use smallvec::SmallVec;

use crate::policies::{Policies, UNSURE_MAX, UncountableReason, views};
use crate::policy::{Missing, Mode, Policy};
use crate::query::{Ask, Attribute, AttributeName, Query, Select};
use crate::selector::{Condition, ConditionMatch, Selector};

/// What a policy makes of a query.
#[derive(Clone, Debug)]
pub struct Explained<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// What came of it, for each reading of the query, each once.
    pub findings: Vec<Finding<'a>>,
}

/// What came of one policy, in one reading of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding<'a> {
    /// The query is charged.
    Applies {
        /// The override whose terms count.
        override_name: Option<&'a str>,
        /// Whether it is enforced.
        mode: Mode,
    },
    /// The query is denied, since it cannot be counted.
    Refused(UncountableReason),
    /// Nothing limits such queries.
    Exempt(&'a Condition),
    /// Only routes and callers that name the policy are limited by it, and this query does not.
    NotNamed,
    /// Its condition does not hold.
    NotCovered(Vec<FailedTest<'a>>),
    /// Another policy of its group comes first.
    GroupTaken {
        /// That policy.
        by: &'a str,
    },
    /// It covers GET, and a later one of its group names HEAD.
    HeadTaken,
    /// The query lacks what the policy counts by.
    Missing(Vec<AttributeName<&'a str>>),
    /// It is switched off, or an override switches it off.
    Off {
        /// The override that does.
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
    /// The values that the query has. None: it lacks the attribute.
    pub values: Vec<String>,
    /// The patterns or networks, of which one should have fitted.
    pub expected: Vec<String>,
}

impl Policies {
    /// What each policy makes of a query, in their order.
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

    /// What comes of each policy in one reading.
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
    /// True if the query does not fall under the policy by itself, but would if somebody named the policy.
    fn is_outside(&self) -> bool {
        matches!(self, Self::NotNamed | Self::NotCovered(_) | Self::GroupTaken { .. } | Self::HeadTaken)
    }
}

impl Policy {
    /// What comes of the policy, if the query falls under it.
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

/// A value as people may see it.
fn readable(value: &str) -> String {
    match value {
        Attribute::UNREADABLE => "(cannot be read)".to_owned(),
        Attribute::TOO_MANY => "(too many values)".to_owned(),
        Attribute::REPEATED => "(sent more than once)".to_owned(),
        value => value.to_owned(),
    }
}

impl Ask {
    /// The same question, spending nothing.
    #[must_use]
    pub fn look(self) -> Self {
        match self {
            Self::Spend(cost) => Self::Look(cost.get()),
            Self::Record(cost) | Self::Look(cost) => Self::Look(cost),
        }
    }
}
