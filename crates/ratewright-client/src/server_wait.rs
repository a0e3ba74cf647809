//! How long a server asks a client to wait.
//!
//! ```text
//!   Retry-After: 120                        1  seconds, or a date
//!   RateLimit: "login";r=0;t=6              2  the longest t of the limits that are used up
//!   RateLimit-Reset: 6                      3  if RateLimit-Remaining is 0 or absent
//!   X-RateLimit-Reset: 1794744006           4  likewise; Unix time, or seconds from now
//! ```
//!
//! The first that can be read counts. Headers are untrusted: a malformed header counts as absent.
//! `clients/vectors/README.md` defines every detail.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use ratewright_http::RateLimitHeaders;

/// The longest wait, in milliseconds: 31 years. A longer one counts as this.
const WAIT_MAX: u64 = 1_000_000_000_000;
/// The longest `Retry-After` that is read, in bytes.
const RETRY_AFTER_MAX: usize = 1_024;
/// From here on a number is a Unix time, and no number of seconds to wait.
const EPOCH_MIN: u64 = 1_000_000_000;

const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

/// Which header a wait comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WaitSource {
    /// `Retry-After`.
    RetryAfter,
    /// `RateLimit`.
    RateLimit,
    /// `RateLimit-Reset`.
    RateLimitReset,
    /// `X-RateLimit-Reset`.
    XRateLimitReset,
}

/// The wait that a response asks for, and where it says so. Zero for times that have passed.
pub(crate) fn server_wait(headers: &HeaderMap, wall: SystemTime) -> Option<(WaitSource, Duration)> {
    let response = Response { headers, wall };
    let from = |source, wait: Option<u64>| Some((source, Duration::from_millis(wait?.min(WAIT_MAX))));
    from(WaitSource::RetryAfter, response.retry_after())
        .or_else(|| from(WaitSource::RateLimit, response.rate_limit()))
        .or_else(|| from(WaitSource::RateLimitReset, response.rate_limit_reset()))
        .or_else(|| from(WaitSource::XRateLimitReset, response.x_rate_limit_reset()))
}

/// A response's headers, and our time of day. All waits are in milliseconds.
struct Response<'a> {
    headers: &'a HeaderMap,
    wall: SystemTime,
}

impl Response<'_> {
    fn retry_after(&self) -> Option<u64> {
        let list = joined(self.headers, &header::RETRY_AFTER);
        if list.len() > RETRY_AFTER_MAX {
            return None;
        }
        let list = String::from_utf8_lossy(&list); // an element that is not ASCII stays unreadable
        elements(&list).filter_map(|element| self.wait(element)).max()
    }

    /// Seconds, or a date.
    fn wait(&self, element: &str) -> Option<u64> {
        decimal_millis(element).or_else(|| {
            let date = unix_millis(httpdate::parse_http_date(element).ok()?)?;
            Some(date.saturating_sub(self.reference()?))
        })
    }

    fn rate_limit(&self) -> Option<u64> {
        let longest = RateLimitHeaders::parse_limits(self.headers)
            .into_iter()
            .filter(|limit| limit.available == 0)
            .filter_map(|limit| limit.window)
            .max();
        Some(longest?.saturating_mul(1_000))
    }

    fn rate_limit_reset(&self) -> Option<u64> {
        let value = self.single(&RESET)??;
        if self.is_used_up(&REMAINING) { decimal_millis(value) } else { None }
    }

    fn x_rate_limit_reset(&self) -> Option<u64> {
        let value = self.single(&X_RESET)??;
        if !self.is_used_up(&X_REMAINING) {
            return None;
        }
        let (millis, whole) = (decimal_millis(value)?, whole(value));
        if whole >= 1_000 * EPOCH_MIN {
            let has_fraction =
                value.bytes().skip_while(|byte| *byte != b'.').skip(1).any(|byte| byte != b'0');
            Some(whole.saturating_add(u64::from(has_fraction)).saturating_sub(self.reference()?))
        } else if whole >= EPOCH_MIN {
            Some(millis.saturating_sub(self.reference()?))
        } else {
            Some(millis)
        }
    }

    /// The one value of a header; nothing within if its lines, or its elements, differ.
    fn single(&self, name: &HeaderName) -> Option<Option<&str>> {
        let lines = self.headers.get_all(name).iter().map(|line| text(line).unwrap_or("unreadable"));
        let mut values = lines.flat_map(|line| line.split(',')).map(|value| value.trim_matches([' ', '\t']));
        let first = values.next()?;
        Some(values.all(|value| value == first).then_some(first))
    }

    /// True if a count of units left is 0, or absent.
    fn is_used_up(&self, name: &HeaderName) -> bool {
        match self.single(name) {
            None => true,
            Some(value) => {
                value.is_some_and(|value| !value.is_empty() && value.bytes().all(|byte| byte == b'0'))
            }
        }
    }

    /// The server's time, in Unix milliseconds, which its dates are compared with; ours if it does not tell, or if the
    /// response was stored on its way.
    fn reference(&self) -> Option<u64> {
        let is_stored = self.headers.contains_key(header::AGE);
        let mut dates = self.headers.get_all(header::DATE).iter();
        let own = match (dates.next(), dates.next()) {
            (Some(date), None) if !is_stored => {
                text(date).and_then(|date| unix_millis(httpdate::parse_http_date(date).ok()?))
            }
            _ => None,
        };
        own.or_else(|| unix_millis(self.wall))
    }
}

