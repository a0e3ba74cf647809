//! Replicas: their number, the autoscaler that changes it, and its effect on limits.
//!
//! A HorizontalPodAutoscaler aims at `averageUtilization`: with n replicas at u % it wants n · u / target of them, rounded up, but does
//! nothing while u / target ≤ 1 + tolerance. The tolerance is 0.1 unless the cluster or the manifest says otherwise. Of the
//! recommendations in the stabilization window it follows the smallest when it adds replicas, so a load must last that long.

use super::findings::Findings;
use super::manifests::{ManifestObject, Manifests};
use super::workload::Workload;
use crate::config::{Config, StoreConfig};
use crate::yaml_node::YamlNode;

/// One, in millionths: integers compare exactly.
pub(super) const ONE: u64 = 1_000_000;

/// The default tolerance of a cluster.
const TOLERANCE: u64 = ONE / 10;

/// A HorizontalPodAutoscaler.
pub(super) struct Autoscaler<'a> {
    pub(super) object: &'a ManifestObject,
    pub(super) min: u64,
    pub(super) max: u64,
    /// The target in percent of the requested CPU; `None` without a CPU target.
    pub(super) cpu: Option<u64>,
    /// How long a load must last before replicas are added, in seconds.
    pub(super) sustained: u64,
    /// In millionths.
    pub(super) tolerance: u64,
    /// True if scale-up is disabled: no load adds replicas.
    pub(super) is_disabled: bool,
}

impl<'a> Autoscaler<'a> {
    /// The autoscaler of a workload. Reports a second one.
    pub(super) fn of(
        target: &ManifestObject,
        manifests: &'a Manifests,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let is_for = |hpa: &&ManifestObject| {
            let of = |name: &str| hpa.root.text_at(&format!("spec.scaleTargetRef.{name}"));
            hpa.namespace == target.namespace
                && of("kind") == Some(&target.kind)
                && of("name") == Some(&target.name)
        };
        let all = manifests.objects.iter().filter(|object| object.kind == "HorizontalPodAutoscaler");
        let mut all = all.filter(is_for);
        let object = all.next()?;
        if let Some(second) = all.next() {
            let problem =
                format!("scales {}, as {} does; remove one of the two", target.label(), object.name);
            findings.error(&second.root, format!("{} {problem}", second.label()));
        }
        Some(Self::read(object, findings))
    }

    fn read(object: &'a ManifestObject, findings: &mut Findings<'_>) -> Self {
        let spec = |path: &str| object.root.at(&format!("spec.{path}"));
        let number = |path: &str| object.root.number_at(&format!("spec.{path}"));
        let (min, max) = (number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap_or(0));
        if max < min {
            let node = spec("maxReplicas").unwrap_or(&object.root);
            findings.error(node, format!("{}: maxReplicas {max} is less than {min}", object.label()));
        }
        let version = object.root.text_at("apiVersion").unwrap_or_default();
        if version.starts_with("autoscaling/v2beta") {
            let node = object.root.get("apiVersion").unwrap_or(&object.root);
            let problem = "was removed in Kubernetes 1.26; use autoscaling/v2";
            findings.error(node, format!("{}: {version} {problem}", object.label()));
        }
        let written = spec("behavior.scaleUp.tolerance");
        let tolerance = written.and_then(|node| millionths(node.text()?));
        if let (Some(node), None) = (written, tolerance) {
            let problem = "invalid tolerance; write it as 0.05";
            findings.error(node, format!("{}: {problem}", object.label()));
        }
        let metrics = object.root.items_at("spec.metrics").iter();
        let mut metrics = metrics.filter_map(cpu_target);
        Self {
            object,
            min,
            max,
            cpu: metrics.next().or(number("targetCPUUtilizationPercentage")),
            sustained: number("behavior.scaleUp.stabilizationWindowSeconds").unwrap_or(0),
            tolerance: tolerance.unwrap_or(TOLERANCE),
            is_disabled: object.root.text_at("spec.behavior.scaleUp.selectPolicy") == Some("Disabled"),
        }
    }

    /// The node under a path of its spec, or its nearest parent that exists.
    pub(super) fn node(&self, path: &str) -> &'a YamlNode {
        let names: Vec<_> = ["spec"].into_iter().chain(path.split('.')).collect();
        let found = (1..=names.len()).rev().find_map(|n| self.object.root.at(&names.get(..n)?.join(".")));
        found.unwrap_or(&self.object.root)
    }

    /// The node of the CPU target.
    pub(super) fn cpu_node(&self) -> &'a YamlNode {
        let metrics = self.object.root.items_at("spec.metrics").iter();
        let mut targets = metrics.filter(|metric| cpu_target(metric).is_some());
        let target = targets.next().and_then(|metric| {
            metric.at("resource.target").or(metric.at("containerResource.target"))?.get("averageUtilization")
        });
        target.unwrap_or_else(|| self.node("metrics"))
    }

    /// True if replicas are added at this usage, in percent.
    pub(super) fn adds_replica_at(&self, usage: u64) -> bool {
        let target = self.cpu.unwrap_or(u64::MAX);
        let wanted = target.saturating_mul(ONE.saturating_add(self.tolerance));
        !self.is_disabled && usage.saturating_mul(ONE) > wanted
    }

    /// Describes it in words.
    pub(super) fn words(&self) -> String {
        let replicas = format!("{} to {} replicas", self.min, self.max);
        let Some(cpu) = self.cpu else { return format!("{replicas}; not scaled by CPU utilization") };
        if self.is_disabled {
            return format!("{replicas}; no load adds replicas (behavior.scaleUp.selectPolicy: Disabled)");
        }
        // In tenths of a percent, rounded down.
        let above = cpu.saturating_mul(ONE.saturating_add(self.tolerance)) / (ONE / 10);
        format!(
            "{replicas}; CPU target {cpu} % of requests; more than {}.{} % for {} s adds replicas",
            above / 10,
            above % 10,
            self.sustained
        )
    }
}

