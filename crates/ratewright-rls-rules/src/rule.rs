//! A rule: the limits, names and modes of one descriptor.

use std::num::NonZeroU32;

use ratewright_core::policy::{Mode, Part, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Rate};
use ratewright_core::{Micros, Policy, Quota};

use crate::descriptor::{Descriptor, RateLimit};
use crate::error::{DescriptorErrorKind, DescriptorField};
use crate::name::policy_name;
use crate::unit::Unit;

/// The limits, names and modes of one descriptor.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) kind: RuleKind,
    path: String,
    limits: Vec<CurrentLimit>,
    names: Vec<String>,
    replaces: Vec<String>,
    /// The names of the attributes that its buckets are partitioned by.
    pub(crate) partition: Vec<String>,
    shadow_mode: bool,
    quota_mode: bool,
    record_mode: bool,
    detailed_metric: bool,
    metadata: Option<String>,
}

/// What happens to requests that match a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RuleKind {
    Unlimited,
    /// A limit of zero, and the name that its policy would have.
    Blocked(String),
    /// The name of the policy that counts.
    Limited(String),
}

/// One limit as shown in responses, Envoy's `current_limit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentLimit {
    /// How many requests.
    pub requests_per_unit: u32,
    /// The unit of time.
    pub unit: Unit,
    /// The window in units.
    pub unit_multiplier: NonZeroU32,
    /// The limit's name. Empty: none.
    pub name: String,
}

/// The position of a descriptor in its tree.
#[derive(Clone, Copy)]
pub(crate) struct TreePosition<'a> {
    /// The domain, then the text of each level.
    pub(crate) path: &'a [String],
    /// The names of the attributes that its buckets are partitioned by.
    pub(crate) partition: &'a [String],
}

/// A valid limit.
struct ParsedLimit {
    current: CurrentLimit,
    /// Distinguishes its buckets from those of the descriptor's other limits.
    quota_name: String,
    /// None for a limit of zero.
    quota: Option<Quota>,
}

/// Receives the errors.
type ReportError<'a> = &'a mut dyn FnMut(DescriptorField, DescriptorErrorKind);

impl Rule {
    /// The rule of a descriptor with limits, and its policy unless there is nothing to count.
    pub(crate) fn new(
        descriptor: &Descriptor,
        position: TreePosition<'_>,
        report: ReportError<'_>,
    ) -> Option<(Self, Option<Policy>)> {
        let mut limits: Vec<ParsedLimit> = Vec::new();
        let mut is_valid = true;
        for (n, limit) in descriptor.rate_limits.iter().enumerate() {
            is_valid &= check_replaces(n, limit, report);
            if limit.unlimited {
                is_valid &= check_unlimited(n, limit, descriptor.rate_limits.len(), report);
                continue;
            }
            match ParsedLimit::new(n, limit, report) {
                Some(limit) if limits.iter().any(|other| other.quota_name == limit.quota_name) => {
                    report(DescriptorField::RateLimit(n), DescriptorErrorKind::DuplicateLimit);
                    is_valid = false;
                }
                Some(limit) => limits.push(limit),
                None => is_valid = false,
            }
        }
        is_valid.then(|| Self::of(descriptor, position, limits))
    }

    fn of(
        descriptor: &Descriptor,
        TreePosition { path, partition }: TreePosition<'_>,
        limits: Vec<ParsedLimit>,
    ) -> (Self, Option<Policy>) {
        let current_limits = limits.iter().map(|limit| limit.current.clone()).collect();
        let mode = if descriptor.shadow_mode { Mode::Shadow } else { Mode::Enforce };
        let policy = policy(&policy_name(path), limits, partition).map(|policy| policy.with_mode(mode));
        let is_unlimited = descriptor.rate_limits.iter().any(|limit| limit.unlimited);
        let kind = match &policy {
            Some(policy) => RuleKind::Limited(policy.name().to_owned()),
            None if is_unlimited => RuleKind::Unlimited,
            None => RuleKind::Blocked(policy_name(path)),
        };
        let names = descriptor.rate_limits.iter().map(|limit| limit.name.clone());
        let rule = Self {
            kind,
            path: path.join("."),
            limits: current_limits,
            names: names.filter(|name| !name.is_empty()).collect(),
            replaces: descriptor.rate_limits.iter().flat_map(|limit| limit.replaces.clone()).collect(),
            partition: partition.to_vec(),
            shadow_mode: descriptor.shadow_mode,
            quota_mode: descriptor.quota_mode,
            record_mode: descriptor.record_mode,
            detailed_metric: descriptor.detailed_metric,
            metadata: descriptor.metadata.clone(),
        };
        (rule, policy)
    }
}

impl Rule {
    /// The domain and the text of each level, joined by dots.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of its policy. None if there is nothing to count: unlimited, or a limit of zero.
    pub fn policy(&self) -> Option<&str> {
        match &self.kind {
            RuleKind::Limited(name) => Some(name),
            RuleKind::Unlimited | RuleKind::Blocked(_) => None,
        }
    }

    /// The name that its policy would have, if its limit is zero, so that it denies everything without counting.
    pub fn blocked_name(&self) -> Option<&str> {
        match &self.kind {
            RuleKind::Blocked(name) => Some(name),
            RuleKind::Unlimited | RuleKind::Limited(_) => None,
        }
    }

