//! A rate as people write it: `10/s`, `1/6s`, `250/min`, `5/2s`, `1/month`.
//!
//! Units per window, kept as written, because `60/min` and `1/s` are the same speed but not the
//! same window. A month is 30 days and a year 365.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::quantity::{Micros, SECOND, YEAR};

/// Units per window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    units: NonZeroU32,
    window: Micros,
}

/// Why a text is not a rate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RateError {
    /// There is no slash.
    #[error("a rate is units/time, for example 10/s, 1/6s or 250/min")]
    NoSlash,
    /// The units are not a whole number from 1 up.
    #[error("{units:?} is not a number of units; use a whole number from 1 to 4294967295")]
    Units {
        /// What stood before the slash.
        units: String,
    },
    /// The time is not understood.
    #[error(
        "{time:?} is not a time; use us, ms, s, min, h, d, w, month or year, with a whole number before it if you like: 6s"
    )]
    Time {
        /// What stood after the slash.
        time: String,
    },
    /// The time is zero or over 100 years.
    #[error("a window of {time:?} is out of range; use 1us to 100year")]
    Range {
        /// What stood after the slash.
        time: String,
    },
}

/// Names of times in microseconds, the preferred name of each first.
const TIMES: [(&str, u64); 19] = [
    ("year", YEAR),
    ("month", 30 * 86_400 * SECOND),
    ("w", 7 * 86_400 * SECOND),
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("min", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000),
    ("us", 1),
    ("y", YEAR),
    ("week", 7 * 86_400 * SECOND),
    ("day", 86_400 * SECOND),
    ("hour", 3_600 * SECOND),
    ("hr", 3_600 * SECOND),
    ("minute", 60 * SECOND),
    ("m", 60 * SECOND),
    ("sec", SECOND),
    ("second", SECOND),
    ("mo", 30 * 86_400 * SECOND),
];

impl Rate {
    /// The longest window, 100 years.
    pub const WINDOW_MAX: Micros = Micros::new(100 * YEAR);

    /// `units` in each `window`.
    ///
    /// # Errors
    /// If the window is zero or longer than [`Rate::WINDOW_MAX`].
    pub fn new(units: NonZeroU32, window: Micros) -> Result<Self, RateError> {
        if window.is_zero() || window > Self::WINDOW_MAX {
            return Err(RateError::Range { time: format!("{window:?}") });
        }
        Ok(Self { units, window })
    }

    /// How many units.
    pub fn units(self) -> NonZeroU32 {
        self.units
    }

    /// In how much time.
    pub fn window(self) -> Micros {
        self.window
    }
}

impl Micros {
    /// A duration as people write it: a whole number and a unit, `5ms`, `60s`; without a number, one of it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, name) = text.split_at(digits);
        let count = if count.is_empty() { 1 } else { whole(count)? };
        let (_, length) = TIMES.iter().find(|(known, _)| *known == name.trim())?;
        Some(Self::new(count.saturating_mul(*length)))
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (units, time) = text.split_once('/').ok_or(RateError::NoSlash)?;
        let (units, time) = (units.trim(), time.trim());
        let units = whole(units)
            .and_then(|n| u32::try_from(n).ok())
            .and_then(NonZeroU32::new)
            .ok_or_else(|| RateError::Units { units: units.to_owned() })?;
        let window = Micros::parse(time).ok_or_else(|| RateError::Time { time: time.to_owned() })?;
        Self::new(units, window).map_err(|_| RateError::Range { time: time.to_owned() })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.window.as_micros();
        let (name, length) =
            TIMES.iter().find(|(_, length)| window.is_multiple_of(*length)).unwrap_or(&("us", 1));
        match window / length {
            1 => write!(f, "{}/{name}", self.units),
            count => write!(f, "{}/{count}{name}", self.units),
        }
    }
}

/// A number of digits and nothing else: no sign, no blank.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let read = text.parse::<Rate>();
        let shown = match &read {
            Ok(rate) => format!("{} in {:?}, {rate}", rate.units(), rate.window()),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
        if let Ok(rate) = read {
            assert_eq!(rate.to_string().parse(), Ok(rate), "what is shown reads back");
        }
    }

    #[test]
    fn rates_read_as_people_write_them() {
        check("10/s", expect!["10 in 1s, 10/s"]);
        check("1/6s", expect!["1 in 6s, 1/6s"]);
        check("250/min", expect!["250 in 60s, 250/min"]);
        check("100/60s", expect!["100 in 60s, 100/min"]);
        check(" 5 / 2 sec ", expect!["5 in 2s, 5/2s"]);
        check("1/month", expect!["1 in 2592000s, 1/month"]);
        check("4294967295/s", expect!["4294967295 in 1s, 4294967295/s"]);
        check("1/100year", expect!["1 in 3153600000s, 1/100year"]);
    }

    #[test]
    fn invalid_rates_are_rejected_with_a_reason() {
        check("10", expect!["a rate is units/time, for example 10/s, 1/6s or 250/min"]);
        check("0/s", expect![[r#""0" is not a number of units; use a whole number from 1 to 4294967295"#]]);
        check("-1/s", expect![[r#""-1" is not a number of units; use a whole number from 1 to 4294967295"#]]);
        check("+1/s", expect![[r#""+1" is not a number of units; use a whole number from 1 to 4294967295"#]]);
        check(
            "4294967296/s",
            expect![[r#""4294967296" is not a number of units; use a whole number from 1 to 4294967295"#]],
        );
        check(
            "1/fortnight",
            expect![[
                r#""fortnight" is not a time; use us, ms, s, min, h, d, w, month or year, with a whole number before it if you like: 6s"#
            ]],
        );
        check(
            "1/",
            expect![[
                r#""" is not a time; use us, ms, s, min, h, d, w, month or year, with a whole number before it if you like: 6s"#
            ]],
        );
        check("1/0s", expect![[r#"a window of "0s" is out of range; use 1us to 100year"#]]);
        check("1/101year", expect![[r#"a window of "101year" is out of range; use 1us to 100year"#]]);
        check(
            "1/99999999999999999999s",
            expect![[
                r#""99999999999999999999s" is not a time; use us, ms, s, min, h, d, w, month or year, with a whole number before it if you like: 6s"#
            ]],
        );
    }
}
