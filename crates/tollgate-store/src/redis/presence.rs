//! How many instances there are.
//!
//! Each says every two seconds that it is there, in a sorted set by Redis' own time, and counts those that did within
//! the last ten. The last count is what an instance goes by when Redis is gone.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::link::Link;

/// How often an instance says that it is there, and how often it tries until it could for the first time.
const EVERY: Duration = Duration::from_secs(2);
const AT_FIRST: Duration = Duration::from_millis(50);

/// An instance that said nothing for so many milliseconds is gone.
const GONE_AFTER: u32 = 10_000;

const SCRIPT: &str = "#!lua
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])";

/// Who else is there.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Zero until Redis has told.
    n_instances: AtomicU32,
}

impl Presence {
    /// How many instances there were when Redis was last asked, this one included.
    pub(super) fn n_instances(&self) -> u32 {
        self.n_instances.load(Ordering::Relaxed).max(1)
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
                    self.n_instances.store(u32::try_from(n).unwrap_or(u32::MAX), Ordering::Relaxed);
                }
                drop(link);
                let known = self.n_instances.load(Ordering::Relaxed) > 0;
                tokio::time::sleep(if known { EVERY } else { AT_FIRST }).await;
            }
        });
    }
}
