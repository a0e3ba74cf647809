//! Explains a configuration in plain words, for `ratewright check`.
//!
//! ```text
//!   of endpoint, the first that matches:
//!     login    10 at once, then 1 every 6 s, for each client address; on **/login**, **/auth**
//!     default  100 at once, then 10 every second, for each client address; on all others
//!   never limited: on /health**; with method OPTIONS
//! ```

mod authorize;
mod cors;
mod envoy;
mod routes;

use std::fmt::Write;
use std::ops::RangeInclusive;

use ratewright_config::program_api::values::span;
use ratewright_core::policy::{
    AfterAbort, Condition, Cost, Limit, Missing, Mode, OnFailure, OverrideTerms, Part, Selector,
};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::{Micros, Policies, Policy, Quota};
use ratewright_gateway::RouteTable;
use ratewright_http::path::Case;
use ratewright_telemetry::sounds_secret;

use super::{Config, ListenerConfig, StoreConfig};
pub(crate) use envoy::explain_envoy;
use ratewright_config::program_api::ineffective_policies::{is_always_present, may_skip};

/// Explains a configuration, one line for each policy, listener and route.
pub(crate) fn explain(config: &Config) -> String {
    let routes = &config.gateway.routes;
    let has_redis = matches!(config.store, StoreConfig::Redis(_));
    let explainer = Explainer { has_redis, routes, permits: &config.permits };
    let mut text = String::new();
    if !config.is_enabled {
        text.push_str("enabled is false: every request passes, uncounted\n");
    }
    let raw = |policy: &&Policy| match policy.selector() {
        Selector::When(_) => true,
        Selector::Named => {
            config.ad_hoc.iter().any(|name| *name == policy.name())
                || routes::on(routes, policy.name()).is_some()
        }
    };
    let policies: Vec<&Policy> = config.policies.iter().chain(config.permits.iter()).filter(raw).collect();
    let explained = explainer.policies(&policies);
    if policies.is_empty() && config.envoy.is_none() {
        let gateway = if routes.is_empty() { "" } else { "the gateway limits nothing; " };
        text.push_str(&format!(
            "no policies: {gateway}only keys that callers name are limited, by the defaults\n"
        ));
    }
    let width = policies.iter().map(|policy| policy.name().len()).max().unwrap_or_default();
    let mut group = None;
    for PolicyWords { policy, meaning, overrides } in &explained {
        if let Some(name) = policy.group().filter(|_| policy.group() != group) {
            text.push_str(&format!("of {name}, the first that matches:\n"));
        }
        group = policy.group();
        let indent = if group.is_some() { "  " } else { "" };
        text.push_str(&format!("{indent}{:width$}  {meaning}\n", policy.name()));
        let indent = " ".repeat(indent.len() + width + 4);
        text.extend(overrides.iter().map(|other| format!("{indent}{other}\n")));
    }
    let free = exemptions(&config.policies);
    let is_covering = |policy: &&Policy| {
        *policy.selector() != Selector::Named || routes::on(routes, policy.name()).is_some()
    };
    if let Some(free) = free.filter(|_| policies.iter().any(is_covering)) {
        text.push_str(&format!("{free}\n"));
    }
    if config.clients.rules.case == Case::Sensitive && policies.iter().any(|policy| tests_path(policy)) {
        text.push_str(
            "paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive\n",
        );
    }
    text.extend(config.open_listeners().filter_map(|(name, listener)| proxy_protocol(name, listener)));
    text.extend(config.authorize.map(|protocol| authorize::explain(protocol, config)));
    text.extend(cors::gateway(&config.gateway).filter(|_| !routes.is_empty()));
    text.push_str(&routes::routes(&config.gateway));
    text.extend(config.envoy.iter().map(|rules| explain_envoy(rules, &config.policies)));
    text
}

/// Which load balancers announce the clients of a listener, if they do.
fn proxy_protocol(name: &str, listener: &ListenerConfig) -> Option<String> {
    let from = listener.proxy_protocol.as_ref()?.from().iter().map(ToString::to_string);
    let from: Vec<_> = from.map(|network| address(&network).to_owned()).collect();
    let from = from.join(", ");
    Some(format!(
        "listen.{name} requires a PROXY protocol header, and accepts connections from {from} only\n"
    ))
}

/// True if a policy or one of its overrides is for some paths only.
fn tests_path(policy: &Policy) -> bool {
    let own = match policy.selector() {
        Selector::When(condition) => Some(condition),
        Selector::Named => None,
    };
    let conditions = own.into_iter().chain(policy.overrides().map(|other| other.condition));
    conditions.flat_map(Condition::attributes).any(|name| *name == AttributeName::Path)
}

