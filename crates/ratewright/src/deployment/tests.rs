//! Invalid manifests: the check reports them, and never panics.

mod pods;

use proptest::prelude::*;

use super::*;

/// A small deployment with all parts that the check reads.
const VALID: &str = r#"apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a.yaml: "policies: [{name: per-ip, by: ip, quota: {rate: 100/min}}]\nstore: {redis: {}}\nlisten: {admin: '0.0.0.0:8082'}\napi: {tokens: ['${TOKEN}']}\nclients: {user: {jwt: {secret: '${SECRET}'}}}"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: r}
spec:
  template:
    metadata: {labels: {app: r}}
    spec:
      terminationGracePeriodSeconds: 30
      containers:
      - name: r
        image: example/ratewright:1
        args: [serve, -c, /etc/r]
        env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: t}}}]
        envFrom: [{secretRef: {name: s}}]
        ports: [{name: admin, containerPort: 8082}]
        readinessProbe: {httpGet: {path: /ready, port: admin}}
        livenessProbe: {exec: {command: [ratewright, health, --live]}}
        lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}
        resources: {requests: {cpu: 1}}
        volumeMounts: [{name: v, mountPath: /etc/r}]
      volumes: [{name: v, configMap: {name: c}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: r}
spec:
  scaleTargetRef: {kind: Deployment, name: r}
  minReplicas: 2
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {averageUtilization: 70}}}]
  behavior: {scaleUp: {stabilizationWindowSeconds: 120, tolerance: 0.05}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: r}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: r}}}
"#;

const EXPECT: &str = "scaling: {r: {cpu: 70, sustained: 2min, replicas: 2..10, scale_up_at: 75}}\npolicies: {per-ip: {rate: 100/min, burst: 100}}\n";

/// Checks texts as files of a folder.
fn checked(manifests: &str, expect: &str) -> DeploymentReport {
    let folder = tempfile::tempdir().unwrap();
    let expected = folder.path().join("expect.yaml");
    std::fs::write(folder.path().join("all.yaml"), manifests).unwrap();
    std::fs::write(&expected, expect).unwrap();
    check(folder.path(), Some(&expected), &|_| None)
}

#[test]
fn the_valid_deployment_has_no_findings() {
    let report = checked(VALID, EXPECT);
    let reported: Vec<_> = report.errors.iter().chain(&report.warnings).map(ToString::to_string).collect();
    assert_eq!(reported, Vec::<String>::new());
    let compared =
        "for policies they compare rate, burst, algorithm and mode, not which requests a policy covers";
    let end = format!("all 5 expectations hold; {compared}\n");
    assert!(report.words.ends_with(&end), "{}", report.words);
}

/// The program skips files whose names begin with a dot, which a ConfigMap may contain.
#[test]
fn hidden_files_of_a_folder_are_not_read() {
    let hidden = VALID.replace("a.yaml: ", ".a.yaml: ");
    assert!(!checked(&hidden, EXPECT).errors.is_empty(), "its policies are not in force");
    let beside = VALID.replace("data: {a.yaml: ", "data: {.broken.yaml: 'policies: [', a.yaml: ");
    let errors: Vec<_> = checked(&beside, EXPECT).errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, Vec::<String>::new());
}

/// Values to put in place of others.
fn odd() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "0",
        "-1",
        "1",
        "18446744073709551615",
        "18446744073709551616",
        "0.000000001",
        "1e300",
        ".nan",
        "~",
        "''",
        "[]",
        "{}",
        "[[[]]]",
        "ä",
        "${A}",
        "${",
        "'*'",
        "100%",
        "50m",
        "m",
        "..",
        "true",
        "r",
        "Deployment",
        "/",
        "|",
        "&a",
        "*a",
        "\t",
    ])
}

proptest! {
    /// A word or number of the manifests or expectations is replaced by another.
    #[test]
    fn no_value_makes_the_check_panic(at in 0usize..200, other in odd(), in_expect in any::<bool>()) {
        let text = if in_expect { EXPECT } else { VALID };
        let is_part = |c: char| c.is_alphanumeric() || "/._%".contains(c);
        let mut words: Vec<&str> = text.split_inclusive(|c| !is_part(c)).collect();
        let at = at % words.len();
        let end = words[at].trim_start_matches(is_part);
        let changed = format!("{other}{end}");
        words[at] = &changed;
        let changed = words.concat();
        let (manifests, expect) = if in_expect { (VALID, changed.as_str()) } else { (changed.as_str(), EXPECT) };
        checked(manifests, expect);
    }

    /// The file is truncated.
    #[test]
    fn no_cut_makes_the_check_panic(at in 0..VALID.len()) {
        checked(VALID.get(..at).unwrap_or_default(), EXPECT);
    }
}

/// Files that a policy file names are in the container, not here: the check warns that it does not read them.
#[test]
fn files_of_the_container_are_not_read() {
    let file = "store: {redis: {url: 'rediss://r:6379', tls: {ca: /t/ca}}}\\nclients: {user: {jwt: {public_key: /t/jwt}}}\\nenvoy: {files: [/t/rules]}\\nroutes: [{id: a, match: {path: /**}, upstream: {servers: ['https://u'], tls: {ca: /t/up}}}]\\npolicies: [{name: per-user, by: user, quota: {rate: 1/s}}]\\nlisten: {admin: '0.0.0.0:8082', tls: {cert: /t/cert, key: /t/key, client_ca: /t/clients}}";
    let (before, rest) = VALID.split_once("a.yaml: \"").unwrap();
    let (_, after) = rest.split_once('"').unwrap();
    let manifests = format!("{before}a.yaml: \"{file}\"{after}");
    let report = checked(&manifests, "policies: {per-user: 1/s}\n");
    let is_of_probe = |error: &String| error.contains("listen.admin requires a client certificate");
    let errors: Vec<_> = report.errors.iter().map(ToString::to_string).collect();
    assert!(errors.iter().all(is_of_probe), "{errors:?}");
    let warnings: Vec<_> = report.warnings.iter().map(ToString::to_string).collect();
    for name in ["/t/ca", "/t/jwt", "/t/rules", "/t/up", "/t/clients"] {
        let reported = format!("{name} is not checked: the file exists only in the container");
        assert!(warnings.iter().any(|warning| warning.contains(&reported)), "{name}: {warnings:?}");
    }
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    assert!(report.words.contains("buckets in Redis"), "{}", report.words);
}
