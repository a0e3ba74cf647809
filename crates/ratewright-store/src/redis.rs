//! The Redis store: one script call for each decision, or for several together.
//!
//! ```text
//!   charges ─pack→ frame ─link→ EVALSHA apply.lua ─→ states and time ─derive→ standings
//! ```
//!
//! Any number of instances share the buckets, and Redis' clock is the only one. The script checks and spends in one
//! step; standings are derived from the states here, by the memory store's functions, so that both give the same
//! standings for the same history. `docs/guides/redis.md` documents keys, fields and times to live.
//!
//! # Laws
//! `tests/it/laws.rs`, and `tests/it/twins.rs`: the same standings as the memory store, for every history.

mod bounded_stream;
mod clock_setback_by_slot;
mod cluster;
mod counters;
mod error;
mod instances;
mod link;
mod name;
mod script_codec;
mod servers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratewright_core::store::{Basis, Charge, Key, Refund, Standings};
use ratewright_core::{ManualClock, Micros, Store};
use redis::Cmd;

pub use counters::Traffic;
pub use error::{Endpoint, FailureKind, StoreError};
pub use link::LinkStatus;
pub use name::digest_of;
pub use servers::{Certificates, Servers, ServersError};

use crate::all_or_none::Purpose;
use crate::failover::Peers;
use clock_setback_by_slot::TimesSeen;
use instances::Presence;
use link::Link;
use name::Naming;
use script_codec::DecisionReply;

/// How the store uses Redis.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisSettings {
    /// The prefix of all keys.
    pub prefix: String,
    /// How long a decision may wait for Redis.
    pub deadline: Duration,
    /// The shortest time to live of a key. Zero: keys expire one second after their bucket is full again.
    pub min_ttl: Micros,
    /// Whether buckets also have the fields `tokens` and `lastRefill`, for people who read them.
    pub readable: bool,
    /// Whether this instance announces itself and counts the others.
    pub announces: bool,
    /// The clock of tests. `None`: Redis' own.
    pub clock: Option<ManualClock>,
}

/// Holds buckets in Redis. Decisions need a [`Failover`](crate::Failover) around it, which says what happens without Redis.
///
/// ```
/// use ratewright_store::{RedisSettings, RedisStore, Servers};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let servers = Servers::single("redis://127.0.0.1:6379")?;
/// let store = RedisStore::new(servers, RedisSettings::default().prefix("shop"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<RedisStoreInner>,
    presence: Arc<Presence>,
}

/// Everything a decision needs. Shared, because a decision on several nodes may outlive its caller.
#[derive(Debug)]
struct RedisStoreInner {
    link: Arc<Link>,
    naming: Naming,
    times_seen: TimesSeen,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            prefix: "ratelimit".to_owned(),
            deadline: Duration::from_millis(5),
            min_ttl: Micros::ZERO,
            readable: true,
            announces: false,
            clock: None,
        }
    }
}

/// Setters, to be chained after `RedisSettings::default()`.
impl RedisSettings {
    /// Sets `prefix`: the prefix of all keys.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets `deadline`: how long a decision may wait for Redis.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets `min_ttl`: the shortest time to live of a key. Zero: keys expire one second after their bucket is full again.
    #[must_use]
    pub fn min_ttl(mut self, min_ttl: Micros) -> Self {
        self.min_ttl = min_ttl;
        self
    }

    /// Sets `readable`: whether buckets also have the fields `tokens` and `lastRefill`, for people who read them.
    #[must_use]
    pub fn readable(mut self, readable: bool) -> Self {
        self.readable = readable;
        self
    }

    /// Sets `announces`: whether this instance announces itself and counts the others.
    #[must_use]
    pub fn announces(mut self, announces: bool) -> Self {
        self.announces = announces;
        self
    }

    /// Sets `clock`: the clock of tests. `None`: Redis' own.
    #[must_use]
    pub fn clock(mut self, clock: Option<ManualClock>) -> Self {
        self.clock = clock;
        self
    }
}