/// The groups of some policies in the order in which they begin; those without a group first.
fn groups<'a>(policies: &[&'a Policy]) -> Vec<Option<&'a str>> {
    let mut groups = vec![None];
    for policy in policies {
        if !groups.contains(&policy.group()) {
            groups.push(policy.group());
        }
    }
    groups
}

/// Which requests the earlier policies of a group leave to a later one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EarlierPolicies {
    /// There are none before it.
    No,
    Some,
    /// Nothing is left: one of them matches everything.
    All,
}

impl EarlierPolicies {
    fn after(self, policy: &Policy) -> Self {
        let matches_all = matches!(policy.selector(), Selector::When(condition) if condition.is_empty());
        if self == Self::All || matches_all && !may_skip(policy) { Self::All } else { Self::Some }
    }
}

/// What the explanation of policies depends on besides these.
pub(crate) struct Explainer<'a> {
    pub(crate) has_redis: bool,
    pub(crate) routes: &'a RouteTable,
    pub(crate) permits: &'a Policies,
}

/// A policy in words.
pub(crate) struct PolicyWords<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) meaning: String,
    pub(crate) overrides: Vec<String>,
}

impl Explainer<'_> {
    /// What policies mean: those without a group first, then each group.
    pub(crate) fn policies<'a>(&self, policies: &[&'a Policy]) -> Vec<PolicyWords<'a>> {
        let mut explained = Vec::with_capacity(policies.len());
        for group in groups(policies) {
            let members: Vec<&Policy> =
                policies.iter().copied().filter(|policy| policy.group() == group).collect();
            let mut others = EarlierPolicies::No;
            for (n, policy) in members.iter().enumerate() {
                let has_next = group.is_some() && n + 1 < members.len();
                let measure = self.measure(policy);
                explained.push(PolicyWords {
                    policy,
                    meaning: self.policy(policy, others, has_next),
                    overrides: policy.overrides().map(|other| other_terms(other, measure)).collect(),
                });
                if group.is_some() {
                    others = others.after(policy);
                }
            }
        }
        explained
    }

    /// The limits of a policy, in short: `5/min, burst 10`.
    pub(crate) fn short_limits(&self, policy: &Policy) -> Vec<String> {
        let short = |quota: &Quota| match (self.is_permit(policy), quota.capacity().get()) {
            (true, capacity) => format!("{capacity} in flight"),
            (false, capacity) if quota.algorithm().has_burst() && capacity != quota.units() => {
                format!("{}, burst {capacity}", quota.rate())
            }
            (false, _) => quota.rate().to_string(),
        };
        policy.limits().iter().map(|limit| short(limit.quota())).collect()
    }

    /// True if a route lists the policy.
    pub(crate) fn is_routed(&self, policy: &Policy) -> bool {
        routes::on(self.routes, policy.name()).is_some()
    }

    /// What a policy means, after others of its group, and with or without another after it.
    fn policy(&self, policy: &Policy, others: EarlierPolicies, has_next: bool) -> String {
        let mut text = String::from(match policy.mode() {
            Mode::Enforce => "",
            Mode::Shadow => "shadow, never denies: ",
            Mode::Off => "off: ",
        });
        text.push_str(&limits(policy.limits(), self.measure(policy)));
        text.push_str(&format!(", {}", partition(policy.partition())));
        if self.is_permit(policy) {
            text.push_str(self.gateway_only());
        }
        let mut say = |words: String| text.push_str(&format!("; {words}"));
        match policy.selector() {
            Selector::When(_) if others == EarlierPolicies::All => {
                say("never, since one before it matches all".to_owned())
            }
            Selector::When(condition) if condition.is_empty() && others == EarlierPolicies::Some => {
                say("on all others".to_owned());
            }
            Selector::When(condition) if condition.is_empty() => {}
            Selector::When(condition) => say(conditions(condition)),
            Selector::Named => {}
        }
        routes::on(self.routes, policy.name()).into_iter().for_each(&mut say);
        missing_attribute(policy, has_next).into_iter().for_each(&mut say);
        cost(policy.cost()).into_iter().for_each(&mut say);
        if let Some(statuses) = policy.count().statuses() {
            say(format!("counts responses {}{}", self::statuses(statuses), self.gateway_only()));
        }
        if !policy.retry_after_min().is_zero() {
            say(format!("retry after at least {}", span(policy.retry_after_min())));
        }
        if self.is_permit(policy) && policy.after_abort() != policy.default_after_abort() {
            say(match policy.after_abort() {
                AfterAbort::Keep => "an aborted request counts until the upstream responds".to_owned(),
                AfterAbort::Free => "an aborted request no longer counts".to_owned(),
            });
        }
        match policy.on_failure() {
            OnFailure::Open if self.has_redis => say("without Redis all pass".to_owned()),
            OnFailure::Closed if self.has_redis => say("without Redis none pass".to_owned()),
            OnFailure::Local | OnFailure::Open | OnFailure::Closed => {}
        }
        text
    }

    /// True if the policy limits requests in flight.
    fn is_permit(&self, policy: &Policy) -> bool {
        self.permits.named(policy.name()).is_some()
    }

    /// How a policy's quotas are described.
    fn measure(&self, policy: &Policy) -> fn(&Quota) -> String {
        if self.is_permit(policy) { in_flight_limit } else { quota }
    }

    /// A remark on what only the gateway enforces.
    fn gateway_only(&self) -> &'static str {
        if self.routes.is_empty() { ", but only in the gateway, and there are no routes" } else { "" }
    }
}

