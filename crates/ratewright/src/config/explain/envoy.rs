//! What the rules for Envoy mean, in plain words.

use ratewright_core::Policies;
use ratewright_rls_rules::{CurrentLimit, Rule};

use super::{limits, partition, quota};
use ratewright_rls::Compat;

use crate::config::EnvoyConfig;

/// A line for each domain, and one for each of its rules.
pub(crate) fn explain_envoy(envoy: &EnvoyConfig, policies: &Policies) -> String {
    let mut names: Vec<_> = envoy.domains.names().collect();
    names.sort_unstable();
    let how = match envoy.settings.compat {
        Compat::AllOrNothing => "all descriptors of a request are charged, or none",
        Compat::Strict => "every descriptor is charged, whatever the others say",
    };
    let shadow = if envoy.settings.shadow_mode { "; shadow, nobody is denied" } else { "" };
    let quota_mode = if envoy.settings.quota_mode { "; denied only if all limits are used up" } else { "" };
    let mut text = String::new();
    for name in names {
        text.push_str(&format!("envoy domain {name}; {how}{shadow}{quota_mode}:\n"));
        let rules = envoy.domains.rules(name);
        let below = |rule: &Rule| rule.path().get(name.len() + 1..).unwrap_or_default().to_owned();
        let width = rules.iter().map(|rule| below(rule).chars().count()).max().unwrap_or_default();
        for rule in rules {
            text.push_str(&format!("  {:width$}  {}\n", below(rule), describe(rule, policies)));
        }
    }
    envoy.ignored.iter().for_each(|remark| text.push_str(&format!("note: {remark}\n")));
    text
}

fn describe(rule: &Rule, policies: &Policies) -> String {
    let mut text = String::new();
    if rule.is_shadow() {
        text.push_str("shadow, never denies: ");
    }
    match rule.policy().and_then(|name| policies.named(name)) {
        Some(policy) => {
            let limits = limits(policy.limits(), quota);
            text.push_str(&format!("{limits}, {}", partition(policy.partition())));
        }
        None if rule.limits().is_empty() => text.push_str("no limit"),
        None => text.push_str(&format!(
            "none pass: {}",
            rule.limits().iter().map(limit_text).collect::<Vec<_>>().join(", ")
        )),
    }
    if rule.is_quota() {
        text.push_str("; denies only if all in quota_mode do");
    }
    if rule.is_record() {
        text.push_str("; counts requests over the limit too");
    }
    if let Some(name) =
        rule.policy().filter(|name| *name != format!("{}{}", ratewright_rls_rules::PREFIX, rule.path()))
    {
        text.push_str(&format!("; in metrics and logs {name}"));
    }
    let named: Vec<_> = rule.replaces().iter().map(String::as_str).collect();
    if !named.is_empty() {
        text.push_str(&format!("; in place of {}", named.join(", ")));
    }
    text
}

fn limit_text(limit: &CurrentLimit) -> String {
    match limit.unit_multiplier.get() {
        1 => format!("{} per {}", limit.requests_per_unit, limit.unit.name()),
        n => format!("{} per {n} {}s", limit.requests_per_unit, limit.unit.name()),
    }
}
