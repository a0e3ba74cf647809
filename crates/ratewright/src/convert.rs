//! `ratewright convert`: turns the rules of another rate limiter into policies.
//!
//! A rule for Envoy matches a descriptor's entries in order. A policy matches attributes, which have no order. So all policies of a
//! domain form one group, in which the first match applies, and their order is the order in which Envoy's rules are tried:
//!
//! ```text
//!   client_red.method_get   ┐
//!   client_red, any method  │ off: Envoy does not try other rules after this one
//!   client.method_post      ┘
//!   any client and method     off: a rule with fewer entries does not match a longer descriptor
//!   client_red              ┐
//!   client                  ┘
//! ```

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use ratewright_core::{Pattern, Policy};
use ratewright_rls_rules::{Descriptor, RateLimit};

use crate::config::{ConfigError, envoy_written};
use plan::{PlanLine, PlannedLimit, PlannedPolicy};

/// The comment at the head of the policy file.
const HEAD: &str = "\
# Converted from rules for Envoy. These policies are for callers of POST /api/v1/decide: one call for each descriptor, with its entries
# as the only attributes.other. Policies ignore the order of entries, and match a request with more entries than a descriptor has.
# Metric names, metadata and replaces are not converted.
";

/// An attribute that no request has: with `missing: deny`, a policy that counts by it denies all requests.
const MISSING_ATTRIBUTE: &str = "nothing-has-this";

/// Converts the rules in these files and folders into a policy file.
pub(crate) fn envoy(paths: &[PathBuf]) -> Result<String, Vec<ConfigError>> {
    Ok(policies(&envoy_written(paths)?))
}

/// A policy file with the rules of these domains.
fn policies(domains: &[(String, Vec<Descriptor>)]) -> String {
    let mut text = HEAD.to_owned();
    let mut names = NameAllocator::default();
    let has_several_domains = domains.len() > 1;
    if has_several_domains {
        text.push_str("# There are several domains: a call names its domain as attributes.other.domain.\n");
    }
    let n_head = text.len();
    for (domain, descriptors) in domains {
        text.push_str(&format!("  # {}\n", one_line(&format!("domain {domain}"))));
        if has_several_domains && (domain.contains(['*', '$']) || Pattern::new(domain, None).is_err()) {
            text.push_str("  # unsupported: the domain's name would be a pattern or a variable\n");
            continue;
        }
        let group = names.unused(domain);
        for line in plan::lines(descriptors) {
            match line {
                PlanLine::Unsupported(why) => {
                    text.push_str(&format!("  # unsupported: {}\n", one_line(&why)))
                }
                PlanLine::Policy(mut policy) => {
                    if has_several_domains {
                        policy.when.insert(0, ("domain".to_owned(), domain.clone()));
                    }
                    let name = names.unused(&format!("{domain}.{}", policy.path));
                    text.push_str(&policy_yaml(&name, &group, &policy));
                }
            }
        }
    }
    let list =
        if text.split_at(n_head).1.contains("\n  - name: ") { "policies:\n" } else { "policies: []\n" };
    text.insert_str(n_head, list);
    text
}

fn policy_yaml(name: &str, group: &str, policy: &PlannedPolicy<'_>) -> String {
    let remarks = policy.remarks.iter().map(|remark| format!("  # {}\n", one_line(remark)));
    let mut text: String = remarks.collect();
    let when = policy.when.iter().map(|(key, value)| format!("{}: {}", attribute(key), quoted(value)));
    text.push_str(&format!("  - name: {}\n    group: {}\n", quoted(name), quoted(group)));
    text.push_str(&format!("    when: {{{}}}\n", when.collect::<Vec<_>>().join(", ")));
    let mut say = |line: String| text.push_str(&format!("    {line}\n"));
    match policy.terms {
        PlannedLimit::Limits(limits) => {
            let by: Vec<_> = policy.by.iter().map(|key| attribute(key)).collect();
            if !by.is_empty() {
                say(format!("by: [{}]", by.join(", ")));
            }
            say(format!("quota: {}", quotas(limits)));
            if policy.is_shadow {
                say("mode: shadow".to_owned());
            }
        }
        PlannedLimit::DenyAll => {
            say(format!("by: {}", attribute(MISSING_ATTRIBUTE)));
            say("missing: deny".to_owned());
            say("quota: {rate: 1/s}".to_owned());
            if policy.is_shadow {
                say("mode: off".to_owned());
            }
        }
        PlannedLimit::AllowAll => {
            say("quota: {rate: 1/s}".to_owned());
            say("mode: off".to_owned());
        }
    }
    text
}

fn quotas(limits: &[RateLimit]) -> String {
    match limits {
        [only] => format!("{{{}}}", quota(only)),
        limits => {
            let named =
                |(n, limit): (usize, &RateLimit)| format!("{{name: limit-{}, {}}}", n + 1, quota(limit));
            format!("[{}]", limits.iter().enumerate().map(named).collect::<Vec<_>>().join(", "))
        }
    }
}

fn quota(limit: &RateLimit) -> String {
    let unit = match limit.unit.to_ascii_lowercase().as_str() {
        "second" => "s",
        "minute" => "min",
        "hour" => "h",
        "day" => "d",
        "week" => "w",
        "month" => "month",
        _ => "year",
    };
    let times = if limit.unit_multiplier == 1 { String::new() } else { limit.unit_multiplier.to_string() };
    let burst = limit.burst.map(|burst| format!(", burst: {burst}")).unwrap_or_default();
    format!("algorithm: {}, rate: {}/{times}{unit}{burst}", limit.algorithm.name(), limit.requests_per_unit)
}

fn attribute(key: &str) -> String {
    quoted(&format!("attribute:{key}"))
}

/// Quotes a text for YAML. JSON strings are valid YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Replaces line breaks, so that a comment stays on one line.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || "\u{85}\u{2028}\u{2029}".contains(c) { ' ' } else { c })
        .collect()
}

/// Gives each policy a unique name.
#[derive(Default)]
struct NameAllocator(BTreeSet<String>);

impl NameAllocator {
    /// A name like this text that is not in use.
    fn unused(&mut self, text: &str) -> String {
        const ROOM: usize = 8;
        let letters = text.chars().map(|c| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => c,
            _ => '-',
        });
        let letters: String = letters.take(Policy::NAME_MAX - ROOM).collect();
        let base = match letters.strip_prefix(ratewright_rls_rules::PREFIX) {
            Some(rest) => format!("envoy-{rest}"),
            None if letters.is_empty() => "policy".to_owned(),
            None => letters,
        };
        let numbered = (2..).map(|n| format!("{base}-{n}"));
        let mut all = std::iter::once(base.clone()).chain(numbered);
        let name = all.find(|name| !self.0.contains(name)).unwrap_or(base);
        self.0.insert(name.clone());
        name
    }
}
