//! The autoscalers have the figures of requirement E2.

use serde_json::json;

use super::{BEFORE_1_35, DEV, PRODUCTION, documents, object, rendered};

const SERVICES: [&str; 2] = ["ratewright", "wishlist"];

/// The tolerance of an autoscaler that sets none: it ignores a usage up to this share above its target.
const DEFAULT_TOLERANCE: f64 = 0.1;

/// E2: CPU 70 % for 2 minutes, 2 to 10 replicas, the third at 75 %. A cluster that rejects a tolerance gets a lower target.
#[test]
fn e2_both_services_have_2_to_10_replicas_and_add_the_third_at_75_percent_for_2_minutes() {
    for (overlay, target) in [(PRODUCTION, 70), (BEFORE_1_35, 68)] {
        let Some(text) = rendered(overlay) else { return };
        let documents = documents(&text);
        for name in SERVICES {
            let spec = &object(&documents, "HorizontalPodAutoscaler", name)["spec"];
            assert_eq!([&spec["minReplicas"], &spec["maxReplicas"]], [2, 10], "{overlay} {name}");
            let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}});
            assert_eq!(spec["metrics"], json!([{"type": "Resource", "resource": cpu}]), "{overlay} {name}");
            let scale_up = &spec["behavior"]["scaleUp"];
            assert_eq!(scale_up["stabilizationWindowSeconds"], 120, "{overlay} {name}");
            assert!(scale_up["selectPolicy"].is_null(), "{overlay} {name}: Disabled adds no replica");
            let tolerance = scale_up["tolerance"].as_f64().unwrap_or(DEFAULT_TOLERANCE);
            assert!(75.0 / f64::from(target) > 1.0 + tolerance, "{overlay} {name}: {tolerance}");
        }
    }
}

/// Each apply would reset `replicas`. A budget that allows no eviction would block every drain of a node.
#[test]
fn only_the_autoscaler_sets_replicas_and_nodes_can_be_drained() {
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        let documents = documents(&text);
        for name in SERVICES {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
            let scaler = object(&documents, "HorizontalPodAutoscaler", name);
            assert_eq!(scaler["spec"]["scaleTargetRef"], target, "{overlay}");
            let replicas = &object(&documents, "Deployment", name)["spec"]["replicas"];
            assert!(replicas.is_null(), "{overlay} {name}: {replicas}");
            let budget = &object(&documents, "PodDisruptionBudget", name)["spec"];
            assert_eq!(budget["maxUnavailable"], 1, "{overlay} {name}");
            assert!(budget["minAvailable"].is_null(), "{overlay} {name}");
        }
    }
}
