//! `--expect`: values that the manifests and the policy file must have, in a separate file:
//!
//! ```yaml
//! scaling:
//!   ratewright: { cpu: 70, sustained: 2min, replicas: 2..10, scale_up_at: 75 }
//! policies:
//!   per-ip: 100/min
//! ```
//!
//! For a policy the check compares rate, burst and algorithm, and that it is enforced; not which requests it covers.
//!
//! The file is separate so that an edit of the manifests or of the policy file is noticed.

use ratewright_core::policy::Mode;
use ratewright_core::quota::{Algorithm, Rate};
use ratewright_core::{Micros, Policy, Quota};

use super::findings::Findings;
use super::manifests::{ManifestObject, Manifests};
use super::policy_file::PolicyFile;
use super::scaling::{Autoscaler, ONE};
use super::workload::Workload;
use crate::yaml_node::YamlNode;

const SECTIONS: [&str; 2] = ["scaling", "policies"];
const SCALING: [&str; 4] = ["cpu", "sustained", "replicas", "scale_up_at"];
const QUOTA: [&str; 3] = ["rate", "burst", "algorithm"];

/// A hundred times the requested CPU, in percent.
const USAGE_MAX: u64 = 10_000;

/// Which properties the expectations compare, for the line that reports success.
pub(super) fn compared(expect: &YamlNode) -> &'static str {
    if expect.get("policies").is_some() {
        "; for policies they compare rate, burst, algorithm and mode, not which requests a policy covers"
    } else {
        ""
    }
}

/// Reports values of the wrong shape: they would compare nothing.
fn check_shapes(expect: &YamlNode, findings: &mut Findings<'_>) {
    for (name, section) in expect.entries() {
        let example = match name.as_str() {
            "scaling" => "scaling: {ratewright: {cpu: 70}}",
            "policies" => "policies: {per-ip: 100/min}",
            _ => continue,
        };
        if section.entries().is_empty() {
            findings.error(section, format!("{name} contains no expectations; write {example}"));
        }
        for (of, figures) in section.entries() {
            let is_rate = name == "policies" && figures.text().is_some();
            if figures.entries().is_empty() && !is_rate {
                findings.error(figures, format!("{name}.{of} compares nothing; write {example}"));
            }
            for (figure, value) in figures.entries().iter().filter(|(_, value)| value.text().is_none()) {
                findings.error(value, format!("{name}.{of}.{figure} is not a single value; write {example}"));
            }
        }
    }
}

/// Reports unknown names.
fn check_names(node: &YamlNode, known: &[&str], findings: &mut Findings<'_>) {
    for (name, value) in node.entries() {
        if !known.contains(&name.as_str()) {
            let known = known.join(", ");
            findings.error(value, format!("unknown expectation {name:?}; use {known}"));
        }
    }
}

/// Compares the manifests with the expectations for scaling, and returns their number.
pub(super) fn check_scaling(expect: &YamlNode, manifests: &Manifests, findings: &mut Findings<'_>) -> usize {
    check_names(expect, &SECTIONS, findings);
    check_shapes(expect, findings);
    let mut n_checked = 0;
    for (name, figures) in expect.get("scaling").map(YamlNode::entries).unwrap_or_default() {
        check_names(figures, &SCALING, findings);
        n_checked += figures.entries().len();
        let kinds = ["Deployment", "StatefulSet"];
        let is_meant =
            |object: &&ManifestObject| object.name == *name && kinds.contains(&object.kind.as_str());
        let targets: Vec<_> = manifests.objects.iter().filter(is_meant).collect();
        if targets.is_empty() {
            findings.error(figures, format!("Deployment {name} not found in these manifests"));
        }
        for target in targets {
            match Autoscaler::of(target, manifests, findings) {
                Some(scaler) => check_figures(&scaler, figures, findings),
                None => findings
                    .error(figures, format!("{} has no HorizontalPodAutoscaler; add one", target.label())),
            }
        }
    }
    n_checked
}

fn check_figures(scaler: &Autoscaler<'_>, figures: &YamlNode, findings: &mut Findings<'_>) {
    let label = scaler.object.label();
    if let Some(expected) = figures.get("cpu") {
        let found = scaler.cpu.map(|cpu| cpu.to_string());
        let found = found.as_deref().unwrap_or("not set");
        differ(scaler.cpu_node(), (&label, "averageUtilization"), found, expected, findings);
    }
    if let Some(expected) = figures.get("sustained") {
        let seconds = expected.text().and_then(Micros::parse).map(Micros::as_secs_ceil);
        let Some(seconds) = seconds else {
            return findings
                .error(expected, "invalid sustained: use a duration, for example 2min or 120s".to_owned());
        };
        if seconds != scaler.sustained {
            let at = findings.whereabouts(expected);
            let node = scaler.node("behavior.scaleUp.stabilizationWindowSeconds");
            let found = scaler.sustained;
            let problem =
                format!("behavior.scaleUp.stabilizationWindowSeconds is {found}, expected {seconds} ({at})");
            findings.error(node, format!("{label}: {problem}"));
        }
    }
    if let Some(expected) = figures.get("replicas") {
        check_replicas(scaler, expected, findings);
    }
    if let Some(expected) = figures.get("scale_up_at") {
        check_tolerance(scaler, expected, findings);
    }
}

/// Reports a value that differs.
fn differ(at: &YamlNode, what: (&str, &str), found: &str, expected: &YamlNode, findings: &mut Findings<'_>) {
    let text = expected.text().unwrap_or_default();
    if found != text {
        let place = findings.whereabouts(expected);
        findings.error(at, format!("{}: {} is {found}, expected {text} ({place})", what.0, what.1));
    }
}

