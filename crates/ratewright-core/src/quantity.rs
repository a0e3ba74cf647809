//! Time, with its unit in the type.
//!
//! ```text
//!   Timestamp ──────┬──────────────┬─────────► whole microseconds since the epoch
//!                   │◄── Micros ──►│           a duration in whole microseconds
//!   Moment          │    ┊ ½       │           a timestamp plus a fraction part/over
//!                   │◄─ Span ─►┊               a duration plus a fraction part/over
//! ```
//!
//! A bucket that returns 3 units a second returns one every 333333⅓ µs. The fraction is kept: a
//! [`Moment`] and a [`Span`] carry `part / over` of a microsecond, where `over` is the quota's own
//! denominator. [`Span::ceil`] and [`Moment::ceil`] round up when a result is returned, or when the quota changes.
//!
//! Every integer stays below 2^53 ([`TIME_MAX`]), so that Redis' Lua, which has only doubles, can hold them too. So
//! timestamps end in June 2255, and no bucket refills later than that. During the last full refill before that date, a bucket
//! holds less than its burst: every store is then too strict, never too generous. Two full refills before that date,
//! buckets are not affected yet: if a full refill takes one year, until 2253; if it takes 100 years, the most that a
//! quota may have, until 2055.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// The largest number of microseconds in any value: 2^53 - 1, about 285 years.
pub const TIME_MAX: u64 = (1 << 53) - 1;

/// Microseconds in a second.
pub const SECOND: u64 = 1_000_000;

/// Microseconds in 365 days.
pub const YEAR: u64 = 365 * 86_400 * SECOND;

/// A point in time: whole microseconds since the Unix epoch, by the clock of one store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// A duration in whole microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(u64);

/// A point in time, exact: whole microseconds plus `part / over` of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    micros: u64,
    part: u32,
    over: u32,
}

/// A duration, exact: whole microseconds plus `part / over` of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    micros: u64,
    part: u32,
    over: u32,
}

// === impl Timestamp ===

impl Timestamp {
    /// The given number of microseconds since the epoch, at most [`TIME_MAX`].
    #[inline(always)]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > TIME_MAX { Self(TIME_MAX) } else { Self(micros) }
    }

    /// Whole microseconds since the epoch.
    #[inline(always)]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is in the future.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// How much is left at `now` of a `span` that began at this time. Exact, also if it lasts beyond the end of time.
    #[inline(always)]
    pub const fn left_of(self, span: Micros, now: Self) -> Micros {
        Micros::new((self.0 + span.0).saturating_sub(now.0))
    }

    /// This time as a moment that counts fractions over `over`.
    #[inline(always)]
    pub(crate) fn moment(self, over: u32) -> Moment {
        Moment { micros: self.0, part: 0, over }
    }
}

impl Add<Micros> for Timestamp {
    type Output = Self;

    #[inline(always)]
    fn add(self, span: Micros) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}us", self.0)
    }
}

// === impl Micros ===

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// The longest duration; as a patience, it means to wait without limit.
    pub const MAX: Self = Self(TIME_MAX);

    /// The given number of microseconds, at most [`TIME_MAX`].
    #[inline(always)]
    pub const fn new(micros: u64) -> Self {
        if micros > TIME_MAX { Self::MAX } else { Self(micros) }
    }

    /// The given number of seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self::new(secs.saturating_mul(SECOND))
    }

    /// The given number of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self::new(millis.saturating_mul(1_000))
    }

    /// Whole microseconds.
    #[inline(always)]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded up: waiting this long is always enough.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(SECOND)
    }

    /// True if no time is left.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The rest after `other`, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Micros {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self::new(self.0.saturating_add(other.0))
    }
}

impl From<Micros> for Duration {
    fn from(micros: Micros) -> Self {
        Duration::from_micros(micros.0)
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from_micros(self.0), f)
    }
}

// === impl Moment ===

impl Moment {
    /// A moment from its stored parts. An invalid fraction, of one or more, is rounded up to the next microsecond:
    /// modified state makes a bucket stricter, never more generous.
    #[inline(always)]
    pub fn from_parts(micros: u64, part: u32, over: u32) -> Self {
        let sound = Self { micros: micros.min(TIME_MAX), part, over };
        if part < over || part == 0 { sound } else { sound.ceil().moment(over) }
    }

