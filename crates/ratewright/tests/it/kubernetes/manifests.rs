//! The manifests follow their schemas and fit together.

use std::path::Path;
use std::process::{Command, Output};

use ratewright_lab::output;
use serde_json::Value;
use tempfile::TempDir;

use super::{BEFORE_1_35, DEV, PRODUCTION, documents, object, rendered};
use crate::packages::{output_of, python_tool, root, run, text_of};

/// Kinds that Kubernetes does not know, with a schema of ours.
const CUSTOM: [(&str, &str); 2] = [
    ("ServiceMonitor", "deploy/kubernetes/schemas/servicemonitor.json"),
    ("PrometheusRule", "deploy/kubernetes/schemas/prometheusrule.json"),
];

/// Validates a file against a version of Kubernetes. Unknown fields are errors.
fn validated(version: &str, file: &Path) -> Option<Output> {
    let mut validate = python_tool("kubernetes-validate")?;
    Some(output(validate.args(["--strict", "--kubernetes-version", version]).arg(file)))
}

fn written(folder: &TempDir, text: &str) -> std::path::PathBuf {
    let file = folder.path().join("rendered.yaml");
    std::fs::write(&file, text).unwrap();
    file
}

/// The tool passes over kinds that it does not know with a warning. Each of them must have a schema of ours.
#[test]
fn e2_every_document_follows_the_schemas_of_its_versions() {
    let folder = TempDir::new().unwrap();
    for (overlay, versions) in
        [(DEV, ["1.27", "1.37"]), (BEFORE_1_35, ["1.27", "1.34"]), (PRODUCTION, ["1.35", "1.37"])]
    {
        let Some(text) = rendered(overlay) else { return };
        let file = written(&folder, &text);
        for version in versions {
            let Some(output) = validated(version, &file) else { return };
            let printed = output_of(&output);
            assert!(output.status.success(), "{overlay} {version}: {printed}");
            let unknown = printed.lines().filter(|line| !line.starts_with("INFO"));
            let unknown: Vec<_> =
                unknown.filter(|line| !CUSTOM.iter().any(|(kind, _)| line.contains(kind))).collect();
            assert!(unknown.is_empty(), "{overlay} {version}: {unknown:?}");
            let n_objects = printed.lines().filter(|line| line.starts_with("INFO")).count();
            let documents = documents(&text);
            let is_custom = |object: &&Value| CUSTOM.iter().any(|(kind, _)| object["kind"] == *kind);
            assert_eq!(n_objects + documents.iter().filter(is_custom).count(), documents.len(), "{printed}");
        }
        for (kind, schema) in CUSTOM {
            for object in documents(&text).iter().filter(|object| object["kind"] == kind) {
                let Some(output) = follows(schema, object, &folder) else { return };
                assert!(output.status.success(), "{overlay}: {}", output_of(&output));
            }
        }
    }
}

/// Validates an object against a schema of ours.
fn follows(schema: &str, object: &Value, folder: &TempDir) -> Option<Output> {
    let file = folder.path().join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    Some(output(python_tool("check-jsonschema")?.args(["--schemafile", schema]).arg(file)))
}

#[test]
fn a_misspelt_field_is_rejected() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let folder = TempDir::new().unwrap();
    for (right, wrong) in [
        ("stabilizationWindowSeconds", "stabilisationWindowSeconds"),
        ("maxUnavailable: 1", "maxUnavailible: 1"),
    ] {
        let file = written(&folder, &text.replace(right, wrong));
        let Some(output) = validated("1.37", &file) else { return };
        assert!(
            !output.status.success() && output_of(&output).contains("Additional properties"),
            "{}",
            output_of(&output)
        );
    }
    let monitor = object(&documents(&text), "ServiceMonitor", "ratewright").to_string();
    let monitor: Value = serde_json::from_str(&monitor.replace("\"interval\"", "\"intervall\"")).unwrap();
    let Some(output) = follows(CUSTOM[0].1, &monitor, &folder) else { return };
    assert!(!output.status.success() && output_of(&output).contains("intervall"), "{}", output_of(&output));
}

/// Why there are two overlays for production: an older cluster rejects the field.
#[test]
fn e2_only_the_overlay_for_new_clusters_sets_a_tolerance() {
    let (Some(new), Some(old)) = (rendered(PRODUCTION), rendered(BEFORE_1_35)) else { return };
    let folder = TempDir::new().unwrap();
    let Some(output) = validated("1.32", &written(&folder, &new)) else { return };
    assert!(
        !output.status.success() && output_of(&output).contains("'tolerance' was unexpected"),
        "{}",
        output_of(&output)
    );
    let Some(output) = validated("1.32", &written(&folder, &old)) else { return };
    assert!(output.status.success(), "{}", output_of(&output));
}

