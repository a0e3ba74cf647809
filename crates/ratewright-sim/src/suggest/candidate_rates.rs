//! The rates that are tried: whole numbers per hour, minute or second, with at most two significant digits. From 10/h on, a rate is at
//! most a tenth higher than the one before.
//!
//! ```text
//!   1/h 2/h … 99/h 100/h 110/h … 590/h   10/min 11/min … 99/min 100/min 110/min … 590/min   10/s 11/s … 99/s 100/s 110/s …
//! ```

use std::num::NonZeroU32;

use ratewright_core::quota::Rate;
use ratewright_core::{Micros, Quota};

use super::quota;

/// The highest rate, per second.
const PER_SECOND_MAX: u32 = 1_000_000;

/// A rate that is tried.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) quota: Quota,
}

impl Candidate {
    /// True if the rate is at most `part / whole` of another one.
    pub(super) fn is_at_most(&self, other: &Self, (part, whole): (u64, u64)) -> bool {
        let product = |quota: &Quota, window: Micros, factor: u64| {
            u128::from(quota.units()) * u128::from(window.as_micros()) * u128::from(factor)
        };
        product(&self.quota, other.quota.window(), whole) <= product(&other.quota, self.quota.window(), part)
    }

    /// The rate, as a policy file writes it.
    pub(super) fn text(&self) -> String {
        self.quota.rate().to_string()
    }
}

/// All rates that are valid with this burst, the lowest first.
pub(super) fn candidate_rates(burst: NonZeroU32) -> Vec<Candidate> {
    let per = |seconds: u64| move |units: u32| (units, Micros::from_secs(seconds));
    let from_10 =
        |end: u32| two_digits().skip_while(|units| *units < 10).take_while(move |units| *units < end);
    let per_hour = two_digits().take_while(|units| *units < 600).map(per(3_600));
    let rates = per_hour.chain(from_10(600).map(per(60))).chain(from_10(PER_SECOND_MAX + 1).map(per(1)));
    let candidate = |(units, window): (u32, Micros)| {
        let rate = Rate::new(NonZeroU32::new(units)?, window).ok()?;
        Some(Candidate { quota: quota(rate, burst)? })
    };
    rates.filter_map(candidate).collect()
}

/// 1 to 99, 100 to 990 in steps of 10, and so on.
fn two_digits() -> impl Iterator<Item = u32> {
    let mut step = 1_u32;
    let mut next = 1_u32;
    std::iter::from_fn(move || {
        let units = next;
        if units > PER_SECOND_MAX {
            return None;
        }
        next += step;
        if next == 100 * step {
            step *= 10;
        }
        Some(units)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_and_read_back_as_they_are_written() {
        let candidates = candidate_rates(NonZeroU32::MIN);
        let per_hour = |candidate: &Candidate| {
            u128::from(candidate.quota.units()) * 3_600_000_000
                / u128::from(candidate.quota.window().as_micros())
        };
        assert!(candidates.windows(2).all(|pair| per_hour(&pair[0]) < per_hour(&pair[1])));
        for candidate in &candidates {
            assert_eq!(candidate.text().parse::<Rate>().unwrap(), candidate.quota.rate());
        }
        let texts: Vec<_> = candidates.iter().map(Candidate::text).collect();
        for (a, b) in [
            ("9/h", "10/h"),
            ("99/h", "100/h"),
            ("590/h", "10/min"),
            ("590/min", "10/s"),
            ("99/s", "100/s"),
            ("100/s", "110/s"),
            ("990/s", "1000/s"),
        ] {
            let at = texts.iter().position(|text| text == a).unwrap();
            assert_eq!(texts[at + 1], b);
        }
        assert_eq!((texts[0].as_str(), texts[texts.len() - 1].as_str()), ("1/h", "1000000/s"));
    }
}
