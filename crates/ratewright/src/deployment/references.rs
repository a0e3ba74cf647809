//! A pod's references to ConfigMaps: a missing key prevents its containers from starting.

use super::findings::Findings;
use super::manifests::Manifests;
use super::workload::Workload;
use crate::yaml_node::YamlNode;

/// Reports references of a container to missing ConfigMaps and keys.
pub(super) fn check(workload: &Workload<'_>, manifests: &Manifests, findings: &mut Findings<'_>) {
    for volume in workload.pod.items_at("volumes") {
        let projected = volume.items_at("projected.sources").iter();
        for source in std::iter::once(volume).chain(projected).filter_map(|source| source.get("configMap")) {
            for item in source.items_at("items") {
                check_key(workload, source, item, manifests, findings);
            }
        }
    }
    for variable in workload.container.items_at("env") {
        let Some(reference) = variable.at("valueFrom.configMapKeyRef") else { continue };
        check_map(workload, reference, manifests, findings);
        check_key(workload, reference, reference, manifests, findings);
    }
    for source in workload.container.items_at("envFrom") {
        let Some(reference) = source.get("configMapRef") else { continue };
        check_map(workload, reference, manifests, findings);
    }
}

/// Warns of a ConfigMap that is not among the manifests.
fn check_map(workload: &Workload<'_>, map: &YamlNode, manifests: &Manifests, findings: &mut Findings<'_>) {
    let name = map.text_at("name").unwrap_or_default();
    if !is_optional(map) && manifests.named("ConfigMap", &workload.object.namespace, name).is_none() {
        let problem = format!("ConfigMap {name} is not among these manifests");
        let advice = "the container does not start without it; check the name";
        findings.warn(map, format!("{}: {problem}; {advice}", workload.label()));
    }
}

/// Reports a key that its ConfigMap does not have.
fn check_key(
    workload: &Workload<'_>,
    map: &YamlNode,
    item: &YamlNode,
    manifests: &Manifests,
    findings: &mut Findings<'_>,
) {
    let (name, key) = (map.text_at("name").unwrap_or_default(), item.text_at("key").unwrap_or_default());
    let Some(object) = manifests.named("ConfigMap", &workload.object.namespace, name) else { return };
    let has = |section: &str| {
        let entries = object.root.get(section).map(YamlNode::entries).unwrap_or_default();
        entries.iter().any(|(known, _)| known == key)
    };
    if !is_optional(map) && !has("data") && !has("binaryData") {
        let problem = format!("ConfigMap {name} has no key {key:?}, so the container does not start");
        findings.error(item.get("key").unwrap_or(item), format!("{}: {problem}", workload.label()));
    }
}

fn is_optional(reference: &YamlNode) -> bool {
    // Kubernetes reads YAML 1.1.
    matches!(reference.text_at("optional"), Some("true" | "yes" | "on" | "y"))
}
