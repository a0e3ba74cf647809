//! Timestamps in ISO 8601.
//!
//! Days are counted from the first of March of year 0: then the leap day is a year's last, months have a
//! regular pattern of lengths, and 400 years are always 146,097 days.

use ratewright_core::Timestamp;

/// Days from 0000-03-01 to 1970-01-01.
const TO_EPOCH: u64 = 719_468;

/// UTC with milliseconds, rounded down: `2026-11-15T12:00:00.123Z`.
pub fn iso(at: Timestamp) -> String {
    let millis = at.as_micros() / 1_000;
    let (days, millis) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, millis) = (millis / 1_000 % 60, millis % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

/// Year, month and day of a day since the epoch.
fn civil(days: u64) -> (u64, u64, u64) {
    let (era, day) = ((days + TO_EPOCH) / 146_097, (days + TO_EPOCH) % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365; // without the leap days before it
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // 0 is March; five months have 153 days
    let day = day - (153 * month + 2) / 5 + 1;
    let year = 400 * era + year + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_are_formatted() {
        let date = |micros| iso(Timestamp::from_micros(micros));
        assert_eq!(date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(951_782_400_000_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(date(1_234_567_890_000_000), "2009-02-13T23:31:30.000Z");
        assert_eq!(date(1_794_744_000_123_999), "2026-11-15T12:00:00.123Z");
        assert_eq!(date(4_107_542_399_999_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(date(4_107_542_400_000_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(date(u64::MAX), "2255-06-05T23:47:34.740Z");
    }

    /// Every day that a timestamp can name, against a calendar that is turned page by page.
    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..Timestamp::from_micros(u64::MAX).as_micros() / 86_400_000_000 {
            assert_eq!(civil(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }
}
