//! A policy: a named rule, and everything that a policy file says about it.
//!
//! A policy has a selector (which queries it covers), a partition (which attributes give each client its own bucket),
//! one or more quotas, a cost and a mode. Overrides change quotas or mode for some queries: the first one with a
//! matching condition applies. An override with quotas has its own buckets, so units spent under one quota never return
//! under another. The buckets are named after the override's name or condition, never after its position.

mod cost;

use std::ops::Range;

pub use cost::Cost;

pub use crate::charge::OnFailure;
pub use crate::counted_responses::CountedResponses;
pub use crate::explain::{Explained, FailedTest, Finding};
pub use crate::key::Part;
pub use crate::pattern::{Pattern, PatternError};
pub use crate::policies::{LimitId, PolicyError, Refused, UncountableReason};
pub use crate::selector::{Condition, Selector};
pub use crate::shared_policies::{LoadedPolicies, SharedPolicies};

use crate::charge::Act;
use crate::key::BucketName;
use crate::policies::Policies;
use crate::quantity::Micros;
use crate::query::{Ask, Attribute, AttributeName, Query};
use crate::quota::Quota;

/// A named rule. Setters begin with `with_`; getters have the names of the policy file.
///
/// ```
/// use ratewright_core::policy::{Cost, Mode, OnFailure};
/// use ratewright_core::query::AttributeName;
/// use ratewright_core::{Policy, Quota};
///
/// # fn main() -> Result<(), ratewright_core::policy::PolicyError> {
/// let policy = Policy::new("search", Quota::per_minute(100).burst(20))?
///     .by(&[AttributeName::Ip])
///     .with_cost(Cost::Fixed(5))
///     .with_mode(Mode::Shadow)
///     .with_on_failure(OnFailure::Open);
/// assert_eq!((policy.name(), policy.mode()), ("search", Mode::Shadow));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    name: String,
    selector: Selector,
    group: Option<String>,
    partition: Vec<Part>,
    missing: Missing,
    cost: Cost,
    /// The policy's own, then those of its overrides.
    limits: Vec<Limit>,
    n_own: usize,
    overrides: Vec<PolicyOverride>,
    mode: Mode,
    on_failure: OnFailure,
    retry_after_min: Micros,
    count: CountedResponses,
    /// `None`: the default.
    after_abort: Option<AfterAbort>,
}

/// One quota of a policy, and the name of its buckets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    name: BucketName,
    quota: Quota,
}

/// Other terms for some queries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PolicyOverride {
    name: String,
    condition: Condition,
    /// Which of the policy's limits. `None`: the policy's own.
    limits: Option<Range<usize>>,
    mode: Option<Mode>,
}

/// When a permit is released whose client has disconnected before the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterAbort {
    /// When the upstream responds or times out: most upstreams do not notice that a client is gone.
    Keep,
    /// At once.
    Free,
}

/// What happens to a query that lacks an attribute of the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Missing {
    /// The policy does not apply.
    #[default]
    Skip,
    /// It is denied; over HTTP with 403.
    Deny,
}

/// Whether a policy is enforced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// It counts, and denies.
    #[default]
    Enforce,
    /// It counts what it would allow, and never denies.
    Shadow,
    /// It does nothing.
    Off,
}

/// The terms of an override, for queries that meet its condition.
#[derive(Clone, Copy, Debug)]
pub struct OverrideTerms<'a> {
    /// The override's name, or a digest of its condition.
    pub name: &'a str,
    /// The queries that it applies to.
    pub condition: &'a Condition,
    /// The quotas; a query must fit all of them. `None`: the policy's own.
    pub limits: Option<&'a [Limit]>,
    /// Its mode. `None`: the policy's own.
    pub mode: Option<Mode>,
}

/// The limits and the mode of a policy for one query.
pub(crate) struct QueryTerms<'a> {
    /// The number of the first limit.
    pub(crate) first: usize,
    pub(crate) limits: &'a [Limit],
    pub(crate) mode: Mode,
}

impl Policy {
    /// The longest name, in bytes.
    pub const NAME_MAX: usize = 64;

    /// A policy that covers every query and enforces one quota for all queries together.
    ///
    /// # Errors
    /// If the name has other characters than `a-z 0-9 . _ -`, is empty or too long.
    pub fn new(name: &str, quota: Quota) -> Result<Self, PolicyError> {
        if !is_name(name) {
            return Err(PolicyError::Name { name: name.to_owned() });
        }
        Ok(Self {
            name: name.to_owned(),
            selector: Selector::every(),
            group: None,
            partition: Vec::new(),
            missing: Missing::default(),
            cost: Cost::Fixed(1),
            limits: vec![Limit { name: BucketName::new(name, None, &quota, Vec::new()), quota }],
            n_own: 1,
            overrides: Vec::new(),
            mode: Mode::default(),
            on_failure: OnFailure::default(),
            retry_after_min: Micros::ZERO,
            count: CountedResponses::default(),
            after_abort: None,
        })
    }