/// E1: kustomize reads no file outside its folder, so there is a copy.
#[test]
fn e1_the_config_map_deploys_the_strict_example() {
    let example = text_of("examples/availability-strict.yaml");
    assert_eq!(text_of("deploy/kubernetes/base/config/availability-strict.yaml"), example);
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        let documents = documents(&text);
        let map = object(&documents, "ConfigMap", "ratewright");
        assert_eq!(map["data"]["availability-strict.yaml"], example, "{overlay}");
    }
}

/// All pods of all overlays, with what they are called.
fn pods(text: &str) -> Vec<(String, Value)> {
    let deployments = documents(text).into_iter().filter(|object| object["kind"] == "Deployment");
    let pod = |object: Value| {
        (object["metadata"]["name"].as_str().unwrap().to_owned(), object["spec"]["template"]["spec"].clone())
    };
    deployments.map(pod).collect()
}

#[test]
fn every_pod_is_pinned_and_has_no_privileges() {
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        let pods = pods(&text);
        assert!(pods.len() > 1, "{overlay}");
        for (name, pod) in pods {
            assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert!(pod["securityContext"]["runAsUser"].as_u64() > Some(0), "{name}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            for container in pod["containers"].as_array().unwrap() {
                let context = &container["securityContext"];
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["capabilities"]["drop"][0], "ALL", "{name}");
                assert!(!container["resources"]["requests"]["cpu"].is_null(), "{name}");
                assert!(!container["resources"]["limits"]["memory"].is_null(), "{name}");
                let (_, tag) = container["image"].as_str().unwrap().rsplit_once(':').expect("a tag");
                assert!(
                    tag.starts_with(|c: char| c.is_ascii_digit()) && tag.matches('.').count() == 2,
                    "{tag}"
                );
            }
        }
    }
}

/// The image is the one that docker-compose.yaml builds, and its user the Dockerfile's.
#[test]
fn the_pod_runs_our_image_as_its_user() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let documents = documents(&text);
    let pod = &object(&documents, "Deployment", "ratewright")["spec"]["template"]["spec"];
    let image = pod["containers"][0]["image"].as_str().unwrap();
    assert!(text_of("docker-compose.yaml").contains(&format!("image: {image}\n")), "{image}");
    let user =
        format!("USER {}:{}", pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]);
    assert!(text_of("Dockerfile").contains(&user), "{user}");
}

/// Objects find each other by name and label, and no Secret is among them: its values are made by the operator.
#[test]
fn the_objects_fit_together() {
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        let documents = documents(&text);
        assert!(documents.iter().all(|object| object["kind"] != "Secret"), "{overlay} has a Secret");
        for name in ["ratewright", "wishlist"] {
            let labels = &object(&documents, "Deployment", name)["spec"]["template"]["metadata"]["labels"];
            assert_eq!(object(&documents, "Deployment", name)["spec"]["selector"]["matchLabels"], *labels);
            assert_eq!(object(&documents, "Service", name)["spec"]["selector"], *labels);
            assert_eq!(
                object(&documents, "PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"],
                *labels
            );
            assert_eq!(
                object(&documents, "NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"],
                *labels
            );
            assert_eq!(
                object(&documents, "HorizontalPodAutoscaler", name)["spec"]["scaleTargetRef"]["name"],
                name
            );
        }
        let container =
            &object(&documents, "Deployment", "ratewright")["spec"]["template"]["spec"]["containers"][0];
        let upstream =
            container["env"].as_array().unwrap().iter().find(|item| item["name"] == "UPSTREAM").unwrap();
        let port = &object(&documents, "Service", "wishlist")["spec"]["ports"][0]["port"];
        assert_eq!(upstream["value"], format!("http://wishlist:{port}"));
        if overlay == DEV {
            continue;
        }
        let monitor = &object(&documents, "ServiceMonitor", "ratewright")["spec"];
        let metrics = object(&documents, "Service", "ratewright-metrics");
        assert_eq!(monitor["selector"]["matchLabels"], metrics["metadata"]["labels"]);
        assert_eq!(monitor["endpoints"][0]["port"], metrics["spec"]["ports"][0]["name"]);
        let credentials = &monitor["endpoints"][0]["authorization"]["credentials"];
        let token =
            container["env"].as_array().unwrap().iter().find(|item| item["name"] == "RATEWRIGHT_TOKEN");
        assert_eq!(*credentials, token.unwrap()["valueFrom"]["secretKeyRef"]);
    }
}

#[test]
fn every_folder_is_rendered_by_kubectl() {
    if !crate::packages::has("kubectl") {
        return;
    }
    for folder in ["base", "wishlist", "monitoring"] {
        let mut kubectl = Command::new("kubectl");
        let text =
            run(kubectl.args(["kustomize", &format!("deploy/kubernetes/{folder}")]).current_dir(root()));
        assert!(!documents(&text).is_empty(), "{folder}");
    }
}
