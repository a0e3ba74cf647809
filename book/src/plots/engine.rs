//! One client of the real engine, on a clock that is moved by hand.

use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratewright_core::query::{Ask, Entrypoint, Select};
use ratewright_core::quota::Algorithm;
use ratewright_core::{
    Decision, Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Timestamp, Verdict,
};
use ratewright_store::MemoryStore;

/// Where plots begin: a whole hour, so that windows begin there, too.
const START: Timestamp = Timestamp::from_micros(1_699_999_200_000_000);

/// A limiter with one policy, and its clock.
pub(crate) struct Engine {
    clock: ManualClock,
    limiter: Limiter<MemoryStore<ManualClock>>,
}

/// What became of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// When the request was sent, after the beginning of the plot.
    pub at: Micros,
    /// Whether it was allowed.
    pub is_allowed: bool,
    /// How long it was held before it could leave. Zero, unless it was allowed and the quota is a queue.
    pub wait: Micros,
}

impl Reply {
    /// When the request left.
    pub fn left_at(&self) -> Micros {
        self.at + self.wait
    }
}

impl Engine {
    /// A policy with these quotas, all of which apply. Its buckets are new.
    pub(crate) fn new(quotas: &[Quota]) -> Self {
        let (first, others) = quotas.split_first().expect("a policy has a quota");
        let policy = Policy::new("plot", first.clone()).expect("the name is valid");
        let policy =
            others.iter().fold(policy, |policy, quota| policy.and(quota.algorithm().name(), quota.clone()));
        let policies = Policies::new(vec![policy]).expect("the names are unique");
        let clock = ManualClock::at(START);
        Self { limiter: Limiter::new(policies, MemoryStore::new(clock.clone(), 10)), clock }
    }

    /// Sends one request.
    pub(crate) fn send(&self, at: Micros) -> Reply {
        let decision = self.decide(at, Ask::Spend(NonZeroU32::MIN));
        Reply { at, is_allowed: decision.verdict() == Verdict::Allow, wait: decision.wait() }
    }

    /// Whole units that are left, and the time until nothing counts against the client.
    pub(crate) fn look(&self, at: Micros) -> (u32, Micros) {
        let decision = self.decide(at, Ask::Look(0));
        let (_, _, standing) = decision.tightest().expect("the policy covers every query");
        (standing.remaining, standing.reset_after)
    }

    fn decide(&self, at: Micros, ask: Ask) -> Decision {
        self.clock.set(START + at);
        let query = Query {
            select: Select::Covering(&[]),
            attributes: &[],
            address: None,
            ask,
            patience: Micros::MAX,
            id: None,
            entrypoint: Entrypoint::Tower,
        };
        match pin!(self.limiter.decide(&query)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => decision,
            Poll::Pending => unreachable!("the memory store never waits"),
        }
    }
}

/// A quota, as a policy file writes it.
pub(crate) fn quota(algorithm: Algorithm, rate: &str) -> Quota {
    Quota::new(algorithm, rate.parse().expect("the rate is valid")).expect("the quota is valid")
}

/// A bucket, as a policy file writes it.
pub(crate) fn bucket(algorithm: Algorithm, rate: &str, burst: u32) -> Quota {
    let burst = NonZeroU32::new(burst).expect("a bucket has a burst");
    quota(algorithm, rate).with_burst(burst).expect("the quota is valid")
}

/// Sends requests in their order to a new engine.
pub(crate) fn play(quotas: &[Quota], requests: &[Micros]) -> Vec<Reply> {
    let engine = Engine::new(quotas);
    requests.iter().map(|at| engine.send(*at)).collect()
}

/// So many requests, evenly spaced.
pub(crate) fn spaced(first: Micros, gap: Micros, n: u64) -> impl Iterator<Item = Micros> {
    (0..n).map(move |index| Micros::new(first.as_micros() + gap.as_micros() * index))
}

/// The most requests that were allowed within any period of this length, which includes its end and not its beginning.
pub fn most_allowed_within(replies: &[Reply], period: Micros) -> usize {
    let allowed: Vec<_> = replies.iter().filter(|reply| reply.is_allowed).map(|reply| reply.at).collect();
    let counts = allowed.iter().enumerate().map(|(last, end)| {
        let end = *end;
        allowed.iter().take(last + 1).filter(|at| end < **at + period).count()
    });
    counts.max().unwrap_or(0)
}

/// For the axes of plots.
pub(crate) fn seconds(time: Micros) -> f64 {
    Duration::from(time).as_secs_f64()
}
