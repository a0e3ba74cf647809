//! Manifests that Kubernetes accepts, but whose pods do not start or do not work as intended; and valid ones.

use super::*;

/// The errors and warnings of the valid manifests with some texts replaced.
#[track_caller]
fn findings(replaced: &[(&str, &str)], expect: &str) -> [Vec<String>; 2] {
    let manifests = replaced.iter().fold(VALID.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the manifests have no {from:?}");
        text.replace(from, to)
    });
    let report = checked(&manifests, expect);
    [report.errors, report.warnings].map(|noted| noted.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn is_error(replaced: &[(&str, &str)], problem: &str) {
    let [errors, _] = findings(replaced, EXPECT);
    assert!(errors.iter().any(|error| error.contains(problem)), "{problem:?} is not reported: {errors:?}");
}

#[track_caller]
fn is_valid(replaced: &[(&str, &str)]) {
    assert_eq!(findings(replaced, EXPECT), [Vec::<String>::new(), Vec::new()], "{replaced:?}");
}

#[track_caller]
fn is_warned_of(replaced: &[(&str, &str)], problem: &str) {
    let [errors, warnings] = findings(replaced, EXPECT);
    assert_eq!(errors, Vec::<String>::new());
    assert!(warnings.iter().any(|warning| warning.contains(problem)), "{problem:?}: {warnings:?}");
}

const ARGS: &str = "args: [serve, -c, /etc/r]";
const VOLUME: &str = "configMap: {name: c}}]";
const ENV: &str = "env: [{name: TOKEN,";
const ENV_FROM: &str = "envFrom: [{secretRef: {name: s}}]";
const CONTAINER: &str = "      volumes:";
const STORE: &str = "store: {redis: {}}\\n";
const POLICIES: &str = "policies: [{name: per-ip, by: ip, quota: {rate: 100/min}}]\\n";

/// The check parses arguments as the program does.
#[test]
fn arguments_are_read_as_the_program_reads_them() {
    for args in ["[serve, -c/etc/r]", "[serve, /etc/r]", "[-c, /etc/r]", "[serve, --config=/etc/r]"] {
        is_valid(&[(ARGS, &format!("args: {args}"))]);
    }
    let start = "Ratewright does not start with these arguments: ";
    for (args, problem) in [
        ("[serve, -c, /etc/r, --nonsense]", "unexpected argument '--nonsense' found"),
        ("[serve, /etc/r, -c, /etc/r]", "the argument '[FILE]' cannot be used with '--config <FILE>'"),
        ("[check, -c, /etc/r]", "they run the command check, which does not serve"),
        ("[--version]", "they only print help or the version"),
    ] {
        is_error(&[(ARGS, &format!("args: {args}"))], &format!("{start}{problem}"));
    }
}

/// A variable may contain a secret.
#[test]
fn arguments_are_reported_without_the_values_of_their_variables() {
    let variable = (ENV, "env: [{name: X, value: s3cret}, {name: TOKEN,");
    for (args, problem) in [
        ("[serve, -c, /etc/r, --$(X)]", "unexpected argument '--$(X)' found"),
        ("[serve, -c, /etc/r, --profile, dev, --$(X)]", "unexpected argument '--$(X)' found"),
    ] {
        let replaced = [variable, (ARGS, &*format!("args: {args}"))];
        is_error(&replaced, problem);
        let [errors, warnings] = findings(&replaced, EXPECT);
        assert!(!errors.concat().contains("s3cret") && !warnings.concat().contains("s3cret"), "{errors:?}");
    }
}

#[test]
fn a_profile_needs_a_file() {
    let args = "args: [serve, -c, /etc/r, --profile, prod]";
    let problem = "no mounted ConfigMap contains the profile prod; add /etc/r/prod, or remove the profile";
    is_error(&[(ARGS, args)], problem);
    is_error(&[(ENV, "env: [{name: RATEWRIGHT_PROFILE, value: prod}, {name: TOKEN,")], problem);
    let file = [("a.yaml: \"", "prod.yaml: 'stop_delay: 1s', a.yaml: \"")];
    let items =
        "configMap: {name: c, items: [{key: a.yaml, path: a.yaml}, {key: prod.yaml, path: prod/p.yaml}]}}]";
    is_valid(&[(ARGS, args), file[0], (VOLUME, items)]);
    let one = "args: [serve, -c, /etc/r/a.yaml, --profile, prod]";
    is_error(&[(ARGS, one)], "add /etc/r/a.prod.yaml, or remove the profile");
    is_valid(&[(ARGS, one), ("a.yaml: \"", "a.prod.yaml: 'stop_delay: 1s', a.yaml: \"")]);
}

#[test]
fn a_missing_key_of_a_config_map_is_an_error_unless_it_is_optional() {
    let items = "configMap: {name: c, items: [{key: a.yaml, path: a.yaml}, {key: b.yaml, path: b.yaml}]}}]";
    is_error(&[(VOLUME, items)], "ConfigMap c has no key \"b.yaml\", so the container does not start");
    is_valid(&[(VOLUME, &items.replace("name: c,", "name: c, optional: true,"))]);
    let variable = "env: [{name: X, valueFrom: {configMapKeyRef: {name: c, key: x}}}, {name: TOKEN,";
    is_error(&[(ENV, variable)], "ConfigMap c has no key \"x\", so the container does not start");
    is_valid(&[(ENV, &variable.replace("key: x", "key: x, optional: true"))]);
    let all = "envFrom: [{secretRef: {name: s}}, {configMapRef: {name: other}}]";
    is_warned_of(
        &[(ENV_FROM, all)],
        "ConfigMap other is not among these manifests; the container does not start without it",
    );
    is_valid(&[(ENV_FROM, &all.replace("name: other", "name: other, optional: true"))]);
}

#[test]
fn each_container_that_runs_the_program_is_checked() {
    let second = "      - {name: second, image: ratewright, args: [serve, --nonsense], resources: {requests: {cpu: 1}}}\n";
    let problem = "Deployment r, container second: Ratewright does not start with these arguments";
    is_error(&[(CONTAINER, &format!("{second}{CONTAINER}"))], problem);
    let other = second.replace("image: ratewright", "image: exporter");
    is_valid(&[(CONTAINER, &format!("{other}{CONTAINER}"))]);
}

/// Rules for Envoy are in files of the container, which the check cannot read.
#[test]
fn rules_for_envoy_need_a_shared_store_too() {
    let rules = "envoy: {files: [/etc/r/rules]}\\n";
    let problem = "under the rules for Envoy, 10 replicas allow 10 times the limits; set store.redis";
    is_error(&[(POLICIES, rules), (STORE, "")], problem);
    let [errors, _] = findings(&[(POLICIES, rules)], "scaling: {r: {cpu: 70}}\n");
    assert_eq!(errors, Vec::<String>::new(), "they are in Redis");
    let [errors, _] =
        findings(&[(POLICIES, "envoy: {files: []}\\n"), (STORE, "")], "scaling: {r: {cpu: 70}}\n");
    assert_eq!(errors, Vec::<String>::new(), "there are none");
}

/// An expectation that compares nothing is an error.
#[test]
fn expectations_of_another_shape_are_errors() {
    for (expect, problem) in [
        ("scaling: {r: 70}", "scaling.r compares nothing; write scaling: {ratewright: {cpu: 70}}"),
        ("scaling: {r: [cpu, 70]}", "scaling.r compares nothing"),
        ("scaling: {r: {}}", "scaling.r compares nothing"),
        ("scaling: {r: ~}", "scaling.r compares nothing"),
        ("scaling: nothing", "scaling contains no expectations"),
        ("scaling: ~", "scaling contains no expectations"),
        ("scaling: {r: {cpu: ~}}", "scaling.r.cpu is not a single value"),
        ("scaling: {r: {cpu: 70, replicas: ~}}", "scaling.r.replicas is not a single value"),
        ("scaling: {r: {cpu: [70]}}", "scaling.r.cpu is not a single value"),
    ] {
        let [errors, _] = findings(&[], &format!("policies: {{per-ip: 100/min}}\n{expect}\n"));
        assert!(errors.iter().any(|error| error.contains(problem)), "{expect}: {errors:?}");
    }
    for (expect, problem) in [
        ("policies: []", "policies contains no expectations"),
        ("policies: {per-ip: ~}", "policies.per-ip compares nothing"),
        ("policies: {per-ip: {rate: 100/min, burst: ~}}", "policies.per-ip.burst is not a single value"),
    ] {
        let [errors, _] = findings(&[], &format!("scaling: {{r: {{cpu: 70}}}}\n{expect}\n"));
        assert!(errors.iter().any(|error| error.contains(problem)), "{expect}: {errors:?}");
    }
}

/// A comparison of each object with all earlier ones took minutes.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about time")]
fn sixty_thousand_objects_take_seconds() {
    let objects = (0..60_000).map(|n| format!("- {{kind: A, metadata: {{name: n{n}}}}}\n"));
    let all = format!("kind: List\nitems:\n{}---\n{VALID}", objects.collect::<String>());
    let began = std::time::Instant::now();
    let report = checked(&all, EXPECT);
    assert!(report.errors.is_empty(), "{}", report.errors[0]);
    let took = began.elapsed();
    assert!(took.as_secs() < 30, "{took:?}");
}

const SERVICE: &str = "---\napiVersion: v1\nkind: Service\nmetadata: {name: r}\nspec: {selector: {app: r}, ports: [{port: 8082}]}\n";

/// The valid manifests with another document appended.
fn with_document<'a>(document: &'a str, replaced: &[(&'a str, &'a str)]) -> DeploymentReport {
    let text = replaced.iter().fold(format!("{VALID}{document}"), |text, (from, to)| text.replace(from, to));
    checked(&text, EXPECT)
}

