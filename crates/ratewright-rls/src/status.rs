//! The status of a descriptor, as responses show it.

use ratewright_core::{Algorithm, Charge, Standing, Timestamp};
use ratewright_rls_rules::{CurrentLimit, Matched, Rule, Unit};

use crate::matching::{DescriptorMatch, Hits};
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

/// True if a request is over its limits: one limit outside quota mode is exceeded, or all quotas are.
pub(crate) fn is_over(outcomes: &[DescriptorOutcome]) -> bool {
    let (mut n_quotas, mut n_left) = (0, 0);
    for outcomes in outcomes {
        match (outcomes.is_quota, outcomes.is_over) {
            (false, true) => return true,
            (false, false) => {}
            (true, is_over) => {
                n_quotas += 1;
                n_left += u32::from(!is_over);
            }
        }
    }
    n_quotas > 0 && n_left == 0
}

/// The response when everything is off.
pub(crate) fn all_pass(n_descriptors: usize) -> RateLimitResponse {
    let statuses = (0..n_descriptors).map(|_| DescriptorOutcome::unlimited(0).status).collect();
    RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..RateLimitResponse::default() }
}

impl DescriptorOutcome {
    /// The outcome of a descriptor with these charges and standings.
    pub(crate) fn of(
        matches: &DescriptorMatch<'_>,
        charges: &[Charge<'_>],
        standings: &[Standing],
        now: Timestamp,
    ) -> Self {
        let mut outcomes = Self::of_limit(matches, charges, standings, now);
        outcomes.is_quota = matches.is_quota && outcomes.status.current_limit.is_some();
        match matches.hits {
            Hits::Spend(_) => outcomes,
            Hits::GiveBack(_) => outcomes.allowed(),
        }
    }

    fn of_limit(
        matches: &DescriptorMatch<'_>,
        charges: &[Charge<'_>],
        standings: &[Standing],
        now: Timestamp,
    ) -> Self {
        if let Some(limit_override) = &matches.limit_override {
            let shown = LimitShown {
                requests_per_unit: limit_override.requests_per_unit,
                unit: limit_override.unit,
                unit_multiplier: 1,
                name: "",
            };
            return match (charges.first(), standings.first()) {
                (Some(charge), Some(standing)) => Self::counted(shown, charge, standing, now),
                _ if limit_override.quota.is_none() => Self::blocked(shown, now),
                _ => Self::unlimited(0), // its policy is off
            };
        }
        match &matches.matched {
            Matched::Nothing => Self::unlimited(0),
            Matched::Unlimited(_) => Self::unlimited(u32::MAX),
            Matched::Blocked(rule) => {
                let zero = rule.limits().iter().find(|limit| limit.requests_per_unit == 0);
                let shown = zero.or(rule.limits().first()).map_or(LimitShown::NONE, LimitShown::of);
                Self::blocked(shown, now).under(rule)
            }
            Matched::Limited(limited) => {
                let rule = limited.rule();
                let each = rule.limits().iter().zip(charges.iter().zip(standings));
                let tightest = each.min_by_key(|(_, (_, standing))| {
                    (!standing.is_over(), standing.remaining, std::cmp::Reverse(standing.reset_after))
                });
                match tightest {
                    Some((limit, (charge, standing))) => {
                        Self::counted(LimitShown::of(limit), charge, standing, now).under(rule)
                    }
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
    fn counted(shown: LimitShown<'_>, charge: &Charge<'_>, standing: &Standing, now: Timestamp) -> Self {
        let is_over = standing.is_over();
        let outcomes = match (is_over, standing.retry_after()) {
            (true, Some(wait)) if !wait.is_zero() => wait,
            _ => standing.reset_after,
        };
        // A fixed window ends at its time, whether units were spent or not.
        let goes_on = matches!(charge.quota.algorithm(), Algorithm::FixedWindow(_));
        let seconds =
            if goes_on && outcomes.is_zero() { shown.until_reset(now) } else { outcomes.as_secs_ceil() };
        let remaining = if is_over { 0 } else { standing.remaining };
        Self::new(shown, is_over, remaining, seconds)
    }

    fn new(shown: LimitShown<'_>, is_over: bool, limit_remaining: u32, seconds: u64) -> Self {
        let current_limit = RateLimit {
            requests_per_unit: shown.requests_per_unit,
            unit: shown.unit().into(),
            name: shown.name.to_owned(),
        };
        let duration = prost_types::Duration { seconds: seconds.try_into().unwrap_or(i64::MAX), nanos: 0 };
        let status = DescriptorStatus {
            code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: Some(current_limit),
            limit_remaining,
            duration_until_reset: Some(duration),
        };
        Self { status, has_no_room: is_over, is_over, is_quota: false }
    }

    /// The same under a rule, which may be in shadow mode.
    fn under(self, rule: &Rule) -> Self {
        if rule.is_shadow() { self.allowed() } else { self }
    }

    /// The same, which denies nobody.
    fn allowed(mut self) -> Self {
        self.is_over = false;
        self.status.code = Code::Ok.into();
        self
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