    /// Gives each combination of values of these attributes its own bucket. A query without one of them is not limited by this
    /// policy, unless [`with_missing`](Self::with_missing) says otherwise.
    #[must_use]
    pub fn by(self, attributes: &[AttributeName<&str>]) -> Self {
        self.with_partition(attributes.iter().map(|name| Part::from(*name)).collect())
    }

    /// Gives each combination of values of these parts its own bucket.
    #[must_use]
    pub fn with_partition(mut self, partition: Vec<Part>) -> Self {
        for limit in &mut self.limits {
            let (override_name, quota_name) = (limit.name.override_name(), limit.name.quota());
            limit.name = BucketName::of_override(
                &self.name,
                override_name,
                quota_name,
                &limit.quota,
                partition.clone(),
            );
        }
        self.partition = partition;
        self
    }

    /// Sets what happens to a query without an attribute of the partition. Default: [`Missing::Skip`], the policy does not limit it.
    #[must_use]
    pub fn with_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// Sets which queries it covers.
    #[must_use]
    pub fn with_selector(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }

    /// Adds it to a group. Of a group, only the first policy that covers a query applies.
    #[must_use]
    pub fn with_group(mut self, group: &str) -> Self {
        self.group = Some(group.to_owned());
        self
    }

    /// Names its only quota. Its buckets keep their names when quotas are added before or after it.
    #[must_use]
    pub fn with_quota_named(mut self, quota_name: &str) -> Self {
        let limits = std::mem::take(&mut self.limits);
        self.limits =
            limits.into_iter().map(|limit| self.limit(None, Some(quota_name), limit.quota)).collect();
        self
    }

    /// Adds another quota; a query must fit all of them. The quota's name is part of the names of its buckets.
    #[must_use]
    pub fn and(mut self, quota_name: &str, quota: Quota) -> Self {
        debug_assert!(
            self.overrides.is_empty(),
            "the policy's own quotas come before those of its overrides"
        );
        let limit = self.limit(None, Some(quota_name), quota);
        self.limits.push(limit);
        self.n_own = self.limits.len();
        self
    }

    /// Adds an override: other quotas (none: the policy's own) and another mode for queries that meet the condition. Of several, the first
    /// whose condition holds applies. Its quotas have their own buckets, named after `name` or, without one, after the condition.
    #[must_use]
    pub fn with_override(
        mut self,
        name: Option<&str>,
        condition: Condition,
        quotas: Vec<(Option<String>, Quota)>,
        mode: Option<Mode>,
    ) -> Self {
        let name = name.map_or_else(|| condition.digest(), str::to_owned);
        let start = self.limits.len();
        for (quota_name, quota) in quotas {
            self.limits.push(self.limit(Some(&name), quota_name.as_deref(), quota));
        }
        let limits = (start < self.limits.len()).then_some(start..self.limits.len());
        self.overrides.push(PolicyOverride { name, condition, limits, mode });
        self
    }

    /// Sets what a query costs.
    #[must_use]
    pub fn with_cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets what happens if the store does not reply.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the shortest `retry_after` of a denial.
    #[must_use]
    pub fn with_retry_after_min(mut self, retry_after_min: Micros) -> Self {
        self.retry_after_min = retry_after_min;
        self
    }

    /// Sets when a permit is released whose client has disconnected before the response.
    #[must_use]
    pub fn with_after_abort(mut self, after_abort: AfterAbort) -> Self {
        self.after_abort = Some(after_abort);
        self
    }

    /// Sets which responses count. Entrypoints that do not see the response count all requests.
    #[must_use]
    pub fn with_count(mut self, count: CountedResponses) -> Self {
        self.count = count;
        self
    }

    fn limit(&self, override_name: Option<&str>, quota_name: Option<&str>, quota: Quota) -> Limit {
        let partition = self.partition.clone();
        Limit {
            name: BucketName::of_override(&self.name, override_name, quota_name, &quota, partition),
            quota,
        }
    }
}

