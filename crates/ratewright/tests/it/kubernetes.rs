//! The manifests in `deploy/kubernetes`: rendered by kubectl, validated with the schemas of several versions of
//! Kubernetes, compared with their policy file and the figures of requirement E2, and run as in a pod. Tests need no cluster.

mod manifests;
mod pod;
mod policy_file;
mod scaling;

use std::process::Command;

use serde_json::Value;

use crate::packages::{has, root};

/// Kubernetes 1.35 and later.
const PRODUCTION: &str = "production";
/// Kubernetes 1.27 to 1.34.
const BEFORE_1_35: &str = "production-before-1.35";
const DEV: &str = "dev";

/// The manifests of an overlay, as kubectl renders them. Nothing, if the test is skipped.
fn rendered(overlay: &str) -> Option<String> {
    if !has("kubectl") {
        return None;
    }
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["kustomize", &format!("deploy/kubernetes/overlays/{overlay}")]).current_dir(root());
    Some(crate::packages::run(&mut kubectl))
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// The only object with this kind and name.
#[track_caller]
fn object<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_meant = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let found: Vec<_> = documents.iter().filter(is_meant).collect();
    let [object] = found[..] else { panic!("{} objects {kind} {name}", found.len()) };
    object
}
