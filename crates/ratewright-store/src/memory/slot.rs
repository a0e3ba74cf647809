//! One key in 32 bytes.
//!
//! ```text
//!   identity          quota's tag    state
//!   ┌──────────┬─────┬───┬──────┬──┐┌───────────────────┬───┬───┐┌───────┬───────┐
//!   │ 64 bits  │ 24  │l 8│t, 24 │h ││ time, 53 bits     │s 8│k 3││ a, 32 │ b, 32 │
//!   └──────────┴─────┴───┴──────┴──┘└───────────────────┴───┴───┘└───────┴───────┘
//!               limit ┘   heat, 8 ┘        kind of state ┘   └ span, 8 bits
//!
//!   k        time               span                 a           b          heat
//!   token    full_at            a full refill        part        over       (from time and span)
//!   stepped  since              until it is full     spent       -          spent / burst
//!   counter  opened_at          two windows          previous    current    the larger / units
//!   window   opened_at          window               count       -          count / units
//!   log      newest entry       window               where it is -          spent / units
//! ```
//!
//! The identity is 88 bits of a keyed 128-bit hash, and 8 bits of the limit's digest: see `keys_by_limit.rs`. The first 64 select the
//! shard and the place in it. The tag says which quota wrote the state: see `changed_quota.rs`.
//!
//! Eviction does not know the quota. So a slot stores a span, which shows when the state expires, and heat, the share of
//! the quota that is spent. The span is rounded up, by a quarter at most: a state is removed late, never early. A token
//! bucket expires at its time. Its heat is derived from time and span, so it is too low, by a fifth at most.

use ratewright_core::algorithm::Bucket;
use ratewright_core::algorithm::fixed_window::FixedWindow;
use ratewright_core::algorithm::leaky_bucket::Queue;
use ratewright_core::algorithm::sliding_counter::SlidingCounter;
use ratewright_core::algorithm::sliding_log::SlidingLog;
use ratewright_core::algorithm::stepped::Stepped;
use ratewright_core::algorithm::token_bucket::TokenBucket;
use ratewright_core::quantity::{Moment, TIME_MAX};
use ratewright_core::{Quota, Timestamp};

/// Which bucket, as far as a shard can tell: 96 bits, 8 of which only say under which limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    high: u64,
    low: u64,
}

/// One key and its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    high: u64,
    low_tag_heat: u64,
    time_span_kind: u64,
    a: u32,
    b: u32,
}

const _: () = assert!(size_of::<Slot>() == 32, "two slots to a cache line");

/// A state that fits into a slot: 53 bits of time and two numbers.
pub(super) trait Inline: Bucket + Copy {
    /// Tells its slots from those of others: 1 to 7.
    const KIND: u64;

    /// The state of a key that was never seen.
    fn fresh(quota: &Quota) -> Self;

    /// The state from what was stored.
    fn from_parts(time: u64, a: u32, b: u32) -> Self;

    /// What to store, with span and heat for eviction.
    fn parts(&self, quota: &Quota) -> Parts;

    /// The state that `to` begins with where `from` has left this one. A window's counts stay as they are.
    fn inherit(self, _from: &Quota, _to: &Quota, _now: Timestamp) -> Self {
        self
    }
}

/// What a slot stores of a state.
pub(super) struct Parts {
    time: u64,
    a: u32,
    b: u32,
    span: u64,
    heat: u64,
}

const KIND_BITS: u32 = 3;
const SPAN_BITS: u32 = 8;
const TIME_BITS: u32 = 53;
const HEAT_BITS: u32 = 8;
const HEAT_MAX: u64 = (1 << HEAT_BITS) - 1;

/// The bits of an identity's second half, and which of them are the hash's.
const LIMIT_SHIFT: u32 = Quota::TAG_BITS + HEAT_BITS;
const IDENTITY_LOW: u64 = !((1 << LIMIT_SHIFT) - 1);
const HASH_LOW: u64 = !((1 << (LIMIT_SHIFT + u8::BITS)) - 1);

const _: () = assert!(
    LIMIT_SHIFT + u8::BITS + Quota::TAG_BITS == u64::BITS,
    "a tag that is mixed in leaves the limit as it is"
);

/// The kind of a slot whose log lies elsewhere.
const LOG: u64 = 5;

const _: () = assert!(KIND_BITS + SPAN_BITS + TIME_BITS == u64::BITS && TIME_MAX >> TIME_BITS == 0);

impl Identity {
    /// The identity of a hash, under a limit of that number.
    #[inline(always)]
    pub(super) fn new(high: u64, low: u64, limit: u8) -> Self {
        Self { high, low: low & HASH_LOW | u64::from(limit) << LIMIT_SHIFT }
    }