#[test]
fn labels_are_compared_with_selectors() {
    let warned = with_document(&SERVICE.replace("{app: r}", "{app: typo}"), &[]);
    assert_eq!(warned.errors.len(), 0);
    assert!(warned.warnings[0].to_string().contains("Service r selects no pod of these manifests"));
    let fine = with_document(SERVICE, &[]);
    assert_eq!((fine.errors.len(), fine.warnings.len()), (0, 0));
    let selector = "spec:\n  selector: {matchLabels: {app: typo}}\n  template:";
    is_error(&[("spec:\n  template:", selector)], "Deployment r: spec.selector does not select its own pods");
    is_valid(&[("spec:\n  template:", &selector.replace("typo", "r"))]);
    let all = "maxUnavailable: 0, selector: {}";
    is_error(&[("maxUnavailable: 1, selector: {matchLabels: {app: r}}", all)], "allows no eviction");
    let other = "maxUnavailable: 0, selector: {matchLabels: {app: other}}";
    is_valid(&[("maxUnavailable: 1, selector: {matchLabels: {app: r}}", other)]);
}

/// A port of another container needs no listener of Ratewright.
#[test]
fn a_service_may_name_a_port_of_another_container() {
    let sidecar = "      - {name: e, image: e, ports: [{name: e, containerPort: 9121}], resources: {requests: {cpu: 1}}}\n";
    let containers = format!("{sidecar}{CONTAINER}");
    for port in ["9121", "e"] {
        let service = SERVICE.replace("{port: 8082}", &format!("{{port: 80, targetPort: {port}}}"));
        let fine = with_document(&service, &[(CONTAINER, &containers)]);
        assert_eq!((fine.errors.len(), fine.warnings.len()), (0, 0), "{port}");
        assert_eq!(with_document(&service, &[]).errors.len(), 1, "{port}: nothing listens");
    }
}

