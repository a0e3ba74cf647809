//! Times of a log, in every notation that logs use.
//!
//! ```text
//!   18/Nov/2026:08:24:06 +0000          the date of the common log format
//!   2026-11-18T08:24:06.120Z            RFC 3339; a space for the T, any fraction, any zone or none (then UTC)
//!   1794990246  1794990246.120          seconds since 1970
//!   1794990246120                       milliseconds, microseconds or nanoseconds, by magnitude
//! ```
//!
//! A log repeats the date of its previous line, except for the seconds. [`ClfDates`] remembers the last minute, so that
//! most lines only compare 23 bytes and read 2.
//!
//! # Laws
//! - A time is exact to the microsecond; digits beyond are cut off. No floating point number is involved.
//! - A time is from 1970 to 2200.
//! - A result of [`ClfDates`] does not depend on the dates before it.

use ratewright_core::Timestamp;

use super::LineError;

/// A time as a line has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogTime {
    pub(super) at: Timestamp,
    /// True if the text has no fraction of a second.
    pub(super) is_whole_second: bool,
}

/// Reads dates of the common log format, and remembers the last minute.
#[derive(Clone, Debug, Default)]
pub(super) struct ClfDates {
    /// `18/Nov/2026:08:24:`
    minute: [u8; 18],
    /// ` +0000`
    zone: [u8; 6],
    /// Microseconds since 1970 when that minute began; `None` before the first date.
    begins_at: Option<u64>,
}

/// The unit of a duration that is a plain number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DurationUnit {
    /// Seconds, with a fraction. A whole number of at least 10,000 is in nanoseconds, a setting of Caddy.
    Seconds,
    Nanos,
}

/// A decimal number: `digits × 10^exponent`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

/// A date and time of day, before its zone is applied.
struct DateTime {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    fraction: Option<u64>,
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The first microsecond of 2201.
const END: u64 = 84_371 * DAY;

const INVALID: LineError = LineError("time is not a CLF date, an RFC 3339 time or a Unix timestamp");
const NO_SUCH_DAY: LineError = LineError("time has a day, hour, minute or second that does not exist");
const OUT_OF_RANGE: LineError = LineError("time is before 1970 or after 2200");
const INVALID_DURATION: LineError = LineError("duration is not a number or a string such as 1.5ms");

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Reads a time in any notation.
pub(super) fn parse(text: &[u8]) -> Result<LogTime, LineError> {
    match text {
        [_, _, b'/', ..] => clf(text),
        [_, _, _, _, b'-', ..] => rfc3339(text),
        _ => epoch(text),
    }
}

/// Reads a duration in microseconds, cut off: a number, or a text such as `1.5ms` or `1m2.5s`.
pub(super) fn duration(text: &[u8], unit: DurationUnit) -> Result<u64, LineError> {
    if let Some(decimal) = Decimal::read(text) {
        let is_nanos = unit == DurationUnit::Nanos
            || (decimal.exponent >= 0 && decimal.scaled(0).is_none_or(|whole| whole >= 10_000));
        return decimal.scaled(if is_nanos { -3 } else { 6 }).ok_or(INVALID_DURATION);
    }
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let end =
            rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').ok_or(INVALID_DURATION)?;
        let (number, after) = rest.split_at(end);
        let end = after.iter().position(|byte| byte.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let number = Decimal::read(number).ok_or(INVALID_DURATION)?;
        let micros = match unit {
            b"ns" => number.scaled(-3),
            b"us" | b"\xc2\xb5s" | b"\xce\xbcs" => number.scaled(0),
            b"ms" => number.scaled(3),
            b"s" => number.scaled(6),
            b"m" => number.scaled(6).and_then(|seconds| seconds.checked_mul(60)),
            b"h" => number.scaled(6).and_then(|seconds| seconds.checked_mul(3_600)),
            _ => None,
        };
        sum = micros.and_then(|micros| sum.checked_add(micros)).ok_or(INVALID_DURATION)?;
        rest = after;
    }
    if text.is_empty() { Err(INVALID_DURATION) } else { Ok(sum) }
}

impl LogTime {
    fn new(micros: u64, is_whole_second: bool) -> Result<Self, LineError> {
        let at = Timestamp::from_micros(micros);
        if micros < END { Ok(Self { at, is_whole_second }) } else { Err(OUT_OF_RANGE) }
    }

