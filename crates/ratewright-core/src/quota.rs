//! The quota: units per window, at most a burst at once, counted by one of five algorithms.
//!
//! A quota keeps the rate as written, and derives `lap / over`: the microseconds in which one unit returns, that is
//! window / units in lowest terms.
//!
//! ```text
//!   10/s, burst 50     over = 1    lap = 100,000 µs    one unit 100,000 µs      full in 5 s
//!   3/s,  burst 3      over = 3    lap = 1,000,000 µs  one unit 333,333⅓ µs     full in 1 s
//! ```
//!
//! Invalid quotas cannot be built: zero units, a refill that takes over 100 years, or a log that does not fit in
//! memory.

mod shorthand;

use std::hash::{Hash as _, Hasher as _};
use std::num::NonZeroU32;

use siphasher::sip::SipHasher13;

pub use crate::rate::{Rate, RateError};

use crate::quantity::{Micros, Span, TIME_MAX};

/// How a quota is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// A bucket that refills; what is in it can be taken at once.
    TokenBucket(Refill),
    /// A bucket that leaks; what is in it has not left yet.
    LeakyBucket(Leak),
    /// Every charge of the last window, remembered exactly.
    SlidingWindow,
    /// The current window's count plus a weighted share of the previous one's.
    SlidingWindowCounter,
    /// A count that starts again with each window.
    FixedWindow(WindowStart),
}

/// How a token bucket gets its units back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Refill {
    /// Continuously, each unit as soon as it is due.
    #[default]
    Smooth,
    /// All units of a window together, at whole windows since the bucket was last full.
    Stepped,
}

/// What a leaky bucket does with a charge that cannot leave at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Leak {
    /// It only measures: a charge passes or is denied.
    #[default]
    Meter,
    /// It queues: a charge that fits waits for its turn, so that queries proceed evenly spaced.
    Queue,
}

/// Where a fixed window begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WindowStart {
    /// At multiples of its length since the epoch.
    #[default]
    Epoch,
    /// At the first charge.
    FirstHit,
}

/// A fraction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The numerator.
    pub part: u32,
    /// The denominator.
    pub of: NonZeroU32,
}

/// How much may be spent: units per window, at most a burst at once.
///
/// ```
/// use ratewright_core::Quota;
/// use ratewright_core::quota::{Algorithm, QuotaError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bucket = Quota::per_second(10).burst(50);
/// let window = Quota::new(Algorithm::SlidingWindow, "100/min".parse()?)?;
/// assert_eq!((bucket.capacity().get(), window.capacity().get()), (50, 100));
/// let burst = window.with_burst(bucket.capacity());
/// assert!(matches!(burst, Err(QuotaError::NoBurst { .. })), "windows have no burst");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota {
    rate: Rate,
    algorithm: Algorithm,
    capacity: NonZeroU32,
    over: u32,
    lap: u64,
    per_unit: Span,
    fill: Span,
    deepest: Span,
    tick: u64,
    tag: u32,
}

/// Why a quota cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuotaError {
    /// A full refill takes over 100 years.
    #[error("{burst} units at {rate} take over 100 years to come back; raise the rate or lower the burst")]
    TooSlow {
        /// The burst asked for.
        burst: NonZeroU32,
        /// The rate asked for.
        rate: Rate,
    },
    /// A log remembers each charge, so it must stay short.
    #[error(
        "sliding_window remembers every charge, so it takes at most {} units, not {units}; use sliding_window_counter for more",
        Quota::LOG_UNITS_MAX
    )]
    LogTooLong {
        /// The units asked for.
        units: NonZeroU32,
    },
    /// A window has no burst.
    #[error("{} has no burst apart from its units; leave burst out, or use token_bucket", algorithm.name())]
    NoBurst {
        /// The algorithm asked for.
        algorithm: Algorithm,
    },
}

impl Default for Algorithm {
    fn default() -> Self {
        Self::TokenBucket(Refill::default())
    }
}

impl Algorithm {
    /// The five names, as policy files and keys write them.
    pub const NAMES: [&'static str; 5] =
        ["token_bucket", "leaky_bucket", "sliding_window", "sliding_window_counter", "fixed_window"];

    /// The name, as policy files and keys write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket(_) => Self::NAMES[0],
            Self::LeakyBucket(_) => Self::NAMES[1],
            Self::SlidingWindow => Self::NAMES[2],
            Self::SlidingWindowCounter => Self::NAMES[3],
            Self::FixedWindow(_) => Self::NAMES[4],
        }
    }

    /// The algorithm of that name, in its default variant.
    pub fn named(name: &str) -> Option<Self> {
        let all: [Self; Self::NAMES.len()] = [
            Self::TokenBucket(Refill::default()),
            Self::LeakyBucket(Leak::default()),
            Self::SlidingWindow,
            Self::SlidingWindowCounter,
            Self::FixedWindow(WindowStart::default()),
        ];
        all.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// True if the quota is a bucket with a burst of its own, false if it is a window.
    pub const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket(_) | Self::LeakyBucket(_))
    }
}