    /// The number of the limit, which several limits may share.
    #[expect(clippy::cast_possible_truncation, reason = "only the limit's bits are wanted")]
    pub(super) fn limit(self) -> u8 {
        (self.low >> LIMIT_SHIFT) as u8
    }

    /// Under which identity the state of a quota waits while another quota's is in use.
    pub(super) fn parked(self, tag: u32) -> Self {
        let mixed = u64::from(tag.wrapping_mul(0x9e37_79b9)); // odd, so that no two tags are mixed into one, nor any into zero
        Self { high: self.high, low: self.low ^ mixed << (u64::BITS - Quota::TAG_BITS) }
    }

    /// Where in its shard's table to begin to look, before it is cut to the table's size.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
    pub(super) fn home(self) -> usize {
        self.high as usize
    }
}

impl Slot {
    /// The slot of a state.
    #[inline(always)]
    pub(super) fn pack<B: Inline>(id: Identity, bucket: &B, quota: &Quota) -> Self {
        Self::new(id, quota, B::KIND, bucket.parts(quota))
    }

    /// The slot of a log that lies elsewhere, at `index`.
    pub(super) fn pack_log(id: Identity, log: &SlidingLog, index: u32, quota: &Quota) -> Self {
        let window = quota.window().as_micros();
        let time = log.gone_at(quota).as_micros().saturating_sub(window);
        let spent = quota.units() - log.level(quota, Timestamp::from_micros(time)).remaining;
        Self::new(id, quota, LOG, Parts { time, a: index, b: 0, span: window, heat: heat(spent, quota) })
    }

    #[inline(always)]
    fn new(id: Identity, quota: &Quota, kind: u64, parts: Parts) -> Self {
        let Parts { time, a, b, span, heat } = parts;
        let time_span_kind =
            time.min(TIME_MAX) << (SPAN_BITS + KIND_BITS) | shorten(span) << KIND_BITS | kind;
        let tag = u64::from(quota.tag()) << HEAT_BITS;
        Self { high: id.high, low_tag_heat: id.low | tag | heat, time_span_kind, a, b }
    }

    /// The same state under another identity.
    pub(super) fn moved(self, id: Identity) -> Self {
        Self { high: id.high, low_tag_heat: id.low | (self.low_tag_heat & !IDENTITY_LOW), ..self }
    }

    /// Which quota wrote it.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the mask leaves the bits of a tag")]
    pub(super) fn tag(&self) -> u32 {
        (self.low_tag_heat >> HEAT_BITS) as u32 & ((1 << Quota::TAG_BITS) - 1)
    }

    /// The state, or a fresh one if the slot is of another kind.
    #[inline(always)]
    pub(super) fn unpack<B: Inline>(&self, quota: &Quota) -> B {
        if self.kind() == B::KIND { B::from_parts(self.time(), self.a, self.b) } else { B::fresh(quota) }
    }

    /// An empty slot: its kind is zero.
    pub(super) const VACANT: Self = Self { high: 0, low_tag_heat: 0, time_span_kind: 0, a: 0, b: 0 };

    #[inline(always)]
    pub(super) fn is_vacant(&self) -> bool {
        self.kind() == 0
    }

    #[inline(always)]
    pub(super) fn identity(&self) -> Identity {
        Identity { high: self.high, low: self.low_tag_heat & IDENTITY_LOW }
    }

    /// The index of its log, if it has one.
    #[inline(always)]
    pub(super) fn log(&self) -> Option<u32> {
        (self.kind() == LOG).then_some(self.a)
    }

    /// True if the state means the same as none.
    pub(super) fn is_gone(&self, now: Timestamp) -> bool {
        self.gone_at() <= now.as_micros()
    }

    /// How much of its quota is spent, from 0 to [`HEAT_MAX`] or, past the limit, beyond.
    pub(super) fn heat(&self, now: Timestamp) -> u64 {
        let span = lengthen(self.span()).max(1);
        let left = u128::from(self.gone_at().saturating_sub(now.as_micros()).min(4 * span));
        let share = |whole: u64| u64::try_from(left * u128::from(whole) / u128::from(span)).unwrap_or(whole);
        let heat = self.low_tag_heat & HEAT_MAX;
        match self.kind() {
            TokenBucket::KIND => share(HEAT_MAX),
            Stepped::KIND => share(heat),
            _ => heat,
        }
    }

    /// From when on the state means the same as none, or a little later.
    pub(super) fn gone_at(&self) -> u64 {
        let whole = self.time().saturating_add(u64::from(self.a > 0));
        if self.kind() == TokenBucket::KIND { whole } else { self.time() + lengthen(self.span()) }
    }

    #[inline(always)]
    fn time(&self) -> u64 {
        self.time_span_kind >> (SPAN_BITS + KIND_BITS)
    }

