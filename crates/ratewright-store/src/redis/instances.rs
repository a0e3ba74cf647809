//! Counts the instances that share one Redis.
//!
//! Every two seconds each instance writes a heartbeat to a sorted set, by Redis' own time, and counts the heartbeats of
//! the last ten seconds. Without Redis, an instance uses its last count. A smaller count is accepted only after ten
//! seconds: a Redis that lost its data has not seen all instances yet.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::link::Link;

/// The interval of heartbeats, and of attempts before the first one succeeds.
const EVERY: Duration = Duration::from_secs(2);
const AT_FIRST: Duration = Duration::from_millis(50);

/// An instance without a heartbeat for this time is gone, in milliseconds.
const GONE_AFTER: u32 = 10_000;

/// A smaller number of instances is accepted after this many counts in a row, two seconds apart.
const BELIEVED_AFTER: u32 = 5;

const SCRIPT: &str = "#!lua
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])";

/// The count of instances.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Zero until the first count.
    n_instances: AtomicU32,
    /// How often in a row the count was smaller, and the largest of these counts.
    n_fewer: AtomicU32,
    most_of_fewer: AtomicU32,
}

impl Presence {
    /// The last count of instances, including this one; `None` before the first.
    pub(super) fn n_instances(&self) -> Option<u32> {
        Some(self.n_instances.load(Ordering::Relaxed)).filter(|n| *n > 0)
    }

    /// Records a count.
    fn told(&self, n: u32) {
        if self.n_instances.load(Ordering::Relaxed) <= n {
            self.n_instances.store(n, Ordering::Relaxed);
            self.n_fewer.store(0, Ordering::Relaxed);
            self.most_of_fewer.store(0, Ordering::Relaxed);
            return;
        }
        self.most_of_fewer.fetch_max(n, Ordering::Relaxed);
        if BELIEVED_AFTER <= self.n_fewer.fetch_add(1, Ordering::Relaxed) + 1 {
            let most = self.most_of_fewer.swap(0, Ordering::Relaxed);
            self.n_instances.store(most, Ordering::Relaxed);
            self.n_fewer.store(0, Ordering::Relaxed);
        }
    }

    /// Announces this instance as long as the link is in use.
    pub(super) fn announce(self: Arc<Self>, link: &Arc<Link>, key: String) {
        let link = Arc::downgrade(link);
        let name = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        tokio::spawn(async move {
            while let Some(link) = link.upgrade() {
                let mut command = Cmd::new();
                command.arg("EVAL").arg(SCRIPT).arg(1).arg(&key).arg(&name).arg(GONE_AFTER);
                if let Ok(Value::Int(n)) = link.command(&command).await {
                    self.told(u32::try_from(n).unwrap_or(u32::MAX));
                }
                drop(link);
                let known = self.n_instances.load(Ordering::Relaxed) > 0;
                tokio::time::sleep(if known { EVERY } else { AT_FIRST }).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_are_believed_at_once_and_fewer_after_ten_seconds() {
        let presence = Presence::default();
        let told = |n| {
            presence.told(n);
            presence.n_instances()
        };
        assert_eq!(presence.n_instances(), None);
        assert_eq!([1, 3, 1, 2, 2].map(told), [1, 3, 3, 3, 3].map(Some));
        assert_eq!(told(3), Some(3), "they are back");
        assert_eq!([1, 2, 1, 1, 1].map(told), [3, 3, 3, 3, 2].map(Some));
        assert_eq!(told(5), Some(5));
    }
}