impl Quota {
    /// The bits of a [`tag`](Self::tag).
    pub const TAG_BITS: u32 = 24;

    /// The most units that a sliding window log may have.
    pub const LOG_UNITS_MAX: u32 = 10_000;

    /// A quota of `rate`, counted by `algorithm`. A bucket's burst is the rate's units.
    ///
    /// # Errors
    /// If the algorithm does not support that many units, or a full refill takes over 100 years.
    pub fn new(algorithm: Algorithm, rate: Rate) -> Result<Self, QuotaError> {
        let (units, window) = (rate.units(), rate.window().as_micros());
        if algorithm == Algorithm::SlidingWindow && units.get() > Self::LOG_UNITS_MAX {
            return Err(QuotaError::LogTooLong { units });
        }
        let shared = gcd(u64::from(units.get()), window);
        // `shared` divides both, and is at most the units, so that both quotients are exact and fit.
        let over = u32::try_from(u64::from(units.get()) / shared).unwrap_or(units.get());
        let lap = window / shared;
        let span = |units: u32| Span::from_ratio(u128::from(units) * u128::from(lap), over);
        let ticks_max = ((1 << 52) - 1) / u64::from(units.get());
        let quota = Self {
            rate,
            algorithm,
            capacity: units,
            over,
            lap,
            per_unit: span(1),
            fill: span(units.get()),
            deepest: span(units.get()).doubled(),
            tick: window.div_ceil(ticks_max),
            tag: 0,
        };
        Ok(quota.tagged())
    }

    /// The same quota with another burst.
    ///
    /// # Errors
    /// If the algorithm has no burst, or a full refill takes over 100 years.
    pub fn with_burst(mut self, burst: NonZeroU32) -> Result<Self, QuotaError> {
        if !self.algorithm.has_burst() {
            return Err(QuotaError::NoBurst { algorithm: self.algorithm });
        }
        self.capacity = burst;
        self.fill = Span::from_ratio(u128::from(burst.get()) * u128::from(self.lap), self.over);
        self.deepest = self.fill.doubled();
        if self.fill.ceil() > Rate::WINDOW_MAX {
            return Err(QuotaError::TooSlow { burst, rate: self.rate });
        }
        Ok(self.tagged())
    }

