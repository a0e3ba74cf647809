//! `X-RateLimit-Limit` and `RateLimit-Policy`: header values that depend on the limits only, so they are cached.
//!
//! Each thread has its own cache. Cloning a value increments its reference count; with a shared cache, all threads would
//! contend for that counter.

use std::cell::RefCell;
use std::thread::LocalKey;

use bytes::Bytes;
use http::HeaderValue;

use super::ShownLimit;
use super::render::{list, number, parameter};

/// How many values of each header a thread caches. A new value replaces the one in its slot.
const N_SLOTS: usize = 16;

type Cache<K> = RefCell<[Option<(K, HeaderValue)>; N_SLOTS]>;

/// What `RateLimit-Policy` shows of a limit: the key of the cache.
struct Item {
    policy: Box<str>,
    quota: Option<Box<str>>,
    capacity: u32,
    refill_within: u64,
}

thread_local! {
    static LIMITS: Cache<u32> = const { RefCell::new([const { None }; N_SLOTS]) };
    static POLICIES: Cache<Vec<Item>> = const { RefCell::new([const { None }; N_SLOTS]) };
}

/// The value of `X-RateLimit-Limit`.
pub(super) fn limit_value(limit: u32) -> Option<HeaderValue> {
    let write = || {
        let mut bytes = Vec::new();
        number(&mut bytes, limit.into());
        Some((limit, value(bytes)?))
    };
    cached(&LIMITS, limit as usize, |key| *key == limit, write)
}

/// The value of `RateLimit-Policy`.
pub(super) fn policy_value(shown: &[ShownLimit<'_>]) -> Option<HeaderValue> {
    // Limits of one file often have the same numbers, or names with the same beginning. So the slot also depends on the
    // length and the last byte of the name.
    let slot = shown.iter().fold(0usize, |slot, shown| {
        let last = shown.policy.as_bytes().last().copied().unwrap_or_default();
        slot.wrapping_mul(3).wrapping_add(shown.capacity as usize + shown.policy.len() + usize::from(last))
    });
    let write = || {
        let mut bytes = Vec::new();
        list(&mut bytes, shown, |bytes, shown| {
            parameter(bytes, b";q=", shown.capacity.into());
            parameter(bytes, b";w=", shown.refill_within);
        });
        Some((shown.iter().map(Item::of).collect(), value(bytes)?))
    };
    cached(
        &POLICIES,
        slot,
        |items| items.len() == shown.len() && items.iter().zip(shown).all(|(item, shown)| item.is_of(shown)),
        write,
    )
}

/// The cached value in this slot, if `is_key` accepts its key. Otherwise writes and caches a new value.
fn cached<K>(
    cache: &'static LocalKey<Cache<K>>,
    slot: usize,
    is_key: impl FnOnce(&K) -> bool,
    write: impl Fn() -> Option<(K, HeaderValue)>,
) -> Option<HeaderValue> {
    let found = cache.try_with(|slots| {
        let mut slots = slots.try_borrow_mut().ok()?;
        let slot = &mut slots[slot % N_SLOTS];
        if !slot.as_ref().is_some_and(|(key, _)| is_key(key)) {
            *slot = write();
        }
        slot.as_ref().map(|(_, value)| value.clone())
    });
    // `try_with` fails while the thread ends: the cache is already dropped.
    found.unwrap_or_else(|_| write().map(|(_, value)| value))
}

/// Names consist of a-z 0-9 . _ - only, so the value is always valid.
fn value(bytes: Vec<u8>) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from(bytes)).ok()
}

impl Item {
    fn of(shown: &ShownLimit<'_>) -> Self {
        let ShownLimit { policy, quota, capacity, refill_within, .. } = *shown;
        Self { policy: policy.into(), quota: quota.map(Into::into), capacity, refill_within }
    }

    fn is_of(&self, shown: &ShownLimit<'_>) -> bool {
        self.capacity == shown.capacity
            && self.refill_within == shown.refill_within
            && *self.policy == *shown.policy
            && self.quota.as_deref() == shown.quota
    }
}
