//! The values that depend on the limits only: `X-RateLimit-Limit` and `RateLimit-Policy`.
//!
//! Each thread keeps the values that it wrote last; a copy refers to the same text. Threads do not share them: copies
//! count their references, so threads that share a value wait for each other.

use std::cell::RefCell;
use std::thread::LocalKey;

use bytes::Bytes;
use http::HeaderValue;

use super::ShownLimit;
use super::render::{list, number, parameter};

/// How many values of each header a thread keeps. Two that belong at the same place replace each other.
const N_KEPT: usize = 16;

type Kept<K> = RefCell<[Option<(K, HeaderValue)>; N_KEPT]>;

/// What an item of `RateLimit-Policy` is written from.
struct Item {
    policy: Box<str>,
    quota: Option<Box<str>>,
    capacity: u32,
    refill_within: u64,
}

thread_local! {
    static LIMITS: Kept<u32> = const { RefCell::new([const { None }; N_KEPT]) };
    static POLICIES: Kept<Box<[Item]>> = const { RefCell::new([const { None }; N_KEPT]) };
}

/// The value of `X-RateLimit-Limit`.
pub(super) fn limit_value(limit: u32) -> Option<HeaderValue> {
    kept(
        &LIMITS,
        limit as usize,
        |kept| *kept == limit,
        || {
            let mut bytes = Vec::new();
            number(&mut bytes, limit.into());
            Some((limit, value(bytes)?))
        },
    )
}

/// The value of `RateLimit-Policy`.
pub(super) fn policy_value(shown: &[ShownLimit<'_>]) -> Option<HeaderValue> {
    // Limits of one file often have the same numbers, or names that begin alike.
    let place = shown.iter().fold(0usize, |place, shown| {
        let last = shown.policy.as_bytes().last().copied().unwrap_or_default();
        place.wrapping_mul(3).wrapping_add(shown.capacity as usize + shown.policy.len() + usize::from(last))
    });
    kept(
        &POLICIES,
        place,
        |items| items.len() == shown.len() && items.iter().zip(shown).all(|(item, shown)| item.is_of(shown)),
        || {
            let mut bytes = Vec::new();
            list(&mut bytes, shown, |bytes, shown| {
                parameter(bytes, b";q=", shown.capacity.into());
                parameter(bytes, b";w=", shown.refill_within);
            });
            Some((shown.iter().map(Item::of).collect(), value(bytes)?))
        },
    )
}

/// The value at a place if it is the one wanted, otherwise a new one, which is kept there.
fn kept<K>(
    kept: &'static LocalKey<Kept<K>>,
    place: usize,
    is_wanted: impl FnOnce(&K) -> bool,
    write: impl Fn() -> Option<(K, HeaderValue)>,
) -> Option<HeaderValue> {
    let found = kept.try_with(|kept| {
        let mut kept = kept.try_borrow_mut().ok()?;
        let place = &mut kept[place % N_KEPT];
        if !place.as_ref().is_some_and(|(key, _)| is_wanted(key)) {
            *place = write();
        }
        place.as_ref().map(|(_, value)| value.clone())
    });
    // An error: the thread is ending, and has dropped its values.
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
