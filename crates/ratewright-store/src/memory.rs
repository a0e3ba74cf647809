//! The memory store: a sharded table of small states.
//!
//! ```text
//!   key ─keyed 128-bit hash→ shard ─lock→ slot ─→ state ─weigh→ all fit? ─→ spend, all of them
//!                                                              └ veto? ──→ none
//! ```
//!
//! Time is read under the lock, so that a caller that waited for the lock never uses an older time than the caller
//! before it. A call holds the locks of all its shards together, taken in the order of the shards, so that no deadlock
//! is possible. Within them a call first checks every charge, and changes state only if none vetoes.
//!
//! A key is stored as a hash with a secret that each process draws at its start (SipHash-1-3, 88 bits kept): nobody can
//! craft two clients that share a bucket, and a slot takes 32 bytes however long the client's name is.
//!
//! # Laws
//! `tests/it/laws.rs` checks the standings; `tests/it/memory.rs` checks caps, floods and threads.

mod changed_quota;
mod keys_by_limit;
mod shard;
mod siphash;
mod slot;
mod sync;
mod table;

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use ratewright_core::algorithm::{Bucket, Charged, Demand, Fit, Level};
use ratewright_core::store::{Act, Basis, Charge, Key, Receipt, Refund, Standing, Standings};
use ratewright_core::{Clock, Micros, Quota, Store, Timestamp};
use smallvec::SmallVec;

use crate::all_or_none::{self, Buckets, settle};
use crate::clock_setback::TimeSeen;
use shard::{BucketChange, Shard, Visit, VisitPurpose};
use siphash::SipHasher;
use slot::Identity;
use sync::{Mutex, MutexGuard};

/// Keys that a shard holds when the store is at its cap: clearly under 3/4 of 4,096, where its table would
/// have to double.
const KEYS_PER_SHARD: usize = 2_900;

/// At least this many shards, so that threads rarely wait for each other, if each shard then still has some keys.
const SHARDS_MIN: usize = 64;

/// Holds buckets in memory.
pub struct MemoryStore<C> {
    shards: Box<[Padded]>,
    clock: C,
    time_seen: TimeSeen,
    /// The hash's key. It is never shown: with it, a client could craft keys that share a bucket.
    secret: [u64; 2],
}

/// What a memory store holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Keys in the table. Some may have expired.
    pub n_keys: usize,
    /// The most keys that it will hold.
    pub n_keys_max: usize,
    /// Keys that were evicted before they expired, because the table was full.
    pub n_evicted: u64,
    /// Bytes on the heap.
    pub n_bytes: usize,
}

/// A shard in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// The buckets of the current call: where each charge's is, and the locked shards.
struct Held<'a> {
    places: SmallVec<[(usize, Identity); 4]>,
    locked: SmallVec<[Locked<'a>; 4]>,
    now: Timestamp,
}

/// A locked shard of the current call.
struct Locked<'a> {
    shard: usize,
    guard: MutexGuard<'a, Shard>,
}

/// Checks, spends, and returns the units left: everything for a call with one charge.
struct ChargeIt(Demand, Act);

/// What became of a single charge, in plain numbers: they stay in registers, where [`Charged`] with its enums is moved through memory.
#[derive(Clone, Copy)]
pub(crate) struct PlainCharged {
    /// Zero if it fits at once, the wait if it fits later, `NEVER`.
    wait: u64,
    fits: bool,
    counted: u32,
    is_spent: bool,
    remaining: u32,
    reset_after: u64,
}

/// Only checks whether the charge fits.
struct Weigh(Demand, Act);

/// Spends what was weighed, and tells what is left.
struct Spend(u32);

/// Only tells what is left.
struct Measure;

