//! The memory store: a sharded table of small states.
//!
//! ```text
//!   key ─keyed 128-bit hash→ shard ─lock→ slot ─→ state ─weigh→ all fit? ─→ spend, all of them
//!                                                              └ veto? ──→ none
//! ```
//!
//! The locks of all shards that a call touches are held together, taken in the order of the shards, so
//! that calls cannot wait for each other in a circle. Within them a call first weighs every charge, and
//! moves something only if none vetoes.
//!
//! Keys are known by a hash under a key that each process draws anew (SipHash-1-3, 120 bits kept): nobody
//! can craft two clients that share a bucket, and a slot takes 32 bytes whatever the client's name is.
//!
//! # Laws
//! `tests/laws.rs` for what it answers, `tests/memory.rs` for caps, floods and threads.

mod shard;
mod slot;
mod sync;

use std::convert::Infallible;
use std::future::{Future, ready};
use std::hash::{BuildHasher, Hash, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;
use tollgate_core::algorithm::{Bucket, Demand, Fit};
use tollgate_core::{
    Basis, Charge, Clock, Key, Quota, Receipt, Refund, Standing, Standings, Store, Timestamp,
};

use shard::{Opened, Shard};
use slot::Identity;
use sync::{Mutex, MutexGuard};

/// Keys that a shard holds when the table is at its cap: a little under 7/8 of 4,096, where its table would
/// have to double.
const KEYS_PER_SHARD: usize = 3_200;

/// At least so many shards, so that threads seldom meet, if each then still has some keys.
const SHARDS_MIN: usize = 64;

/// Holds buckets in memory.
#[derive(Debug)]
pub struct MemoryStore<C> {
    shards: Box<[Padded]>,
    clock: C,
    secret: [u64; 2],
}

/// What a memory store holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Keys in the table. Some of them may mean nothing any more.
    pub n_keys: usize,
    /// The most keys that it will hold.
    pub n_keys_max: usize,
    /// Keys that were let go although they still meant something, because the table was full.
    pub n_evicted: u64,
    /// Bytes on the heap for keys, apart from the entries of sliding window logs.
    pub n_bytes: usize,
}

/// A shard in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// One call: its time, the keys it touches, and how its charges weigh.
struct Call<'a> {
    now: Timestamp,
    touched: SmallVec<[Touched<'a>; 4]>,
    weighed: SmallVec<[Weighed; 4]>,
    vetoed: bool,
}

/// A key of the call in hand.
struct Touched<'a> {
    id: Identity,
    shard: usize,
    quota: &'a Quota,
    opened: Opened,
    /// Units that charges of this call take from it.
    ahead: u64,
    spent: bool,
}

/// A charge of the call in hand: which key it touches, and how it fits.
struct Weighed {
    touched: usize,
    fit: Fit,
}

/// A shard of the call in hand.
struct Locked<'a> {
    shard: usize,
    guard: MutexGuard<'a, Shard>,
}

impl<C: Clock> MemoryStore<C> {
    /// A store that holds at most `n_keys_max` keys, at least one.
    ///
    /// A part of the table may be full a little before the whole is.
    pub fn new(clock: C, n_keys_max: usize) -> Self {
        let n_keys_max = n_keys_max.max(1);
        let spread = SHARDS_MIN.min(n_keys_max / 64);
        let n_shards = n_keys_max.div_ceil(KEYS_PER_SHARD).max(spread);
        // The first shards take the rest, so that all caps add up to the whole.
        let share = |n: usize| n_keys_max / n_shards + usize::from(n < n_keys_max % n_shards);
        let shards = (0..n_shards).map(|n| Padded(Mutex::new(Shard::new(share(n))))).collect();
        let random = RandomState::new();
        Self { shards, clock, secret: [random.hash_one(0), random.hash_one(1)] }
    }

