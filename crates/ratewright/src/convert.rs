//! `ratewright convert`: rules of others as policies of one's own.
//!
//! Rules for Envoy say which entries a descriptor has, in which order and how many. Policies see attributes, in no order. So all policies of a domain
//! are one group, of which the first that matches applies, and they stand in it as a request would try them:
//!
//! ```text
//!   client_red.method_get   ┐
//!   client_red, any method  │ off: what was chosen stays chosen
//!   client.method_post      ┘
//!   any client and method     off: a limit of fewer entries does not count for more
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

use crate::config::{ConfigError, envoy_descriptors};
use plan::{Line, Said, Terms};

/// What a group of policies is written with at its head.
const HEAD: &str = "\
# Made from rules for Envoy. These policies are for callers of POST /api/v1/decide: one call for each descriptor, with its entries
# as attributes.other, and with no others. They cannot see in which order entries stand, nor that there are more of them than any
# descriptor has. Names for metrics, metadata and replaces are left out.
";

/// What an attribute is called that nothing has, so that all are denied who are to be counted by it.
const NOBODY: &str = "nothing-has-this";

/// The policies that mean the same as the rules in these files and folders, as a policy file.
pub(crate) fn envoy(paths: &[PathBuf]) -> Result<String, Vec<ConfigError>> {
    Ok(policies(&envoy_descriptors(paths)?))
}

/// A policy file for some domains.
fn policies(domains: &[(String, Vec<Descriptor>)]) -> String {
    let mut text = HEAD.to_owned();
    let mut names = Names::default();
    let tells_domain = domains.len() > 1;
    if tells_domain {
        text.push_str("# There are several domains: a call tells its own as attributes.other.domain.\n");
    }
    let n_head = text.len();
    for (domain, descriptors) in domains {
        text.push_str(&format!("  # {}\n", one_line(&format!("domain {domain}"))));
        if tells_domain && (domain.contains(['*', '$']) || Pattern::new(domain, None).is_err()) {
            text.push_str(
                "  # cannot be said: a domain of this name, which would be a pattern or a variable\n",
            );
            continue;
        }
        let group = names.unused(domain);
        for line in plan::lines(descriptors) {
            match line {
                Line::Unsaid(why) => text.push_str(&format!("  # cannot be said: {}\n", one_line(&why))),
                Line::Said(mut said) => {
                    if tells_domain {
                        said.when.insert(0, ("domain".to_owned(), domain.clone()));
                    }
                    let name = names.unused(&format!("{domain}.{}", said.path));
                    text.push_str(&policy(&name, &group, &said));
                }
            }
        }
    }
    let list =
        if text.split_at(n_head).1.contains("\n  - name: ") { "policies:\n" } else { "policies: []\n" };
    text.insert_str(n_head, list);
    text
}

fn policy(name: &str, group: &str, said: &Said<'_>) -> String {
    let remarks = said.remarks.iter().map(|remark| format!("  # {}\n", one_line(remark)));
    let mut text: String = remarks.collect();
    let when = said.when.iter().map(|(key, value)| format!("{}: {}", attribute(key), quoted(value)));
    text.push_str(&format!("  - name: {}\n    group: {}\n", quoted(name), quoted(group)));
    text.push_str(&format!("    when: {{{}}}\n", when.collect::<Vec<_>>().join(", ")));
    let mut say = |line: String| text.push_str(&format!("    {line}\n"));
    match said.terms {
        Terms::Limits(limits) => {
            let by: Vec<_> = said.by.iter().map(|key| attribute(key)).collect();
            if !by.is_empty() {
                say(format!("by: [{}]", by.join(", ")));
            }
            say(format!("quota: {}", quotas(limits)));
            if said.is_shadow {
                say("mode: shadow".to_owned());
            }
        }
        Terms::Nobody => {
            say(format!("by: {}", attribute(NOBODY)));
            say("missing: deny".to_owned());
            say("quota: {rate: 1/s}".to_owned());
            if said.is_shadow {
                say("mode: off".to_owned());
            }
        }
        Terms::Everybody => {
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

/// A text as YAML has it, whatever is in it: JSON is YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A remark that stays in its line.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || "\u{85}\u{2028}\u{2029}".contains(c) { ' ' } else { c })
        .collect()
}

/// Names that are taken.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// A name like this text that nobody has yet.
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
