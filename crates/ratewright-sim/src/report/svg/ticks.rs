//! Where the labels of an axis are: at round numbers, and at round times in UTC.

use ratewright_core::Timestamp;

use super::super::time;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The distances between two labels of time, in seconds.
const STEPS: [u64; 24] = [
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
    364 * DAY,
];
/// Maximum labels of time in a chart.
const TIMES_MAX: u64 = 9;
/// The fewest intervals between labels of counts.
const COUNTS_MIN: u64 = 3;

/// A label of time.
pub(super) struct TimeTick {
    pub(super) at: Timestamp,
    pub(super) label: String,
    /// The date, at the first label and at midnight.
    pub(super) date: Option<String>,
}

/// Round counts from 0 to the first that is not less than `largest`.
pub(super) fn counts(largest: u64) -> Vec<u64> {
    let mut step = 1_u64;
    let next = |step: u64| {
        let is_two = step.to_string().starts_with('2');
        if is_two { step.saturating_mul(5) / 2 } else { step.saturating_mul(2) }
    };
    while largest / step > COUNTS_MIN + 1 {
        step = next(step);
    }
    let n_steps = largest.div_ceil(step).max(1);
    (0..=n_steps).map(|n| n.saturating_mul(step)).collect()
}

/// Round times between two.
pub(super) fn times(from: Timestamp, to: Timestamp) -> Vec<TimeTick> {
    let (first, last) = (from.as_micros().div_ceil(1_000_000), to.as_micros() / 1_000_000);
    let length = last.saturating_sub(first);
    let fits = |step: &u64| length / step < TIMES_MAX;
    let step =
        STEPS.into_iter().find(fits).unwrap_or_else(|| length.div_ceil(TIMES_MAX).next_multiple_of(DAY));
    let ticks = (first.div_ceil(step)..=last / step).map(|n| n * step).enumerate();
    let tick = |(n, seconds): (usize, u64)| {
        let at = Timestamp::from_micros(seconds.saturating_mul(1_000_000));
        let is_dated = step < DAY && (n == 0 || seconds.is_multiple_of(DAY));
        let label = match step {
            _ if step < MINUTE => time::clock(at),
            _ if step < DAY => time::hour_and_minute(at),
            _ => time::date(at),
        };
        TimeTick { at, label, date: is_dated.then(|| time::date(at)) }
    };
    ticks.map(tick).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use super::super::super::test_reports::at;
    use super::*;

    #[test]
    fn counts_are_round() {
        let shown = [0, 1, 4, 5, 37, 99, 1_204, 41_000].map(|n| format!("{:?}", counts(n))).join(" ");
        expect!["[0, 1] [0, 1] [0, 1, 2, 3, 4] [0, 2, 4, 6] [0, 10, 20, 30, 40] [0, 20, 40, 60, 80, 100] [0, 500, 1000, 1500] [0, 10000, 20000, 30000, 40000, 50000]"]
            .assert_eq(&shown);
    }

    #[test]
    fn times_are_round() {
        let shown = |from: u64, to: u64| {
            let ticks = times(at(from), at(to));
            let label = |tick: &TimeTick| {
                tick.date.iter().fold(tick.label.clone(), |label, date| format!("{label}/{date}"))
            };
            ticks.iter().map(label).collect::<Vec<_>>().join(" ")
        };
        expect!["00:00/2026-02-10 03:00 06:00 09:00 12:00 15:00 18:00 21:00 00:00/2026-02-11"]
            .assert_eq(&shown(0, DAY));
        expect!["08:20:10/2026-02-10 08:20:12 08:20:14 08:20:16 08:20:18 08:20:20 08:20:22 08:20:24"]
            .assert_eq(&shown(30_009, 30_024));
        expect!["2026-02-12 2026-02-14 2026-02-16 2026-02-18 2026-02-20"].assert_eq(&shown(1, 10 * DAY));
    }

    proptest! {
        #[test]
        fn there_are_always_few_labels(largest: u64, from in 0_u64..1 << 53, length in 0_u64..1 << 53) {
            let counts = counts(largest);
            prop_assert!((2..=6).contains(&counts.len()));
            prop_assert!(counts.last().is_some_and(|last| *last >= largest));
            let (from, to) = (Timestamp::from_micros(from), Timestamp::from_micros(from + length));
            prop_assert!(times(from, to).len() <= 11);
        }
    }
}