/// The CPU target of a metric, in percent.
fn cpu_target(metric: &YamlNode) -> Option<u64> {
    let resource = metric.get("resource").or(metric.get("containerResource"))?;
    (resource.text_at("name") == Some("cpu")).then(|| resource.number_at("target.averageUtilization"))?
}

/// Parses a Kubernetes quantity into millionths: `0.05`, `50m`. Ignores further digits.
pub(super) fn millionths(text: &str) -> Option<u64> {
    if let Some(thousandths) = text.strip_suffix('m') {
        return thousandths.parse::<u64>().ok()?.checked_mul(ONE / 1_000);
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.bytes().chain(std::iter::repeat(b'0')).take(6);
    let part = part.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?;
    let part = part.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole.parse::<u64>().ok()?.checked_mul(ONE)?.checked_add(part)
}

/// Warns of autoscalers with a missing target: its name may be mistyped.
pub(super) fn check_targets(manifests: &Manifests, findings: &mut Findings<'_>) {
    for scaler in manifests.objects.iter().filter(|object| object.kind == "HorizontalPodAutoscaler") {
        let Some(target) = scaler.root.at("spec.scaleTargetRef") else { continue };
        let (kind, name) = (target.text_at("kind"), target.text_at("name"));
        let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
        if manifests.named(kind, &scaler.namespace, name).is_none() {
            let node = target.get("name").unwrap_or(target);
            let problem = format!("scales {kind} {name}, which is not among these manifests");
            findings.warn(node, format!("{} {problem}; check the name", scaler.label()));
        }
    }
}

/// Reports settings that prevent scaling.
pub(super) fn check(workload: &Workload<'_>, scaler: &Autoscaler<'_>, findings: &mut Findings<'_>) {
    let label = workload.label();
    if let Some(replicas) = workload.object.root.at("spec.replicas") {
        let scaler = scaler.object.label();
        let problem = format!("replicas is set, and {scaler} sets it too: each apply would reset it");
        findings.error(replicas, format!("{label}: {problem}; remove replicas"));
    }
    if scaler.cpu.is_none() {
        return;
    }
    for container in workload.pod.items_at("containers") {
        if container.at("resources.requests.cpu").or(container.at("resources.limits.cpu")).is_none() {
            let name = container.text_at("name").unwrap_or_default();
            let problem =
                format!("container {name} requests no CPU, and averageUtilization is a share of it");
            findings.error(
                container,
                format!(
                    "{label}: {problem}; the autoscaler does not work without it. Set resources.requests.cpu"
                ),
            );
        }
    }
}

/// The smallest and the largest number of replicas.
pub(super) fn replicas(workload: &Workload<'_>, scaler: Option<&Autoscaler<'_>>) -> (u64, u64) {
    let written = workload.object.root.number_at("spec.replicas").unwrap_or(1);
    scaler.map_or((written, written), |scaler| (scaler.min, scaler.max))
}

/// Warns of a workload that has no pods.
pub(super) fn check_replicas(workload: &Workload<'_>, (_, n_max): (u64, u64), findings: &mut Findings<'_>) {
    if let Some(replicas) = workload.object.root.at("spec.replicas").filter(|_| n_max == 0) {
        let problem = "replicas is 0, so Ratewright does not run";
        findings.warn(replicas, format!("{}: {problem}", workload.label()));
    }
}

/// Reports limits that each replica would count separately.
pub(super) fn check_store(
    workload: &Workload<'_>,
    config: &Config,
    (_, n_max): (u64, u64),
    findings: &mut Findings<'_>,
) {
    let is_memory = matches!(config.store, StoreConfig::Memory { .. });
    let is_on_each_node = workload.object.kind == "DaemonSet";
    if !is_memory || n_max <= 1 && !is_on_each_node {
        return;
    }
    let written = config.policies.iter().find(|policy| is_written(policy));
    let has_rules = config.envoy.as_ref().is_some_and(|envoy| envoy.names_files);
    let (name, rate) = match written {
        Some(policy) => (policy.name(), policy.limits().first().map(|limit| limit.quota().rate())),
        None if has_rules => ("the rules for Envoy", None),
        None => return,
    };
    let figure = match rate {
        Some(rate) if !is_on_each_node => {
            let all = u64::from(rate.units().get()).saturating_mul(n_max);
            let window = rate.to_string();
            let window = window.split_once('/').map(|(_, window)| window.to_owned()).unwrap_or_default();
            format!("{n_max} replicas allow {all}/{window} instead of {rate}")
        }
        None if !is_on_each_node => format!("{n_max} replicas allow {n_max} times the limits"),
        _ => "a pod on each node multiplies the limit".to_owned(),
    };
    let problem = format!("buckets are in memory, so each replica counts separately: under {name}, {figure}");
    findings.error(workload.container, format!("{}: {problem}; set store.redis", workload.label()));
}

/// True for a policy in the policy file; false for the built-in policies of ad hoc keys, and for limit overrides in Envoy's requests.
fn is_written(policy: &ratewright_core::Policy) -> bool {
    !ratewright_core::quota::Algorithm::NAMES.contains(&policy.name())
        && !ratewright_rls::is_override_policy(policy)
}

/// Reports a disruption budget that blocks every eviction.
pub(super) fn check_disruption(
    workload: &Workload<'_>,
    manifests: &Manifests,
    (n_min, _): (u64, u64),
    findings: &mut Findings<'_>,
) {
    for budget in workload.beside(manifests, "PodDisruptionBudget") {
        let selector = budget.root.at("spec.selector");
        let is_for_all = selector.is_some_and(|selector| selector.get("matchExpressions").is_none());
        let labels = selector.and_then(|selector| selector.get("matchLabels"));
        if n_min == 0 || !labels.map_or(is_for_all, |labels| workload.is_selected(Some(labels))) {
            continue;
        }
        let of = |name: &str| budget.root.at(&format!("spec.{name}"));
        let blocking = |node: &&YamlNode, n_blocks: u64, percent: &str| {
            let text = node.text().unwrap_or_default();
            text == percent || text.parse().is_ok_and(|n: u64| n == n_blocks)
        };
        let unavailable = of("maxUnavailable").filter(|node| blocking(node, 0, "0%"));
        let available = of("minAvailable").filter(|node| {
            blocking(node, n_min, "100%") || node.text().and_then(|text| text.parse().ok()) > Some(n_min)
        });
        if let Some(node) = unavailable.or(available) {
            let problem = format!("allows no eviction with {n_min} replicas, and so blocks every drain");
            findings.error(node, format!("{} {problem} of a node; use maxUnavailable: 1", budget.label()));
        }
    }
}