/// All lines of a header, as one list.
pub(crate) fn joined(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    lines.join(&b", "[..])
}

/// A header's value without blanks around it; nothing if it is not ASCII.
fn text(value: &HeaderValue) -> Option<&str> {
    let text = std::str::from_utf8(value.as_bytes()).ok().filter(|text| text.is_ascii())?;
    Some(text.trim_matches([' ', '\t']))
}

/// The elements of a list. The comma after a weekday is a part of its date.
fn elements(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let text = rest?;
        let ends = text.match_indices(',').map(|(at, _)| at);
        let mut ends = ends.skip_while(|end| text.get(..*end).is_some_and(is_weekday));
        let element = match ends.next().and_then(|end| text.split_at_checked(end)) {
            Some((element, after)) => {
                rest = after.get(1..);
                element
            }
            None => {
                rest = None;
                text
            }
        };
        Some(element.trim_matches([' ', '\t']))
    })
}

fn is_weekday(text: &str) -> bool {
    const NAMES: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let text = text.trim_start_matches([' ', '\t']);
    NAMES.iter().any(|name| text == *name || (text.len() == 3 && name.starts_with(text)))
}

/// Decimal digits with an optional fraction, as milliseconds, rounded up.
fn decimal_millis(text: &str) -> Option<u64> {
    let (digits, fraction) = match text.split_once('.') {
        Some((digits, fraction)) if !fraction.is_empty() => (digits, fraction),
        Some(_) => return None,
        None => (text, ""),
    };
    let is_decimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if digits.is_empty() || !is_decimal(digits) || !is_decimal(fraction) {
        return None;
    }
    let mut thousandths = 0;
    for place in 0..3 {
        thousandths =
            10 * thousandths + u64::from(fraction.as_bytes().get(place).map_or(0, |byte| byte - b'0'));
    }
    let is_rounded = fraction.bytes().skip(3).any(|byte| byte != b'0');
    Some(whole(digits).saturating_mul(1_000).saturating_add(thousandths + u64::from(is_rounded)))
}

/// The digits at the beginning, as a number, at most what fits.
fn whole(text: &str) -> u64 {
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

fn unix_millis(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comma_of_a_weekday_separates_nothing() {
        let split = |list| elements(list).collect::<Vec<_>>();
        assert_eq!(split("5"), ["5"]);
        assert_eq!(split("5, 6,7"), ["5", "6", "7"]);
        assert_eq!(split("Sun, 15 Nov 2026 12:00:00 GMT, 5"), ["Sun, 15 Nov 2026 12:00:00 GMT", "5"]);
        assert_eq!(split("5,Sunday, 15-Nov-26 12:00:00 GMT"), ["5", "Sunday, 15-Nov-26 12:00:00 GMT"]);
        assert_eq!(split("Sun"), ["Sun"]);
        assert_eq!(split("Sun , 5"), ["Sun", "5"]);
        assert_eq!(split(",,"), ["", "", ""]);
    }
}
