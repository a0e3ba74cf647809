//! Times and durations for people, in UTC.

use ratewright_core::Timestamp;
use ratewright_http::problem::iso;

/// `2026-02-10 08:20:11`; fractions of a second are cut off.
pub(super) fn seconds(at: Timestamp) -> String {
    let (date, clock) = parts(at);
    format!("{date} {clock}")
}

/// `2026-02-10 08:20`; seconds are cut off.
pub(super) fn minutes(at: Timestamp) -> String {
    format!("{} {}", date(at), hour_and_minute(at))
}

/// `2026-02-10`.
pub(super) fn date(at: Timestamp) -> String {
    parts(at).0
}

/// `08:20`.
pub(super) fn hour_and_minute(at: Timestamp) -> String {
    let clock = parts(at).1;
    clock.rsplit_once(':').map_or_else(|| clock.clone(), |(minutes, _)| minutes.to_owned())
}

/// `08:20:11`.
pub(super) fn clock(at: Timestamp) -> String {
    parts(at).1
}

/// `2026-02-10 08:20:11 to 09:00:00`; the second date only if it is another.
pub(super) fn range(from: Timestamp, to: Timestamp) -> String {
    let end = if date(from) == date(to) { clock(to) } else { seconds(to) };
    format!("{} to {end}", seconds(from))
}

/// `10 min`: in the largest unit of which it is a whole number.
pub(super) fn duration(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length));
    let (length, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", seconds / length)
}

fn parts(at: Timestamp) -> (String, String) {
    let text = iso(at);
    let text = text.trim_end_matches('Z');
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let (date, clock) = whole.split_once('T').unwrap_or((whole, ""));
    (date.to_owned(), clock.to_owned())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn times_are_short() {
        let at = Timestamp::from_micros(1_770_711_611_987_654);
        expect!["2026-02-10 08:20:11 | 2026-02-10 08:20 | 2026-02-10 | 08:20 | 08:20:11"]
            .assert_eq(&[seconds(at), minutes(at), date(at), hour_and_minute(at), clock(at)].join(" | "));
        let later = |seconds: u64| Timestamp::from_micros(at.as_micros() + seconds * 1_000_000);
        expect!["2026-02-10 08:20:11 to 09:20:11"].assert_eq(&range(at, later(3_600)));
        expect!["2026-02-10 08:20:11 to 2026-02-11 08:20:11"].assert_eq(&range(at, later(86_400)));
    }

    #[test]
    fn durations_are_in_the_largest_whole_unit() {
        let shown = [0, 1, 60, 90, 600, 3_600, 5_400, 86_400, 1_209_600].map(duration).join(", ");
        expect!["0 s, 1 s, 1 min, 90 s, 10 min, 1 h, 90 min, 1 d, 14 d"].assert_eq(&shown);
    }
}
