//! Decides always: by the shared store, or by a fallback while that store does not respond.
//!
//! ```text
//!   charges ─→ shared store ─→ standings, Shared
//!                  │ no reply
//!                  ▼
//!   the policy's on_failure:   closed ─→ denied, and nothing is charged here      FailClosed
//!                              local  ─→ this instance's memory, at its share     Local
//!                              open   ─→ let through, unchecked                   FailOpen
//! ```
//!
//! Charges that were sent without a reply may have been applied. They are not sent again and not refunded: the query
//! may be charged twice, in Redis and in memory, and is admitted at most once.
//!
//! While the shared store is unavailable, each instance grants a share of every quota. Local memory keeps spent units
//! until the quota returns them, however often the store fails and recovers: in any window an instance grants its share
//! once. Only a `ttl` forgets them earlier.
//!
//! The log has two lines for an outage: a warning with the cause at the first decision without the shared store, and a
//! line at the first shared decision after one second without local ones.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ratewright_core::policy::OnFailure;
use ratewright_core::quota::Share;
use ratewright_core::store::{Act, Basis, Charge, Key, Outcome, Receipt, Refund, Standing, Standings};
use ratewright_core::{Clock, Micros, Quota, Store, Timestamp};
use smallvec::SmallVec;
use tracing::{debug, error, info, warn};

use crate::memory::{MemoryStats, MemoryStore};
use crate::redis::StoreError;

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// An outage ends after this time without a local decision.
const OUTAGE_ENDS_AFTER: Micros = Micros::from_secs(1);

/// The shortest time between two log lines about unexpected replies.
const LOG_INTERVAL: Micros = Micros::from_secs(1);

/// When to retry a charge that the local share can never hold: Redis may be back by then.
const RETRY_AFTER: Micros = Micros::from_secs(1);

/// A store that always decides.
///
/// ```
/// # use std::sync::Arc;
/// use ratewright_store::{Failover, FailoverSettings, RedisSettings, RedisStore, Servers, SystemClock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = RedisStore::new(Servers::single("redis://127.0.0.1:6379")?, RedisSettings::default());
/// let store = Failover::new(redis, Arc::new(SystemClock::new()), FailoverSettings::default());
/// # Ok(())
/// # }
/// ```
pub struct Failover<S, C> {
    shared: S,
    local: MemoryStore<C>,
    clock: C,
    settings: FailoverSettings,
    is_out: AtomicBool,
    episode: Mutex<Episode>,
    counts: [AtomicU64; 4],
    /// When an unexpected reply was logged last.
    logged_at: AtomicU64,
}

/// How an instance decides without the shared store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailoverSettings {
    /// How much of each quota this instance grants.
    pub share: LocalShare,
    /// Local charges are forgotten this long after the shared store is back. `None`: never; each bucket refills by its own
    /// quota. With a `ttl`, each later outage grants the share of a long quota again.
    pub ttl: Option<Micros>,
    /// The most keys in memory.
    pub n_keys_max: usize,
}

/// How much of each quota an instance grants by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LocalShare {
    /// A fixed share.
    Fixed(Share),
    /// One part for each instance that was alive when the shared store last replied; a half if it never did.
    Auto,
}

/// A store that knows how many instances use it.
pub trait Peers {
    /// How many were alive when the store last replied; `None` if it never did.
    fn n_instances(&self) -> Option<u32>;
}

/// How decisions are being made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FailoverStatus {
    /// True while decisions are made without the shared store.
    pub is_out: bool,
    /// Since when, by the local clock.
    pub since: Timestamp,
    /// For how long.
    pub lasts: Micros,
    /// Decisions made without it since then.
    pub n_substituted: u64,
}

/// The last outage, or the time since it.
#[derive(Debug)]
struct Episode {
    since: Timestamp,
    last_at: Timestamp,
    n_substituted: u64,
    /// When the last outage ended.
    ended_at: Option<Timestamp>,
}

impl Default for FailoverSettings {
    fn default() -> Self {
        let half = Share { part: 1, of: TWO };
        Self { share: LocalShare::Fixed(half), ttl: None, n_keys_max: 1_000_000 }
    }
}

