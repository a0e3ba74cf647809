//! What a descriptor says: how much, under which name, in which mode.

use std::num::NonZeroU32;

use ratewright_core::{Algorithm, AttributeName, Micros, Mode, Part, Policy, Quota, Rate, Selector};

use crate::descriptor::{Descriptor, RateLimit};
use crate::error::{Field, Wrong};
use crate::name::policy_name;
use crate::unit::Unit;

/// What a descriptor says.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) kind: Kind,
    path: String,
    limits: Vec<Limit>,
    names: Vec<String>,
    replaces: Vec<String>,
    /// The names of the attributes that its buckets are told apart by.
    pub(crate) partition: Vec<String>,
    shadow_mode: bool,
    quota_mode: bool,
    record_mode: bool,
    detailed_metric: bool,
    metadata: Option<String>,
}

/// What becomes of who meets a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Unlimited,
    /// A limit of zero, and the name that its policy would have.
    Blocked(String),
    /// The name of the policy that counts.
    Limited(String),
}

/// One limit as answers tell it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// How many.
    pub requests_per_unit: u32,
    /// In what.
    pub unit: Unit,
    /// How many units make a window.
    pub unit_multiplier: NonZeroU32,
    /// What it is called. Empty for no name.
    pub name: String,
}

/// Where a descriptor stands.
#[derive(Clone, Copy)]
pub(crate) struct Standpoint<'a> {
    /// The domain, then the texts of all levels.
    pub(crate) path: &'a [String],
    /// The names of the attributes that its buckets are told apart by.
    pub(crate) partition: &'a [String],
}

/// A limit that is understood.
struct Counted {
    told: Limit,
    /// Tells its buckets from those of the descriptor's other limits.
    quota_name: String,
    /// Nothing for a limit of zero.
    quota: Option<Quota>,
}

/// Who is told what is wrong.
type Complain<'a> = &'a mut dyn FnMut(Field, Wrong);

impl Rule {
    /// What a descriptor with limits says, and the policy that counts, if one has to.
    pub(crate) fn new(
        written: &Descriptor,
        standpoint: Standpoint<'_>,
        wrong: Complain<'_>,
    ) -> Option<(Self, Option<Policy>)> {
        let mut counted: Vec<Counted> = Vec::new();
        let mut is_sound = true;
        for (n, limit) in written.rate_limits.iter().enumerate() {
            is_sound &= check_replaces(n, limit, wrong);
            if limit.unlimited {
                is_sound &= check_unlimited(n, limit, written.rate_limits.len(), wrong);
                continue;
            }
            match Counted::new(n, limit, wrong) {
                Some(limit) if counted.iter().any(|other| other.quota_name == limit.quota_name) => {
                    wrong(Field::RateLimit(n), Wrong::SameLimit);
                    is_sound = false;
                }
                Some(limit) => counted.push(limit),
                None => is_sound = false,
            }
        }
        is_sound.then(|| Self::of(written, standpoint, counted))
    }

    fn of(
        written: &Descriptor,
        Standpoint { path, partition }: Standpoint<'_>,
        counted: Vec<Counted>,
    ) -> (Self, Option<Policy>) {
        let limits = counted.iter().map(|limit| limit.told.clone()).collect();
        let mode = if written.shadow_mode { Mode::Shadow } else { Mode::Enforce };
        let policy = policy(&policy_name(path), counted, partition).map(|policy| policy.in_mode(mode));
        let is_unlimited = written.rate_limits.iter().any(|limit| limit.unlimited);
        let kind = match &policy {
            Some(policy) => Kind::Limited(policy.name().to_owned()),
            None if is_unlimited => Kind::Unlimited,
            None => Kind::Blocked(policy_name(path)),
        };
        let names = written.rate_limits.iter().map(|limit| limit.name.clone());
        let rule = Self {
            kind,
            path: path.join("."),
            limits,
            names: names.filter(|name| !name.is_empty()).collect(),
            replaces: written.rate_limits.iter().flat_map(|limit| limit.replaces.clone()).collect(),
            partition: partition.to_vec(),
            shadow_mode: written.shadow_mode,
            quota_mode: written.quota_mode,
            record_mode: written.record_mode,
            detailed_metric: written.detailed_metric,
            metadata: written.metadata.clone(),
        };
        (rule, policy)
    }
}

impl Rule {
    /// Where it stands: the domain and the texts of all levels, with dots between them.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of the policy that counts. Nothing if there is nothing to count: without a limit, or with a limit of zero.
    pub fn policy(&self) -> Option<&str> {
        match &self.kind {
            Kind::Limited(name) => Some(name),
            Kind::Unlimited | Kind::Blocked(_) => None,
        }
    }

