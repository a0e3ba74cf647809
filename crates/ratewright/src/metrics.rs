//! The program's own metrics: store, policies, reloads, gateway, Envoy, certificates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratewright_core::Policies;
use ratewright_core::decision::Observe;
use ratewright_core::store::Basis;
use ratewright_gateway::metrics::RouteMetrics;
use ratewright_listen::{ProxyProtocol, Tls};
use ratewright_rls::{HitCounts, HitsOf, Unmatched};
use ratewright_server::admin::Figure;
use ratewright_store::redis::Traffic;
use ratewright_store::{FailoverStatus, MemoryStats, Peers as _};

use crate::gateway::GatewayHandle;
use crate::reload::{Reloads, n_policies};
use crate::store::ConfiguredStore;

/// Memory use, and the state of Redis.
pub(crate) fn of_store(store: &ConfiguredStore) -> Vec<Figure> {
    let mut figures = of_memory(store.memory_stats());
    let ConfiguredStore::Redis(failover) = store else { return figures };
    let up = f64::from(failover.shared().status().is_up);
    let help = "Whether Redis is reachable: 1 or 0";
    figures.push(Figure::gauge("ratewright_store_up", help).of(up));
    let out = f64::from(failover.status().is_out);
    let help = "Whether decisions are made without Redis: 1 or 0";
    figures.push(Figure::gauge("ratewright_store_substituted", help).of(out));
    figures.push(of_mode(failover.status()));
    if let Some(n_instances) = failover.shared().n_instances() {
        let help = "Instances of Ratewright on the same Redis, with store.local.share: auto";
        figures.push(Figure::gauge("ratewright_instances", help).of(f64::from(n_instances)));
    }
    let standings = Figure::counter("ratewright_store_standings", "Limits charged, by basis");
    let bases = [Basis::Shared, Basis::Local, Basis::FailOpen, Basis::FailClosed];
    figures.push(bases.into_iter().fold(standings, |figure, basis| {
        figure.labelled("basis", basis.name(), figure_of(failover.n_by_basis(basis)))
    }));
    figures.extend(of_traffic(failover.shared().traffic()));
    figures
}

/// How long decisions have been made with Redis, or without it.
fn of_mode(FailoverStatus { is_out, lasts, .. }: FailoverStatus) -> Figure {
    let help = "Seconds since decisions switched to Redis (mode shared) or to memory (mode local)";
    let mode = if is_out { "local" } else { "shared" };
    let lasts = Duration::from(lasts).as_secs_f64();
    Figure::gauge("ratewright_store_mode_since_seconds", help).labelled("mode", mode, lasts)
}

fn of_traffic(traffic: Traffic) -> [Figure; 3] {
    let Traffic { calls, failures, n_outages, .. } = traffic;
    let help = "Decisions and commands without a reply from Redis, by reason";
    let failed = Figure::counter("ratewright_store_failures", help);
    [
        Figure::durations("ratewright_store_call", "Duration of calls to Redis, including failed ones")
            .took([], calls),
        failures
            .into_iter()
            .fold(failed, |figure, (kind, n)| figure.labelled("kind", kind.name(), figure_of(n))),
        Figure::counter("ratewright_store_outages", "Lost connections to Redis").of(figure_of(n_outages)),
    ]
}

/// The rule set in force.
pub(crate) fn of_policies(policies: &Policies, permits: &Policies) -> Vec<Figure> {
    let generation = figure_of(policies.generation());
    let n_policies = figure_of(n_policies(policies, permits) as u64);
    vec![
        Figure::gauge("ratewright_policies_generation", "The number of the rule set in force").of(generation),
        Figure::gauge("ratewright_policies", "Policies of the policy file in force, in_flight included")
            .of(n_policies),
    ]
}

/// Hits of rules for Envoy, and requests that match no rule.
pub(crate) fn of_envoy((hits, unmatched): (&HitCounts, &Unmatched)) -> Vec<Figure> {
    let mut all = Figure::counter("ratewright_envoy_hits", "Hits of rules for Envoy");
    let mut over =
        Figure::counter("ratewright_envoy_over_limit_hits", "Hits of rules for Envoy over their limit");
    for HitsOf { rule, n_all, n_over } in hits.read() {
        all = all.labelled("rule", &rule, figure_of(n_all));
        over = over.labelled("rule", &rule, figure_of(n_over));
    }
    let help = "Requests with a domain that envoy.files does not have";
    let domains =
        Figure::counter("ratewright_envoy_unknown_domain", help).of(figure_of(unmatched.n_requests()));
    let help = "Descriptors of known domains that match no rule";
    let descriptors = Figure::counter("ratewright_envoy_unmatched_descriptors", help);
    vec![all, over, domains, descriptors.of(figure_of(unmatched.n_descriptors()))]
}