/// Setters, to be chained after `FailoverSettings::default()`.
impl FailoverSettings {
    /// Sets `share`: how much of each quota this instance grants.
    #[must_use]
    pub fn share(mut self, share: LocalShare) -> Self {
        self.share = share;
        self
    }

    /// Sets `ttl`: local charges are forgotten this long after the shared store is back; `None`: never.
    #[must_use]
    pub fn ttl(mut self, ttl: Option<Micros>) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets `n_keys_max`: the most keys in memory.
    #[must_use]
    pub fn n_keys_max(mut self, n_keys_max: usize) -> Self {
        self.n_keys_max = n_keys_max;
        self
    }
}

impl<S: Store<Error = StoreError> + Peers, C: Clock + Clone> Failover<S, C> {
    /// Falls back from `shared` to memory, by this clock.
    pub fn new(shared: S, clock: C, settings: FailoverSettings) -> Self {
        let now = clock.now();
        Self {
            shared,
            local: MemoryStore::new(clock.clone(), settings.n_keys_max),
            clock,
            settings,
            is_out: AtomicBool::new(false),
            episode: Mutex::new(Episode { since: now, last_at: now, n_substituted: 0, ended_at: None }),
            counts: Default::default(),
            logged_at: AtomicU64::new(0),
        }
    }

    /// The store that instances share.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// What this instance's memory holds.
    pub fn local_stats(&self) -> MemoryStats {
        self.local.stats()
    }

    /// How decisions are being made, and since when.
    pub fn status(&self) -> FailoverStatus {
        let Episode { since, n_substituted, .. } = *self.episode.lock();
        let lasts = self.clock.now().since(since);
        FailoverStatus { is_out: self.is_out.load(Ordering::Acquire), since, lasts, n_substituted }
    }

    /// Standings so far, by their basis.
    pub fn n_by_basis(&self, basis: Basis) -> u64 {
        self.counts[basis as usize].load(Ordering::Relaxed)
    }

    /// The share of each quota that this instance grants by itself.
    fn local_share(&self) -> Share {
        match self.settings.share {
            LocalShare::Fixed(share) => share,
            LocalShare::Auto => {
                let of = self.shared.n_instances().and_then(NonZeroU32::new).unwrap_or(TWO);
                Share { part: 1, of }
            }
        }
    }

