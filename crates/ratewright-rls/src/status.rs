//! How a descriptor stands, as answers tell it.

use ratewright_core::{Algorithm, Charge, Standing, Timestamp};
use ratewright_rls_rules::{Limit, Matched, Rule, Unit};

use crate::met::{Hits, Met};
use crate::wire::{self, Code, DescriptorStatus, RateLimit, RateLimitResponse};

/// How a descriptor stands.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: DescriptorStatus,
    /// Whether it is over its limit.
    pub(crate) has_no_room: bool,
    /// Whether that counts.
    pub(crate) is_over: bool,
    pub(crate) is_quota: bool,
}

/// A limit as answers name it.
#[derive(Clone, Copy)]
struct Named<'a> {
    requests_per_unit: u32,
    unit: Unit,
    unit_multiplier: u32,
    name: &'a str,
}

/// True if a request is over its limits: one that is no quota is, or all quotas are.
pub(crate) fn is_over(told: &[Told]) -> bool {
    let (mut n_quotas, mut n_left) = (0, 0);
    for told in told {
        match (told.is_quota, told.is_over) {
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

/// The answer to whoever has no limits at all.
pub(crate) fn all_pass(n_descriptors: usize) -> RateLimitResponse {
    let statuses = (0..n_descriptors).map(|_| Told::unlimited(0).status).collect();
    RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..RateLimitResponse::default() }
}

impl Told {
    /// How a descriptor stands that met this. The charges are its own, and the standings what came of them.
    pub(crate) fn of(met: &Met<'_>, charges: &[Charge<'_>], standings: &[Standing], now: Timestamp) -> Self {
        let mut told = Self::of_limit(met, charges, standings, now);
        told.is_quota = met.is_quota && told.status.current_limit.is_some();
        match met.hits {
            Hits::Spend(_) => told,
            Hits::GiveBack(_) => told.allowed(),
        }
    }

    fn of_limit(met: &Met<'_>, charges: &[Charge<'_>], standings: &[Standing], now: Timestamp) -> Self {
        if let Some(brought) = &met.brought {
            let named = Named {
                requests_per_unit: brought.requests_per_unit,
                unit: brought.unit,
                unit_multiplier: 1,
                name: "",
            };
            return match (charges.first(), standings.first()) {
                (Some(charge), Some(standing)) => Self::counted(named, charge, standing, now),
                _ if brought.quota.is_none() => Self::blocked(named, now),
                _ => Self::unlimited(0), // its policy is off
            };
        }
        match &met.matched {
            Matched::Nothing => Self::unlimited(0),
            Matched::Unlimited(_) => Self::unlimited(u32::MAX),
            Matched::Blocked(rule) => {
                let zero = rule.limits().iter().find(|limit| limit.requests_per_unit == 0);
                let named = zero.or(rule.limits().first()).map_or(Named::NONE, Named::of);
                Self::blocked(named, now).under(rule)
            }
            Matched::Limited(limited) => {
                let rule = limited.rule();
                let each = rule.limits().iter().zip(charges.iter().zip(standings));
                let tightest = each.min_by_key(|(_, (_, standing))| {
                    (!standing.is_over(), standing.remaining, std::cmp::Reverse(standing.reset_after))
                });
                match tightest {
                    Some((limit, (charge, standing))) => {
                        Self::counted(Named::of(limit), charge, standing, now).under(rule)
                    }
                    None => Self::unlimited(0), // its policy is off
                }
            }
        }
    }

    /// No limit is told.
    fn unlimited(limit_remaining: u32) -> Self {
        let status =
            DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..DescriptorStatus::default() };
        Self { status, has_no_room: false, is_over: false, is_quota: false }
    }

    /// A limit of zero.
    fn blocked(named: Named<'_>, now: Timestamp) -> Self {
        Self::new(named, true, 0, named.until_reset(now))
    }

    /// A limit that was asked.
    fn counted(named: Named<'_>, charge: &Charge<'_>, standing: &Standing, now: Timestamp) -> Self {
        let is_over = standing.is_over();
        let told = match (is_over, standing.retry_after()) {
            (true, Some(wait)) if !wait.is_zero() => wait,
            _ => standing.reset_after,
        };
        // A fixed window goes on whether anything is spent or not.
        let goes_on = matches!(charge.quota.algorithm(), Algorithm::FixedWindow(_));
        let seconds = if goes_on && told.is_zero() { named.until_reset(now) } else { told.as_secs_ceil() };
        let remaining = if is_over { 0 } else { standing.remaining };
        Self::new(named, is_over, remaining, seconds)
    }

    fn new(named: Named<'_>, is_over: bool, limit_remaining: u32, seconds: u64) -> Self {
        let current_limit = RateLimit {
            requests_per_unit: named.requests_per_unit,
            unit: named.unit().into(),
            name: named.name.to_owned(),
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

    /// The same under a rule, which may only count.
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

impl<'a> Named<'a> {
    const NONE: Self = Self { requests_per_unit: 0, unit: Unit::Second, unit_multiplier: 1, name: "" };

    fn of(limit: &'a Limit) -> Self {
        let Limit { requests_per_unit, unit, unit_multiplier, name } = limit;
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
