//! Which responses count: the `count` of a policy.
//!
//! A limit on logins should count only failed logins. The status is known late, and parallel requests must not all pass before it
//! is. So each request is charged when it arrives, and refunded if its response does not count.

use std::ops::RangeInclusive;

/// The statuses of the responses that count. By default, all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CountedResponses {
    /// `None`: all statuses.
    statuses: Option<Vec<RangeInclusive<u16>>>,
}

impl CountedResponses {
    /// Only responses with one of these statuses.
    pub fn only(statuses: Vec<RangeInclusive<u16>>) -> Self {
        Self { statuses: Some(statuses) }
    }

    /// True if a response with this status counts.
    pub fn covers(&self, status: u16) -> bool {
        self.statuses.as_ref().is_none_or(|statuses| statuses.iter().any(|range| range.contains(&status)))
    }

    /// True if the same responses count, in whatever order the statuses are listed.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let has_all = |some: &[RangeInclusive<u16>], others: &[RangeInclusive<u16>]| {
            some.iter().all(|range| others.contains(range))
        };
        match (self.statuses(), other.statuses()) {
            (Some(own), Some(others)) => has_all(own, others) && has_all(others, own),
            (own, others) => own == others,
        }
    }

    /// True if every response counts, so no refund depends on the status.
    pub fn is_everything(&self) -> bool {
        self.statuses.is_none()
    }

    /// The statuses that count; `None` if all do.
    pub fn statuses(&self) -> Option<&[RangeInclusive<u16>]> {
        self.statuses.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_counts_unless_said_otherwise() {
        let (all, failures) =
            (CountedResponses::default(), CountedResponses::only(vec![401..=401, 500..=599]));
        assert!(all.is_everything() && !failures.is_everything());
        for (status, counts) in
            [(200, false), (400, false), (401, true), (402, false), (500, true), (599, true)]
        {
            assert!(all.covers(status));
            assert_eq!(failures.covers(status), counts, "{status}");
        }
    }
}