impl Policy {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it decides every query as another policy of its name does, though the two may be written differently.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let is_same =
            |(own, other): (&Limit, &Limit)| own.name == other.name && own.quota.is_equivalent(&other.quota);
        let rest = |policy: &Self| Self {
            selector: Selector::Named,
            limits: Vec::new(),
            count: CountedResponses::default(),
            ..policy.clone()
        };
        self == other
            || self.selector.is_equivalent(&other.selector)
                && self.limits.len() == other.limits.len()
                && self.limits.iter().zip(&other.limits).all(is_same)
                && self.count.is_equivalent(&other.count)
                && rest(self) == rest(other)
    }

    /// Whether it is enforced, where no override says otherwise.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The quotas, unless an override applies. A query must fit all of them.
    pub fn limits(&self) -> &[Limit] {
        &self.limits[..self.n_own]
    }

    /// Its quotas and those of its overrides.
    pub(crate) fn all_limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Quotas that apply together: the policy's own, and those of each override.
    pub(crate) fn limit_sets(&self) -> impl Iterator<Item = &[Limit]> {
        let others = self.overrides.iter().filter_map(|other| self.limits.get(other.limits.clone()?));
        std::iter::once(self.limits()).chain(others)
    }

    /// The attributes by which clients get their own buckets.
    pub fn partition(&self) -> &[Part] {
        &self.partition
    }

    /// Which queries it covers.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The group that it belongs to.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// What happens to a query that lacks an attribute of the partition.
    pub fn missing(&self) -> Missing {
        self.missing
    }

    /// What a query costs.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// The overrides. The first whose condition holds applies.
    pub fn overrides(&self) -> impl Iterator<Item = OverrideTerms<'_>> {
        self.overrides.iter().map(|other| OverrideTerms {
            name: &other.name,
            condition: &other.condition,
            limits: other.limits.clone().and_then(|limits| self.limits.get(limits)),
            mode: other.mode,
        })
    }

    /// What happens if the store does not reply.
    #[inline(always)]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// The shortest `retry_after` of a denial.
    pub fn retry_after_min(&self) -> Micros {
        self.retry_after_min
    }

    /// When a permit is released whose client has disconnected before the response.
    pub fn after_abort(&self) -> AfterAbort {
        self.after_abort.unwrap_or_else(|| self.default_after_abort())
    }

    /// The default: the permit is kept if the partition tells clients apart; otherwise one client could fill the limit of all.
    pub fn default_after_abort(&self) -> AfterAbort {
        use AttributeName::{Host, Method, Path, Route};
        let mut names = self.partition.iter().flat_map(Part::names);
        let tells_clients_apart = names.any(|name| !matches!(name, Host | Method | Path | Route));
        if tells_clients_apart { AfterAbort::Keep } else { AfterAbort::Free }
    }

    /// Which responses count.
    pub fn count(&self) -> &CountedResponses {
        &self.count
    }

    /// True if the policy does not apply because the query lacks an attribute of the partition.
    pub(crate) fn is_skipped(&self, query: &Query<'_>) -> bool {
        self.missing == Missing::Skip && self.mode != Mode::Off && self.is_missing(query)
    }

    /// True if each client has its own bucket, so one client cannot spend another's units.
    pub(crate) fn is_by_client(&self) -> bool {
        let is_client = |name: &AttributeName<String>| {
            !matches!(
                name,
                AttributeName::Method | AttributeName::Path | AttributeName::Host | AttributeName::Route
            )
        };
        self.partition.iter().flat_map(Part::names).any(is_client)
    }

    /// True if the client's address would stand in for an unreadable value.
    pub(crate) fn stands_in(&self, query: &Query<'_>) -> bool {
        self.partition.iter().filter_map(|part| part.value(query.attributes)).any(|value| value.is_stand_in())
    }

    /// Why a query with several readings cannot be counted, if it cannot.
    pub(crate) fn uncountable(&self, query: &Query<'_>) -> Option<UncountableReason> {
        if self.partition.iter().any(|part| part.is_repeated(query.attributes)) {
            return Some(UncountableReason::Repeated);
        }
        let mut n_values = self.partition.iter().map(|part| part.n_values(query.attributes));
        let n_readings = n_values.try_fold(1, usize::checked_mul);
        let is_countable =
            n_readings.is_some_and(|n_readings| n_readings <= usize::from(Policies::READINGS_MAX));
        (!is_countable).then_some(UncountableReason::TooMany)
    }

    /// True if it looks at an attribute that has more values than a query carries.
    pub(crate) fn looks_at_too_many(&self, seen: &Query<'_>) -> bool {
        let has_too_many =
            |name: &AttributeName<String>| seen.values(name).any(|value| value == Attribute::TOO_MANY);
        self.attributes().any(has_too_many)
    }

    /// True if it denies anything, under its own terms or under those of an override.
    pub(crate) fn is_ever_enforced(&self) -> bool {
        let enforces = |other: &PolicyOverride| other.mode == Some(Mode::Enforce);
        self.mode == Mode::Enforce || self.mode == Mode::Shadow && self.overrides.iter().any(enforces)
    }

    /// Which of the readings of a query is seen: the number that [`Key::read`](crate::store::Key::read) takes. `None` if an
    /// attribute of the partition is missing.
    pub(crate) fn reading(&self, seen: &Query<'_>, query: &Query<'_>) -> Option<u8> {
        let (mut reading, mut scale) = (0, 1);
        for part in &self.partition {
            reading += scale * part.position(seen.attributes, query.attributes)?;
            scale *= part.n_values(query.attributes);
        }
        u8::try_from(reading).ok()
    }

    /// True if the query lacks an attribute of the partition. With `missing: deny`, an unreadable value is missing too.
    #[inline(always)]
    pub(crate) fn is_missing(&self, query: &Query<'_>) -> bool {
        self.partition.iter().any(|part| match part.value(query.attributes) {
            None => true,
            Some(value) => self.missing == Missing::Deny && value.is_stand_in(),
        })
    }

    /// The terms that apply to this query.
    #[inline(always)]
    pub(crate) fn terms(&self, query: &Query<'_>) -> QueryTerms<'_> {
        let own = QueryTerms { first: 0, limits: &self.limits[..self.n_own], mode: self.mode };
        if self.overrides.is_empty() { own } else { self.other_terms(query).unwrap_or(own) }
    }

    fn other_terms(&self, query: &Query<'_>) -> Option<QueryTerms<'_>> {
        let other = self.override_for(query)?;
        let range = other.limits.clone().unwrap_or(0..self.n_own);
        // What is switched off as a whole stays off.
        let mode = if self.mode == Mode::Off { Mode::Off } else { other.mode.unwrap_or(self.mode) };
        Some(QueryTerms { first: range.start, limits: self.limits.get(range)?, mode })
    }

    /// The first override whose condition holds.
    fn override_for(&self, query: &Query<'_>) -> Option<&PolicyOverride> {
        let counts = |(n, other): &(usize, &PolicyOverride)| match other.mode {
            Some(Mode::Off) => other.condition.spares(query),
            Some(Mode::Enforce | Mode::Shadow) | None => {
                let names_head = |later: &PolicyOverride| later.condition.names_head(query);
                other.condition.holds(query)
                    && !(other.condition.takes_head_for_get(query)
                        && self.overrides[n + 1..].iter().any(names_head))
            }
        };
        self.overrides.iter().enumerate().find(counts).map(|(_, other)| other)
    }

    /// The name of the override that applies to a query, or the digest of its condition.
    pub(crate) fn override_of(&self, query: &Query<'_>) -> Option<&str> {
        self.override_for(query).map(|other| other.name.as_str())
    }

    /// What a query does to this policy's buckets; `None` if the policy is off, or the query costs nothing.
    #[inline(always)]
    pub(crate) fn act(&self, query: &Query<'_>, mode: Mode) -> Option<Act> {
        let ask = match &self.cost {
            Cost::Fixed(1) => query.ask,
            cost @ (Cost::Fixed(_)
            | Cost::Of(_)
            | Cost::ByMethod { .. }
            | Cost::ByPath { .. }
            | Cost::RequestBytes) => cost.multiply(query)?,
        };
        match (mode, ask) {
            (Mode::Off, _) => None,
            (Mode::Enforce, Ask::Spend(cost)) => Some(Act::Take(cost)),
            (Mode::Shadow, Ask::Spend(cost)) => Some(Act::Try(cost)),
            (_, Ask::Record(cost)) => Some(Act::Record(cost)),
            (Mode::Enforce, Ask::Look(cost)) => Some(Act::Look(cost)),
            (Mode::Shadow, Ask::Look(_)) => Some(Act::Look(0)),
        }
    }

    /// All attributes that it looks at.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &AttributeName<String>> {
        let conditions = match &self.selector {
            Selector::When(condition) => Some(condition),
            Selector::Named => None,
        };
        let conditions = conditions.into_iter().chain(self.overrides.iter().map(|other| &other.condition));
        let cost = match &self.cost {
            Cost::Fixed(_) => None,
            Cost::Of(name) => Some(name),
            Cost::ByMethod { .. } => Some(&AttributeName::Method),
            Cost::ByPath { .. } => Some(&AttributeName::Path),
            Cost::RequestBytes => Some(&*cost::CONTENT_LENGTH),
        };
        self.partition
            .iter()
            .flat_map(Part::names)
            .chain(conditions.flat_map(Condition::attributes))
            .chain(cost)
    }
}

impl Mode {
    /// The name in policy files and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// True if a text is a valid name in a key.
pub(crate) fn is_name(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
    (1..=Policy::NAME_MAX).contains(&text.len()) && text.bytes().all(known)
}

impl Limit {
    /// The name of its buckets.
    pub fn name(&self) -> &BucketName {
        &self.name
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }
}
