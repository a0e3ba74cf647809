//! Probes, ports and stopping: what Kubernetes asks of the container must fit the listeners of the policy file.

use std::time::Duration;

use super::findings::Findings;
use super::manifests::Manifests;
use super::node::Node;
use super::workload::Workload;
use crate::config::{Config, ListenerConfig};

/// What Kubernetes allows, where the manifest does not say.
const GRACE: Duration = Duration::from_secs(30);

/// A probe, and what it has to ask.
struct Probe {
    name: &'static str,
    path: &'static str,
    /// Why no other path will do.
    why: &'static str,
}

const READINESS: Probe = Probe {
    name: "readinessProbe",
    path: "/ready",
    why: "which answers 503 as soon as the pod is to stop, so that no more requests are sent to it",
};

const LIVENESS: Probe = Probe {
    name: "livenessProbe",
    path: "/health",
    why: "which answers as long as the process is alive, whatever Redis does",
};

/// Compares the probes with `listen.admin`.
pub(super) fn check(workload: &Workload<'_>, config: &Config, findings: &mut Findings<'_>) {
    for probe in [READINESS, LIVENESS] {
        if let Some(written) = workload.container.get(probe.name) {
            check_one(workload, config, &probe, written, findings);
            continue;
        }
        let Probe { name, path, why } = probe;
        let problem = format!("{} has no {name}; ask {path} on listen.admin, {why}", workload.label());
        if name == READINESS.name {
            findings.wrong(workload.container, problem);
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
    written: &Node,
    findings: &mut Findings<'_>,
) {
    let Probe { name, path, why } = probe;
    let label = format!("{}: {name}", workload.label());
    if let Some(command) = written.at("exec.command") {
        let words = command.words();
        // A shell's command is one text.
        let words =
            words.iter().flat_map(|word| word.split(|c: char| c.is_whitespace() || ";&|()\"'".contains(c)));
        let words: Vec<_> = words.collect();
        let is_ours = |pair: &[&str]| pair[0].rsplit('/').next() == Some("ratewright") && pair[1] == "health";
        let is_live = words.contains(&"--live");
        if !words.windows(2).any(is_ours) || is_live != (*path == LIVENESS.path) {
            let wanted =
                if *path == LIVENESS.path { "ratewright health --live" } else { "ratewright health" };
            findings.wrong(command, format!("{label} must run {wanted}, or ask {path}, {why}"));
        }
        return;
    }
    let Some(asked) = written.get("httpGet") else {
        return findings.wrong(written, format!("{label} must ask {path} by httpGet, {why}"));
    };
    let Some(admin) = &config.listen.admin else {
        let problem = "asks for listen.admin, which is off; set an address, for example 0.0.0.0:8082";
        return findings.wrong(asked, format!("{label} {problem}"));
    };
    let asked_path = asked.text_at("path").unwrap_or("/").split('?').next();
    if asked_path != Some(*path) {
        let at = asked.get("path").unwrap_or(asked);
        let asks = asked.text_at("path").unwrap_or("/");
        findings.wrong(at, format!("{label} asks {asks}; it must ask {path}, {why}"));
    }
    let written_port = asked.text_at("port").unwrap_or_default();
    let port_node = asked.get("port").unwrap_or(asked);
    let real = admin.address.port();
    match workload.port(written_port) {
        Some(port) if port == real => {
            check_reach(&label, admin, port_node, findings);
            check_speech(&label, config, asked, findings);
        }
        Some(port) => {
            findings.wrong(port_node, format!("{label} asks port {port}; listen.admin is on {real}"));
        }
        None => {
            let problem = format!("asks port {written_port:?}, which the container does not name");
            findings.wrong(port_node, format!("{label} {problem}; listen.admin is on {real}"));
        }
    }
}

/// Notes a probe that does not speak as the admin listener does.
fn check_speech(label: &str, config: &Config, asked: &Node, findings: &mut Findings<'_>) {
    let at = asked.get("scheme").unwrap_or(asked);
    let tls =
        [&["listen", "admin", "tls"][..], &["listen", "tls"]].map(|section| config.settings_in(section));
    let has_tls = tls.iter().any(|settings| !settings.is_empty());
    let is_https = asked.text_at("scheme") == Some("HTTPS");
    let problem = if config.listen.admin.as_ref().is_some_and(|admin| admin.proxy_protocol.is_some()) {
        "cannot be answered: listen.admin has proxy_protocol, and the kubelet sends no such header; run ratewright health instead"
    } else if tls.iter().any(|settings| settings.contains("client_ca")) {
        "cannot be answered: listen.admin asks for a client certificate, and the kubelet has none; run ratewright health instead"
    } else if has_tls && !is_https {
        "asks by HTTP, and listen.admin has TLS; set scheme: HTTPS"
    } else if is_https && !has_tls {
        "asks by HTTPS, and listen.admin has no TLS; remove scheme"
    } else {
        return;
    };
    findings.wrong(at, format!("{label} {problem}"));
}

/// Notes an admin listener that the kubelet cannot reach.
fn check_reach(label: &str, admin: &ListenerConfig, at: &Node, findings: &mut Findings<'_>) {
    if !admin.is_exposed() {
        let (address, port) = (admin.address, admin.address.port());
        let problem = format!("listen.admin is {address}, which only the container itself reaches");
        let advice = format!("set listen.admin: 0.0.0.0:{port} and api.tokens");
        findings.wrong(at, format!("{label} cannot be answered: {problem}; {advice}"));
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
                // It is a container port, and checked as one.
                Some(_) if text.parse::<u16>().is_err() => {}
                _ if workload.is_port_of_other(text) => {}
                number => check_port(&label, number, target, config, findings),
            }
        }
    }
}

