//! The last 15 minutes of decisions, for the live page: rings of fixed size, filled once a second from the counters that
//! metrics have anyway. A decision costs nothing more.
//!
//! ```text
//!   Checks, Denials ─ every second ─────────────────────► 900 seconds: allowed, denied, shadow
//!   Decisions ─────── every 10 s; every second if the ──► 90 steps of 10 s for each policy
//!                     page is open
//! ```
//!
//! At most 1,000 policies have steps: the first that decide something. A policy without decisions for 15 minutes makes
//! room for another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ratewright_core::quantity::SECOND;
use ratewright_core::{Timestamp, Verdict};
use serde::Serialize;
use tokio::sync::Notify;

use super::decisions::PolicyTotals;
use super::{Clock, Telemetry};

/// How far back the page shows decisions, in seconds.
const SECONDS_MAX: u64 = 900;

/// The length of a policy's step, in seconds.
const STEP_SECONDS: u64 = 10;

/// The most policies with steps.
const POLICIES_MAX: usize = 1_000;

/// The last 15 minutes of decisions.
#[derive(Debug, Default)]
pub struct History {
    rings: Mutex<Rings>,
    sampled: Notify,
}

/// The requests of one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SecondCounts {
    /// The second, in Unix time.
    pub at: u64,
    /// Requests that were allowed, also those that no policy covers; without `shadow`.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that were allowed, although a policy in shadow mode would have denied them.
    pub shadow: u64,
    /// The sample in which it changed last.
    changed_in: u64,
}

/// The decisions of a policy in one step of 10 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyStep {
    /// The second at which it begins, in Unix time.
    pub at: u64,
    /// What was decided.
    pub counts: PolicyTotals,
    changed_in: u64,
}

/// What has changed since an earlier reading.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HistoryUpdate {
    /// The number of the last sample.
    #[serde(skip)]
    pub sample: u64,
    /// Seconds with decisions, in their order.
    pub seconds: Vec<SecondCounts>,
    /// Steps with decisions, by policy.
    pub policies: BTreeMap<String, Vec<PolicyStep>>,
}

#[derive(Debug, Default)]
struct Rings {
    /// The number of the last sample.
    sample: u64,
    /// The last second that was sampled.
    second: u64,
    /// The counters at the last sample.
    requests: RequestTotals,
    seconds: VecDeque<SecondCounts>,
    /// The counters of all policies at the last sample.
    totals: BTreeMap<Arc<str>, PolicyTotals>,
    /// At most [`POLICIES_MAX`].
    policies: BTreeMap<Arc<str>, PolicyRing>,
}

/// Counters of requests, since the start.
#[derive(Clone, Copy, Debug, Default)]
struct RequestTotals {
    allowed: u64,
    denied: u64,
    shadow: u64,
}

#[derive(Debug, Default)]
struct PolicyRing {
    steps: VecDeque<PolicyStep>,
}

impl History {
    /// Reads the counters. To be called about once a second; `is_watched` is true if the page is open.
    pub fn sample<C: Clock>(&self, telemetry: &Telemetry<C>, is_watched: bool) {
        let now = telemetry.clock().now();
        let requests = RequestTotals::of(telemetry);
        let mut rings = self.rings.lock();
        rings.add_second(now, requests);
        let is_last_of_step = rings.second % STEP_SECONDS == STEP_SECONDS - 1;
        if is_watched || is_last_of_step {
            rings.add_policies(telemetry.decisions().totals());
        }
        drop(rings);
        self.sampled.notify_waiters();
    }

    /// Waits for the next sample.
    pub async fn next_sample(&self) {
        self.sampled.notified().await;
    }

    /// What has changed since sample number `since`; all if it is 0.
    pub fn read(&self, since: u64) -> HistoryUpdate {
        let rings = self.rings.lock();
        let is_new = |changed_in: u64| changed_in > since;
        let steps_of = |(policy, ring): (&Arc<str>, &PolicyRing)| {
            let steps: Vec<_> = ring.steps.iter().filter(|step| is_new(step.changed_in)).copied().collect();
            (!steps.is_empty()).then(|| (policy.to_string(), steps))
        };
        HistoryUpdate {
            sample: rings.sample,
            seconds: rings.seconds.iter().filter(|second| is_new(second.changed_in)).copied().collect(),
            policies: rings.policies.iter().filter_map(steps_of).collect(),
        }
    }
}

