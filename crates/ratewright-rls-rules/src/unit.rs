//! Units of time.

use ratewright_core::Micros;

/// A unit of time. Months have 30 days and years 365, as everywhere in Ratewright.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A week. Windows begin on Thursdays, like the epoch.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All units, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The unit with this name, case-insensitive.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit's length.
    pub const fn length(self) -> Micros {
        const DAY: u64 = 86_400;
        Micros::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_parse_case_insensitively_and_have_these_lengths() {
        let seconds = [1, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000];
        for (unit, seconds) in Unit::ALL.into_iter().zip(seconds) {
            assert_eq!(Unit::parse(&unit.name().to_uppercase()), Some(unit));
            assert_eq!(unit.length(), Micros::from_secs(seconds));
        }
        for other in ["", "unknown", "minutes", "decade"] {
            assert_eq!(Unit::parse(other), None, "{other}");
        }
    }
}
