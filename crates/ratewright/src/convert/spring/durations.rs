//! Durations as Spring writes them, and as a policy file does.

use std::num::NonZeroU32;

use ratewright_core::Micros;
use ratewright_core::quota::Rate;

/// A duration in the largest unit that divides it.
pub(super) fn duration_text(micros: Micros) -> String {
    // The rate's text has the unit of its window; a window of one unit has no number.
    let rate = Rate::new(NonZeroU32::MIN, micros).map(|rate| rate.to_string()).unwrap_or_default();
    let window = rate.trim_start_matches("1/");
    if window.starts_with(|c: char| c.is_ascii_digit()) { window.to_owned() } else { format!("1{window}") }
}

/// A duration with the number that it was written with: `60s` stays `60s`, `1m` is `1min`. None for other forms.
pub(super) fn as_written(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(end);
    let unit = if unit == "m" { "min" } else { unit };
    let is_plain = !count.is_empty() && ["ms", "s", "min", "h", "d"].contains(&unit);
    is_plain.then(|| format!("{count}{unit}"))
}

/// The unit that a property's name ends with: `retry-after-seconds`.
pub(super) fn unit_of_name(name: &str) -> Option<&'static str> {
    const UNITS: [(&str, &str); 10] = [
        ("milliseconds", "ms"),
        ("millis", "ms"),
        ("ms", "ms"),
        ("seconds", "s"),
        ("secs", "s"),
        ("sec", "s"),
        ("minutes", "min"),
        ("mins", "min"),
        ("hours", "h"),
        ("days", "d"),
    ];
    let last = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    UNITS.iter().find(|(ending, _)| last.ends_with(ending)).map(|(_, unit)| *unit)
}

/// A duration in Spring's simple form or in ISO 8601. Nanoseconds are rounded up: a longer period is stricter.
pub(super) fn duration_of(text: &str) -> Option<Micros> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(count) = text.strip_suffix("ns") {
        return count.trim().parse::<u64>().ok().map(|nanos| Micros::new(nanos.div_ceil(1_000)));
    }
    let Some(iso) = text.strip_prefix('p') else {
        let has_number = text.starts_with(|c: char| c.is_ascii_digit());
        return Micros::parse(&text).filter(|_| has_number);
    };
    let (days, time) = iso.split_once('t').unwrap_or((iso, ""));
    let mut total = Micros::new(0);
    for (part, units) in [(days, "d"), (time, "hms")] {
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let (count, after) = rest.split_at(end);
            let unit = after.chars().next().filter(|unit| units.contains(*unit))?;
            // In ISO 8601, `m` after the T is minutes, as it is in a policy file.
            let length = Micros::parse(&format!("{count}{unit}")).filter(|_| !count.is_empty())?;
            total = Micros::new(total.as_micros().saturating_add(length.as_micros()));
            rest = after.strip_prefix(unit).unwrap_or_default();
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_spring_reads_them() {
        for (text, expected) in [
            ("6s", Some("6s")),
            ("1m", Some("1min")),
            ("90s", Some("90s")),
            ("PT1M30S", Some("90s")),
            ("p1dt12h", Some("36h")),
            ("500ms", Some("500ms")),
            ("1500ns", Some("2us")),
            ("24H", Some("1d")),
            ("s", None),
            ("P", Some("")),
            ("PT", Some("")),
            ("PT1", None),
            ("PTM", None),
            ("1.5s", None),
            ("-1s", None),
            ("", None),
            ("1 fortnight", None),
        ] {
            let shown = duration_of(text)
                .map(|micros| if micros.is_zero() { String::new() } else { duration_text(micros) });
            assert_eq!(shown.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_name_may_have_the_unit() {
        assert_eq!(unit_of_name("a.retry-after-seconds"), Some("s"));
        assert_eq!(unit_of_name("a.refillPeriodMillis"), Some("ms"));
        assert_eq!(unit_of_name("a.window"), None);
    }
}