    /// The name that its policy would have, if its limit is zero, so that it denies everything without counting.
    pub fn blocked_name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Blocked(name) => Some(name),
            Kind::Unlimited | Kind::Limited(_) => None,
        }
    }

    /// The limits, all of which apply, in the order of the policy's own. Empty if it is unlimited.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The names by which other rules can replace it.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names of rules that do not count beside it.
    pub fn replaces(&self) -> &[String] {
        &self.replaces
    }

    /// True if it counts, and never denies.
    pub fn is_shadow(&self) -> bool {
        self.shadow_mode
    }

    /// True if a request is denied only if all of its rules in this mode are over their limits.
    pub fn is_quota(&self) -> bool {
        self.quota_mode
    }

    /// True if it counts even what is past its limit.
    pub fn is_record(&self) -> bool {
        self.record_mode
    }

    /// True if its metric has all values of the request.
    pub fn has_detailed_metric(&self) -> bool {
        self.detailed_metric
    }

    /// What is told to who asks, a JSON object.
    pub fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }
}

impl Counted {
    fn new(n: usize, written: &RateLimit, wrong: Complain<'_>) -> Option<Self> {
        let Some(unit) = Unit::parse(&written.unit) else {
            wrong(Field::Unit(n), Wrong::UnknownUnit { unit: written.unit.clone() });
            return None;
        };
        let multiplier = written.unit_multiplier;
        let window = Micros::new(unit.length().as_micros().saturating_mul(u64::from(multiplier)));
        let Some(unit_multiplier) = NonZeroU32::new(multiplier).filter(|_| window <= Rate::WINDOW_MAX) else {
            wrong(Field::UnitMultiplier(n), Wrong::Window { multiplier, unit });
            return None;
        };
        // A limit of zero is checked as if it were one.
        let units = NonZeroU32::new(written.requests_per_unit);
        let rate = Rate::new(units.unwrap_or(NonZeroU32::MIN), window).ok()?;
        let quota = Quota::new(written.algorithm, rate);
        let quota = quota.map_err(|error| wrong(Field::RateLimit(n), error.into())).ok()?;
        let quota = match written.burst.map(NonZeroU32::new) {
            None => quota,
            Some(None) => {
                wrong(Field::Burst(n), Wrong::NoBurst);
                return None;
            }
            Some(Some(burst)) => {
                let bursting = quota.with_burst(burst);
                bursting.map_err(|error| wrong(Field::Burst(n), error.into())).ok()?
            }
        };
        let name = written.name.clone();
        let told = Limit { requests_per_unit: written.requests_per_unit, unit, unit_multiplier, name };
        Some(Self { quota_name: quota_name(&told, written.algorithm), told, quota: units.map(|_| quota) })
    }
}

/// What tells a limit from others of the same descriptor, also if others come or go, or their order is changed.
fn quota_name(limit: &Limit, algorithm: Algorithm) -> String {
    let unit = limit.unit.name();
    let algorithm = algorithm.name();
    match limit.unit_multiplier.get() {
        1 => format!("{algorithm}.{unit}"),
        n => format!("{algorithm}.{n}{unit}"),
    }
}

/// The policy of all limits together, unless one of them lets nothing through.
fn policy(name: &str, counted: Vec<Counted>, partition: &[String]) -> Option<Policy> {
    if counted.iter().any(|limit| limit.quota.is_none()) {
        return None;
    }
    let mut quotas = counted.into_iter().filter_map(|limit| Some((limit.quota_name, limit.quota?)));
    let (first_name, first) = quotas.next()?;
    let parts = partition.iter().map(|name| Part::one(AttributeName::Named(name.clone())));
    let policy = Policy::new(name, first).ok()?; // not reached: names are made to fit
    let policy = policy.partitioned(parts.collect()).covering(Selector::Named).with_quota_named(&first_name);
    Some(quotas.fold(policy, |policy, (name, quota)| policy.and(&name, quota)))
}

fn check_replaces(n: usize, written: &RateLimit, wrong: Complain<'_>) -> bool {
    let mut is_sound = true;
    for (m, name) in written.replaces.iter().enumerate() {
        let problem = match name.as_str() {
            "" => Wrong::ReplacesNothing,
            name if name == written.name => Wrong::ReplacesItself,
            _ => continue,
        };
        wrong(Field::Replaces(n, m), problem);
        is_sound = false;
    }
    is_sound
}

/// A unit that is none does not matter here, as it does not there.
fn check_unlimited(n: usize, written: &RateLimit, n_limits: usize, wrong: Complain<'_>) -> bool {
    let problem = if Unit::parse(&written.unit).is_some() {
        (Field::Unit(n), Wrong::UnlimitedUnit)
    } else if n_limits > 1 {
        (Field::RateLimit(n), Wrong::UnlimitedBeside)
    } else {
        return true;
    };
    wrong(problem.0, problem.1);
    false
}