/// Gives back.
struct RefundCharge<'a>(&'a Receipt);

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
        Self {
            shards,
            clock,
            time_seen: TimeSeen::default(),
            secret: [random.hash_one(0), random.hash_one(1)],
        }
    }

    /// Forgets all keys. Refunds of earlier charges return nothing: they would undo later ones.
    pub fn clear(&self) {
        for padded in &self.shards {
            padded.0.lock().clear();
        }
        self.time_seen.void_before(self.clock.now());
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

    /// The shard of a key, and its identity there.
    #[inline(always)]
    fn locate(&self, key: &Key<'_>) -> (usize, Identity) {
        let [limit, ..] = key.name().digest()[0].to_le_bytes();
        self.locate_hash(self.hash(key), limit)
    }

    #[inline(always)]
    fn locate_hash(&self, [high, low]: [u64; 2], limit: u8) -> (usize, Identity) {
        // The first half alone, its high bits for the shard and its low bits for the place in it: the lock can
        // be taken while the processor still works on the other half.
        let shard = (u128::from(high) * self.shards.len() as u128) >> 64;
        (usize::try_from(shard).unwrap_or(0), Identity::new(high, low, limit))
    }

    /// Charges the bucket of a key under the only quota of the store.
    #[inline(always)]
    pub(crate) fn charge_hashed(&self, key: &(impl Hash + ?Sized), quota: &Quota, act: Act) -> PlainCharged {
        let (shard, id) = self.locate_hashed(key);
        let demand = Demand { ahead: 0, cost: act.cost(), patience: Micros::ZERO };
        let mut shard = self.shards[shard].0.lock();
        let now = self.clock.now();
        shard.visit(id, quota, now, ChargeIt(demand, act))
    }

    /// Forgets the bucket of a key, in a store with only one quota.
    pub(crate) fn forget_hashed(&self, key: &(impl Hash + ?Sized)) {
        let (shard, id) = self.locate_hashed(key);
        self.shards[shard].0.lock().forget_all(id);
    }

    #[inline(always)]
    fn locate_hashed(&self, key: &(impl Hash + ?Sized)) -> (usize, Identity) {
        let mut hasher = SipHasher::new(self.secret);
        key.hash(&mut hasher);
        self.locate_hash(hasher.finish128(), 0)
    }

    /// The keyed hash of everything that distinguishes keys. The bucket's name is mixed into the hash's key, so each
    /// name has its own. Each of several values ends with a byte that no text contains, so that `a|bc` differs from
    /// `ab|c`; their number belongs to the name.
    #[inline(always)]
    fn hash(&self, key: &Key<'_>) -> [u64; 2] {
        let [a, b] = key.name().digest();
        let secret = [self.secret[0] ^ a, self.secret[1] ^ b];
        if let Some(value) = key.single_value() {
            return siphash::hash(secret, value.as_bytes());
        }
        let mut text = SmallVec::<[u8; 128]>::new();
        for value in key.values() {
            if let Some(tag) = value.tag {
                text.extend_from_slice(tag.kind().as_bytes());
                text.push(0xff);
                text.extend_from_slice(tag.text().unwrap_or_default().as_bytes());
                text.push(0xff);
            }
            text.extend_from_slice(value.text.as_bytes());
            text.push(0xff);
        }
        siphash::hash(secret, &text)
    }

    /// Applies charges, all or nothing. Memory keeps nobody waiting.
    #[inline(always)]
    pub(crate) fn apply_now(&self, charges: &[Charge<'_>], standings: &mut Standings) {
        match charges {
            [charge] => standings.push(self.apply_one(charge)),
            _ => self.apply_all(charges, standings),
        }
    }

    /// Applies one charge, which has nobody to agree with.
    #[inline(always)]
    fn apply_one(&self, charge: &Charge<'_>) -> Standing {
        let (shard, id) = self.locate(&charge.key);
        let demand = Demand { ahead: 0, cost: charge.act.cost(), patience: charge.patience };
        let mut shard = self.shards[shard].0.lock();
        let now = self.clock.now();
        self.time_seen.note(now);
        let answer = shard.visit(id, charge.quota, now, ChargeIt(demand, charge.act));
        drop(shard);
        let Charged { fit, counted, level } = answer.charged();
        let receipt = counted.map(|counted| Receipt::new(counted, charge.quota, now));
        Standing::derive(charge, fit, receipt, level, Basis::Local)
    }

    /// Applies several charges, which must agree.
    #[inline(never)]
    fn apply_all(&self, charges: &[Charge<'_>], standings: &mut Standings) {
        let places: SmallVec<[_; 4]> = charges.iter().map(|charge| self.locate(&charge.key)).collect();
        let locked = self.lock(places.iter().map(|place| place.0));
        let now = self.clock.now();
        self.time_seen.note(now);
        settle(
            charges,
            &mut Held { places, locked, now },
            now,
            Basis::Local,
            all_or_none::Purpose::Spend,
            standings,
        );
    }

    /// Locks shards, each once, in their order.
    fn lock(&self, shards: impl Iterator<Item = usize>) -> SmallVec<[Locked<'_>; 4]> {
        let mut shards: SmallVec<[usize; 4]> = shards.collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| Locked { shard, guard: self.shards[shard].0.lock() }).collect()
    }
}

impl PlainCharged {
    /// The wait of a charge that asks for more than there can ever be.
    const NEVER: u64 = u64::MAX;

    #[inline(always)]
    fn new(Charged { fit, counted, level }: Charged) -> Self {
        let (fits, wait) = match fit {
            Fit::Fits { wait } => (true, wait.as_micros()),
            Fit::Short { retry_after } => (false, retry_after.as_micros()),
            Fit::Never => (false, Self::NEVER),
        };
        let (is_spent, counted) = (counted.is_some(), counted.unwrap_or(0));
        let (remaining, reset_after) = (level.remaining, level.reset_after.as_micros());
        Self { wait, fits, counted, is_spent, remaining, reset_after }
    }

    #[inline(always)]
    pub(crate) fn charged(self) -> Charged {
        let fit = match (self.fits, self.wait) {
            (true, wait) => Fit::Fits { wait: Micros::new(wait) },
            (false, Self::NEVER) => Fit::Never,
            (false, wait) => Fit::Short { retry_after: Micros::new(wait) },
        };
        let level = Level { remaining: self.remaining, reset_after: Micros::new(self.reset_after) };
        Charged { fit, counted: self.is_spent.then_some(self.counted), level }
    }
}

impl Held<'_> {
    /// Visits the bucket of the n-th charge.
    fn visit<V: Visit>(&mut self, n: usize, charge: &Charge<'_>, visit: V) -> V::Output {
        let (shard, id) = self.places[n];
        let locked = self.locked.iter_mut().find(|locked| locked.shard == shard);
        let shard = &mut locked.expect("every shard that a call touches is locked").guard;
        shard.visit(id, charge.quota, self.now, visit)
    }
}

