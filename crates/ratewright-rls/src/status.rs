//! The status of a descriptor, as responses show it.

use ratewright_core::Timestamp;
use ratewright_core::joint_decision::JointDecision;
use ratewright_core::policy::Limit;
use ratewright_core::quota::Algorithm;
use ratewright_core::store::Standing;
use ratewright_rls_rules::{CurrentLimit, Matched, Unit};
use smallvec::SmallVec;

use crate::matching::DescriptorMatch;
use crate::wire::{self, Code, DescriptorStatus, RateLimit, RateLimitResponse};

/// The status of a descriptor, and whether it denies.
#[derive(Debug)]
pub(crate) struct DescriptorOutcome {
    pub(crate) status: DescriptorStatus,
    /// Whether it is over its limit.
    pub(crate) has_no_room: bool,
    /// Whether that denies the request.
    pub(crate) is_over: bool,
    pub(crate) is_quota: bool,
}

/// A limit as responses show it.
#[derive(Clone, Copy)]
struct LimitShown<'a> {
    requests_per_unit: u32,
    unit: Unit,
    unit_multiplier: u32,
    name: &'a str,
}

/// The outcome of each descriptor.
pub(crate) fn outcomes(
    matches: &[DescriptorMatch<'_>],
    decision: &JointDecision,
    now: Timestamp,
) -> SmallVec<[DescriptorOutcome; 4]> {
    let each = matches.iter().enumerate();
    each.map(|(number, matches)| DescriptorOutcome::of(matches, decision, number, now)).collect()
}

/// The response when everything is off.
pub(crate) fn all_pass(n_descriptors: usize) -> RateLimitResponse {
    let statuses = (0..n_descriptors).map(|_| DescriptorOutcome::unlimited(0).status).collect();
    RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..RateLimitResponse::default() }
}

impl DescriptorOutcome {
    /// The outcome of the descriptor of this number.
    fn of(matches: &DescriptorMatch<'_>, decision: &JointDecision, number: usize, now: Timestamp) -> Self {
        let mut outcome = Self::of_limit(matches, decision, number, now);
        outcome.is_quota = matches.is_quota && outcome.status.current_limit.is_some();
        outcome.is_over = decision.is_over(number);
        outcome.status.code = if outcome.is_over { Code::OverLimit } else { Code::Ok }.into();
        outcome
    }

    fn of_limit(
        matches: &DescriptorMatch<'_>,
        decision: &JointDecision,
        number: usize,
        now: Timestamp,
    ) -> Self {
        let mut standings = decision.standings(number).map(|(_, limit, standing)| (limit, standing));
        if let Some(limit_override) = &matches.limit_override {
            let shown = LimitShown {
                requests_per_unit: limit_override.requests_per_unit,
                unit: limit_override.unit,
                unit_multiplier: 1,
                name: "",
            };
            return match standings.next() {
                Some(counted) => Self::counted(shown, counted, now),
                None if limit_override.quota.is_none() => Self::blocked(shown, now),
                None => Self::unlimited(0), // its policy is off
            };
        }
        match &matches.matched {
            Matched::Nothing => Self::unlimited(0),
            Matched::Unlimited(_) => Self::unlimited(u32::MAX),
            Matched::Blocked(rule) => {
                let zero = rule.limits().iter().find(|limit| limit.requests_per_unit == 0);
                let shown = zero.or(rule.limits().first()).map_or(LimitShown::NONE, LimitShown::of);
                Self::blocked(shown, now)
            }
            Matched::Limited(limited) => {
                let each = limited.rule().limits().iter().zip(standings);
                let tightest = each.min_by_key(|(_, (_, standing))| {
                    (!standing.is_over(), standing.remaining, std::cmp::Reverse(standing.reset_after))
                });
                match tightest {
                    Some((limit, counted)) => Self::counted(LimitShown::of(limit), counted, now),
                    None => Self::unlimited(0), // its policy is off
                }
            }
        }
    }

    /// Without a limit.
    fn unlimited(limit_remaining: u32) -> Self {
        let status =
            DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..DescriptorStatus::default() };
        Self { status, has_no_room: false, is_over: false, is_quota: false }
    }

    /// A limit of zero.
    fn blocked(shown: LimitShown<'_>, now: Timestamp) -> Self {
        Self::new(shown, true, 0, shown.until_reset(now))
    }

    /// A limit that the store was asked about.
    fn counted(shown: LimitShown<'_>, (limit, standing): (&Limit, &Standing), now: Timestamp) -> Self {
        let is_over = standing.is_over();
        let wait = match (is_over, standing.retry_after()) {
            (true, Some(wait)) if !wait.is_zero() => wait,
            _ => standing.reset_after,
        };
        // A fixed window ends at its time, whether units were spent or not.
        let goes_on = matches!(limit.quota().algorithm(), Algorithm::FixedWindow(_));
        let seconds = if goes_on && wait.is_zero() { shown.until_reset(now) } else { wait.as_secs_ceil() };
        let remaining = if is_over { 0 } else { standing.remaining };
        Self::new(shown, is_over, remaining, seconds)
    }

    fn new(shown: LimitShown<'_>, has_no_room: bool, limit_remaining: u32, seconds: u64) -> Self {
        let current_limit = RateLimit {
            requests_per_unit: shown.requests_per_unit,
            unit: shown.unit().into(),
            name: shown.name.to_owned(),
        };
        let duration = prost_types::Duration { seconds: seconds.try_into().unwrap_or(i64::MAX), nanos: 0 };
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(current_limit),
            limit_remaining,
            duration_until_reset: Some(duration),
        };
        Self { status, has_no_room, is_over: false, is_quota: false }
    }
}

impl<'a> LimitShown<'a> {
    const NONE: Self = Self { requests_per_unit: 0, unit: Unit::Second, unit_multiplier: 1, name: "" };

    fn of(limit: &'a CurrentLimit) -> Self {
        let CurrentLimit { requests_per_unit, unit, unit_multiplier, name } = limit;
        let unit_multiplier = unit_multiplier.get();
        Self { requests_per_unit: *requests_per_unit, unit: *unit, unit_multiplier, name }
    }

    fn unit(self) -> wire::Unit {
        match self.unit {
            Unit::Second => wire::Unit::Second,
            Unit::Minute => wire::Unit::Minute,
            Unit::Hour => wire::Unit::Hour,
            Unit::Day => wire::Unit::Day,
            Unit::Week => wire::Unit::Week,
            Unit::Month => wire::Unit::Month,
            Unit::Year => wire::Unit::Year,
        }
    }

    /// Whole seconds until the next window begins: at least one.
    fn until_reset(self, now: Timestamp) -> u64 {
        let window = self.unit.length().as_micros().saturating_mul(self.unit_multiplier.into()) / 1_000_000;
        let now = now.as_micros() / 1_000_000;
        window - now.checked_rem(window).unwrap_or(0)
    }
}