impl RedisStore {
    /// A store on these servers. It connects in the background, as soon as they are reachable.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(servers: Servers, settings: RedisSettings) -> Self {
        let naming = Naming { prefix: settings.prefix, is_tagged: servers.is_cluster() };
        let header = script_codec::header(settings.min_ttl, settings.readable);
        let link = Arc::new(Link::new(servers, settings.deadline, header, settings.clock));
        let presence = Arc::new(Presence::default());
        if settings.announces {
            presence.clone().announce(&link, naming.instances());
        }
        let times_seen = TimesSeen::new(naming.is_tagged);
        Self { shared: Arc::new(RedisStoreInner { link, naming, times_seen }), presence }
    }

    /// The same store without the times it has seen. For tests that each have their own clock.
    #[doc(hidden)]
    #[must_use]
    pub fn anew(&self) -> Self {
        let RedisStoreInner { link, naming, .. } = &*self.shared;
        let times_seen = TimesSeen::new(naming.is_tagged);
        let shared = RedisStoreInner { link: link.clone(), naming: naming.clone(), times_seen };
        Self { shared: Arc::new(shared), presence: self.presence.clone() }
    }

    /// Its address, without credentials.
    pub fn endpoint(&self) -> &Endpoint {
        self.shared.link.endpoint()
    }

    /// Whether Redis is reachable, and since when.
    pub fn status(&self) -> LinkStatus {
        self.shared.link.status()
    }

    /// Calls, failures and outages so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.link.traffic()
    }
}

impl RedisStoreInner {
    /// Applies charges whose keys are on one node. Returns whether none vetoed, and Redis' reply.
    async fn apply_together(
        &self,
        charges: &[Charge<'_>],
        purpose: Purpose,
        standings: &mut Standings,
        until: Instant,
    ) -> Result<(bool, DecisionReply), StoreError> {
        let packed = script_codec::pack(charges, purpose, &self.naming);
        let time_seen = self.times_seen.of(packed.keys.first());
        let answer = self.link.ask(packed, until).await?;
        time_seen.note(answer.now);
        if let Some(fits) = script_codec::derive(charges, purpose, &answer, standings) {
            return Ok((fits, answer));
        }
        standings.clear();
        let got = format!("{:?}", answer.numbers).chars().take(200).collect();
        let endpoint = self.link.endpoint().clone();
        self.link.count(Err(StoreError::BadReply {
            endpoint,
            got,
            expected: "states that explain the verdict",
        }))
    }

    /// Refunds, with one call for each node.
    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, StoreError> {
        let until = self.link.until();
        let meet = |one: &Refund<'_>, other: &Refund<'_>| {
            !self.naming.is_tagged || cluster::meet(&one.key, &other.key, &self.naming)
        };
        let mut n_refunded = 0;
        for refunds in refunds.chunk_by(meet) {
            n_refunded += self.refund_together(refunds, until).await?;
        }
        Ok(n_refunded)
    }

    /// Refunds charges of one node in one call. Returns how many were refunded.
    async fn refund_together(&self, refunds: &[Refund<'_>], until: Instant) -> Result<usize, StoreError> {
        let Some(first) = refunds.first().map(|refund| self.naming.name(&refund.key)) else { return Ok(0) };
        let time_seen = self.times_seen.of(Some(&first));
        let packed = script_codec::pack_refunds(refunds, time_seen, &self.naming);
        if packed.keys.is_empty() {
            return Ok(0);
        }
        let answer = self.link.ask(packed, until).await?;
        time_seen.note(answer.now);
        Ok(answer.numbers.first().and_then(|n| usize::try_from(*n).ok()).unwrap_or(0))
    }
}

impl Peers for RedisStore {
    fn n_instances(&self) -> Option<u32> {
        self.presence.n_instances()
    }
}

impl Store for RedisStore {
    type Error = StoreError;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), StoreError> {
        if charges.is_empty() {
            return Ok(());
        }
        if self.shared.naming.is_tagged && cluster::is_spread(charges, &self.shared.naming) {
            return self.shared.clone().apply_in_groups(charges, standings).await;
        }
        let until = self.shared.link.until();
        self.shared.apply_together(charges, Purpose::Spend, standings, until).await.map(drop)
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, StoreError> {
        self.shared.refund(refunds).await
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, StoreError> {
        for key in keys {
            let mut command = Cmd::new();
            command.arg("UNLINK").arg(self.shared.naming.name(key));
            self.shared.link.command(&command).await?;
        }
        Ok(Basis::Shared)
    }
}
