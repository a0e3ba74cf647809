//! Probes, ports and grace periods of the manifests must fit the listeners of the policy file.

use std::time::Duration;

use super::findings::Findings;
use super::manifests::Manifests;
use super::workload::Workload;
use crate::config::{Config, ListenerConfig};
use crate::yaml_node::YamlNode;

/// The default of Kubernetes for terminationGracePeriodSeconds.
const GRACE: Duration = Duration::from_secs(30);

/// A probe, and the path that it must request.
struct Probe {
    name: &'static str,
    path: &'static str,
    /// Why it must be this path.
    why: &'static str,
}

const READINESS: Probe = Probe {
    name: "readinessProbe",
    path: "/ready",
    why: "which returns 503 as soon as the pod stops, so that it gets no more requests",
};

const LIVENESS: Probe = Probe {
    name: "livenessProbe",
    path: "/health",
    why: "which returns 200 as long as the process is alive, with or without Redis",
};

/// Compares the probes with `listen.admin`.
pub(super) fn check(workload: &Workload<'_>, config: &Config, findings: &mut Findings<'_>) {
    for probe in [READINESS, LIVENESS] {
        if let Some(written) = workload.container.get(probe.name) {
            check_one(workload, config, &probe, written, findings);
            continue;
        }
        let Probe { name, path, why } = probe;
        let problem = format!("{} has no {name}; request {path} on listen.admin, {why}", workload.label());
        if name == READINESS.name {
            findings.error(workload.container, problem);
        } else {
            findings.warn(workload.container, problem);
        }
    }
    if let Some(written) = workload.container.get("startupProbe") {
        let path = if written.text_at("httpGet.path") == Some(READINESS.path) { "/ready" } else { "/health" };
        let probe = Probe { name: "startupProbe", path, ..LIVENESS };
        check_one(workload, config, &probe, written, findings);
    }
}

fn check_one(
    workload: &Workload<'_>,
    config: &Config,
    probe: &Probe,
    written: &YamlNode,
    findings: &mut Findings<'_>,
) {
    let Probe { name, path, why } = probe;
    let label = format!("{}: {name}", workload.label());
    if let Some(command) = written.at("exec.command") {
        let words = command.words();
        // The command of a shell is one argument.
        let words =
            words.iter().flat_map(|word| word.split(|c: char| c.is_whitespace() || ";&|()\"'".contains(c)));
        let words: Vec<_> = words.collect();
        let is_ours = |pair: &[&str]| pair[0].rsplit('/').next() == Some("ratewright") && pair[1] == "health";
        let is_live = words.contains(&"--live");
        if !words.windows(2).any(is_ours) || is_live != (*path == LIVENESS.path) {
            let wanted =
                if *path == LIVENESS.path { "ratewright health --live" } else { "ratewright health" };
            findings.error(command, format!("{label} must run {wanted}, or request {path}, {why}"));
        }
        return;
    }
    let Some(asked) = written.get("httpGet") else {
        return findings.error(written, format!("{label} must request {path} by httpGet, {why}"));
    };
    let Some(admin) = &config.listen.admin else {
        let problem = "needs listen.admin, which is off; set an address, for example 0.0.0.0:8082";
        return findings.error(asked, format!("{label} {problem}"));
    };
    let asked_path = asked.text_at("path").unwrap_or("/").split('?').next();
    if asked_path != Some(*path) {
        let at = asked.get("path").unwrap_or(asked);
        let asks = asked.text_at("path").unwrap_or("/");
        findings.error(at, format!("{label} requests {asks}; it must request {path}, {why}"));
    }
    let written_port = asked.text_at("port").unwrap_or_default();
    let port_node = asked.get("port").unwrap_or(asked);
    let real = admin.address.port();
    match workload.port(written_port) {
        Some(port) if port == real => {
            check_reach(&label, admin, port_node, findings);
            check_scheme(&label, config, asked, findings);
        }
        Some(port) => {
            findings.error(port_node, format!("{label} uses port {port}; listen.admin is on {real}"));
        }
        None => {
            let problem = format!("uses port {written_port:?}, which the container does not declare");
            findings.error(port_node, format!("{label} {problem}; listen.admin is on {real}"));
        }
    }
}

/// Reports a probe with another protocol than the admin listener.
fn check_scheme(label: &str, config: &Config, asked: &YamlNode, findings: &mut Findings<'_>) {
    let at = asked.get("scheme").unwrap_or(asked);
    let tls =
        [&["listen", "admin", "tls"][..], &["listen", "tls"]].map(|section| config.settings_in(section));
    let has_tls = tls.iter().any(|settings| !settings.is_empty());
    let is_https = asked.text_at("scheme") == Some("HTTPS");
    let problem = if config.listen.admin.as_ref().is_some_and(|admin| admin.proxy_protocol.is_some()) {
        "fails: listen.admin has proxy_protocol, and the kubelet sends no PROXY header; run ratewright health instead"
    } else if tls.iter().any(|settings| settings.contains("client_ca")) {
        "fails: listen.admin requires a client certificate, and the kubelet has none; run ratewright health instead"
    } else if has_tls && !is_https {
        "uses HTTP, and listen.admin has TLS; set scheme: HTTPS"
    } else if is_https && !has_tls {
        "uses HTTPS, and listen.admin has no TLS; remove scheme"
    } else {
        return;
    };
    findings.error(at, format!("{label} {problem}"));
}