    /// The time of arrival, if this is the time of the response.
    pub(super) fn before(self, duration: u64) -> Result<Self, LineError> {
        let micros = self.at.as_micros().checked_sub(duration).ok_or(OUT_OF_RANGE)?;
        Self::new(micros, self.is_whole_second && duration == 0)
    }
}

impl ClfDates {
    /// Reads a date of 26 bytes: `18/Nov/2026:08:24:06 +0000`.
    #[inline]
    pub(super) fn parse(&mut self, text: &[u8; 26]) -> Result<LogTime, LineError> {
        let [.., tens, ones, _, _, _, _, _, _] = *text;
        if let Some(begins_at) = self.begins_at
            && text.starts_with(&self.minute)
            && text.ends_with(&self.zone)
        {
            let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
            if tens < 6 && ones < 10 {
                let second = u64::from(tens * 10 + ones);
                let at = Timestamp::from_micros(begins_at + second * SECOND);
                return Ok(LogTime { at, is_whole_second: true });
            }
        }
        self.read_minute(text)
    }

    #[cold]
    fn read_minute(&mut self, text: &[u8; 26]) -> Result<LogTime, LineError> {
        let time = clf(text)?;
        let (Some(minute), Some(zone)) = (text.first_chunk(), text.last_chunk::<6>()) else {
            return Ok(time);
        };
        // Only the exact form is remembered, and only a minute that is in range as a whole.
        let in_minute = time.at.as_micros() % MINUTE;
        let begins_at = time.at.as_micros() - in_minute;
        let is_exact = matches!(zone, [b' ', b'+' | b'-', _, _, _, _]);
        if is_exact && time.is_whole_second && begins_at + MINUTE <= END {
            *self = Self { minute: *minute, zone: *zone, begins_at: Some(begins_at) };
        }
        Ok(time)
    }
}

/// `18/Nov/2026:08:24:06 +0000`
fn clf(text: &[u8]) -> Result<LogTime, LineError> {
    let mut rest = text;
    let mut read = || -> Option<(DateTime, &[u8])> {
        let day = number(&mut rest, 2)?;
        skip(&mut rest, b"/")?;
        let (name, after) = rest.split_first_chunk::<3>()?;
        let month = MONTHS.iter().zip(1..).find(|(month, _)| month.eq_ignore_ascii_case(name))?.1;
        rest = after;
        skip(&mut rest, b"/")?;
        let year = number(&mut rest, 4)?;
        skip(&mut rest, b":")?;
        time_of_day(year, month, day, rest)
    };
    let (date, zone) = read().ok_or(INVALID)?;
    date.in_zone(zone)
}

/// `2026-11-18T08:24:06.120+01:00`
fn rfc3339(text: &[u8]) -> Result<LogTime, LineError> {
    let mut rest = text;
    let mut read = || -> Option<(DateTime, &[u8])> {
        let year = number(&mut rest, 4)?;
        skip(&mut rest, b"-")?;
        let month = number(&mut rest, 2)?;
        skip(&mut rest, b"-")?;
        let day = number(&mut rest, 2)?;
        skip(&mut rest, b"Tt ")?;
        time_of_day(year, month, day, rest)
    };
    let (date, zone) = read().ok_or(INVALID)?;
    date.in_zone(zone)
}

/// `08:24:06.120`, and the rest after it.
fn time_of_day(year: u64, month: u64, day: u64, mut rest: &[u8]) -> Option<(DateTime, &[u8])> {
    let hour = number(&mut rest, 2)?;
    skip(&mut rest, b":")?;
    let minute = number(&mut rest, 2)?;
    skip(&mut rest, b":")?;
    let second = number(&mut rest, 2)?;
    let mut fraction = None;
    if skip(&mut rest, b".,").is_some() {
        let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        if digits.is_empty() {
            return None;
        }
        let six = digits.iter().chain([b'0'; 6].iter()).take(6);
        fraction = Some(six.fold(0, |micros, digit| micros * 10 + u64::from(digit - b'0')));
        rest = after;
    }
    Some((DateTime { year, month, day, hour, minute, second, fraction }, rest))
}

impl DateTime {
    /// The time in UTC. Without a zone, it is UTC.
    fn in_zone(&self, zone: &[u8]) -> Result<LogTime, LineError> {
        let (is_east, offset) = offset(zone).ok_or(INVALID)?;
        if !(1970..=2200).contains(&self.year) {
            return Err(OUT_OF_RANGE);
        }
        let exists = (1..=12).contains(&self.month)
            && (1..=days_of_month(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        if !exists {
            return Err(NO_SUCH_DAY);
        }
        // A leap second counts as the end of the second before it.
        let (second, micros) = match (self.second, self.fraction) {
            (60, None) => (59, 0),
            (60, Some(_)) => (59, SECOND - 1),
            (second, fraction) => (second, fraction.unwrap_or(0)),
        };
        let days = days_since_1970(self.year, self.month, self.day);
        let local = days * DAY + self.hour * HOUR + self.minute * MINUTE + second * SECOND + micros;
        let utc = if is_east { local.checked_sub(offset) } else { local.checked_add(offset) };
        LogTime::new(utc.ok_or(OUT_OF_RANGE)?, self.fraction.is_none())
    }
}

/// The offset of a zone from UTC, and whether it is east of it.
fn offset(zone: &[u8]) -> Option<(bool, u64)> {
    let zone = zone.strip_prefix(b" ").unwrap_or(zone);
    let (is_east, mut rest) = match zone {
        b"" | b"Z" | b"z" | b"UTC" | b"GMT" => return Some((true, 0)),
        [b'+', rest @ ..] => (true, rest),
        [b'-', rest @ ..] => (false, rest),
        _ => return None,
    };
    let hours = number(&mut rest, 2)?;
    let has_colon = skip(&mut rest, b":").is_some();
    let minutes = if rest.is_empty() && !has_colon { 0 } else { number(&mut rest, 2)? };
    let is_valid = rest.is_empty() && hours < 24 && minutes < 60;
    is_valid.then_some((is_east, hours * HOUR + minutes * MINUTE))
}

/// Days from 1 January 1970 to a date of the Gregorian calendar.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // The year begins in March, so that the leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

fn days_of_month(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A number since 1970, whose magnitude tells its unit.
fn epoch(text: &[u8]) -> Result<LogTime, LineError> {
    let decimal = Decimal::read(text).ok_or(INVALID)?;
    let whole = decimal.scaled(0).ok_or(OUT_OF_RANGE)?;
    let (power, is_seconds) = match whole {
        0..100_000_000_000 => (6, true),
        100_000_000_000..100_000_000_000_000 => (3, false),
        100_000_000_000_000..100_000_000_000_000_000 => (0, false),
        _ => (-3, false),
    };
    LogTime::new(decimal.scaled(power).ok_or(OUT_OF_RANGE)?, is_seconds && decimal.exponent >= 0)
}

impl Decimal {
    /// Digits that are kept. More digits in a fraction are cut off; a longer whole number is invalid.
    const DIGITS_MAX: u32 = 30;

    /// Reads `12`, `12.5` or `1.25e1`. `None` if the text is not a number, is negative or is too long.
    fn read(text: &[u8]) -> Option<Self> {
        let mut read = Self { digits: 0, exponent: 0 };
        let (mut rest, mut n_digits, mut is_fraction) = (text, 0, false);
        while let [byte, after @ ..] = rest {
            match byte {
                b'0'..=b'9' if n_digits < Self::DIGITS_MAX => {
                    read.digits = read.digits * 10 + u128::from(byte - b'0');
                    n_digits += u32::from(read.digits > 0);
                    read.exponent -= i32::from(is_fraction);
                }
                b'0'..=b'9' if is_fraction => {}
                b'.' if !is_fraction && after.first().is_some_and(u8::is_ascii_digit) => is_fraction = true,
                b'e' | b'E' => {
                    read.exponent = read.exponent.checked_add(exponent(after)?)?;
                    rest = b"";
                    break;
                }
                _ => return None,
            }
            rest = after;
        }
        (rest.is_empty() && text.first()?.is_ascii_digit()).then_some(read)
    }

    /// The number times `10^power`, cut off to a whole number. `None` if it is too large.
    fn scaled(self, power: i32) -> Option<u64> {
        let power = self.exponent.checked_add(power)?;
        if self.digits == 0 {
            return Some(0);
        }
        let scaled = match 10_u128.checked_pow(power.unsigned_abs()) {
            Some(factor) if power < 0 => self.digits / factor,
            Some(factor) => self.digits.checked_mul(factor)?,
            None if power < 0 => 0,
            None => return None,
        };
        u64::try_from(scaled).ok()
    }
}

/// The digits of an exponent, with its sign.
fn exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    if digits.is_empty() || digits.len() > 4 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(sign * digits.iter().fold(0, |number, digit| number * 10 + i32::from(digit - b'0')))
}

/// Reads a number of exactly `n_digits` digits.
fn number(rest: &mut &[u8], n_digits: usize) -> Option<u64> {
    let (digits, after) = rest.split_at_checked(n_digits)?;
    *rest = after;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Skips one byte, if it is one of these.
fn skip(rest: &mut &[u8], bytes: &[u8]) -> Option<()> {
    let (first, after) = rest.split_first()?;
    bytes.contains(first).then(|| *rest = after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratewright_http::problem::iso;

    fn micros(text: &str) -> Result<u64, LineError> {
        parse(text.as_bytes()).map(|time| time.at.as_micros())
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let time = parse(text.as_bytes()).map(|time| iso(time.at));
        assert_eq!(time.as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn every_day_from_1970_to_2200_is_read_in_every_notation() {
        let mut dates = ClfDates::default();
        for day in 0..END / DAY {
            let at = Timestamp::from_micros(day * DAY + (day % 86_400) * SECOND);
            let text = iso(at);
            let time = LogTime { at, is_whole_second: false };
            assert_eq!(parse(text.as_bytes()), Ok(time), "{text}");
            let (date, time_of_day) = text.split_once('T').unwrap();
            let [year, month, day]: [&str; 3] = date.split('-').collect::<Vec<_>>().try_into().unwrap();
            let month = str::from_utf8(MONTHS[month.parse::<usize>().unwrap() - 1]).unwrap();
            let clf = format!("{day}/{month}/{year}:{} +0000", time_of_day.strip_suffix(".000Z").unwrap());
            let time = LogTime { at, is_whole_second: true };
            assert_eq!(parse(clf.as_bytes()), Ok(time), "{clf}");
            assert_eq!(dates.parse(clf.as_bytes().try_into().unwrap()), Ok(time), "{clf}");
            let seconds = (at.as_micros() / SECOND).to_string();
            assert_eq!(parse(seconds.as_bytes()), Ok(time), "{seconds}");
        }
        assert_eq!(days_since_1970(2201, 1, 1) * DAY, END);
    }

    #[test]
    fn dates_are_read_in_their_zone() {
        check("2026-11-18T08:24:06Z", "2026-11-18T08:24:06.000Z");
        check("2026-11-18 08:24:06", "2026-11-18T08:24:06.000Z");
        check("2026-11-18t08:24:06,12z", "2026-11-18T08:24:06.120Z");
        check("2026-11-18T09:24:06.123456789+01:00", "2026-11-18T08:24:06.123Z");
        check("2026-11-18T09:24:06 +0100", "2026-11-18T08:24:06.000Z");
        check("2026-11-18T09:24:06+01", "2026-11-18T08:24:06.000Z");
        check("2026-11-17T23:54:06-08:30", "2026-11-18T08:24:06.000Z");
        check("18/Nov/2026:08:24:06 +0000", "2026-11-18T08:24:06.000Z");
        check("18/nov/2026:08:24:06.5 -0030", "2026-11-18T08:54:06.500Z");
        check("31/Dec/2016:23:59:60 +0000", "2016-12-31T23:59:59.000Z");
        check("2016-12-31T23:59:60.5Z", "2016-12-31T23:59:59.999Z");
        check("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z");
    }

    #[test]
    fn the_magnitude_of_a_number_tells_its_unit() {
        for text in [
            "1794990246.123456",
            "1794990246.123456999",
            "1.794990246123456e9",
            "1794990246123.456",
            "1794990246123456",
            "1794990246123456789",
        ] {
            assert_eq!(micros(text), Ok(1_794_990_246_123_456), "{text}");
            assert!(!parse(text.as_bytes()).unwrap().is_whole_second, "{text}");
        }
        for text in ["1794990246", "1.794990246e9", "17949902460E-1"] {
            assert_eq!(micros(text).map(|micros| micros / SECOND), Ok(1_794_990_246), "{text}");
        }
        assert!(parse(b"1794990246").unwrap().is_whole_second);
        assert!(!parse(b"1794990246.0").unwrap().is_whole_second);
        assert_eq!(micros("0"), Ok(0));
        assert_eq!(micros(&format!("0.{}1", "0".repeat(10_000))), Ok(0));
    }

    #[test]
    fn other_texts_are_not_times() {
        for text in [
            "",
            "-",
            "x",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e",
            "1e99999",
            "0x10",
            "1_000",
            "NaN",
            "1.5.5",
            "2026-11-18",
            "2026-11-18T08:24",
            "2026-11-18T08:24:06.",
            "2026-11-18T08:24:06.Z",
            "2026-11-18T08:24:06X",
            "2026-11-18T08:24:06+1",
            "2026-11-18T08:24:06+01:",
            "2026-11-18T08:24:06+24:00",
            "18/Xyz/2026:08:24:06 +0000",
            "18/Nov/26:08:24:06 +0000",
            "2026-1-18T08:24:06Z",
        ] {
            assert_eq!(micros(text), Err(INVALID), "{text}");
        }
        for text in [
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "00/Nov/2026:08:24:06 +0000",
        ] {
            assert_eq!(micros(text), Err(NO_SUCH_DAY), "{text}");
        }
        for text in [
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "2201-01-01T00:00:00Z",
            "2200-12-31T23:59:59-00:01",
            "7289654400",
            "1e30",
            "1e9999",
            "99999999999999999999999999",
        ] {
            assert_eq!(micros(text), Err(OUT_OF_RANGE), "{text}");
        }
        assert_eq!(micros(&"1".repeat(10_000)), Err(INVALID));
    }

    #[test]
    fn durations_are_numbers_or_texts_with_units() {
        let read = |text: &str| duration(text.as_bytes(), DurationUnit::Seconds).ok();
        assert_eq!(read("0.000929675"), Some(929));
        assert_eq!(read("9.29e-4"), Some(929));
        assert_eq!(read("2"), Some(2_000_000));
        assert_eq!(read("1500000"), Some(1_500));
        assert_eq!(read("1.5ms"), Some(1_500));
        assert_eq!(read("1h1m2.5s"), Some(3_662_500_000));
        assert_eq!(read("250\u{b5}s"), Some(250));
        assert_eq!(read("999ns"), Some(0));
        for text in ["", "ms", "1x", "1.5.5ms", "-1ms", "1ms2", "99999999999999999999h"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(duration(b"55321", DurationUnit::Nanos), Ok(55));
    }

    /// Dates close to each other, some of them invalid.
    fn dates() -> impl Strategy<Value = String> {
        let parts = (17..19_u32, 8..10_u32, 23..25_u32, 0..62_u32, 0..4_usize);
        parts.prop_map(|(day, hour, minute, second, zone)| {
            let zone = [" +0000", " +0100", " -0030", " 00000"][zone];
            format!("{day}/Nov/2026:{hour:02}:{minute:02}:{second:02}{zone}")
        })
    }

    proptest! {
        /// Remembering a minute changes no result.
        #[test]
        fn a_date_does_not_depend_on_the_dates_before_it(texts in prop::collection::vec(dates(), 1..50)) {
            let mut dates = ClfDates::default();
            for text in texts {
                let date = text.as_bytes().try_into().unwrap();
                prop_assert_eq!(dates.parse(date), clf(text.as_bytes()), "{}", text);
            }
        }

        #[test]
        fn any_bytes_are_a_time_in_range_or_an_error(text in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(parse(&text).is_ok_and(|time| time.at.as_micros() < END) || parse(&text).is_err());
            let _ = duration(&text, DurationUnit::Seconds);
        }
    }
}
