//! `ratewright check --deployment` on our own manifests, unchanged and with one value changed.

use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect;

use super::{BEFORE_1_35, DEV, PRODUCTION, rendered};
use crate::packages::root;

/// What the command says of manifests on standard input, and how it ends. No variable of this process counts.
pub(super) fn checked(manifests: &str, args: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
    command.args(["check", "--deployment", "-"]).args(args).current_dir(root()).env_clear();
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(manifests.as_bytes());
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (printed, output.status.code())
}

const EXPECT: [&str; 2] = ["--expect", "deploy/kubernetes/expect.yaml"];

/// E2: CPU 70 % for 2 minutes, 2 to 10 replicas, the third at 75 %, for both services; 100 and 250 in a minute.
#[test]
fn e2_our_manifests_meet_the_expectations() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let (printed, code) = checked(&text, &EXPECT);
    expect![[r#"
        Deployment ratewright, ConfigMap ratewright; buckets in Redis
          per-ip    100 in any 60 s, for each client address
          per-user  250 in any 60 s, for each user; without user: not limited
          never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
          route app: /** to http://wishlist:8080
          scaling: 2 to 10 replicas; CPU target 70 % of requests; more than 73.5 % for 120 s adds replicas
          stopping: takes at most 25s of 30s
        all 10 expectations hold; for policies they compare rate, burst, algorithm and mode, not which requests a policy covers
    "#]].assert_eq(&printed);
    assert_eq!(code, Some(0));
}

/// E2: the figures that the test above holds the manifests to are those of the requirement.
#[test]
fn e2_the_expectations_are_those_of_the_requirement() {
    let expect = crate::packages::text_of("deploy/kubernetes/expect.yaml");
    for name in ["ratewright", "wishlist"] {
        let figures = format!("  {name}: {{ cpu: 70, sustained: 2min, replicas: 2..10, scale_up_at: 75 }}\n");
        assert!(expect.contains(&figures), "{expect}");
    }
    assert!(expect.contains("  per-ip: { rate: 100/60s, algorithm: sliding_window }\n  per-user: { rate: 250/60s, algorithm: sliding_window }\n"), "{expect}");
}

/// All overlays fit their policy file, whatever the figures.
#[test]
fn every_overlay_fits_its_policy_file() {
    for overlay in [DEV, BEFORE_1_35, PRODUCTION] {
        let Some(text) = rendered(overlay) else { return };
        let (printed, code) = checked(&text, &[]);
        assert_eq!(code, Some(0), "{overlay}: {printed}");
        assert!(!printed.contains("warning"), "{overlay}: {printed}");
    }
}

/// Checks the production manifests with one text replaced, and expects this difference, and the exit code of differences.
#[track_caller]
fn differs(rendered: &str, from: &str, to: &str, difference: &str) {
    assert!(rendered.contains(from), "the manifests have no {from:?}");
    let (printed, code) = checked(&rendered.replace(from, to), &EXPECT);
    assert!(
        printed.contains(difference),
        "{from:?} became {to:?}, and the difference {difference:?} is missing: {printed}"
    );
    assert_eq!(code, Some(2), "{printed}");
}

#[test]
fn e2_a_changed_value_fails_with_the_difference() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let at = "(deploy/kubernetes/expect.yaml:6)";
    for (from, to, difference) in [
        ("maxReplicas: 10", "maxReplicas: 20", format!("HorizontalPodAutoscaler ratewright: maxReplicas is 20, expected 10 {at}")),
        ("minReplicas: 2", "minReplicas: 1", format!("HorizontalPodAutoscaler ratewright: minReplicas is 1, expected 2 {at}")),
        ("averageUtilization: 70", "averageUtilization: 80", format!("ratewright: averageUtilization is 80, expected 70 {at}")),
        ("stabilizationWindowSeconds: 120", "stabilizationWindowSeconds: 60", format!("behavior.scaleUp.stabilizationWindowSeconds is 60, expected 120 {at}")),
        ("      tolerance: 0.05\n", "      selectPolicy: Disabled\n", format!("scale-up is disabled, so CPU at 75 % adds no replica {at}; remove selectPolicy: Disabled")),
        ("      tolerance: 0.05\n", "", format!("CPU at 75 % adds no replica {at}: it is within the tolerance 0.1 of the target 70; set behavior.scaleUp.tolerance to 0.07")),
        ("tolerance: 0.05", "tolerance: 72m", "it is within the tolerance 0.072 of the target 70".to_owned()),
        ("rate: 100/60s", "rate: 200/60s", "expect.yaml:10:11: policy per-ip of Deployment ratewright, in ConfigMap ratewright, is 200/min by sliding_window, expected 100/min by sliding_window".to_owned()),
        ("sliding_window, rate: 100/60s", "token_bucket, rate: 100/60s", "is 100/min by token_bucket, expected 100/min by sliding_window".to_owned()),
        ("rate: 250/60s", "rate: 250/s", "policy per-user of Deployment ratewright, in ConfigMap ratewright, is 250/s by sliding_window, expected 250/min by sliding_window".to_owned()),
        ("sliding_window, rate: 100/60s", "token_bucket, rate: 100/60s, burst: 500", "is 100/min with burst 500 by token_bucket, expected 100/min by sliding_window".to_owned()),
        ("        by: ip\n", "        by: ip\n        mode: shadow\n", "policy per-ip of Deployment ratewright, in ConfigMap ratewright, is not enforced; set mode: enforce".to_owned()),
        ("    listen:\n", "    enabled: false\n    listen:\n", "is not enforced: enabled is false".to_owned()),
        ("name: per-ip", "name: per-address", "policy per-ip of Deployment ratewright, in ConfigMap ratewright, does not exist".to_owned()),
        ("    kind: Deployment\n    name: wishlist", "    kind: Deployment\n    name: whislist", "Deployment wishlist has no HorizontalPodAutoscaler".to_owned()),
    ] {
        differs(&text, from, to, &difference);
    }
}

/// What the manifests say must fit what the policy file says, without any expectation.
#[test]
fn manifests_that_do_not_fit_their_policy_file_fail_with_the_difference() {
    let Some(text) = rendered(PRODUCTION) else { return };
    for (from, to, difference) in [
        ("path: /ready", "path: /health", "readinessProbe requests /health; it must request /ready"),
        (
            "    listen:\n",
            "    listen:\n      tls: {cert: /c, key: /k}\n",
            "readinessProbe uses HTTP, and listen.admin has TLS; set scheme: HTTPS",
        ),
        (
            "    listen:\n",
            "    listen:\n      tls: {cert: /c, key: /k, client_ca: /a}\n",
            "listen.admin requires a client certificate, and the kubelet has none",
        ),
        (
            "path: /ready\n            port: admin",
            "path: /ready\n            port: admin\n            scheme: HTTPS",
            "readinessProbe uses HTTPS, and listen.admin has no TLS; remove scheme",
        ),
        (
            "admin: 0.0.0.0:8082 ",
            "admin: {address: '0.0.0.0:8082', proxy_protocol: {from: [10.0.0.0/8]}} ",
            "listen.admin has proxy_protocol, and the kubelet sends no PROXY header",
        ),
        (
            "kind: ConfigMap\n",
            "kind: ConfigMap\nmetadata: {name: ratewright, namespace: ratewright}\n---\napiVersion: v1\nkind: ConfigMap\n",
            "duplicate ConfigMap ratewright",
        ),
        (
            "path: /health\n            port: admin\n          periodSeconds: 10",
            "path: /ready\n            port: admin\n          periodSeconds: 10",
            "livenessProbe requests /ready; it must request /health",
        ),
        (
            "path: /ready\n            port: admin",
            "path: /ready\n            port: 8000",
            "readinessProbe uses port 8000; listen.admin is on 8082",
        ),
        (
            "path: /ready\n            port: admin",
            "path: /ready\n            port: health",
            "readinessProbe uses port \"health\", which the container does not declare",
        ),
        (
            "        readinessProbe:\n",
            "        unreadinessProbe:\n",
            "Deployment ratewright has no readinessProbe",
        ),
        (
            "httpGet:\n            path: /ready\n            port: admin",
            "tcpSocket:\n            port: admin",
            "readinessProbe must request /ready by httpGet",
        ),
        (
            "admin: 0.0.0.0:8082",
            "admin: 127.0.0.1:8082",
            "listen.admin is 127.0.0.1:8082, reachable only inside the container",
        ),
        ("admin: 0.0.0.0:8082", "admin: off", "listen.admin, which is off"),
        (
            "containerPort: 8000",
            "containerPort: 8001",
            "containerPort is 8001, which has no listener; listeners are gateway 8000, api 8080, admin 8082",
        ),
        (
            "targetPort: gateway",
            "targetPort: 8080",
            "Service ratewright: targetPort is 8080; listen.api is 127.0.0.1:8080, reachable only inside the pod",
        ),
        (
            "targetPort: gateway",
            "targetPort: web",
            "Service ratewright: targetPort is web, which has no listener",
        ),
        (
            "terminationGracePeriodSeconds: 30",
            "terminationGracePeriodSeconds: 20",
            "terminationGracePeriodSeconds is 20; stop_delay 5s + drain_timeout 20s = 25s are needed",
        ),
        (
            "drain_timeout: 20s",
            "drain_timeout: 40s",
            "stop_delay 5s + drain_timeout 40s = 45s are needed, or requests are aborted; set at least 45",
        ),
        (
            "        name: ratewright\n        ports:",
            "        lifecycle: {preStop: {sleep: {seconds: 10}}}\n        name: ratewright\n        ports:",
            "preStop 10s + stop_delay 5s + drain_timeout 20s = 35s are needed",
        ),
        (
            "drain_timeout: 20s",
            "envoy: {files: [/rules.yaml], connection_grace: 60s}",
            "stop_delay 5s + envoy.connection_grace 60s = 65s are needed",
        ),
        (
            "spec:\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: ratewright\n  strategy",
            "spec:\n  replicas: 3\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: ratewright\n  strategy",
            "replicas is set, and HorizontalPodAutoscaler ratewright sets it too",
        ),
        ("            cpu: 500m\n", "", "container ratewright requests no CPU"),
        (
            "  maxUnavailable: 1\n",
            "  maxUnavailable: 0\n",
            "PodDisruptionBudget ratewright allows no eviction with 2 replicas",
        ),
        (
            "  maxUnavailable: 1\n",
            "  minAvailable: 2\n",
            "PodDisruptionBudget ratewright allows no eviction with 2 replicas",
        ),
        (
            "    store:\n      redis:\n        url: ${REDIS_URL:-redis://127.0.0.1:6379}\n",
            "",
            "buckets are in memory, so each replica counts separately: under per-ip, 10 replicas allow 1000/min instead of 100/min; set store.redis",
        ),
        (
            "        - name: JWT_SECRET\n",
            "        - name: JWT_SECRETS\n",
            "the environment has no variable JWT_SECRET",
        ),
        (
            "rate: 100/60s",
            "rate: soon",
            "ConfigMap ratewright/availability-strict.yaml:20:47: policies.per-ip.quota.rate is \"soon\"",
        ),
        (
            "    - configMap:\n          name: ratewright\n",
            "    - configMap:\n          name: other\n",
            "ConfigMap other is not among these manifests",
        ),
        (
            "- mountPath: /etc/ratewright\n",
            "- mountPath: /etc/other\n",
            "no mounted ConfigMap contains the policy file /etc/ratewright",
        ),
        (
            "apiVersion: autoscaling/v2\n",
            "apiVersion: autoscaling/v2beta2\n",
            "autoscaling/v2beta2 was removed in Kubernetes 1.26",
        ),
        ("image: ratewright:0.1.0", "image: nginx:1", "no workload runs Ratewright (16 objects read)"),
    ] {
        differs(&text, from, to, difference);
    }
}

#[test]
fn probable_mistakes_are_warnings() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let sub_path = "- mountPath: /etc/ratewright/availability-strict.yaml\n          subPath: availability-strict.yaml\n          name: config\n        - mountPath: /etc/ratewright/kubernetes.yaml\n          subPath: kubernetes.yaml\n";
    for (from, to, warning) in [
        (
            "- mountPath: /etc/ratewright\n",
            sub_path,
            "policy file is mounted by subPath, so changes of the ConfigMap need new pods",
        ),
        (
            "        livenessProbe:\n",
            "        unlivenessProbe:\n",
            "Deployment ratewright has no livenessProbe",
        ),
        (
            "    kind: Deployment\n    name: wishlist",
            "    kind: Deployment\n    name: whislist",
            "HorizontalPodAutoscaler wishlist scales Deployment whislist, which is not among these manifests",
        ),
        (
            "      gateway: 0.0.0.0:8000\n",
            "      gateway: {address: '0.0.0.0:8000', tls: {cert: /tls/tls.crt, key: /tls/tls.key}}\n",
            "listen.gateway.tls.cert: /tls/tls.crt is not checked: the file exists only in the container",
        ),
    ] {
        assert!(text.contains(from), "the manifests have no {from:?}");
        let (printed, code) = checked(&text.replace(from, to), &[]);
        assert!(
            printed.contains("warning: ") && printed.contains(warning),
            "{warning:?} is missing: {printed}"
        );
        assert_eq!(code, Some(0), "{printed}");
    }
}
