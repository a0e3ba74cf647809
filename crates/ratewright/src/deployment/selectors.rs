//! Label selectors: which pods a workload, a Service or a disruption budget selects.

use std::collections::HashMap;

use super::findings::Findings;
use super::manifests::{ManifestObject, Manifests};
use super::workload::KINDS;
use crate::yaml_node::YamlNode;

/// True if these labels include all labels of the selector. An empty selector selects everything.
pub(super) fn has_all(labels: Option<&YamlNode>, selector: &YamlNode) -> bool {
    let has = |(name, value): &(String, YamlNode)| {
        labels.and_then(|labels| labels.get(name)).and_then(YamlNode::text) == value.text()
    };
    selector.entries().iter().all(has)
}

/// Reports workloads that do not select their own pods, and warns of Services that select no pod.
pub(super) fn check(manifests: &Manifests, findings: &mut Findings<'_>) {
    for object in manifests.objects.iter().filter(|object| KINDS.contains(&object.kind.as_str())) {
        let Some(selector) = object.root.at("spec.selector.matchLabels") else { continue };
        if !has_all(object.root.at("spec.template.metadata.labels"), selector) {
            let problem = "spec.selector does not select its own pods, so Kubernetes rejects it";
            let advice = "use labels of spec.template.metadata.labels";
            findings.error(selector, format!("{}: {problem}; {advice}", object.label()));
        }
    }
    let pods = Pods::of(manifests);
    for service in manifests.objects.iter().filter(|object| object.kind == "Service") {
        let Some(selector) = service.root.at("spec.selector") else { continue };
        if !pods.has(service, selector) {
            let problem = "selects no pod of these manifests; check the labels";
            findings.warn(selector, format!("{} {problem}", service.label()));
        }
    }
}

/// The labels of all pods, indexed by namespace and each label.
struct Pods<'a>(HashMap<[&'a str; 3], Vec<&'a YamlNode>>);

impl<'a> Pods<'a> {
    fn of(manifests: &'a Manifests) -> Self {
        let mut pods: HashMap<_, Vec<_>> = HashMap::new();
        let templates = ["spec.template.metadata.labels", "spec.jobTemplate.spec.template.metadata.labels"];
        for object in &manifests.objects {
            let own = object.root.at("metadata.labels").filter(|_| object.kind == "Pod");
            let labels = own.or_else(|| templates.iter().find_map(|path| object.root.at(path)));
            let Some(labels) = labels else { continue };
            for (name, value) in labels.entries() {
                let label = [object.namespace.as_str(), name, value.text().unwrap_or_default()];
                pods.entry(label).or_default().push(labels);
            }
        }
        Self(pods)
    }

    /// True if a Service selects a pod, or has an empty selector: its endpoints come from elsewhere.
    fn has(&self, service: &ManifestObject, selector: &YamlNode) -> bool {
        let Some((name, value)) = selector.entries().first() else { return true };
        let label = [service.namespace.as_str(), name, value.text().unwrap_or_default()];
        let pods = self.0.get(&label).map(Vec::as_slice).unwrap_or_default();
        pods.iter().any(|labels| has_all(Some(labels), selector))
    }
}
