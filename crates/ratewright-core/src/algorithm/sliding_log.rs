//! Sliding window log: every charge of the last window, remembered.
//!
//! ```text
//!   4/min            ├──────── the last minute ────────┤
//!    (3 left) ···· (2)      (1)          (1)          now      2 + 1 + 1 = 4: full until (2) leaves
//! ```
//!
//! Exact, and the most expensive: one entry for each instant with charges. Entries are in order of time; if the clock
//! is behind, a charge joins the newest entry. `Record` may exceed the limit, but only the newest entries that together
//! reach twice `units` are kept: as long as an older one would count, these alone deny every charge. So a log never has
//! more than twice as many entries as units. If quotas with the same window share a log, the largest one decides what
//! is kept, so that a smaller one never discards entries of a larger one.
//!
//! # Laws
//! - Any window spends at most `units`.
//! - `retry_after` is exact.
//! - A refund removes its own entry: the units left are the same as if nothing had been charged.

use std::collections::VecDeque;

use super::{Bucket, Demand, Fit, Level, deepen, forfeits};
use crate::quantity::{Micros, Timestamp};
use crate::quota::Quota;

/// The charges of one window, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlidingLog {
    entries: VecDeque<LogEntry>,
    spent: u64,
    /// Twice the limit of the largest quota that has spent here since the log was empty.
    deepest: u32,
}

/// What was spent at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LogEntry {
    at: Timestamp,
    cost: u32,
}

impl SlidingLog {
    /// Entries that no longer count, and the units in the ones that do.
    fn settled(&self, quota: &Quota, now: Timestamp) -> (usize, u64) {
        let gone = self.entries.iter().take_while(|entry| quota.window() <= now.since(entry.at));
        gone.fold((0, self.spent), |(n, spent), entry| (n + 1, spent - u64::from(entry.cost)))
    }

    /// Lets go of entries that no longer count.
    fn settle(&mut self, quota: &Quota, now: Timestamp) {
        let (n_gone, spent) = self.settled(quota, now);
        self.entries.drain(..n_gone);
        self.spent = spent;
        if self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// Removes the oldest entries while the newer ones alone reach `deepest`.
    fn trim(&mut self) {
        while let Some(oldest) = self.entries.front().map(|entry| u64::from(entry.cost)) {
            if self.spent - oldest < u64::from(self.deepest) {
                return;
            }
            self.spent -= oldest;
            self.entries.pop_front();
        }
    }

    /// True if an entry is later than any charge could have made it, because the clock was set back.
    pub fn lies_ahead(&self, quota: &Quota, now: Timestamp) -> bool {
        self.entries.back().is_some_and(|newest| now + quota.window() < newest.at)
    }

    /// Bytes on the heap for entries.
    pub fn n_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<LogEntry>()
    }

    /// How long until an entry leaves.
    fn leaves_after(quota: &Quota, entry: &LogEntry, now: Timestamp) -> Micros {
        entry.at.left_of(quota.window(), now)
    }
}

impl Bucket for SlidingLog {
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool {
        let mended = self.lies_ahead(quota, now);
        if mended {
            // All that lies ahead was charged now; elder ones that are a little ahead must not stay ahead of those.
            let n_before = self.entries.partition_point(|entry| entry.at <= now);
            let cost = self.entries.drain(n_before..).map(|entry| entry.cost).sum();
            match self.entries.back_mut() {
                Some(newest) if newest.at == now => newest.cost = newest.cost.saturating_add(cost),
                _ => self.entries.push_back(LogEntry { at: now, cost }),
            }
        }
        // What has left the window has left for good, also if the clock is set back.
        self.settle(quota, now);
        mended
    }

    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let (n_gone, spent) = self.settled(quota, now);
        let room = u64::from(quota.units()) - demand.total();
        if spent <= room {
            return Fit::NOW;
        }
        let mut missing = spent - room;
        for entry in self.entries.range(n_gone..) {
            missing = missing.saturating_sub(u64::from(entry.cost));
            if missing == 0 {
                return Fit::Short { retry_after: Self::leaves_after(quota, entry, now) };
            }
        }
        Fit::Short { retry_after: quota.window() } // not reached: all entries together free all of it
    }

    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        self.settle(quota, now);
        if cost == 0 {
            return 0; // and what a lowered quota would not keep stays until something is spent
        }
        self.deepest = if self.entries.is_empty() { 0 } else { self.deepest }.max(quota.deepest());
        let counted = match self.entries.back_mut() {
            Some(newest) if now <= newest.at => deepen(&mut newest.cost, cost, quota),
            _ => {
                let mut entry = LogEntry { at: now, cost: 0 };
                let counted = deepen(&mut entry.cost, cost, quota);
                self.entries.extend((counted > 0).then_some(entry));
                counted
            }
        };
        self.spent += u64::from(counted);
        self.trim();
        counted
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        self.settle(quota, now);
        if forfeits(u32::try_from(self.spent).unwrap_or(u32::MAX), quota, paid_at, now) {
            return;
        }
        let Ok(index) = self.entries.binary_search_by_key(&paid_at, |entry| entry.at) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        let back = entry.cost.min(cost);
        entry.cost -= back;
        self.spent -= u64::from(back);
        if entry.cost == 0 {
            self.entries.remove(index);
        }
    }

    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let (n_gone, spent) = self.settled(quota, now);
        let left = u64::from(quota.units()).saturating_sub(spent);
        let oldest = self.entries.get(n_gone);
        Level {
            remaining: u32::try_from(left).unwrap_or(u32::MAX),
            reset_after: oldest.map_or(Micros::ZERO, |entry| Self::leaves_after(quota, entry, now)),
        }
    }

    fn gone_at(&self, quota: &Quota) -> Timestamp {
        self.entries.back().map_or(Timestamp::default(), |newest| newest.at + quota.window())
    }
}
