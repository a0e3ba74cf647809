//! Figures that a user wants held, in a file of their own:
//!
//! ```yaml
//! scaling:
//!   ratewright: { cpu: 70, sustained: 2min, replicas: 2..10, scale_up_at: 75 }
//! policies:
//!   per-ip: 100/min
//! ```
//!
//! Of a policy they compare rate, burst, algorithm and that it is enforced; not which requests it covers.
//!
//! They are in a file of their own: an edit of the manifests or of the policy file does not change them, so it is noticed.

use ratewright_core::{Algorithm, Micros, Mode, Policy, Quota, Rate};

use super::findings::Findings;
use super::manifests::{Manifests, Object};
use super::node::Node;
use super::policy_file::PolicyFile;
use super::scaling::{Autoscaler, ONE};
use super::workload::Workload;

const SECTIONS: [&str; 2] = ["scaling", "policies"];
const SCALING: [&str; 4] = ["cpu", "sustained", "replicas", "scale_up_at"];
const QUOTA: [&str; 3] = ["rate", "burst", "algorithm"];

/// A hundred times the requested CPU, in percent.
const USAGE_MAX: u64 = 10_000;

/// What expectations compare, for the line that says that they hold.
pub(super) fn compared(expect: &Node) -> &'static str {
    if expect.get("policies").is_some() {
        "; of policies they compare rate, burst, algorithm and that it is enforced, but not which requests a policy covers"
    } else {
        ""
    }
}

/// Notes values of another shape than expectations have: they would compare nothing.
fn check_shapes(expect: &Node, findings: &mut Findings<'_>) {
    for (name, section) in expect.entries() {
        let example = match name.as_str() {
            "scaling" => "scaling: {ratewright: {cpu: 70}}",
            "policies" => "policies: {per-ip: 100/min}",
            _ => continue,
        };
        if section.entries().is_empty() {
            findings.wrong(section, format!("{name} has no expectations by name; write {example}"));
        }
        for (of, figures) in section.entries() {
            let is_rate = name == "policies" && figures.text().is_some();
            if figures.entries().is_empty() && !is_rate {
                findings.wrong(figures, format!("{name}.{of} compares nothing; write {example}"));
            }
            for (figure, value) in figures.entries().iter().filter(|(_, value)| value.text().is_none()) {
                findings.wrong(value, format!("{name}.{of}.{figure} is not a single value; write {example}"));
            }
        }
    }
}

/// Notes names that mean nothing.
fn check_names(node: &Node, known: &[&str], findings: &mut Findings<'_>) {
    for (name, value) in node.entries() {
        if !known.contains(&name.as_str()) {
            let known = known.join(", ");
            findings.wrong(value, format!("there is no expectation {name:?}; use {known}"));
        }
    }
}

/// Compares the manifests with the figures for scaling, and gives how many there are.
pub(super) fn check_scaling(expect: &Node, manifests: &Manifests, findings: &mut Findings<'_>) -> usize {
    check_names(expect, &SECTIONS, findings);
    check_shapes(expect, findings);
    let mut n_checked = 0;
    for (name, figures) in expect.get("scaling").map(Node::entries).unwrap_or_default() {
        check_names(figures, &SCALING, findings);
        n_checked += figures.entries().len();
        let kinds = ["Deployment", "StatefulSet"];
        let is_meant = |object: &&Object| object.name == *name && kinds.contains(&object.kind.as_str());
        let targets: Vec<_> = manifests.objects.iter().filter(is_meant).collect();
        if targets.is_empty() {
            findings.wrong(figures, format!("there is no Deployment {name} in these manifests"));
        }
        for target in targets {
            match Autoscaler::of(target, manifests, findings) {
                Some(scaler) => check_figures(&scaler, figures, findings),
                None => findings
                    .wrong(figures, format!("{} has no HorizontalPodAutoscaler; add one", target.label())),
            }
        }
    }
    n_checked
}

fn check_figures(scaler: &Autoscaler<'_>, figures: &Node, findings: &mut Findings<'_>) {
    let label = scaler.object.label();
    if let Some(expected) = figures.get("cpu") {
        let found = scaler.cpu.map(|cpu| cpu.to_string());
        let found = found.as_deref().unwrap_or("not set");
        differ(scaler.cpu_node(), (&label, "averageUtilization"), found, expected, findings);
    }
    if let Some(expected) = figures.get("sustained") {
        let seconds = expected.text().and_then(Micros::parse).map(Micros::as_secs_ceil);
        let Some(seconds) = seconds else {
            return findings.wrong(expected, "sustained is a time, for example 2min or 120s".to_owned());
        };
        if seconds != scaler.sustained {
            let at = findings.whereabouts(expected);
            let node = scaler.node("behavior.scaleUp.stabilizationWindowSeconds");
            let found = scaler.sustained;
            let problem =
                format!("behavior.scaleUp.stabilizationWindowSeconds is {found}, expected {seconds} ({at})");
            findings.wrong(node, format!("{label}: {problem}"));
        }
    }
    if let Some(expected) = figures.get("replicas") {
        check_replicas(scaler, expected, findings);
    }
    if let Some(expected) = figures.get("scale_up_at") {
        check_tolerance(scaler, expected, findings);
    }
}

/// Notes a figure that differs.
fn differ(at: &Node, what: (&str, &str), found: &str, expected: &Node, findings: &mut Findings<'_>) {
    let text = expected.text().unwrap_or_default();
    if found != text {
        let place = findings.whereabouts(expected);
        findings.wrong(at, format!("{}: {} is {found}, expected {text} ({place})", what.0, what.1));
    }
}

