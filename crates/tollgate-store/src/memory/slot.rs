//! One key in 32 bytes.
//!
//! ```text
//!   identity                        state
//!   ┌──────────────┬────────────┬──┐┌───────────────────┬───┬───┐┌───────┬───────┐
//!   │ 64 bits      │ 56 bits    │h ││ time, 53 bits     │s 8│k 3││ a, 32 │ b, 32 │
//!   └──────────────┴────────────┴──┘└───────────────────┴───┴───┘└───────┴───────┘
//!                   heat, 8 bits ┘         kind of state ┘   └ span, 8 bits
//!
//!   k        time               span                 a           b          heat
//!   token    full_at            a full refill        part        over       (from time and span)
//!   stepped  since              until it is full     spent       -          spent / burst
//!   log      newest entry       window               slab index  -          spent / units
//!   counter  opened_at          two windows          previous    current    the larger / units
//!   window   opened_at          window               count       -          count / units
//! ```
//!
//! The identity is 120 bits of a keyed 128-bit hash. The rest of the hash says in which shard it lies.
//!
//! Span and heat are there for whoever must make room without knowing the quota: when the state is gone,
//! and how much of the quota it stands for. Both are rounded up, so that a state is let go late, never
//! early.

use tollgate_core::Timestamp;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::leaky_bucket::Queue;
use tollgate_core::algorithm::sliding_counter::SlidingCounter;
use tollgate_core::algorithm::stepped::Stepped;
use tollgate_core::algorithm::token_bucket::TokenBucket;
use tollgate_core::algorithm::{Bucket, State};
use tollgate_core::quantity::{Moment, TIME_MAX};
use tollgate_core::{Algorithm, Leak, Quota, Refill};

/// Which bucket, as far as a shard can tell: 120 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    high: u64,
    low: u64,
}

/// One key and its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    high: u64,
    low_heat: u64,
    time_span_kind: u64,
    a: u32,
    b: u32,
}

const _: () = assert!(size_of::<Slot>() == 32, "two slots to a cache line");

/// What a slot holds, before its log is fetched.
pub(super) enum Unpacked {
    Inline(State),
    Log(u32),
}

/// The kinds of state, in three bits. Zero is none of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Token = 1,
    Stepped = 2,
    Log = 3,
    Counter = 4,
    Window = 5,
}

const KIND_BITS: u32 = 3;
const SPAN_BITS: u32 = 8;
const HEAT_MAX: u64 = 0xff;

impl Identity {
    pub(super) fn new(high: u64, low: u64) -> Self {
        Self { high, low: low & !HEAT_MAX }
    }

    /// Where in its shard's table to look.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        self.high
    }
}

impl Slot {
    /// The slot of a state. A log stays outside; its index comes in.
    #[inline]
    pub(super) fn pack(id: Identity, state: &State, quota: &Quota, log: u32) -> Self {
        let window = quota.window().as_micros();
        let until = |from: Timestamp| state.gone_at(quota).since(from).as_micros();
        let (kind, time, span, a, b, heat) = match state {
            State::Token(TokenBucket { full_at }) | State::Queue(Queue(TokenBucket { full_at })) => {
                let fill = quota.time_to_fill().ceil().as_micros();
                (Kind::Token, full_at.micros(), fill, full_at.part(), full_at.over(), 0)
            }
            State::Stepped(Stepped { since, spent }) => {
                (Kind::Stepped, since.as_micros(), until(*since), *spent, 0, heat(*spent, quota))
            }
            State::Log(entries) => {
                let newest = state.gone_at(quota).as_micros().saturating_sub(window);
                let spent = quota.units() - entries.level(quota, Timestamp::from_micros(newest)).remaining;
                (Kind::Log, newest, window, log, 0, heat(spent, quota))
            }
            State::Counter(SlidingCounter { opened_at, previous, current }) => {
                let larger = (*previous).max(*current);
                let span = until(*opened_at);
                (Kind::Counter, opened_at.as_micros(), span, *previous, *current, heat(larger, quota))
            }
            State::Window(FixedWindow { opened_at, count }) => {
                (Kind::Window, opened_at.as_micros(), window, *count, 0, heat(*count, quota))
            }
        };
        let time = time.min(TIME_MAX);
        Self {
            high: id.high,
            low_heat: id.low | heat,
            time_span_kind: time << (SPAN_BITS + KIND_BITS) | shorten(span) << KIND_BITS | kind as u64,
            a,
            b,
        }
    }

    /// The state under that quota, or nothing if it is of a kind that the quota does not know.
    #[inline]
    pub(super) fn unpack(&self, quota: &Quota) -> Option<Unpacked> {
        let time = Timestamp::from_micros(self.time());
        let (a, b) = (self.a, self.b);
        let (kind, state) = match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => {
                (Kind::Token, State::Token(TokenBucket { full_at: Moment::from_parts(self.time(), a, b) }))
            }
            Algorithm::LeakyBucket(Leak::Queue) => {
                let full_at = Moment::from_parts(self.time(), a, b);
                (Kind::Token, State::Queue(Queue(TokenBucket { full_at })))
            }
            Algorithm::TokenBucket(Refill::Stepped) => {
                (Kind::Stepped, State::Stepped(Stepped { since: time, spent: a }))
            }
            Algorithm::SlidingWindow => return self.log().map(Unpacked::Log),
            Algorithm::SlidingWindowCounter => {
                let counter = SlidingCounter { opened_at: time, previous: a, current: b };
                (Kind::Counter, State::Counter(counter))
            }
            Algorithm::FixedWindow(_) => (Kind::Window, State::Window(FixedWindow { opened_at: time, count: a })),
        };
        (self.kind() == kind as u64).then_some(Unpacked::Inline(state))
    }

    #[inline]
    pub(super) fn identity(&self) -> Identity {
        Identity::new(self.high, self.low_heat)
    }

    /// The index of its log, if it has one.
    pub(super) fn log(&self) -> Option<u32> {
        (self.kind() == Kind::Log as u64).then_some(self.a)
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
        let heat = self.low_heat & HEAT_MAX;
        match self.kind() {
            kind if kind == Kind::Token as u64 => share(HEAT_MAX),
            kind if kind == Kind::Stepped as u64 => share(heat),
            _ => heat,
        }
    }

    fn gone_at(&self) -> u64 {
        let whole = self.time().saturating_add(u64::from(self.a > 0));
        if self.kind() == Kind::Token as u64 { whole } else { self.time() + lengthen(self.span()) }
    }

    #[inline]
    fn time(&self) -> u64 {
        self.time_span_kind >> (SPAN_BITS + KIND_BITS)
    }

    fn span(&self) -> u64 {
        self.time_span_kind >> KIND_BITS & 0xff
    }

    #[inline]
    fn kind(&self) -> u64 {
        self.time_span_kind & 0b111
    }
}

/// The spent share of a quota, from 0 to [`HEAT_MAX`], rounded up.
fn heat(spent: u32, quota: &Quota) -> u64 {
    (u64::from(spent) * HEAT_MAX).div_ceil(u64::from(quota.capacity().get())).min(HEAT_MAX)
}

/// A span in eight bits, six for the position of its highest bit and two for what follows, rounded up.
fn shorten(span: u64) -> u64 {
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(3);
    let top = span.div_ceil(1 << shift); // 4 to 8, or less if the span is
    let (top, shift) = if top == 8 { (4, shift + 1) } else { (top, shift) };
    if top < 4 { top } else { (u64::from(shift) + 1) << 2 | (top & 0b11) }
}

/// The longest span that [`shorten`] makes this of.
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