/// The statuses that count, in short.
fn statuses(statuses: &[RangeInclusive<u16>]) -> String {
    let shown = |range: &RangeInclusive<u16>| match (*range.start(), *range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) if first % 100 == 0 && last == first + 99 => format!("{}xx", first / 100),
        (first, last) => format!("{first}-{last}"),
    };
    statuses.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// What an override means.
fn other_terms(other: OverrideTerms<'_>, measure: fn(&Quota) -> String) -> String {
    let limits = |quotas| limits(quotas, measure);
    let mut text = format!("{}: ", conditions(other.condition));
    match (other.mode, other.limits) {
        (Some(Mode::Off), _) => text.push_str("no limit"),
        (Some(Mode::Shadow), None) => text.push_str("the same, in shadow"),
        (Some(Mode::Enforce), None) => text.push_str("the same, enforced"),
        (Some(Mode::Shadow), Some(quotas)) => text.push_str(&format!("shadow: {}", limits(quotas))),
        (Some(Mode::Enforce), Some(quotas)) => text.push_str(&format!("enforced: {}", limits(quotas))),
        (None, quotas) => text.push_str(&quotas.map(limits).unwrap_or_default()),
    }
    text
}

pub(super) fn limits(limits: &[Limit], measure: fn(&Quota) -> String) -> String {
    let quotas: Vec<_> = limits.iter().map(|limit| measure(limit.quota())).collect();
    quotas.join(", and ")
}

pub(super) fn in_flight_limit(quota: &Quota) -> String {
    format!("{} in flight at once", quota.capacity())
}

pub(super) fn quota(quota: &Quota) -> String {
    let (units, capacity, window) = (quota.units(), quota.capacity(), window(quota.window()));
    let every = every(quota.window());
    match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter)
            if (units, capacity.get()) == (1, 1) =>
        {
            format!("1 {every}")
        }
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => {
            let (window, n) = (quota.window().as_micros(), u64::from(units));
            // They come back one by one; where one takes seconds, that is worth knowing.
            if window.is_multiple_of(n * SECOND) {
                return format!("{capacity} at once, then 1 {}", self::every(Micros::new(window / n)));
            }
            format!("{capacity} at once, then {units} {every}")
        }
        Algorithm::TokenBucket(Refill::Stepped) => {
            format!("{capacity} at once, then {units} together {every}")
        }
        Algorithm::LeakyBucket(Leak::Queue) => {
            format!("{units} {every} evenly spaced, with up to {capacity} waiting")
        }
        Algorithm::SlidingWindow => format!("{units} in any {window}"),
        Algorithm::SlidingWindowCounter => format!("about {units} in any {window}"),
        Algorithm::FixedWindow(WindowStart::Epoch) => format!("{units} in each {window} by the clock"),
        Algorithm::FixedWindow(WindowStart::FirstHit) => format!("{units} in the {window} from the first"),
    }
}

/// Which requests share a bucket.
pub(super) fn partition(parts: &[Part]) -> String {
    let part = |part: &Part| {
        let names: Vec<_> = part.names().map(|name| attribute(&name.as_deref())).collect();
        match names.as_slice() {
            [name] => name.clone(),
            names if parts.len() == 1 => names.join(", or else "),
            names => format!("({})", names.join(", or else ")),
        }
    };
    match parts {
        [] => "for all together".to_owned(),
        [only] if only.names().all(|name| *name == AttributeName::Key) => {
            "for each key that callers name".to_owned()
        }
        parts => format!("for each {}", parts.iter().map(part).collect::<Vec<_>>().join(" and ")),
    }
}

