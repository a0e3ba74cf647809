//! The deployed policy file has the limits of requirement E2, and the manifests fit it.

use std::process::Command;

use expect_test::expect;
use ratewright_lab::output;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BEFORE_1_35, DEV, PRODUCTION, documents, object, rendered};
use crate::packages::output_of;

/// In place of what a Secret holds: a URL, a token and a key that is long enough.
const SECRET: &str = "redis://a-stand-in-for-a-secret:6379";

/// The container that runs Ratewright.
fn container(documents: &[Value]) -> &Value {
    &object(documents, "Deployment", "ratewright")["spec"]["template"]["spec"]["containers"][0]
}

/// What `ratewright check` says of the ConfigMap's files, with the container's variables and no others.
fn checked(documents: &[Value]) -> String {
    let folder = TempDir::new().unwrap();
    for (name, text) in object(documents, "ConfigMap", "ratewright")["data"].as_object().unwrap() {
        std::fs::write(folder.path().join(name), text.as_str().unwrap()).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
    command.arg("check").arg(folder.path()).env_clear();
    for variable in container(documents)["env"].as_array().unwrap() {
        command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap_or(SECRET));
    }
    let printed = output_of(&output(&mut command));
    printed.replace(folder.path().to_str().unwrap(), "FOLDER")
}

/// E2: 100 per minute for each address and 250 for each user, enforced, in a store that all replicas share; without a warning.
#[test]
fn e2_the_deployed_policy_file_allows_100_and_250_per_minute() {
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        expect![[r#"
            FOLDER is valid; buckets in Redis
              per-ip    100 in any 60 s, for each client address
              per-user  250 in any 60 s, for each user; without user: not limited
              never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
              route app: /** to http://wishlist:8080
        "#]]
        .assert_eq(&checked(&documents(&text)));
    }
}

/// The kubelet and the Services reach the listeners, and a pod has the time that it needs to stop.
#[test]
fn ports_probes_and_grace_period_fit_the_policy_file() {
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        let documents = documents(&text);
        let data = &object(&documents, "ConfigMap", "ratewright")["data"];
        let settings: Value = serde_saphyr::from_str(data["kubernetes.yaml"].as_str().unwrap()).unwrap();
        let container = container(&documents);

        let port = |name: &str| {
            let address = settings["listen"][name].as_str().unwrap();
            let port = address.strip_prefix("0.0.0.0:").unwrap_or_else(|| panic!("{overlay}: {address}"));
            json!({"name": name, "containerPort": port.parse::<u16>().unwrap()})
        };
        assert_eq!(container["ports"], json!([port("gateway"), port("admin")]), "{overlay}");
        for (service, target) in [("ratewright", "gateway"), ("ratewright-metrics", "admin")] {
            let ports = &object(&documents, "Service", service)["spec"]["ports"];
            assert_eq!(ports[0]["targetPort"], target, "{overlay} {service}");
        }
        for (probe, path) in
            [("startupProbe", "/health"), ("livenessProbe", "/health"), ("readinessProbe", "/ready")]
        {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "admin"}), "{overlay}");
        }

        let seconds = |name: &str| settings[name].as_str().unwrap().strip_suffix('s').unwrap().parse::<u64>();
        let needed = seconds("stop_delay").unwrap() + seconds("drain_timeout").unwrap();
        let pod = &object(&documents, "Deployment", "ratewright")["spec"]["template"]["spec"];
        let allowed = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(needed < allowed && container["lifecycle"].is_null(), "{overlay}: {needed} s of {allowed} s");
    }
}