fn check_replicas(scaler: &Autoscaler<'_>, expected: &YamlNode, findings: &mut Findings<'_>) {
    let text = expected.text().unwrap_or_default();
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (Ok(min), Ok(max)) = (min.trim().parse::<u64>(), max.trim().parse::<u64>()) else {
        return findings
            .error(expected, "invalid replicas: use a number or a range, for example 2..10".to_owned());
    };
    let place = findings.whereabouts(expected);
    for (name, found, expected) in [("minReplicas", scaler.min, min), ("maxReplicas", scaler.max, max)] {
        if found != expected {
            let problem = format!("{name} is {found}, expected {expected} ({place})");
            findings.error(scaler.node(name), format!("{}: {problem}", scaler.object.label()));
        }
    }
}

/// Reports a tolerance that ignores a CPU usage which must add replicas.
fn check_tolerance(scaler: &Autoscaler<'_>, expected: &YamlNode, findings: &mut Findings<'_>) {
    let usage = expected.text().and_then(|text| text.parse::<u64>().ok()).filter(|usage| *usage <= USAGE_MAX);
    let (Some(usage), Some(cpu)) = (usage, scaler.cpu) else {
        let problem = "invalid scale_up_at: use a percentage of the requested CPU, for example 75";
        return findings.error(expected, problem.to_owned());
    };
    if scaler.adds_replica_at(usage) {
        return;
    }
    let place = findings.whereabouts(expected);
    if scaler.is_disabled {
        let problem = format!("scale-up is disabled, so CPU at {usage} % adds no replica ({place})");
        let advice = "remove selectPolicy: Disabled";
        let node = scaler.node("behavior.scaleUp.selectPolicy");
        return findings.error(node, format!("{}: {problem}; {advice}", scaler.object.label()));
    }
    let advice = if usage <= cpu {
        "set a lower averageUtilization".to_owned()
    } else {
        // The largest tolerance, in hundredths, that does not ignore this usage, and the largest such target.
        let hundredths = (((usage - cpu) * 100 - 1) / cpu).min(99);
        let target = (usage * ONE - 1) / (ONE + ONE / 10);
        format!(
            "set behavior.scaleUp.tolerance to 0.{hundredths:02} (Kubernetes 1.35 or later), or without tolerance averageUtilization to {target}"
        )
    };
    let tolerance = Thousandths(scaler.tolerance / (ONE / 1_000));
    findings.error(
        scaler.node("behavior.scaleUp.tolerance"),
        format!(
            "{}: CPU at {usage} % adds no replica ({place}): it is within the tolerance {tolerance} of the target {cpu}; {advice}",
            scaler.object.label()
        ),
    );
}

/// Prints a number of thousandths as a decimal.
struct Thousandths(u64);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Compares the policies of a workload with the expected rates, and returns their number.
pub(super) fn check_policies(
    expect: &YamlNode,
    workload: &Workload<'_>,
    file: &PolicyFile,
    findings: &mut Findings<'_>,
) -> usize {
    let expected = expect.get("policies").map(YamlNode::entries).unwrap_or_default();
    for (name, node) in expected {
        let of = format!("policy {name} of {}, in ConfigMap {},", workload.label(), file.config_map);
        let Some(policy) = file.config.policies.named(name) else {
            findings.error(node, format!("{of} does not exist; add it there, or remove this expectation"));
            continue;
        };
        if !file.config.is_enabled {
            findings.error(node, format!("{of} is not enforced: enabled is false; remove enabled"));
        } else if policy.mode() != Mode::Enforce {
            findings.error(node, format!("{of} is not enforced; set mode: enforce"));
        }
        check_quota(&of, policy, node, findings);
    }
    expected.len()
}

fn check_quota(of: &str, policy: &Policy, expected: &YamlNode, findings: &mut Findings<'_>) {
    check_names(expected, &QUOTA, findings);
    let text = expected.text().or(expected.text_at("rate")).unwrap_or_default();
    let rate = match text.parse::<Rate>() {
        Ok(rate) => rate,
        Err(error) => return findings.error(expected, format!("invalid expected rate {text:?}; {error}")),
    };
    if let Some(burst) = expected.get("burst").filter(|_| expected.number_at("burst").is_none()) {
        return findings
            .error(burst, "invalid expected burst: use a whole number, for example 100".to_owned());
    }
    let algorithm = expected.text_at("algorithm");
    if let Some(name) = algorithm.filter(|name| !Algorithm::NAMES.contains(name)) {
        let names = Algorithm::NAMES.join(", ");
        return findings.error(expected, format!("unknown algorithm {name:?}; use one of {names}"));
    }
    let units = u64::from(rate.units().get());
    let burst = expected.number_at("burst").unwrap_or(units);
    let is_expected = |quota: &Quota| {
        let has_algorithm = algorithm.is_none_or(|name| quota.algorithm().name() == name);
        quota.rate() == rate && u64::from(quota.capacity().get()) == burst && has_algorithm
    };
    let mut quotas = policy.limits().iter().map(ratewright_core::policy::Limit::quota);
    if quotas.any(is_expected) {
        return;
    }
    let words = |rate: Rate, burst: u64, name: &str| {
        let burst = (burst != u64::from(rate.units().get())).then(|| format!(" with burst {burst}"));
        let name = algorithm.map(|_| format!(" by {name}"));
        format!("{rate}{}{}", burst.unwrap_or_default(), name.unwrap_or_default())
    };
    let found = policy.limits().iter().map(ratewright_core::policy::Limit::quota);
    let found =
        found.map(|quota| words(quota.rate(), quota.capacity().get().into(), quota.algorithm().name()));
    let found = found.collect::<Vec<_>>().join(" and ");
    let expected_words = words(rate, burst, algorithm.unwrap_or_default());
    findings.error(expected, format!("{of} is {found}, expected {expected_words}"));
}