/// What happens to requests without the policy's key attribute, if there can be such requests.
fn missing_attribute(policy: &Policy, has_next: bool) -> Option<String> {
    let part = policy.partition().iter().find(|part| !part.names().any(is_always_present))?;
    let names: Vec<_> = part.names().map(|name| attribute(&name.as_deref())).collect();
    let what = match policy.missing() {
        Missing::Skip if has_next && policy.mode() != Mode::Off => "next in the group",
        Missing::Skip => "not limited",
        Missing::Deny => "denied",
    };
    Some(format!("without {}: {what}", names.join(" or ")))
}

fn cost(cost: &Cost) -> Option<String> {
    match cost {
        Cost::Fixed(1) => None,
        Cost::Fixed(0) => Some("a request costs nothing".to_owned()),
        Cost::Fixed(n) => Some(format!("a request costs {n}")),
        Cost::Of(name) => Some(format!("a request costs what its {} says", attribute(&name.as_deref()))),
        Cost::ByMethod { costs, others } => {
            let costs = costs.iter().fold(String::new(), |mut text, (method, cost)| {
                let _ = write!(text, "{method} costs {cost}, ");
                text
            });
            Some(format!("{costs}others cost {others}"))
        }
        Cost::RequestBytes => Some("a request costs the bytes of its body".to_owned()),
        Cost::ByPath { costs, others } => {
            let costs = costs.iter().fold(String::new(), |mut text, (pattern, cost)| {
                let _ = write!(text, "{} costs {cost}, ", pattern.as_str());
                text
            });
            Some(format!("{costs}others cost {others}"))
        }
    }
}

/// For which requests: all tests must hold.
pub(super) fn conditions(condition: &Condition) -> String {
    let is_path = |(name, _): &(AttributeName<&str>, _)| *name == AttributeName::Path;
    let tests = condition.tests().filter(is_path).chain(condition.tests().filter(|test| !is_path(test)));
    tests.map(|(name, values)| test(&name, &values)).collect::<Vec<_>>().join(" ")
}

fn test(name: &AttributeName<&str>, values: &[String]) -> String {
    let is_secret = match name {
        AttributeName::Header(name) | AttributeName::Cookie(name) | AttributeName::Param(name) => {
            sounds_secret(name)
        }
        AttributeName::Path
        | AttributeName::Ip
        | AttributeName::User
        | AttributeName::Method
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Claim(_)
        | AttributeName::Named(_) => false,
    };
    let listed = if is_secret { "(not shown)".to_owned() } else { values.join(", ") };
    match name {
        AttributeName::Path => format!("on {listed}"),
        AttributeName::Ip => {
            format!("from {}", values.iter().map(|network| address(network)).collect::<Vec<_>>().join(", "))
        }
        AttributeName::User
        | AttributeName::Method
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Header(_)
        | AttributeName::Cookie(_)
        | AttributeName::Param(_)
        | AttributeName::Claim(_)
        | AttributeName::Named(_) => format!("with {} {listed}", attribute(name)),
    }
}

/// A network, or the only address in it.
fn address(network: &str) -> &str {
    let only = if network.contains(':') { "/128" } else { "/32" };
    network.strip_suffix(only).unwrap_or(network)
}

/// Which requests are never limited, if there are any.
pub(crate) fn exemptions(policies: &Policies) -> Option<String> {
    let free: Vec<_> = policies.exempt().iter().filter_map(exemption).collect();
    (!free.is_empty()).then(|| format!("never limited: {}", free.join("; ")))
}

/// What is never charged, if there is such.
fn exemption(condition: &Condition) -> Option<String> {
    let tests = condition.tests().filter(|(_, values)| !values.is_empty());
    let tests: Vec<_> = tests.map(|(name, values)| test(&name, &values)).collect();
    (!tests.is_empty()).then(|| tests.join(" "))
}

fn attribute(name: &AttributeName<&str>) -> String {
    match name {
        AttributeName::Ip => "client address".to_owned(),
        AttributeName::Param(name) => format!("query parameter {name}"),
        AttributeName::User
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key => name.kind().to_owned(),
        AttributeName::Header(text)
        | AttributeName::Cookie(text)
        | AttributeName::Claim(text)
        | AttributeName::Named(text) => format!("{} {text}", name.kind()),
    }
}

const SECOND: u64 = 1_000_000;

/// How often.
fn every(time: Micros) -> String {
    let is_minute = time.as_micros() == 60 * SECOND;
    if is_minute { "every minute".to_owned() } else { format!("every {}", window(time)) }
}

/// A duration after a word such as "every" or "any". A minute is written as 60 s, since it does not start at a full minute.
fn window(time: Micros) -> String {
    let names = [(1, "second"), (3_600, "hour"), (86_400, "day")];
    let name = names.into_iter().find(|(seconds, _)| seconds * SECOND == time.as_micros());
    name.map_or_else(|| span(time), |(_, name)| name.to_owned())
}