    /// Decides without the shared store.
    fn substitute(&self, charges: &[Charge<'_>], standings: &mut Standings) {
        let is = |charge: &Charge<'_>, what: OnFailure| charge.on_failure == what;
        let denied = charges.iter().any(|charge| is(charge, OnFailure::Closed) && charge.act.vetoes());
        let share = self.local_share();
        let quotas: SmallVec<[Quota; 4]> = charges
            .iter()
            .filter(|charge| is(charge, OnFailure::Local))
            .map(|charge| charge.quota.share(share))
            .collect();
        let locals = charges.iter().filter(|charge| is(charge, OnFailure::Local)).zip(&quotas);
        let locals: SmallVec<[Charge<'_>; 4]> = locals
            .map(|(charge, quota)| {
                // A denied query is not charged.
                let act = if denied { Act::Look(charge.act.cost()) } else { charge.act };
                Charge { quota, act, ..charge.clone() }
            })
            .collect();
        let mut local_standings = Standings::new();
        self.local.apply_now(&locals, &mut local_standings);
        let mut local_standings = local_standings.into_iter();
        standings.clear();
        standings.extend(charges.iter().map(|charge| match charge.on_failure {
            OnFailure::Local => {
                let Some(standing) = local_standings.next() else {
                    return Standing::unknown(charge, Basis::FailClosed);
                };
                patient(Standing { share: Some(share), ..standing }, charge)
            }
            OnFailure::Open => Standing::unknown(charge, Basis::FailOpen),
            OnFailure::Closed => Standing::unknown(charge, Basis::FailClosed),
        }));
    }

    /// Records a decision made without the shared store.
    #[cold]
    fn record_local(&self, error: &StoreError, charges: &[Charge<'_>]) {
        let now = self.clock.now();
        let mut episode = self.episode.lock();
        let begins = !self.is_out.load(Ordering::Acquire);
        if begins {
            let forgives = self.settings.ttl.zip(episode.ended_at);
            if forgives.is_some_and(|(ttl, ended_at)| ttl <= now.since(ended_at)) {
                self.local.clear();
            }
            *episode = Episode { since: now, last_at: now, n_substituted: 0, ended_at: None };
            self.is_out.store(true, Ordering::Release);
        }
        episode.n_substituted += 1;
        episode.last_at = episode.last_at.max(now);
        drop(episode);
        if begins {
            warn!(cause = %error, "deciding without Redis; each policy's on_failure applies");
        }
        if let StoreError::BadReply { .. } = error {
            self.log_bad_reply(error, charges, now);
        }
    }

    /// Logs an unexpected reply with its keys, at most once a second.
    fn log_bad_reply(&self, error: &StoreError, charges: &[Charge<'_>], now: Timestamp) {
        let logged_at = self.logged_at.swap(now.as_micros(), Ordering::Relaxed);
        if LOG_INTERVAL <= now.since(Timestamp::from_micros(logged_at)) {
            let keys: Vec<_> = charges.iter().map(|charge| &charge.key).collect();
            error!(cause = %error, ?keys, "unexpected reply from Redis for these keys");
        } else {
            self.logged_at.store(logged_at, Ordering::Relaxed);
        }
    }

    /// Records a shared decision after local ones.
    #[cold]
    fn record_shared(&self) {
        let now = self.clock.now();
        let mut episode = self.episode.lock();
        if !self.is_out.load(Ordering::Acquire) || now.since(episode.last_at) < OUTAGE_ENDS_AFTER {
            return;
        }
        self.is_out.store(false, Ordering::Release);
        let (lasted, n_substituted) = (now.since(episode.since), episode.n_substituted);
        *episode = Episode { since: now, last_at: now, n_substituted: 0, ended_at: Some(now) };
        drop(episode);
        info!(after = ?Duration::from(lasted), decisions = n_substituted, "deciding with Redis again");
    }

    fn count(&self, standings: &Standings) {
        for standing in standings {
            self.counts[standing.basis as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A cost above the local share may fit the whole quota once the shared store is back.
fn patient(standing: Standing, charge: &Charge<'_>) -> Standing {
    let fits_the_whole = charge.act.cost() <= charge.quota.capacity().get();
    if standing.outcome == Outcome::Never && fits_the_whole {
        return Standing { outcome: Outcome::Denied { retry_after: RETRY_AFTER }, ..standing };
    }
    standing
}

impl<S: fmt::Debug, C: Clock> fmt::Debug for Failover<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failover")
            .field("shared", &self.shared)
            .field("local", &self.local)
            .field("episode", &self.episode)
            .finish_non_exhaustive()
    }
}

impl<S: Store<Error = StoreError> + Peers, C: Clock + Clone> Store for Failover<S, C> {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        let result = match self.shared.apply(charges, standings).await {
            Ok(()) if standings.len() != charges.len() => {
                Err(StoreError::Incomplete { n_charges: charges.len(), n_standings: standings.len() })
            }
            result => result,
        };
        match result {
            Ok(()) => {
                if self.is_out.load(Ordering::Acquire) && !charges.is_empty() {
                    self.record_shared();
                }
            }
            Err(error) => {
                self.record_local(&error, charges);
                self.substitute(charges, standings);
            }
        }
        self.count(standings);
        Ok(())
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        let mut n_refunded = 0;
        for Refund { key, quota, receipt, basis, share, id } in refunds {
            // The number of instances may have changed since the charge, and with it the share of each instance.
            let quota = &quota.share(share.unwrap_or_else(|| self.local_share()));
            let receipt = Receipt { ..*receipt };
            let refund = Refund { key: *key, quota, receipt, basis: *basis, share: *share, id: *id };
            let Ok(n_local) = self.local.refund(&[refund]).await;
            n_refunded += n_local;
        }
        // A refund without a reply is lost: sent again, it might be applied twice.
        match self.shared.refund(refunds).await {
            Ok(n_shared) => n_refunded += n_shared,
            Err(error) => debug!(cause = %error, "refund lost: Redis did not confirm it"),
        }
        Ok(n_refunded)
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        let Ok(basis) = self.local.reset(keys).await;
        Ok(match self.shared.reset(keys).await {
            Ok(shared) => shared,
            Err(error) => {
                warn!(cause = %error, "reset applied to this instance only");
                basis
            }
        })
    }
}