    /// What it holds now. Looks at one shard after the other.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats { n_bytes: size_of_val(&*self.shards), ..MemoryStats::default() };
        for padded in &self.shards {
            let shard = padded.0.lock();
            stats.n_keys += shard.n_keys();
            stats.n_keys_max += shard.n_max();
            stats.n_evicted += shard.n_evicted();
            stats.n_bytes += shard.n_bytes();
        }
        stats
    }

    /// In which shard a key lies, and what it is called there.
    #[inline]
    fn locate(&self, key: &Key<'_>) -> (usize, Identity) {
        let mut hasher = SipHasher13::new_with_keys(self.secret[0], self.secret[1]);
        key.hash(&mut hasher);
        let hash = hasher.finish128();
        // Scales the hash down to the number of shards. `low` chooses the shard, `high` the place in it.
        let shard = (u128::from(hash.h2) * self.shards.len() as u128) >> 64;
        (usize::try_from(shard).unwrap_or(0), Identity::new(hash.h1, hash.h2))
    }

    /// Locks the shards of these keys, in the order of shards.
    #[inline]
    fn lock(&self, shards: impl Iterator<Item = usize>) -> SmallVec<[Locked<'_>; 4]> {
        let mut shards: SmallVec<[usize; 4]> = shards.collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| Locked { shard, guard: self.shards[shard].0.lock() }).collect()
    }

    /// Applies one charge, which has nobody to agree with.
    #[inline]
    fn apply_one(&self, charge: &Charge<'_>) -> Standing {
        let (shard, id) = self.locate(&charge.key);
        let mut shard = self.shards[shard].0.lock();
        let now = self.clock.now();
        let mut opened = shard.open(id, charge.quota);
        let demand = Demand { ahead: 0, cost: charge.act.cost(), patience: charge.patience };
        let fit = opened.state.fit(charge.quota, demand, now);
        let fits = matches!(fit, Fit::Fits { .. });
        if !charge.act.spends(fits) {
            let level = opened.state.level(charge.quota, now);
            shard.close(opened);
            return Standing::derive(charge, fit, None, level, Basis::Local);
        }
        let cost = opened.state.spend(charge.quota, demand.cost, now);
        let level = opened.state.level(charge.quota, now);
        if let Err(opened) = shard.replace(id, opened, charge.quota) {
            shard.insert(id, opened.state, charge.quota, now);
        }
        drop(shard);
        Standing::derive(charge, fit, Some(Receipt { cost, paid_at: now }), level, Basis::Local)
    }

    #[inline]
    fn apply_now(&self, charges: &[Charge<'_>]) -> Standings {
        if let [charge] = charges {
            let mut standings = Standings::new();
            standings.push(self.apply_one(charge));
            return standings;
        }
        self.apply_all(charges)
    }

    #[inline(never)]
    fn apply_all(&self, charges: &[Charge<'_>]) -> Standings {
        let places: SmallVec<[_; 4]> = charges.iter().map(|charge| self.locate(&charge.key)).collect();
        let mut locked = self.lock(places.iter().map(|place| place.0));
        let now = self.clock.now();
        let mut call = Call { now, touched: SmallVec::new(), weighed: SmallVec::new(), vetoed: false };
        for (charge, &(shard, id)) in charges.iter().zip(&places) {
            call.weigh(charge, shard, id, &mut locked);
        }
        let standings = charges.iter().enumerate().map(|(n, charge)| call.settle(n, charge)).collect();
        call.store(&mut locked);
        standings
    }

    fn refund_now(&self, refund: &Refund<'_>) {
        let (shard, id) = self.locate(&refund.key);
        let mut shard = self.shards[shard].0.lock();
        let now = self.clock.now();
        let mut opened = shard.open(id, refund.quota);
        let Some(place) = opened.place else { return };
        let Receipt { cost, paid_at } = refund.receipt;
        opened.state.refund(refund.quota, cost, paid_at, now);
        let gone = opened.state.gone_at(refund.quota) <= now;
        let replaced = shard.replace(id, opened, refund.quota);
        if gone && replaced.is_ok() {
            shard.remove(place);
        }
    }
}

impl<'a> Call<'a> {
    /// Weighs a charge. Moves nothing.
    #[inline]
    fn weigh(&mut self, charge: &Charge<'a>, shard: usize, id: Identity, locked: &mut [Locked<'_>]) {
        let known = self.touched.iter().position(|touched| touched.id == id && touched.shard == shard);
        let index = known.unwrap_or_else(|| {
            let opened = shard_of(shard, locked).open(id, charge.quota);
            self.touched.push(Touched { id, shard, quota: charge.quota, opened, ahead: 0, spent: false });
            self.touched.len() - 1
        });
        let touched = &mut self.touched[index];
        let cost = charge.act.cost();
        let demand = Demand { ahead: touched.ahead, cost, patience: charge.patience };
        let fit = touched.opened.state.fit(charge.quota, demand, self.now);
        let fits = matches!(fit, Fit::Fits { .. });
        if charge.act.spends(fits) {
            touched.ahead += u64::from(cost);
        }
        self.vetoed |= charge.act.vetoes() && !fits;
        self.weighed.push(Weighed { touched: index, fit });
    }

    /// Spends the n-th charge, unless one vetoed, and tells how its key stands.
    #[inline]
    fn settle(&mut self, n: usize, charge: &Charge<'a>) -> Standing {
        let Weighed { touched, fit } = self.weighed[n];
        let touched = &mut self.touched[touched];
        let state = &mut touched.opened.state;
        let receipt = (!self.vetoed && charge.act.spends(matches!(fit, Fit::Fits { .. }))).then(|| {
            touched.spent = true;
            Receipt { cost: state.spend(charge.quota, charge.act.cost(), self.now), paid_at: self.now }
        });
        Standing::derive(charge, fit, receipt, state.level(charge.quota, self.now), Basis::Local)
    }

    /// Puts all states back: those of known keys first, as a new key may move the others.
    #[inline]
    fn store(self, locked: &mut [Locked<'_>]) {
        let mut new_keys = SmallVec::<[_; 4]>::new();
        for Touched { id, shard, quota, opened, spent, .. } in self.touched {
            let home = shard_of(shard, locked);
            if !spent {
                home.close(opened);
            } else if let Err(opened) = home.replace(id, opened, quota) {
                new_keys.push((id, shard, quota, opened.state));
            }
        }
        for (id, shard, quota, state) in new_keys {
            shard_of(shard, locked).insert(id, state, quota, self.now);
        }
    }
}

/// The shard of that number among the locked ones.
#[inline]
fn shard_of<'l>(shard: usize, locked: &'l mut [Locked<'_>]) -> &'l mut Shard {
    let locked = locked.iter_mut().find(|locked| locked.shard == shard);
    &mut locked.expect("every shard that a call touches is locked").guard
}

impl<C: Clock> Store for MemoryStore<C> {
    type Error = Infallible;

    #[inline]
    async fn apply(&self, charges: &[Charge<'_>]) -> Result<Standings, Infallible> {
        Ok(self.apply_now(charges))
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<(), Infallible>> + Send {
        refunds.iter().for_each(|refund| self.refund_now(refund));
        ready(Ok(()))
    }

    fn reset(&self, keys: &[Key<'_>]) -> impl Future<Output = Result<(), Infallible>> + Send {
        for key in keys {
            let (shard, id) = self.locate(key);
            self.shards[shard].0.lock().forget(id);
        }
        ready(Ok(()))
    }
}