    /// The same quota, with the tag of what it is now.
    fn tagged(mut self) -> Self {
        let mut hasher = SipHasher13::new();
        let law = match self.algorithm {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
                let over = if self.fill.part() == 0 { 0 } else { self.over };
                [self.fill.micros(), self.fill.part().into(), over.into()]
            }
            Algorithm::TokenBucket(Refill::Stepped) => [self.units().into(), self.window().as_micros(), 0],
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter | Algorithm::FixedWindow(_) => {
                self.tag = 0;
                return self;
            }
        };
        (self.capacity, law).hash(&mut hasher);
        #[expect(clippy::cast_possible_truncation, reason = "only some of the bits are wanted")]
        let bits = hasher.finish() as u32;
        self.tag = (bits >> (u32::BITS - Self::TAG_BITS)).max(1);
        self
    }

    /// True if it allows the same at any time: for buckets that fill or leak evenly, `1/s` and `2/2s` with the same burst.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let is_even =
            matches!(self.algorithm, Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_));
        let law = |quota: &Self| (quota.algorithm, quota.capacity, quota.over, quota.lap);
        self == other || is_even && law(self) == law(other)
    }

    /// The kind of state that it keeps: algorithm, variant, and for windows the window. Quotas of one kind can share buckets.
    pub fn kind(&self) -> String {
        let name = self.algorithm.name();
        let window = self.window().as_micros();
        match self.algorithm {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => name.to_owned(),
            Algorithm::TokenBucket(Refill::Stepped) => format!("{name}.stepped"),
            Algorithm::LeakyBucket(Leak::Queue) => format!("{name}.queue"),
            Algorithm::SlidingWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::FixedWindow(WindowStart::Epoch) => {
                format!("{name}.{window}")
            }
            Algorithm::FixedWindow(WindowStart::FirstHit) => format!("{name}.first_hit.{window}"),
        }
    }

    /// A share of this quota: of its units and of its burst, each rounded down, and at least one.
    #[must_use]
    pub fn share(&self, share: Share) -> Self {
        let cut = |whole: NonZeroU32| {
            let part = u64::from(whole.get()) * u64::from(share.part) / u64::from(share.of.get());
            NonZeroU32::new(u32::try_from(part).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
        };
        let shared = Rate::new(cut(self.rate.units()), self.window())
            .ok()
            .and_then(|rate| Self::new(self.algorithm, rate).ok());
        let Some(shared) = shared else { return self.clone() }; // not reached: less of what could be built
        if !self.algorithm.has_burst() {
            return shared;
        }
        // Where one unit is all that a rate can be cut to, the burst may take too long to come back.
        shared.clone().with_burst(cut(self.capacity)).unwrap_or(shared)
    }

    /// A number below 2^[`TAG_BITS`](Self::TAG_BITS) that differs between quotas, because the same stored state means
    /// something else under another quota. Zero for windows: their counts mean the same under every quota.
    #[inline(always)]
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The rate as written.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// How it is counted.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The most that can be spent at once: a bucket's burst, a window's units.
    #[inline]
    pub fn capacity(&self) -> NonZeroU32 {
        self.capacity
    }

    /// Units that come back in each window.
    #[inline]
    pub fn units(&self) -> u32 {
        self.rate.units().get()
    }

    /// The window.
    #[inline]
    pub fn window(&self) -> Micros {
        self.rate.window()
    }

    /// The denominator of this quota's fractions of a microsecond.
    #[inline]
    pub fn over(&self) -> u32 {
        self.over
    }

    /// The time in which a smooth bucket earns `units` units. Exact.
    #[inline]
    pub fn time_to_earn(&self, units: u64) -> Span {
        match units {
            1 => self.per_unit,
            _ => Span::from_ratio(u128::from(units) * u128::from(self.lap), self.over),
        }
    }

    /// The time in which an empty smooth bucket fills up. Exact.
    #[inline]
    pub fn time_to_fill(&self) -> Span {
        self.fill
    }

    /// No bucket lies further from full than this: two refills.
    #[inline]
    pub(crate) fn time_deepest(&self) -> Span {
        self.deepest
    }

    /// Whole units that a smooth bucket earns in `span`, rounded down: a fraction is not yet a unit.
    #[inline]
    pub fn units_earned_in(&self, span: Span) -> u32 {
        let units = match span.small_numerator() {
            Some(numerator) => numerator / self.lap,
            None => u64::try_from(span.numerator() / u128::from(self.lap)).unwrap_or(u64::MAX),
        };
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// The resolution of the sliding window counter's weights, chosen so that units × ticks < 2^52.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// The most units that a state counts as spent: twice the capacity, or the largest count.
    pub fn deepest(&self) -> u32 {
        self.capacity.get().saturating_mul(2)
    }
}

const _: () = assert!(Rate::WINDOW_MAX.as_micros() * 2 < TIME_MAX, "a span of two full refills is exact");

/// The greatest common divisor; never zero, as neither number is.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(algorithm: Algorithm, rate: &str) -> Result<Quota, QuotaError> {
        Quota::new(algorithm, rate.parse().unwrap())
    }

    fn bucket(rate: &str) -> Quota {
        quota(Algorithm::TokenBucket(Refill::Smooth), rate).unwrap()
    }

    #[test]
    fn a9_a_share_is_rounded_down_and_never_below_one() {
        let share = |rate: &str, burst: u32, part: u32, of: u32| {
            let quota = bucket(rate).with_burst(NonZeroU32::new(burst).unwrap()).unwrap();
            let shared = quota.share(Share { part, of: NonZeroU32::new(of).unwrap() });
            (shared.rate().to_string(), shared.capacity().get())
        };
        assert_eq!(share("10/s", 100, 1, 2), ("5/s".to_owned(), 50));
        assert_eq!(share("5/s", 3, 1, 2), ("2/s".to_owned(), 1));
        assert_eq!(share("1/6s", 10, 1, 2), ("1/6s".to_owned(), 5));
        assert_eq!(share("10/s", 10, 1, 1_000), ("1/s".to_owned(), 1));
        assert_eq!(share("10/s", 10, 1, 1), ("10/s".to_owned(), 10));
        assert_eq!(share("4000000000/s", 4_000_000_000, 3, 4), ("3000000000/s".to_owned(), 3_000_000_000));
        let window = quota(Algorithm::SlidingWindow, "9/min").unwrap();
        let half = Share { part: 1, of: NonZeroU32::new(2).unwrap() };
        assert_eq!(window.share(half).units(), 4);
    }

    #[test]
    fn even_buckets_of_one_speed_and_burst_are_equivalent() {
        let burst = |rate: &str, burst| bucket(rate).with_burst(NonZeroU32::new(burst).unwrap()).unwrap();
        assert!(burst("1/s", 2).is_equivalent(&bucket("2/2s")));
        assert!(!bucket("1/s").is_equivalent(&bucket("2/2s")), "another burst");
        assert!(!burst("1/s", 2).is_equivalent(&bucket("2/s")), "another speed");
        let window = |rate| quota(Algorithm::SlidingWindow, rate).unwrap();
        assert!(!window("1/s").is_equivalent(&window("2/2s")), "another window");
        let stepped = |rate| quota(Algorithm::TokenBucket(Refill::Stepped), rate).unwrap();
        let two = NonZeroU32::new(2).unwrap();
        assert!(!stepped("1/s").with_burst(two).unwrap().is_equivalent(&stepped("2/2s")), "another step");
    }

    #[test]
    fn derived_values_are_exact() {
        let tens = bucket("10/s").with_burst(NonZeroU32::new(50).unwrap()).unwrap();
        assert_eq!((tens.over(), tens.lap), (1, 100_000));
        assert_eq!(tens.time_to_fill().ceil(), Micros::from_secs(5));

        let thirds = bucket("3/s");
        assert_eq!((thirds.over(), thirds.lap), (3, 1_000_000));
        assert_eq!(thirds.time_to_earn(1), Span::from_ratio(1_000_000, 3));
        assert_eq!(thirds.time_to_earn(3), Span::from_ratio(3_000_000, 3));
        assert_eq!(thirds.units_earned_in(Span::from_ratio(2_999_999, 3)), 2);
        assert_eq!(thirds.units_earned_in(Span::from_ratio(3_000_000, 3)), 3);
    }

    #[test]
    fn the_fastest_and_the_slowest_quota_can_be_built() {
        assert_eq!(bucket("4294967295/s").time_to_earn(4_294_967_295).ceil(), Micros::from_secs(1));
        assert_eq!(bucket("1/100year").time_to_fill().ceil(), Rate::WINDOW_MAX);
    }

    /// 4294967291 is prime, so that nothing can be taken out of it: the products need more than 64 bits.
    #[test]
    fn the_largest_products_are_exact() {
        let quota = bucket("4294967291/year").with_burst(NonZeroU32::new(4_294_967_290).unwrap()).unwrap();
        assert_eq!(quota.units_earned_in(quota.time_to_fill()), 4_294_967_290);
        for units in [1, 2, 4_294_967_289] {
            let span = quota.time_to_earn(units);
            assert_eq!(u64::from(quota.units_earned_in(span)), units);
            let a_little_less = Span::from_ratio(span.numerator() - 1, quota.over());
            assert_eq!(u64::from(quota.units_earned_in(a_little_less)), units - 1);
        }
    }

    #[test]
    fn impossible_quotas_cannot_be_built() {
        let two = NonZeroU32::new(2).unwrap();
        assert!(bucket("1/50year").with_burst(two).is_ok(), "a hundred years exactly");
        let slow = bucket("1/100year").with_burst(two);
        assert_eq!(
            slow.unwrap_err().to_string(),
            "2 units at 1/100year take over 100 years to come back; raise the rate or lower the burst"
        );
        assert_eq!(
            quota(Algorithm::SlidingWindow, "10001/s").unwrap_err().to_string(),
            "sliding_window remembers every charge, so it takes at most 10000 units, not 10001; use sliding_window_counter for more"
        );
        assert_eq!(
            quota(Algorithm::SlidingWindow, "9/s").unwrap().with_burst(two).unwrap_err().to_string(),
            "sliding_window has no burst apart from its units; leave burst out, or use token_bucket"
        );
    }

    #[test]
    fn the_counters_weights_stay_exact_in_doubles() {
        for rate in ["1/us", "1000000/s", "4294967295/100year", "1/month", "100/60s"] {
            let quota = quota(Algorithm::SlidingWindowCounter, rate).unwrap();
            let ticks = quota.window().as_micros().div_ceil(quota.tick());
            assert!(u128::from(quota.units()) * u128::from(ticks) < 1 << 52, "{rate}");
        }
        assert_eq!(quota(Algorithm::SlidingWindowCounter, "100/60s").unwrap().tick(), 1);
    }

    #[test]
    fn names_find_their_algorithm() {
        for name in Algorithm::NAMES {
            assert_eq!(Algorithm::named(name).unwrap().name(), name);
        }
        assert_eq!(Algorithm::named("TOKEN_BUCKET"), None);
    }
}