    fn span(&self) -> u64 {
        self.time_span_kind >> KIND_BITS & 0xff
    }

    #[inline(always)]
    fn kind(&self) -> u64 {
        self.time_span_kind & 0b111
    }
}

impl Inline for TokenBucket {
    const KIND: u64 = 1;

    #[inline(always)]
    fn fresh(quota: &Quota) -> Self {
        Self::full(quota)
    }

    #[inline(always)]
    fn from_parts(time: u64, a: u32, b: u32) -> Self {
        Self { full_at: Moment::from_parts(time, a, b) }
    }

    #[inline(always)]
    fn parts(&self, quota: &Quota) -> Parts {
        let span = quota.time_to_fill().ceil().as_micros();
        Parts { time: self.full_at.micros(), a: self.full_at.part(), b: self.full_at.over(), span, heat: 0 }
    }

    fn inherit(self, from: &Quota, to: &Quota, now: Timestamp) -> Self {
        Self::inherit(self, from, to, now)
    }
}

impl Inline for Queue {
    const KIND: u64 = TokenBucket::KIND;

    fn fresh(quota: &Quota) -> Self {
        Self(TokenBucket::fresh(quota))
    }

    fn from_parts(time: u64, a: u32, b: u32) -> Self {
        Self(TokenBucket::from_parts(time, a, b))
    }

    fn parts(&self, quota: &Quota) -> Parts {
        self.0.parts(quota)
    }

    fn inherit(self, from: &Quota, to: &Quota, now: Timestamp) -> Self {
        Self(self.0.inherit(from, to, now))
    }
}

impl Inline for Stepped {
    const KIND: u64 = 2;

    fn fresh(_: &Quota) -> Self {
        Self::default()
    }

    fn from_parts(time: u64, a: u32, _: u32) -> Self {
        Self { since: Timestamp::from_micros(time), spent: a }
    }

    fn parts(&self, quota: &Quota) -> Parts {
        let span = self.gone_at(quota).since(self.since).as_micros();
        Parts { time: self.since.as_micros(), a: self.spent, b: 0, span, heat: heat(self.spent, quota) }
    }

    fn inherit(self, from: &Quota, to: &Quota, now: Timestamp) -> Self {
        Self::inherit(self, from, to, now)
    }
}

impl Inline for SlidingCounter {
    const KIND: u64 = 3;

    fn fresh(_: &Quota) -> Self {
        Self::default()
    }

    fn from_parts(time: u64, a: u32, b: u32) -> Self {
        Self { opened_at: Timestamp::from_micros(time), previous: a, current: b }
    }

    fn parts(&self, quota: &Quota) -> Parts {
        let span = self.gone_at(quota).since(self.opened_at).as_micros();
        let heat = heat(self.previous.max(self.current), quota);
        Parts { time: self.opened_at.as_micros(), a: self.previous, b: self.current, span, heat }
    }
}

impl Inline for FixedWindow {
    const KIND: u64 = 4;

    fn fresh(_: &Quota) -> Self {
        Self::default()
    }

    fn from_parts(time: u64, a: u32, _: u32) -> Self {
        Self { opened_at: Timestamp::from_micros(time), count: a }
    }

    fn parts(&self, quota: &Quota) -> Parts {
        let span = self.gone_at(quota).since(self.opened_at).as_micros();
        Parts { time: self.opened_at.as_micros(), a: self.count, b: 0, span, heat: heat(self.count, quota) }
    }
}

/// The spent share of a quota, from 0 to [`HEAT_MAX`], rounded up.
fn heat(spent: u32, quota: &Quota) -> u64 {
    (u64::from(spent) * HEAT_MAX).div_ceil(u64::from(quota.capacity().get())).min(HEAT_MAX)
}

/// A span in eight bits, six for the position of its highest bit and two for what follows, rounded up.
fn shorten(span: u64) -> u64 {
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(3);
    let top = (span + ((1 << shift) - 1)) >> shift; // rounded up: 4 to 8, or less if the span is
    let (top, shift) = if top == 8 { (4, shift + 1) } else { (top, shift) };
    if top < 4 { top } else { (u64::from(shift) + 1) << 2 | (top & 0b11) }
}

/// The longest span that [`shorten`] maps to this value.
fn lengthen(short: u64) -> u64 {
    let top = short & 0b11;
    match short >> 2 {
        0 => top,
        shift => (4 | top) << (shift - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A state may be let go late, by a quarter of its life at most, never early.
        #[test]
        fn spans_are_rounded_up_and_not_by_much(span in 0u64..=TIME_MAX, shift in 0u32..53) {
            let span = span >> shift;
            let long = lengthen(shorten(span));
            prop_assert!(shorten(span) <= 0xff);
            prop_assert!(span <= long && long <= span + span / 4 + 1, "{span} {long}");
        }
    }
}
