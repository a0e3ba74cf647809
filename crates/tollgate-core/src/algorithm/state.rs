//! The state behind one key, whichever algorithm counts it.

use super::fixed_window::FixedWindow;
use super::leaky_bucket::Queue;
use super::sliding_counter::SlidingCounter;
use super::sliding_log::SlidingLog;
use super::stepped::Stepped;
use super::token_bucket::TokenBucket;
use super::{Bucket, Demand, Fit, Level};
use crate::quantity::Timestamp;
use crate::quota::{Algorithm, Leak, Quota, Refill};

/// What a store keeps for one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Of a token bucket, and of a leaky bucket that measures.
    Token(TokenBucket),
    /// Of a leaky bucket that queues.
    Queue(Queue),
    /// Of a token bucket that refills in steps.
    Stepped(Stepped),
    /// Of a sliding window log.
    Log(SlidingLog),
    /// Of a sliding window counter.
    Counter(SlidingCounter),
    /// Of a fixed window.
    Window(FixedWindow),
}

impl State {
    /// The state of a key that was never seen.
    #[inline]
    pub fn fresh(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => {
                Self::Token(TokenBucket::full(quota))
            }
            Algorithm::LeakyBucket(Leak::Queue) => Self::Queue(Queue(TokenBucket::full(quota))),
            Algorithm::TokenBucket(Refill::Stepped) => Self::Stepped(Stepped::default()),
            Algorithm::SlidingWindow => Self::Log(SlidingLog::default()),
            Algorithm::SlidingWindowCounter => Self::Counter(SlidingCounter::default()),
            Algorithm::FixedWindow(_) => Self::Window(FixedWindow::default()),
        }
    }
}

/// Passes a call on to the algorithm's own state.
macro_rules! each {
    ($state:expr, $bucket:ident => $call:expr) => {
        match $state {
            State::Token($bucket) => $call,
            State::Queue($bucket) => $call,
            State::Stepped($bucket) => $call,
            State::Log($bucket) => $call,
            State::Counter($bucket) => $call,
            State::Window($bucket) => $call,
        }
    };
}

impl Bucket for State {
    #[inline]
    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        each!(self, bucket => bucket.fit(quota, demand, now))
    }

    #[inline]
    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        each!(self, bucket => bucket.spend(quota, cost, now))
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        each!(self, bucket => bucket.refund(quota, cost, paid_at, now));
    }

    #[inline]
    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        each!(self, bucket => bucket.level(quota, now))
    }

    fn gone_at(&self, quota: &Quota) -> Timestamp {
        each!(self, bucket => bucket.gone_at(quota))
    }
}