impl Buckets for Held<'_> {
    fn is_same(&self, n: usize, other: usize) -> bool {
        self.places[n] == self.places[other]
    }

    fn fit(&mut self, n: usize, charge: &Charge<'_>, demand: Demand) -> Fit {
        self.visit(n, charge, Weigh(demand, charge.act))
    }

    fn spend(&mut self, n: usize, charge: &Charge<'_>) -> (u32, Level) {
        self.visit(n, charge, Spend(charge.act.cost()))
    }

    fn level(&mut self, n: usize, charge: &Charge<'_>) -> Level {
        self.visit(n, charge, Measure)
    }
}

/// What a charge comes to its bucket for.
#[inline(always)]
fn purpose(act: Act) -> VisitPurpose {
    match act {
        Act::Take(_) | Act::Try(_) | Act::Join(_) | Act::Record(_) => VisitPurpose::Charge,
        Act::Look(_) => VisitPurpose::Look,
    }
}

impl Visit for ChargeIt {
    type Output = PlainCharged;

    #[inline(always)]
    fn purpose(&self) -> VisitPurpose {
        purpose(self.1)
    }

    #[inline(always)]
    fn visit<B: Bucket>(self, bucket: &mut B, quota: &Quota, now: Timestamp) -> (Self::Output, BucketChange) {
        let charged = bucket.charge(quota, self.0, self.1, now);
        (
            PlainCharged::new(charged),
            if charged.counted.is_some() { BucketChange::Spent } else { BucketChange::Nothing },
        )
    }
}

impl Visit for Weigh {
    type Output = Fit;

    fn purpose(&self) -> VisitPurpose {
        purpose(self.1)
    }

    fn visit<B: Bucket>(self, bucket: &mut B, quota: &Quota, now: Timestamp) -> (Fit, BucketChange) {
        (bucket.fit(quota, self.0, now), BucketChange::Nothing)
    }
}

impl Visit for Spend {
    type Output = (u32, Level);

    fn purpose(&self) -> VisitPurpose {
        VisitPurpose::Charge
    }

    fn visit<B: Bucket>(self, bucket: &mut B, quota: &Quota, now: Timestamp) -> (Self::Output, BucketChange) {
        let counted = bucket.spend(quota, self.0, now);
        ((counted, bucket.level(quota, now)), BucketChange::Spent)
    }
}

impl Visit for Measure {
    type Output = Level;

    fn purpose(&self) -> VisitPurpose {
        VisitPurpose::Look
    }

    fn visit<B: Bucket>(self, bucket: &mut B, quota: &Quota, now: Timestamp) -> (Level, BucketChange) {
        (bucket.level(quota, now), BucketChange::Nothing)
    }
}

impl Visit for RefundCharge<'_> {
    /// True if the refund was made.
    type Output = bool;

    fn purpose(&self) -> VisitPurpose {
        VisitPurpose::Refund
    }

    fn visit<B: Bucket>(self, bucket: &mut B, quota: &Quota, now: Timestamp) -> (bool, BucketChange) {
        let Receipt { cost, paid_at, .. } = *self.0;
        bucket.refund(quota, cost, paid_at, now);
        (true, BucketChange::Changed)
    }

    #[inline(always)]
    fn discarded(_: bool) -> bool {
        false
    }
}

impl<C: Clock> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    type Error = Infallible;

    #[inline(always)]
    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        self.apply_now(charges, standings);
        Ok(())
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        let mut n_refunded = 0;
        for refund in refunds.iter().filter(|refund| refund.basis == Basis::Local) {
            let (shard, id) = self.locate(&refund.key);
            let mut shard = self.shards[shard].0.lock();
            let now = self.clock.now();
            self.time_seen.note(now);
            if !self.time_seen.is_void(refund.receipt.paid_at) {
                let is_refunded = shard.visit(id, refund.quota, now, RefundCharge(&refund.receipt));
                n_refunded += usize::from(is_refunded);
            }
        }
        Ok(n_refunded)
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        for key in keys {
            let (shard, id) = self.locate(key);
            self.shards[shard].0.lock().forget_all(id);
        }
        Ok(Basis::Local)
    }

    #[inline(always)]
    fn never_waits(&self) -> bool {
        true
    }
}
