//! The order of the policies, so that they decide as the descriptors do.

use ratewright_core::Pattern;
use ratewright_rls_rules::{Descriptor, RateLimit};

/// One line of the plan.
pub(super) enum PlanLine<'a> {
    Policy(PlannedPolicy<'a>),
    /// A rule that policies cannot express, and why.
    Unsupported(String),
}

/// A policy to write.
pub(super) struct PlannedPolicy<'a> {
    pub(super) path: String,
    pub(super) remarks: Vec<String>,
    /// Keys, and the patterns of their values.
    pub(super) when: Vec<(String, String)>,
    /// Keys whose values each have their own bucket.
    pub(super) by: Vec<String>,
    pub(super) terms: PlannedLimit<'a>,
    pub(super) is_shadow: bool,
}

/// Which requests a policy lets pass.
#[derive(Clone, Copy)]
pub(super) enum PlannedLimit<'a> {
    Limits(&'a [RateLimit]),
    DenyAll,
    AllowAll,
}

/// The path from the root to a descriptor.
#[derive(Clone, Default)]
struct DescriptorPath {
    names: Vec<String>,
    when: Vec<(String, String)>,
    by: Vec<String>,
}

/// The policies of a domain.
pub(super) fn lines(descriptors: &[Descriptor]) -> Vec<PlanLine<'_>> {
    let mut lines = Vec::new();
    let mut paths = Vec::new();
    keys(descriptors, &mut Vec::new(), &mut paths, &mut lines);
    paths.sort_by_key(|path_keys| std::cmp::Reverse(path_keys.len()));
    for (n, path_keys) in paths.iter().enumerate() {
        let n_lines = lines.len();
        below(descriptors, path_keys, &DescriptorPath::default(), &mut lines);
        drop_last_off(&mut lines, n_lines);
        let is_within = |other: &Vec<String>| other.iter().all(|key| path_keys.contains(key));
        if paths[n + 1..].iter().any(is_within) {
            let every = path_keys.iter().map(|key| (key.clone(), "**".to_owned()));
            lines.push(off(DescriptorPath {
                names: path_keys.clone(),
                when: every.collect(),
                by: Vec::new(),
            }));
        }
    }
    drop_last_off(&mut lines, 0);
    lines
}

/// Collects the keys on each path, each path once. Reports descriptors that policies cannot express.
fn keys(
    descriptors: &[Descriptor],
    above: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
    lines: &mut Vec<PlanLine<'_>>,
) {
    for one in descriptors {
        if let Some(why) = unsupported_reason(one, above) {
            let path = above.iter().chain([&one.composite()]).cloned().collect::<Vec<_>>().join(".");
            lines.push(PlanLine::Unsupported(format!("{path} and its descriptors: {why}")));
            continue;
        }
        above.push(one.key.clone());
        if !paths.contains(above) {
            paths.push(above.clone());
        }
        keys(&one.descriptors, above, paths, lines);
        above.pop();
    }
}

/// Why policies cannot express a descriptor, if so.
fn unsupported_reason(one: &Descriptor, above: &[String]) -> Option<&'static str> {
    let has = |what: &str| one.key.contains(what) || one.value.contains(what);
    if above.contains(&one.key) {
        Some("an attribute has one value, and the path already has this key")
    } else if one.key.contains('*') {
        Some("attribute names have no wildcards")
    } else if has("${") {
        Some("${ would be a variable")
    } else if Pattern::new(&fitting(one), None).is_err() {
        Some("the value is too long for a pattern")
    } else {
        None
    }
}

/// Plans the descriptors that a request with these keys can match, in the order of their precedence.
fn below<'a>(
    descriptors: &'a [Descriptor],
    keys: &[String],
    path: &DescriptorPath,
    lines: &mut Vec<PlanLine<'a>>,
) {
    let Some((key, rest)) = keys.split_first() else { return };
    let above: Vec<_> = path.when.iter().map(|(key, _)| key.clone()).collect();
    let mut candidates: Vec<_> = descriptors
        .iter()
        .filter(|one| one.key == *key && unsupported_reason(one, &above).is_none())
        .collect();
    candidates.sort_by_key(|one| if one.value.is_empty() { 2 } else { u8::from(one.value.contains('*')) });
    for one in candidates {
        let mut path = path.clone();
        path.names.push(one.composite());
        path.when.push((key.clone(), fitting(one)));
        let is_exact = !one.value.is_empty() && !one.value.contains('*');
        if !is_exact && !one.share_threshold {
            path.by.push(key.clone());
        }
        if rest.is_empty() {
            lines.push(PlanLine::Policy(leaf(one, path)));
            continue;
        }
        below(&one.descriptors, rest, &path, lines);
        let others = rest.iter().map(|key| (key.clone(), "**".to_owned()));
        path.when.extend(others);
        lines.push(off(path));
    }
}

/// The pattern of a value. Several stars in a row become one.
fn fitting(one: &Descriptor) -> String {
    if one.value.is_empty() {
        return "**".to_owned();
    }
    let mut text = one.value.clone();
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    text
}

fn leaf(one: &Descriptor, DescriptorPath { names, when, by }: DescriptorPath) -> PlannedPolicy<'_> {
    let limits = one.rate_limits.as_slice();
    let mut remarks = Vec::new();
    let terms = if limits.is_empty() || limits.iter().any(|limit| limit.unlimited) {
        PlannedLimit::AllowAll
    } else if limits.iter().any(|limit| limit.requests_per_unit == 0) {
        remarks.push("denies all requests: no request has this attribute".to_owned());
        PlannedLimit::DenyAll
    } else {
        PlannedLimit::Limits(limits)
    };
    if one.quota_mode {
        remarks.push(
            "unsupported: quota_mode (deny only if all such descriptors are over their limits)".to_owned(),
        );
    }
    if one.record_mode {
        remarks.push("unsupported: record_mode (count denied requests too)".to_owned());
    }
    if limits.iter().any(|limit| !limit.replaces.is_empty()) {
        remarks.push("unsupported: replaces".to_owned());
    }
    PlannedPolicy { path: names.join("."), remarks, when, by, terms, is_shadow: one.shadow_mode }
}

/// A policy that lets requests pass, and ends the search in its group.
fn off<'a>(DescriptorPath { mut names, when, .. }: DescriptorPath) -> PlanLine<'a> {
    names.push("none".to_owned());
    let (remarks, by) = (Vec::new(), Vec::new());
    PlanLine::Policy(PlannedPolicy {
        path: names.join("."),
        remarks,
        when,
        by,
        terms: PlannedLimit::AllowAll,
        is_shadow: false,
    })
}

/// Removes trailing policies that only end the search, but keeps the first `n_first` lines.
fn drop_last_off(lines: &mut Vec<PlanLine<'_>>, n_first: usize) {
    let is_off = |line: &PlanLine<'_>| matches!(line, PlanLine::Policy(policy) if matches!(policy.terms, PlannedLimit::AllowAll));
    while lines.len() > n_first && lines.last().is_some_and(is_off) {
        lines.pop();
    }
}