    /// The limits, all of which apply, in the order of the policy's. Empty if unlimited.
    pub fn limits(&self) -> &[CurrentLimit] {
        &self.limits
    }

    /// The names by which other rules can replace it.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names of the rules that it replaces.
    pub fn replaces(&self) -> &[String] {
        &self.replaces
    }

    /// True if it counts and never denies.
    pub fn is_shadow(&self) -> bool {
        self.shadow_mode
    }

    /// True if a request is denied only if all of its rules in this mode are over their limits.
    pub fn is_quota(&self) -> bool {
        self.quota_mode
    }

    /// True if it counts requests past its limit too.
    pub fn is_record(&self) -> bool {
        self.record_mode
    }

    /// True if its metric's name contains all values of the request.
    pub fn has_detailed_metric(&self) -> bool {
        self.detailed_metric
    }

    /// Metadata for responses, a JSON object.
    pub fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }
}

impl ParsedLimit {
    fn new(n: usize, limit: &RateLimit, report: ReportError<'_>) -> Option<Self> {
        let Some(unit) = Unit::parse(&limit.unit) else {
            report(DescriptorField::Unit(n), DescriptorErrorKind::UnknownUnit { unit: limit.unit.clone() });
            return None;
        };
        let multiplier = limit.unit_multiplier;
        let window = Micros::new(unit.length().as_micros().saturating_mul(u64::from(multiplier)));
        let Some(unit_multiplier) = NonZeroU32::new(multiplier).filter(|_| window <= Rate::WINDOW_MAX) else {
            report(
                DescriptorField::UnitMultiplier(n),
                DescriptorErrorKind::WindowOutOfRange { multiplier, unit },
            );
            return None;
        };
        // A limit of zero is checked as if it were one.
        let units = NonZeroU32::new(limit.requests_per_unit);
        let rate = Rate::new(units.unwrap_or(NonZeroU32::MIN), window).ok()?;
        let quota = Quota::new(limit.algorithm, rate);
        let quota = quota.map_err(|error| report(DescriptorField::RateLimit(n), error.into())).ok()?;
        let quota = match limit.burst.map(NonZeroU32::new) {
            None => quota,
            Some(None) => {
                report(DescriptorField::Burst(n), DescriptorErrorKind::ZeroBurst);
                return None;
            }
            Some(Some(burst)) => {
                let quota = quota.with_burst(burst);
                quota.map_err(|error| report(DescriptorField::Burst(n), error.into())).ok()?
            }
        };
        let name = limit.name.clone();
        let current =
            CurrentLimit { requests_per_unit: limit.requests_per_unit, unit, unit_multiplier, name };
        Some(Self { quota_name: quota_name(&current, limit.algorithm), current, quota: units.map(|_| quota) })
    }
}

/// A name that is unique among the limits of a descriptor, and independent of the others and their order.
fn quota_name(limit: &CurrentLimit, algorithm: Algorithm) -> String {
    let unit = limit.unit.name();
    let algorithm = algorithm.name();
    match limit.unit_multiplier.get() {
        1 => format!("{algorithm}.{unit}"),
        n => format!("{algorithm}.{n}{unit}"),
    }
}

/// The policy of all limits together. None if one of them is zero.
fn policy(name: &str, limits: Vec<ParsedLimit>, partition: &[String]) -> Option<Policy> {
    if limits.iter().any(|limit| limit.quota.is_none()) {
        return None;
    }
    let mut quotas = limits.into_iter().filter_map(|limit| Some((limit.quota_name, limit.quota?)));
    let (first_name, first) = quotas.next()?;
    let parts = partition.iter().map(|name| Part::one(AttributeName::Named(name.clone())));
    let policy = Policy::new(name, first).ok()?; // unreachable: policy_name makes valid names
    let policy =
        policy.with_partition(parts.collect()).with_selector(Selector::Named).with_quota_named(&first_name);
    Some(quotas.fold(policy, |policy, (name, quota)| policy.and(&name, quota)))
}

fn check_replaces(n: usize, limit: &RateLimit, report: ReportError<'_>) -> bool {
    let mut is_valid = true;
    for (m, name) in limit.replaces.iter().enumerate() {
        let error = match name.as_str() {
            "" => DescriptorErrorKind::EmptyReplaces,
            name if name == limit.name => DescriptorErrorKind::ReplacesItself,
            _ => continue,
        };
        report(DescriptorField::Replaces(n, m), error);
        is_valid = false;
    }
    is_valid
}

/// Like envoyproxy/ratelimit, ignores an unknown unit.
fn check_unlimited(n: usize, limit: &RateLimit, n_limits: usize, report: ReportError<'_>) -> bool {
    let (field, error) = if Unit::parse(&limit.unit).is_some() {
        (DescriptorField::Unit(n), DescriptorErrorKind::UnlimitedUnit)
    } else if n_limits > 1 {
        (DescriptorField::RateLimit(n), DescriptorErrorKind::UnlimitedWithLimits)
    } else {
        return true;
    };
    report(field, error);
    false
}