fn check_port(label: &str, number: Option<u16>, at: &Node, config: &Config, findings: &mut Findings<'_>) {
    let text = at.text().unwrap_or_default();
    let mut listeners = config.open_listeners();
    match listeners.find(|(_, listener)| Some(listener.address.port()) == number) {
        None => {
            let open: Vec<_> = config
                .open_listeners()
                .map(|(name, listener)| format!("{name} {}", listener.address.port()))
                .collect();
            let problem =
                format!("{label} is {text}, where nothing listens; listeners are {}", open.join(", "));
            findings.wrong(at, problem);
        }
        Some((name, listener)) if !listener.is_exposed() => {
            let address = listener.address;
            let problem =
                format!("{label} is {text}; listen.{name} is {address}, which only the pod itself reaches");
            findings.wrong(at, problem);
        }
        Some(_) => {}
    }
}

/// Compares the time that a pod has to stop with the time that Ratewright takes.
pub(super) fn check_stop(workload: &Workload<'_>, config: &Config, findings: &mut Findings<'_>) {
    let (needed, allowed) = (stop_time(workload, config), grace(workload));
    if needed <= allowed {
        return;
    }
    let node = workload.pod.get("terminationGracePeriodSeconds").unwrap_or(workload.pod);
    let (hook, delay, (name, drain)) = (pre_stop(workload), config.stop.delay, longest_drain(config));
    let hook = if hook.is_zero() { String::new() } else { format!("preStop {hook:?} + ") };
    findings.wrong(
        node,
        format!(
            "{}: terminationGracePeriodSeconds is {}; {hook}stop_delay {delay:?} + {name} {drain:?} = {needed:?} are needed, or \
             requests are cut off; set at least {}",
            workload.label(),
            allowed.as_secs(),
            needed.as_secs_f64().ceil()
        ),
    );
}

/// How long a pod takes to stop, at most.
pub(super) fn stop_time(workload: &Workload<'_>, config: &Config) -> Duration {
    let (_, drain) = longest_drain(config);
    pre_stop(workload).saturating_add(config.stop.delay).saturating_add(drain)
}

/// Which setting makes requests in flight wait longest: Envoy's calls have one of their own.
fn longest_drain(config: &Config) -> (&'static str, Duration) {
    let drain = ("drain_timeout", config.stop.drain_timeout);
    let calls = config.envoy.as_ref().map(|envoy| ("envoy.connection_grace", envoy.listening.drain_timeout));
    calls.filter(|(_, grace)| *grace > drain.1).unwrap_or(drain)
}

/// How long a pod has to stop.
pub(super) fn grace(workload: &Workload<'_>) -> Duration {
    workload.pod.number_at("terminationGracePeriodSeconds").map_or(GRACE, Duration::from_secs)
}

/// How long a preStop hook sleeps, as far as one can tell.
fn pre_stop(workload: &Workload<'_>) -> Duration {
    let Some(hook) = workload.container.at("lifecycle.preStop") else { return Duration::ZERO };
    if let Some(seconds) = hook.number_at("sleep.seconds") {
        return Duration::from_secs(seconds);
    }
    let words = hook.at("exec.command").map(Node::words).unwrap_or_default();
    let words = words.iter().flat_map(|word| word.split(|c: char| c.is_whitespace() || ";&|".contains(c)));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let sleeps = words.windows(2).filter(|pair| pair[0].rsplit('/').next() == Some("sleep"));
    sleeps.filter_map(|pair| slept(pair[1])).fold(Duration::ZERO, Duration::saturating_add)
}

/// How long the command `sleep` takes with this argument: `10`, `9.5`, `1m`.
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
