//! The running program, as the admin API sees it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ratewright_core::policy::{Part, Selector};
use ratewright_core::quantity::SECOND;
use ratewright_core::{Clock, Micros, Policy, Timestamp};
use ratewright_server::admin::{
    DescribedPolicy, Info, Instance, InstanceFuture, LiveStatus, PolicyFileText, PolicyList, Readiness,
    ReloadStatus, Reloaded, SimulateRequest, SimulationError, StoreStatus, UpstreamStatus,
};
use ratewright_store::{MemoryStats, Peers as _, WallClock};
use ratewright_telemetry::Reading;
use serde_json::Value;

use super::{Running, VERSION};
use crate::config::{Explainer, PolicyWords, exemptions};
use crate::reload::is_of_file;
use crate::store::ConfiguredStore;
use crate::what_if;

/// The most upstreams that the live page shows.
const UPSTREAMS_MAX: usize = 200;

/// The longest simulation.
const SIMULATION_TIMEOUT: Duration = Duration::from_secs(30);

/// How far back the latency of Redis is averaged.
const LATENCY_WINDOW: Micros = Micros::from_secs(10);

/// Readings of the duration of calls to Redis, of the last 10 s.
#[derive(Debug, Default)]
pub(super) struct CallReadings(Mutex<VecDeque<(Timestamp, u64, Micros)>>);

impl CallReadings {
    /// The average since the oldest reading, in milliseconds.
    fn average_ms(&self, now: Timestamp, calls: &Reading) -> Option<f64> {
        let mut readings = self.0.lock();
        readings.push_back((now, calls.n, calls.sum));
        while readings.len() > 2 && readings.front().is_some_and(|(at, ..)| now.since(*at) > LATENCY_WINDOW) {
            readings.pop_front();
        }
        let (_, n_before, sum_before) = readings.front()?;
        let (n, sum) =
            (calls.n.saturating_sub(*n_before), calls.sum.as_micros().saturating_sub(sum_before.as_micros()));
        (n > 0).then(|| sum as f64 / n as f64 / 1_000.0)
    }
}

impl Instance for Running {
    fn has_policy(&self, name: &str) -> bool {
        self.limiter.policies().named(name).is_some() || self.gateway.permits().named(name).is_some()
    }

    fn info(&self) -> Info {
        Info {
            version: VERSION,
            generation: self.limiter.policies().generation(),
            uptime: WallClock.now().since(self.started_at),
        }
    }

    fn readiness(&self) -> Readiness {
        self.current_readiness()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn reload(&self, is_forced: bool) -> InstanceFuture<'_, Reloaded> {
        Box::pin(self.reloads.ask(is_forced))
    }

    fn status(&self) -> LiveStatus {
        let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        LiveStatus {
            store: self.store_status(),
            reload: ReloadStatus {
                loaded_at: self.reloads.loaded_at().as_micros() / 1_000,
                succeeded: count(&self.reloads.n_succeeded),
                failed: count(&self.reloads.n_failed),
                last_error: self.reloads.last_error(),
            },
            upstreams: self.upstreams(),
        }
    }

    fn policies(&self) -> PolicyList {
        let (policies, permits) = (self.limiter.policies(), self.gateway.permits());
        let gateway = self.gateway.settings();
        let has_redis = matches!(*self.store, ConfiguredStore::Redis(_));
        let explainer = Explainer { has_redis, routes: &gateway.routes, permits: &permits };
        let used = self.telemetry.decisions().totals();
        // Those of ad hoc keys and of Envoy are shown once they have decided something.
        let is_shown = |policy: &&Policy| {
            let is_covering = *policy.selector() != Selector::Named || explainer.is_routed(policy);
            (is_of_file(policy) && is_covering) || used.contains_key(policy.name())
        };
        let shown: Vec<&Policy> = policies.iter().chain(permits.iter()).filter(is_shown).collect();
        let described = |explained: PolicyWords<'_>| DescribedPolicy {
            policy: explained.policy.name().to_owned(),
            group: explained.policy.group().map(str::to_owned),
            mode: explained.policy.mode().name(),
            meaning: explained.meaning,
            overrides: explained.overrides,
            limits: explainer.short_limits(explained.policy),
            by: explained.policy.partition().iter().map(part_name).collect(),
        };
        PolicyList {
            generation: policies.generation(),
            policies: explainer.policies(&shown).into_iter().map(described).collect(),
            notes: exemptions(&policies).into_iter().collect(),
        }
    }

    fn policy_file(&self) -> InstanceFuture<'_, PolicyFileText> {
        Box::pin(async {
            // Reading a long file takes a second, so it is done once for each file, and not where requests are decided.
            let mut known = self.policy_file_text.lock().await;
            let loaded_at = self.reloads.loaded_at();
            if let Some((_, text)) = known.as_ref().filter(|(at, _)| *at == loaded_at) {
                return text.clone();
            }
            let files = self.reloads.files();
            let text = tokio::task::spawn_blocking(move || what_if::policy_file(&files)).await;
            let text = text.unwrap_or_default(); // the instance is stopping
            *known = Some((loaded_at, text.clone()));
            text
        })
    }

    fn simulate(&self, request: SimulateRequest) -> InstanceFuture<'_, Result<Value, SimulationError>> {
        let files = self.reloads.files();
        Box::pin(async {
            let cancel = CancelOnDrop::default();
            let flag = Arc::clone(&cancel.0);
            let simulated = tokio::task::spawn_blocking(move || what_if::simulate(&files, request, flag));
            let unfinished = |reason: &str| Err(SimulationError::Log(reason.to_owned()));
            match tokio::time::timeout(SIMULATION_TIMEOUT, simulated).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => unfinished("simulation failed; see the log"),
                Err(_) => unfinished("simulation took longer than 30 s; use the command ratewright simulate"),
            }
        })
    }
}

/// Cancels a simulation whose caller has gone, or has waited for too long: a thread that goes on would also delay the end of the
/// program.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Running {
    fn store_status(&self) -> StoreStatus {
        let MemoryStats { n_keys, n_keys_max, n_evicted, n_bytes } = self.store.memory_stats();
        let uptime = WallClock.now().since(self.started_at);
        let (mode, lasts, latency_ms, instances) = match &*self.store {
            ConfiguredStore::Memory(_) => ("memory", uptime, None, None),
            ConfiguredStore::Redis(failover) => {
                let status = failover.status();
                let is_shared = !status.is_out && failover.shared().status().is_up;
                let mode = if is_shared { "shared" } else { "local" };
                let calls = failover.shared().traffic().calls;
                let latency_ms = self.redis_calls.average_ms(WallClock.now(), &calls);
                (mode, status.lasts, latency_ms, failover.shared().n_instances())
            }
        };
        StoreStatus {
            location: self.store.place(),
            mode,
            since_seconds: lasts.as_micros() / SECOND,
            latency_ms,
            keys: n_keys,
            keys_max: n_keys_max,
            bytes: n_bytes,
            evictions: n_evicted,
            instances,
        }
    }

    fn upstreams(&self) -> Vec<UpstreamStatus> {
        let mut upstreams = Vec::new();
        for (_, route) in self.gateway.settings().routes.iter() {
            upstreams.extend(route.upstream.states().map(|state| UpstreamStatus {
                route: route.id.to_string(),
                address: state.server.to_string(),
                is_healthy: state.is_healthy,
                ejections: state.n_ejections,
            }));
        }
        upstreams.truncate(UPSTREAMS_MAX);
        upstreams
    }
}

/// A part of a policy's key, as policy files write it.
fn part_name(part: &Part) -> String {
    part.names().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}