/// Reports an admin listener that the kubelet cannot reach.
fn check_reach(label: &str, admin: &ListenerConfig, at: &YamlNode, findings: &mut Findings<'_>) {
    if !admin.is_exposed() {
        let (address, port) = (admin.address, admin.address.port());
        let problem = format!("listen.admin is {address}, reachable only inside the container");
        let advice = format!("set listen.admin: 0.0.0.0:{port} and api.tokens");
        findings.error(at, format!("{label} fails: {problem}; {advice}"));
    }
}

/// Compares container ports and Services with the listeners.
pub(super) fn check_ports(
    workload: &Workload<'_>,
    manifests: &Manifests,
    config: &Config,
    findings: &mut Findings<'_>,
) {
    for port in workload.container.items_at("ports") {
        let Some(number) = port.get("containerPort") else { continue };
        let label = format!("{}: containerPort", workload.label());
        check_port(&label, number.text().and_then(|text| text.parse().ok()), number, config, findings);
    }
    for service in workload.beside(manifests, "Service") {
        if !workload.is_selected(service.root.at("spec.selector")) {
            continue;
        }
        for port in service.root.items_at("spec.ports") {
            let Some(target) = port.get("targetPort").or(port.get("port")) else { continue };
            let text = target.text().unwrap_or_default();
            let label = format!("{}: targetPort", service.label());
            match workload.port(text) {
                // A named port is a container port, which is checked above.
                Some(_) if text.parse::<u16>().is_err() => {}
                _ if workload.is_port_of_other(text) => {}
                number => check_port(&label, number, target, config, findings),
            }
        }
    }
}

fn check_port(label: &str, number: Option<u16>, at: &YamlNode, config: &Config, findings: &mut Findings<'_>) {
    let text = at.text().unwrap_or_default();
    let mut listeners = config.open_listeners();
    match listeners.find(|(_, listener)| Some(listener.address.port()) == number) {
        None => {
            let open: Vec<_> = config
                .open_listeners()
                .map(|(name, listener)| format!("{name} {}", listener.address.port()))
                .collect();
            let problem =
                format!("{label} is {text}, which has no listener; listeners are {}", open.join(", "));
            findings.error(at, problem);
        }
        Some((name, listener)) if !listener.is_exposed() => {
            let address = listener.address;
            let problem =
                format!("{label} is {text}; listen.{name} is {address}, reachable only inside the pod");
            findings.error(at, problem);
        }
        Some(_) => {}
    }
}

/// Compares the grace period with the time that Ratewright needs to stop.
pub(super) fn check_stop(workload: &Workload<'_>, config: &Config, findings: &mut Findings<'_>) {
    let (needed, allowed) = (stop_time(workload, config), grace(workload));
    if needed <= allowed {
        return;
    }
    let node = workload.pod.get("terminationGracePeriodSeconds").unwrap_or(workload.pod);
    let (hook, delay, (name, drain)) = (pre_stop(workload), config.stop.delay, longest_drain(config));
    let hook = if hook.is_zero() { String::new() } else { format!("preStop {hook:?} + ") };
    findings.error(
        node,
        format!(
            "{}: terminationGracePeriodSeconds is {}; {hook}stop_delay {delay:?} + {name} {drain:?} = {needed:?} are needed, or \
             requests are aborted; set at least {}",
            workload.label(),
            allowed.as_secs(),
            needed.as_secs_f64().ceil()
        ),
    );
}

/// The longest time that a pod needs to stop.
pub(super) fn stop_time(workload: &Workload<'_>, config: &Config) -> Duration {
    let (_, drain) = longest_drain(config);
    pre_stop(workload).saturating_add(config.stop.delay).saturating_add(drain)
}

/// The longest drain timeout, with its setting: Envoy's connections have their own.
fn longest_drain(config: &Config) -> (&'static str, Duration) {
    let drain = ("drain_timeout", config.stop.drain_timeout);
    let calls = config.envoy.as_ref().map(|envoy| ("envoy.connection_grace", envoy.listening.drain_timeout));
    calls.filter(|(_, grace)| *grace > drain.1).unwrap_or(drain)
}

/// The grace period of a pod.
pub(super) fn grace(workload: &Workload<'_>) -> Duration {
    workload.pod.number_at("terminationGracePeriodSeconds").map_or(GRACE, Duration::from_secs)
}

/// The time that a preStop hook sleeps, as far as its command shows.
fn pre_stop(workload: &Workload<'_>) -> Duration {
    let Some(hook) = workload.container.at("lifecycle.preStop") else { return Duration::ZERO };
    if let Some(seconds) = hook.number_at("sleep.seconds") {
        return Duration::from_secs(seconds);
    }
    let words = hook.at("exec.command").map(YamlNode::words).unwrap_or_default();
    let words = words.iter().flat_map(|word| word.split(|c: char| c.is_whitespace() || ";&|".contains(c)));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let sleeps = words.windows(2).filter(|pair| pair[0].rsplit('/').next() == Some("sleep"));
    sleeps.filter_map(|pair| slept(pair[1])).fold(Duration::ZERO, Duration::saturating_add)
}

/// Parses the argument of the command `sleep`: `10`, `9.5`, `1m`.
fn slept(text: &str) -> Option<Duration> {
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 's') => (text.get(..at)?, 1.0),
        (at, 'm') => (text.get(..at)?, 60.0),
        (at, 'h') => (text.get(..at)?, 3_600.0),
        (at, 'd') => (text.get(..at)?, 86_400.0),
        _ => (text, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}