    /// Whole microseconds.
    #[inline(always)]
    pub fn micros(self) -> u64 {
        self.micros
    }

    /// The fraction's numerator.
    #[inline(always)]
    pub fn part(self) -> u32 {
        self.part
    }

    /// The fraction's denominator.
    #[inline(always)]
    pub fn over(self) -> u32 {
        self.over
    }

    /// The same moment, counted in fractions over `over`. Where they differ, as they do after the
    /// quota changed, a fraction is rounded up: strict, never generous.
    #[inline(always)]
    pub(crate) fn recast(self, over: u32) -> Self {
        if self.over == over { self } else { self.ceil().moment(over) }
    }

    /// The first whole microsecond that is not before this moment.
    #[inline(always)]
    pub fn ceil(self) -> Timestamp {
        Timestamp::from_micros(self.micros + u64::from(self.part > 0))
    }

    /// This moment, or the end of time if that is earlier: what lies beyond, a double cannot count.
    #[inline(always)]
    pub(crate) fn within_time(self) -> Self {
        if self.micros < TIME_MAX { self } else { Self { micros: TIME_MAX, part: 0, over: self.over } }
    }

    /// This moment, or `now` if that is later. One comparison: now has no fraction.
    #[inline(always)]
    pub(crate) fn not_before(self, now: Timestamp) -> Self {
        if self.micros < now.0 { now.moment(self.over) } else { self }
    }

    /// What lies between `earlier` and this moment; `None` if `earlier` is later.
    #[inline(always)]
    pub(crate) fn checked_sub(self, earlier: Self) -> Option<Span> {
        debug_assert_eq!(self.over, earlier.over, "moments of different quotas do not mix");
        if self < earlier {
            return None;
        }
        let borrow = self.part < earlier.part;
        let part = self.part.wrapping_add(if borrow { self.over } else { 0 }).wrapping_sub(earlier.part);
        Some(Span { micros: self.micros - earlier.micros - u64::from(borrow), part, over: self.over })
    }
}

impl Add<Span> for Moment {
    type Output = Self;

    #[inline(always)]
    fn add(self, span: Span) -> Self {
        debug_assert_eq!(self.over, span.over, "a span of another quota does not mix");
        let (part, carry) = carry(self.part, span.part, self.over);
        Self { micros: self.micros + span.micros + carry, part, over: self.over }
    }
}

impl Sub<Span> for Moment {
    type Output = Self;

    /// The moment that lies `span` earlier, or the epoch.
    #[inline(always)]
    fn sub(self, span: Span) -> Self {
        let epoch = Self { micros: 0, part: 0, over: self.over };
        let span = Self { micros: span.micros, part: span.part, over: span.over };
        self.checked_sub(span).map_or(epoch, |left| epoch + left)
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        debug_assert_eq!(self.over, other.over, "moments of different quotas do not mix");
        self.micros.cmp(&other.micros).then(self.part.cmp(&other.part))
    }
}

// === impl Span ===

impl Span {
    /// `numerator / over` microseconds. The caller keeps the value below [`TIME_MAX`].
    pub(crate) fn from_ratio(numerator: u128, over: u32) -> Self {
        let whole = numerator / u128::from(over);
        let part = numerator % u128::from(over);
        Self {
            micros: u64::try_from(whole).unwrap_or(TIME_MAX).min(TIME_MAX),
            part: u32::try_from(part).unwrap_or(0), // a remainder is below its u32 divisor
            over,
        }
    }

    /// A whole number of microseconds, counted in fractions over `over`.
    #[inline(always)]
    pub(crate) fn whole(micros: Micros, over: u32) -> Self {
        Self { micros: micros.0, part: 0, over }
    }

    /// Whole microseconds, rounded down.
    #[inline(always)]
    pub fn micros(self) -> u64 {
        self.micros
    }

    /// The fraction's numerator.
    pub fn part(self) -> u32 {
        self.part
    }

    /// Whole microseconds, rounded up: waiting this long is always enough.
    #[inline(always)]
    pub fn ceil(self) -> Micros {
        Micros(self.micros + u64::from(self.part > 0))
    }

    /// The span in units of `1 / over` microseconds.
    #[inline(always)]
    pub(crate) fn numerator(self) -> u128 {
        u128::from(self.micros) * u128::from(self.over) + u128::from(self.part)
    }