impl Rings {
    fn add_second(&mut self, now: Timestamp, requests: RequestTotals) {
        self.sample += 1;
        // Most of the time since the last sample is in the second before this one.
        let second = now.as_micros().saturating_sub(SECOND / 2) / SECOND;
        if second + 2 < self.second {
            // The clock was set back: what is in the future now would never be shown.
            self.seconds.retain(|known| known.at <= second);
            self.policies.values_mut().for_each(|ring| ring.steps.retain(|step| step.at <= second));
            self.second = second;
        }
        self.second = self.second.max(second);
        let before = std::mem::replace(&mut self.requests, requests);
        let counts = SecondCounts {
            at: self.second,
            allowed: requests.allowed.saturating_sub(before.allowed),
            denied: requests.denied.saturating_sub(before.denied),
            shadow: requests.shadow.saturating_sub(before.shadow),
            changed_in: self.sample,
        };
        let oldest = self.second.saturating_sub(SECONDS_MAX - 1);
        while self.seconds.front().is_some_and(|second| second.at < oldest) {
            self.seconds.pop_front();
        }
        match self.seconds.back_mut() {
            _ if counts.allowed + counts.denied + counts.shadow == 0 => {}
            Some(last) if last.at == counts.at => {
                last.allowed += counts.allowed;
                last.denied += counts.denied;
                last.shadow += counts.shadow;
                last.changed_in = counts.changed_in;
            }
            _ => self.seconds.push_back(counts),
        }
    }

    fn add_policies(&mut self, all: BTreeMap<Arc<str>, PolicyTotals>) {
        let at = self.second / STEP_SECONDS * STEP_SECONDS;
        let oldest = at.saturating_sub(SECONDS_MAX - STEP_SECONDS);
        for ring in self.policies.values_mut() {
            while ring.steps.front().is_some_and(|step| step.at < oldest) {
                ring.steps.pop_front();
            }
        }
        self.policies.retain(|_, ring| !ring.steps.is_empty());
        let before = std::mem::replace(&mut self.totals, all);
        for (policy, totals) in &self.totals {
            let counts = totals.since(before.get(policy).copied().unwrap_or_default());
            let is_known = self.policies.contains_key(policy);
            if counts == PolicyTotals::default() || (!is_known && self.policies.len() >= POLICIES_MAX) {
                continue;
            }
            let steps = &mut self.policies.entry(Arc::clone(policy)).or_default().steps;
            match steps.back_mut() {
                Some(last) if last.at == at => {
                    last.counts.add(counts);
                    last.changed_in = self.sample;
                }
                _ => steps.push_back(PolicyStep { at, counts, changed_in: self.sample }),
            }
        }
    }
}

impl RequestTotals {
    /// Each request counts once: a request that an in-flight limit denies is never counted as allowed. Allowed is counted before
    /// shadow, so shadow is read first.
    fn of<C: Clock>(telemetry: &Telemetry<C>) -> Self {
        let (denied, shadow) = telemetry.denials().totals();
        let allowed = telemetry.checks().read().filter(|check| check.verdict == Verdict::Allow);
        let allowed = allowed.map(|check| check.took.n).sum::<u64>() + telemetry.n_uncovered();
        Self { allowed: allowed.saturating_sub(shadow), denied, shadow }
    }
}

/// As a short array: the page gets 900 of them.
impl Serialize for SecondCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.at, self.allowed, self.denied, self.shadow].serialize(serializer)
    }
}

impl Serialize for PolicyStep {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PolicyTotals { allowed, denied, shadow, near } = self.counts;
        [self.at, allowed, denied, shadow, near].serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use ratewright_core::query::{Attribute, AttributeName};
    use ratewright_core::{Limiter, ManualClock, Micros, Policies, Policy, Query, Quota};
    use ratewright_store::MemoryStore;

    use super::*;
    use crate::telemetry::{TelemetryObserver, Warnings};

    type TestLimiter = Limiter<MemoryStore<ManualClock>, TelemetryObserver<ManualClock>>;

    /// A limiter of two policies: `two` allows two a day for each key, `many` allows all.
    fn limiter(clock: &ManualClock) -> (Arc<Telemetry<ManualClock>>, TestLimiter) {
        let telemetry = Arc::new(Telemetry::new(Warnings::All, clock.clone(), Arc::new(clock.clone())));
        let many = Quota::per_second(1_000_000).with_burst(NonZeroU32::new(1_000_000).unwrap()).unwrap();
        let two =
            Policy::new("two", Quota::new(Default::default(), "2/d".parse().unwrap()).unwrap()).unwrap();
        let policies = vec![two.by(&[AttributeName::Key]), Policy::new("many", many).unwrap()];
        let store = MemoryStore::new(clock.clone(), 100_000);
        let observer = TelemetryObserver::Rates(telemetry.clone());
        (telemetry, Limiter::observed(Policies::new(policies).unwrap(), store, observer))
    }

    async fn request(limiter: &TestLimiter, key: &str) {
        let attributes = [Attribute { name: AttributeName::Key, value: key }];
        limiter.decide(&Query::new(&attributes)).await;
    }