#[test]
fn manifests_without_a_namespace_are_in_default() {
    is_valid(&[(
        "kind: Deployment\nmetadata: {name: r}",
        "kind: Deployment\nmetadata: {name: r, namespace: default}",
    )]);
    let other = "kind: Deployment\nmetadata: {name: r, namespace: other}";
    is_error(&[("kind: Deployment\nmetadata: {name: r}", other)], "ConfigMap c is not among these manifests");
}

#[test]
fn probes_may_use_a_shell_or_a_query() {
    let live = "command: [ratewright, health, --live]";
    is_valid(&[(live, "command: [sh, -c, 'exec /usr/bin/ratewright health --live; true']")]);
    is_valid(&[("path: /ready,", "path: '/ready?from=kubelet',")]);
    is_error(&[(live, "command: [echo, health, --live]")], "livenessProbe must run ratewright health --live");
}

/// The valid manifests leave 4 s for preStop.
#[test]
fn durations_of_sleep_are_parsed_as_sleep_does() {
    let sleep = "command: [sleep, \"1\"]";
    for (command, time) in [
        ("[sleep, 1m]", "preStop 60s"),
        ("[sleep, '9.5']", "preStop 9.5s"),
        ("[sh, -c, 'sleep 3; /bin/sleep 25s']", "preStop 28s"),
    ] {
        is_error(&[(sleep, &format!("command: {command}"))], time);
    }
    is_valid(&[(sleep, "command: [sh, -c, 'sleep 0.5 && sleep 2']")]);
}

#[test]
fn zero_replicas_are_a_warning() {
    let (before, _) = VALID.split_once("---\napiVersion: autoscaling/v2").unwrap();
    let text = before.replace("spec:\n  template:", "spec:\n  replicas: 0\n  template:");
    let report = checked(&text, "policies: {per-ip: 100/min}\n");
    assert_eq!(report.errors.len(), 0);
    assert!(report.warnings[0].to_string().contains("Deployment r: replicas is 0"), "{}", report.warnings[0]);
}