    /// The same as [`numerator`](Self::numerator), if it fits.
    #[inline(always)]
    pub(crate) fn small_numerator(self) -> Option<u64> {
        self.micros.checked_mul(u64::from(self.over))?.checked_add(u64::from(self.part))
    }

    /// Twice the span.
    #[inline(always)]
    #[must_use]
    pub(crate) fn doubled(self) -> Self {
        let (part, carry) = carry(self.part, self.part, self.over);
        Self { micros: 2 * self.micros + carry, part, over: self.over }
    }

    /// What is left of the span after `passed`; `None` if nothing is.
    pub(crate) fn after(self, passed: Micros) -> Option<Self> {
        let micros = self.micros.checked_sub(passed.0)?;
        (micros > 0 || self.part > 0).then_some(Self { micros, ..self })
    }
}

/// Adds two numerators over the same denominator: the sum's numerator, and the whole it carries.
#[inline(always)]
fn carry(a: u32, b: u32, over: u32) -> (u32, u64) {
    let missing = over - b; // both parts are below `over`, so that nothing here wraps
    if a >= missing { (a - missing, 1) } else { (a + b, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(micros: u64, part: u32) -> Moment {
        Moment::from_parts(micros, part, 3)
    }

    #[test]
    fn thirds_add_up_to_a_whole() {
        let third = Span::from_ratio(1, 3);
        assert_eq!(moment(10, 2) + third, moment(11, 0));
        assert_eq!(moment(11, 0) - third, moment(10, 2));
        assert_eq!(moment(11, 0).checked_sub(moment(10, 2)), Some(third));
        assert_eq!(moment(10, 2).checked_sub(moment(11, 0)), None);
        assert_eq!(third.doubled().doubled(), Span::from_ratio(4, 3));
    }

    #[test]
    fn rounding_goes_up_and_only_once() {
        assert_eq!(Span::from_ratio(6, 3).ceil(), Micros::new(2));
        assert_eq!(Span::from_ratio(7, 3).ceil(), Micros::new(3));
        assert_eq!(moment(5, 1).ceil(), Timestamp::from_micros(6));
        assert_eq!(moment(5, 1).recast(7), Moment::from_parts(6, 0, 7));
        assert_eq!(moment(5, 1).recast(3), moment(5, 1));
        assert_eq!([0, 1, 1_000_000, 1_000_001].map(|n| Micros::new(n).as_secs_ceil()), [0, 1, 1, 2]);
    }

    #[test]
    fn parts_that_no_moment_has_are_rounded_up() {
        assert_eq!(Moment::from_parts(5, 9, 3), moment(6, 0));
        assert_eq!(Moment::from_parts(5, 3, 3), moment(6, 0));
        assert_eq!(Moment::from_parts(5, 0, 0).micros(), 5);
        assert_eq!(Moment::from_parts(u64::MAX, 0, 3).micros(), TIME_MAX);
    }

    #[test]
    fn no_time_lies_beyond_what_a_double_can_count() {
        assert_eq!(Timestamp::from_micros(TIME_MAX - 1).as_micros(), TIME_MAX - 1);
        assert_eq!(Timestamp::from_micros(TIME_MAX + 1).as_micros(), TIME_MAX);
        assert_eq!(Timestamp::from_micros(TIME_MAX) + Micros::MAX, Timestamp::from_micros(TIME_MAX));
        assert_eq!(Micros::MAX + Micros::MAX, Micros::MAX);
        assert_eq!(Micros::new(2) + Micros::new(3), Micros::new(5));
        assert_eq!(Duration::from(Micros::new(2_500)), Duration::from_micros(2_500));
    }

    #[test]
    fn subtracting_past_the_epoch_gives_the_epoch() {
        assert_eq!(moment(1, 0) - Span::from_ratio(9, 3), moment(0, 0));
    }

    #[test]
    fn what_time_has_repaid_is_not_left() {
        let span = Span::from_ratio(7, 3);
        assert_eq!(span.after(Micros::new(1)), Some(Span::from_ratio(4, 3)));
        assert_eq!(span.after(Micros::new(2)), Some(Span::from_ratio(1, 3)));
        assert_eq!(span.after(Micros::new(3)), None);
        assert_eq!(Span::from_ratio(6, 3).after(Micros::new(2)), None);
    }
}