    proptest! {
        /// Every decision is in the history exactly once: its second, its step, and what an observer reads piece by piece.
        #[test]
        fn no_decision_is_lost_or_counted_twice(
            seconds in prop::collection::vec((0..5_usize, any::<bool>()), 1..60),
            begins_at in 1_700_000_000_000_000..1_700_000_100_000_000_u64,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let clock = ManualClock::at(Timestamp::from_micros(begins_at));
                let (telemetry, limiter) = limiter(&clock);
                let (mut since, mut seen) = (0, BTreeMap::new());
                let mut n_requests = 0;
                for (n, is_watched) in seconds {
                    for _ in 0..n {
                        request(&limiter, "a").await;
                        n_requests += 1;
                    }
                    clock.advance(Micros::from_secs(1));
                    telemetry.history().sample(&telemetry, is_watched);
                    let update = telemetry.history().read(since);
                    since = update.sample;
                    seen.extend(update.seconds.iter().map(|second| (second.at, second.allowed + second.denied)));
                }
                telemetry.history().sample(&telemetry, true);
                let all = telemetry.history().read(0);
                let in_seconds: u64 = all.seconds.iter().map(|second| second.allowed + second.denied).sum();
                assert_eq!(in_seconds, n_requests);
                assert_eq!(seen.values().sum::<u64>(), n_requests, "piece by piece");
                for policy in ["two", "many"] {
                    let steps = all.policies.get(policy).map_or(&[][..], Vec::as_slice);
                    let n: u64 = steps.iter().map(|step| step.counts.allowed + step.counts.denied).sum();
                    assert_eq!(n, n_requests, "{policy}");
                    assert!(steps.iter().all(|step| step.at % STEP_SECONDS == 0));
                    assert!(steps.is_sorted_by(|a, b| a.at < b.at), "each step once");
                }
                let denied: u64 = all.seconds.iter().map(|second| second.denied).sum();
                assert_eq!(denied, n_requests.saturating_sub(2));
            });
        }
    }

    #[tokio::test]
    async fn the_rings_have_a_fixed_size() {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let (telemetry, limiter) = limiter(&clock);
        for _ in 0..2_000 {
            request(&limiter, "a").await;
            clock.advance(Micros::from_secs(1));
            telemetry.history().sample(&telemetry, true);
        }
        let all = telemetry.history().read(0);
        assert_eq!(all.seconds.len(), 900);
        assert_eq!(all.seconds.last().unwrap().at, 1_700_001_999);
        assert!(all.policies.values().all(|steps| steps.len() <= 90), "{}", all.policies["many"].len());
        clock.advance(Micros::from_secs(1_000));
        telemetry.history().sample(&telemetry, true);
        let all = telemetry.history().read(0);
        assert!(all.seconds.is_empty() && all.policies.is_empty(), "nothing is older than 15 minutes");
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_does_not_stop_the_history() {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let (telemetry, limiter) = limiter(&clock);
        for set_to in
            [1_700_000_001_000_000, 1_700_000_000_000_000, 1_699_999_800_000_000, 1_600_000_000_000_000_u64]
        {
            request(&limiter, "a").await;
            clock.set(Timestamp::from_micros(set_to));
            telemetry.history().sample(&telemetry, true);
            let last = telemetry.history().read(0).seconds.last().copied().unwrap();
            let now = set_to / SECOND;
            assert!((now - 1..=now + 1).contains(&last.at), "{last:?} at {now}");
        }
        let all = telemetry.history().read(0);
        assert_eq!(all.seconds.len(), 1, "nothing is in the future: {:?}", all.seconds);
    }

    #[test]
    fn at_most_a_thousand_policies_have_steps() {
        let mut rings = Rings { second: 1_000, ..Rings::default() };
        let one = PolicyTotals { allowed: 1, ..PolicyTotals::default() };
        let all = (0..2_000).map(|n| (Arc::from(format!("p{n:04}")), one)).collect::<BTreeMap<_, _>>();
        rings.add_policies(all.clone());
        assert_eq!(rings.policies.len(), POLICIES_MAX);
        assert!(rings.policies.contains_key("p0999") && !rings.policies.contains_key("p1000"));
        let two = PolicyTotals { allowed: 2, ..PolicyTotals::default() };
        let later = all.into_keys().map(|name| (Arc::clone(&name), if *name < *"p1500" { one } else { two }));
        rings.second += SECONDS_MAX;
        rings.add_policies(later.collect());
        let counted: Vec<_> =
            rings.policies.iter().map(|(name, ring)| (&**name, ring.steps[0].counts)).collect();
        assert_eq!(counted.len(), 500, "idle policies make room for those that decide");
        assert!(counted.iter().all(|(name, counts)| *name >= "p1500" && *counts == one));
    }
}