/// Connections that the PROXY protocol rejected.
pub(crate) fn of_proxy_protocols(listeners: &[(&'static str, ProxyProtocol)]) -> Vec<Figure> {
    let help = "Connections refused by proxy_protocol, by listener and reason";
    let mut refused = Figure::counter("ratewright_proxy_protocol_refused", help);
    for (listener, proxy) in listeners {
        for (refusal, n) in proxy.n_refused() {
            let labels = [("listener", (*listener).to_owned()), ("reason", refusal.name().to_owned())];
            refused = refused.under(labels, figure_of(n));
        }
    }
    vec![refused]
}

/// When the certificates of listeners expire.
pub(crate) fn of_certificates(listeners: &[(&'static str, Tls)]) -> Vec<Figure> {
    let help = "Expiry of a listener's certificate, or of the first in its chain to expire, in Unix seconds";
    let expiry = Figure::gauge("ratewright_certificate_expiry_timestamp_seconds", help);
    let known = listeners.iter().filter_map(|(name, tls)| Some((*name, tls.expires_at()?)));
    vec![known.fold(expiry, |figure, (name, at)| figure.labelled("listener", name, figure_of(at)))]
}

/// Counts and times of reloads.
pub(crate) fn of_reloads(reloads: &Reloads) -> Vec<Figure> {
    let count = |n: &AtomicU64| figure_of(n.load(Ordering::Relaxed));
    let loaded_at = figure_of(reloads.loaded_at().as_micros()) / 1e6;
    vec![
        Figure::counter("ratewright_reloads", "Reloads that put a policy file in force")
            .of(count(&reloads.n_succeeded)),
        Figure::counter("ratewright_reload_failures", "Reloads that rejected the policy file")
            .of(count(&reloads.n_failed)),
        Figure::gauge(
            "ratewright_last_reload_successful",
            "Whether the policy file that was read last is in force: 1 or 0",
        )
        .of(f64::from(reloads.last_succeeded())),
        Figure::gauge(
            "ratewright_policies_loaded_timestamp_seconds",
            "When the rule set in force was read, in Unix seconds",
        )
        .of(loaded_at),
    ]
}

fn of_memory(stats: MemoryStats) -> Vec<Figure> {
    let MemoryStats { n_keys, n_keys_max, n_evicted, n_bytes } = stats;
    let gauge = |name, help, n: usize| Figure::gauge(name, help).of(figure_of(n as u64));
    vec![
        gauge("ratewright_memory_keys", "Keys in memory", n_keys),
        gauge("ratewright_memory_keys_max", "Maximum number of keys in memory", n_keys_max),
        gauge("ratewright_memory_bytes", "Memory used by keys, in bytes", n_bytes),
        Figure::counter("ratewright_memory_evictions", "Keys evicted before they expired")
            .of(figure_of(n_evicted)),
    ]
}

/// A count as a metric value. Metric values are doubles: above 2^53 they lose single counts.
fn figure_of(n: u64) -> f64 {
    n as f64
}

/// Requests through the gateway, the health of upstreams, and lost lines of the access log.
pub(crate) fn of_gateway<O: Observe + 'static>(gateway: &GatewayHandle<O>) -> Vec<Figure> {
    let counted = gateway.counts().read();
    let mut requests = Figure::counter("gateway_request", "Requests to the gateway, by status and route");
    let help = "Time until the response head";
    let mut took = Figure::durations("gateway_request_duration", help);
    let help = "Requests to the gateway whose response has not begun";
    let mut in_flight = Figure::gauge("gateway_requests_in_flight", help);
    for RouteMetrics { label, by_status, duration: reading, n_in_flight } in counted {
        for (status, n) in by_status {
            let labels = [("status", status.to_string()), ("route_path", label.to_string())];
            requests = requests.under(labels, figure_of(n));
        }
        in_flight = in_flight.labelled("route_path", label.to_string(), figure_of(n_in_flight));
        took = took.took([("route_path", label.to_string())], reading);
    }
    let mut healthy =
        Figure::gauge("gateway_upstream_healthy", "Whether an upstream server gets requests: 1 or 0");
    let mut ejections = Figure::counter("gateway_upstream_ejections", "Ejections of an upstream server");
    for (_, route) in gateway.settings().routes.iter() {
        for state in route.upstream.states() {
            let labels = || [("route", route.id.to_string()), ("server", state.server.to_string())];
            healthy = healthy.under(labels(), f64::from(state.is_healthy));
            ejections = ejections.under(labels(), figure_of(state.n_ejections));
        }
    }
    let help = "Lines of the access log that were dropped";
    let dropped = Figure::counter("gateway_access_log_dropped", help);
    vec![
        requests,
        took,
        in_flight,
        healthy,
        ejections,
        dropped.of(figure_of(gateway.access_log().n_dropped())),
    ]
}