fn check_replicas(scaler: &Autoscaler<'_>, expected: &Node, findings: &mut Findings<'_>) {
    let text = expected.text().unwrap_or_default();
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (Ok(min), Ok(max)) = (min.trim().parse::<u64>(), max.trim().parse::<u64>()) else {
        return findings.wrong(expected, "replicas is a number or a range, for example 2..10".to_owned());
    };
    let place = findings.whereabouts(expected);
    for (name, found, expected) in [("minReplicas", scaler.min, min), ("maxReplicas", scaler.max, max)] {
        if found != expected {
            let problem = format!("{name} is {found}, expected {expected} ({place})");
            findings.wrong(scaler.node(name), format!("{}: {problem}", scaler.object.label()));
        }
    }
}

/// Notes a tolerance that ignores a usage which must add replicas.
fn check_tolerance(scaler: &Autoscaler<'_>, expected: &Node, findings: &mut Findings<'_>) {
    let usage = expected.text().and_then(|text| text.parse::<u64>().ok()).filter(|usage| *usage <= USAGE_MAX);
    let (Some(usage), Some(cpu)) = (usage, scaler.cpu) else {
        let problem = "scale_up_at is a percentage of the requested CPU, for example 75";
        return findings.wrong(expected, problem.to_owned());
    };
    if scaler.adds_replica_at(usage) {
        return;
    }
    let place = findings.whereabouts(expected);
    if scaler.is_disabled {
        let problem = format!("scale-up is disabled, so CPU at {usage} % adds no replica ({place})");
        let advice = "remove selectPolicy: Disabled";
        let node = scaler.node("behavior.scaleUp.selectPolicy");
        return findings.wrong(node, format!("{}: {problem}; {advice}", scaler.object.label()));
    }
    let advice = if usage <= cpu {
        "set a lower averageUtilization".to_owned()
    } else {
        // The largest tolerance in hundredths that is still too small to ignore it, and the largest such target.
        let hundredths = (((usage - cpu) * 100 - 1) / cpu).min(99);
        let target = (usage * ONE - 1) / (ONE + ONE / 10);
        format!(
            "set behavior.scaleUp.tolerance to 0.{hundredths:02} (Kubernetes 1.35 or later), or without tolerance averageUtilization to {target}"
        )
    };
    let tolerance = Thousandths(scaler.tolerance / (ONE / 1_000));
    findings.wrong(
        scaler.node("behavior.scaleUp.tolerance"),
        format!(
            "{}: CPU at {usage} % adds no replica ({place}): it is within the tolerance {tolerance} of the target {cpu}; {advice}",
            scaler.object.label()
        ),
    );
}

/// A figure in thousandths, as people write it.
struct Thousandths(u64);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Compares the policies of a workload with the rates that they shall have, and gives how many there are.
pub(super) fn check_policies(
    expect: &Node,
    workload: &Workload<'_>,
    file: &PolicyFile,
    findings: &mut Findings<'_>,
) -> usize {
    let expected = expect.get("policies").map(Node::entries).unwrap_or_default();
    for (name, node) in expected {
        let of = format!("policy {name} of {}, in ConfigMap {},", workload.label(), file.config_map);
        let Some(policy) = file.config.policies.named(name) else {
            findings.wrong(node, format!("{of} does not exist; add it there, or remove this expectation"));
            continue;
        };
        if !file.config.is_enabled {
            findings.wrong(node, format!("{of} is not enforced: enabled is false; remove enabled"));
        } else if policy.mode() != Mode::Enforce {
            findings.wrong(node, format!("{of} is not enforced; set mode: enforce"));
        }
        check_quota(&of, policy, node, findings);
    }
    expected.len()
}

fn check_quota(of: &str, policy: &Policy, expected: &Node, findings: &mut Findings<'_>) {
    check_names(expected, &QUOTA, findings);
    let text = expected.text().or(expected.text_at("rate")).unwrap_or_default();
    let rate = match text.parse::<Rate>() {
        Ok(rate) => rate,
        Err(error) => return findings.wrong(expected, format!("an expected rate is {text:?}; {error}")),
    };
    if let Some(burst) = expected.get("burst").filter(|_| expected.number_at("burst").is_none()) {
        return findings.wrong(burst, "an expected burst is a whole number, for example 100".to_owned());
    }
    let algorithm = expected.text_at("algorithm");
    if let Some(name) = algorithm.filter(|name| !Algorithm::NAMES.contains(name)) {
        let names = Algorithm::NAMES.join(", ");
        return findings.wrong(expected, format!("there is no algorithm {name:?}; use one of {names}"));
    }
    let units = u64::from(rate.units().get());
    let burst = expected.number_at("burst").unwrap_or(units);
    let is_expected = |quota: &Quota| {
        let has_algorithm = algorithm.is_none_or(|name| quota.algorithm().name() == name);
        quota.rate() == rate && u64::from(quota.capacity().get()) == burst && has_algorithm
    };
    let mut quotas = policy.limits().iter().map(ratewright_core::Limit::quota);
    if quotas.any(is_expected) {
        return;
    }
    let words = |rate: Rate, burst: u64, name: &str| {
        let burst = (burst != u64::from(rate.units().get())).then(|| format!(" with burst {burst}"));
        let name = algorithm.map(|_| format!(" by {name}"));
        format!("{rate}{}{}", burst.unwrap_or_default(), name.unwrap_or_default())
    };
    let found = policy.limits().iter().map(ratewright_core::Limit::quota);
    let found =
        found.map(|quota| words(quota.rate(), quota.capacity().get().into(), quota.algorithm().name()));
    let found = found.collect::<Vec<_>>().join(" and ");
    let expected_words = words(rate, burst, algorithm.unwrap_or_default());
    findings.wrong(expected, format!("{of} is {found}, expected {expected_words}"));
}
