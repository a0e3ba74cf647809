//! The charges of several queries: selects them, and judges how they stand.

use smallvec::SmallVec;

use super::{JointQuery, JointQuota, Member, Members, Veto};
use crate::charge::{Act, Charges};
use crate::policies::{Policies, Refused};
use crate::policy::Mode;
use crate::quantity::Micros;
use crate::query::Ask;
use crate::standing::{Outcome, Standing, Standings};

/// The charges of several queries.
pub(crate) struct JointCharges<'a> {
    pub(crate) queries: &'a [JointQuery<'a>],
    pub(crate) charges: Charges<'a>,
    pub(crate) members: Members,
    /// The first query that cannot be counted, by its number.
    pub(crate) refused: Option<(usize, Refused)>,
}

impl<'a> JointCharges<'a> {
    /// Selects the charges of each query. If one is sure to deny the request, the others only look.
    pub(crate) fn select(policies: &'a Policies, queries: &'a [JointQuery<'a>]) -> Self {
        let (charges, members) = (Charges::new(), Members::new());
        let mut joint = Self { queries, charges, members, refused: None };
        let is_lost = queries.iter().fold(false, |is_lost, query| joint.add(policies, query) | is_lost);
        if is_lost {
            for charge in &mut joint.charges {
                if let Act::Take(cost) | Act::Try(cost) | Act::Join(cost) = charge.act {
                    charge.act = Act::Look(cost.get());
                }
            }
        }
        joint
    }

    /// Adds the charges of a query. True if it is sure to deny the request.
    fn add(&mut self, policies: &'a Policies, query: &JointQuery<'a>) -> bool {
        let mut own = Charges::new();
        let refused = match query.quota {
            JointQuota::Zero(_) => None,
            JointQuota::OfPolicy | JointQuota::Instead(_) => policies.select(&query.query, &mut own),
        };
        for charge in &mut own {
            if let JointQuota::Instead(quota) = query.quota {
                charge.quota = quota;
            }
            if let (Act::Take(cost), Veto::Together) = (charge.act, query.veto) {
                charge.act = Act::Try(cost);
            }
        }
        let is_denied = query.quota == JointQuota::Zero(Mode::Enforce) || refused.is_some();
        let is_over = is_denied && query.gives_back.is_none();
        let is_zero = matches!(query.quota, JointQuota::Zero(_));
        let has_limit = is_zero || refused.is_some() || !own.is_empty();
        self.refused = self.refused.or(refused.map(|refused| (self.members.len(), refused)));
        self.charges.extend(own);
        self.members.push(Member { end: self.charges.len(), has_limit, is_over });
        is_over && query.veto == Veto::Alone
    }

    /// Finds out which queries are over their limits. True if that denies the request.
    pub(crate) fn judge(&mut self, standings: &[Standing]) -> bool {
        let (mut begin, mut n_together, mut n_left, mut is_over) = (0, 0, 0, false);
        for (member, query) in self.members.iter_mut().zip(self.queries) {
            let own = &standings[begin..member.end];
            begin = member.end;
            member.is_over |= query.gives_back.is_none() && own.iter().any(is_denial);
            match query.veto {
                Veto::Alone => is_over |= member.is_over,
                Veto::Together if member.has_limit => {
                    n_together += 1;
                    n_left += usize::from(!member.is_over);
                }
                Veto::Together => {}
            }
        }
        is_over || n_together > 0 && n_left == 0
    }

    /// The number of the query of each charge, in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        let mut begin = 0;
        self.members.iter().enumerate().flat_map(move |(number, member)| {
            let n_charges = member.end - std::mem::replace(&mut begin, member.end);
            std::iter::repeat_n(number, n_charges)
        })
    }

    /// The number of the query that the observer should see, and whether it denied the request: one that cannot be counted, or the last of those
    /// with the longest wait. If none denied it, the first that does more than look. `None`: no query has a limit in the rule set.
    pub(crate) fn observed(&self, standings: &[Standing]) -> Option<(usize, bool)> {
        if let Some((number, _)) = self.refused {
            return Some((number, true));
        }
        let over = standings.iter().zip(self.numbers()).filter(|(standing, _)| is_denial(standing));
        if let Some((_, number)) = over.max_by_key(|(standing, _)| longest(standing)) {
            return Some((number, true));
        }
        let is_counted = |number: &usize| !matches!(self.queries[*number].query.ask, Ask::Look(_)); // looks are not
        let number = self.numbers().find(is_counted).or_else(|| self.numbers().next())?;
        Some((number, false))
    }

    /// The result of each query, and the policy that refused one.
    pub(crate) fn into_parts(self) -> (Members, Option<Refused>) {
        (self.members, self.refused.map(|(_, refused)| refused))
    }
}

/// Hides that charges were recorded past their limits, and returns which: reporting the cost of a response that was already sent must
/// not look like a denial.
pub(crate) fn hide_past(standings: &mut Standings) -> SmallVec<[bool; 4]> {
    standings.iter_mut().map(|standing| std::mem::take(is_past(standing).unwrap_or(&mut false))).collect()
}

/// Undoes [`hide_past`].
pub(crate) fn show_past(standings: &mut Standings, past: &[bool]) {
    for (standing, was_past) in standings.iter_mut().zip(past) {
        if let Some(is_past) = is_past(standing) {
            *is_past = *was_past;
        }
    }
}

fn is_past(standing: &mut Standing) -> Option<&mut bool> {
    match &mut standing.outcome {
        Outcome::Charged(receipt) => Some(&mut receipt.is_past),
        Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
    }
}

/// True if it is over an enforced limit.
fn is_denial(standing: &Standing) -> bool {
    standing.is_over() && standing.limit.mode() == Mode::Enforce
}

/// Its wait; never sorts last.
fn longest(standing: &Standing) -> (bool, Micros) {
    standing.retry_after().map_or((true, Micros::ZERO), |wait| (false, wait))
}
