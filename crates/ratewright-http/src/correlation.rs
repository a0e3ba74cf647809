//! The id that connects a request with the logs of other programs.
//!
//! It is the caller's, if there is one: `X-Correlation-Id`, `X-Request-Id`, or the trace id of `traceparent`, in
//! this order. It goes into responses and logs, so an id with unsafe characters is ignored and never repeated.

use std::borrow::Cow;
use std::fmt;

use http::{HeaderMap, HeaderName};

/// Headers that may contain an id.
static NAMES: [HeaderName; 3] = [
    HeaderName::from_static("x-correlation-id"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("traceparent"),
];

/// The longest id that is accepted.
const ID_MAX: usize = 128;

/// The id of a request, found or made only when it is written, so that requests without a log line do not pay for it.
#[derive(Clone, Copy)]
pub struct CorrelationId<'a> {
    headers: &'a HeaderMap,
    made: u128,
}

impl<'a> CorrelationId<'a> {
    /// The id of the request with these headers; `made`, if it has none.
    pub fn new(headers: &'a HeaderMap, made: u128) -> Self {
        Self { headers, made }
    }

    /// The id as text.
    pub fn text(&self) -> Cow<'a, str> {
        correlation_id(self.headers, || self.made)
    }
}

impl fmt::Display for CorrelationId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Without the headers, which may hold secrets.
impl fmt::Debug for CorrelationId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CorrelationId({self})")
    }
}

/// The id of a request. If it has none, `fresh` makes one: 32 hexadecimal digits.
pub fn correlation_id(headers: &HeaderMap, fresh: impl FnOnce() -> u128) -> Cow<'_, str> {
    given_id(headers).map_or_else(|| Cow::Owned(format!("{:032x}", fresh())), Cow::Borrowed)
}

/// The id that a request carries, if it has one.
pub fn given_id(headers: &HeaderMap) -> Option<&str> {
    // Comparing all names once is cheaper than three lookups, and most requests have none of them.
    if !headers.keys().any(|name| NAMES.contains(name)) {
        return None;
    }
    given_id_in(|name| headers.get(name)?.to_str().ok())
}

/// The same, with a function that returns a header by its name in lower case.
pub fn given_id_in<'a>(header: impl Fn(&'static str) -> Option<&'a str>) -> Option<&'a str> {
    let id = |name| header(name).filter(|id| is_id(id));
    id("x-correlation-id").or_else(|| id("x-request-id")).or_else(|| trace_id(header("traceparent")?))
}

/// True for visible ASCII without quotes and backslashes.
fn is_id(text: &str) -> bool {
    let harmless = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\');
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(harmless)
}

/// The trace id of a `traceparent` of W3C Trace Context: `version-trace-parent-flags`. Later versions may append more.
fn trace_id(text: &str) -> Option<&str> {
    let mut parts = text.split('-');
    let version = parts.next().filter(|part| is_hex(part, 2) && *part != "ff")?;
    let trace = parts.next().filter(|part| is_hex(part, 32) && !is_zero(part))?;
    parts.next().filter(|part| is_hex(part, 16) && !is_zero(part))?;
    parts.next().filter(|part| is_hex(part, 2))?;
    (version != "00" || parts.next().is_none()).then_some(trace)
}

fn is_hex(text: &str, n: usize) -> bool {
    text.len() == n && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|b| b == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    const FRESH: &str = "000000000000000000000000000000ff";

    fn id(lines: &[(&'static str, &str)]) -> String {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        correlation_id(&lines.iter().map(header).collect(), || 255).into_owned()
    }

    #[test]
    fn a7_the_callers_id_is_taken_and_otherwise_one_is_made() {
        let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(id(&[trace, ("x-request-id", "r-1"), ("x-correlation-id", "c:1/a")]), "c:1/a");
        assert_eq!(id(&[trace, ("x-request-id", "r-1")]), "r-1");
        assert_eq!(id(&[trace]), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(id(&[]), FRESH);
    }

    #[test]
    fn an_id_that_could_do_harm_counts_as_absent() {
        let (longest, long) = ("x".repeat(128), "x".repeat(129));
        for bad in ["", " ", "a b", "a\tb", "\"", "it's", "a\\n", "é", "\u{80}", &long] {
            assert_eq!(id(&[("x-correlation-id", bad)]), FRESH, "{bad:?}");
            assert_eq!(id(&[("x-correlation-id", bad), ("x-request-id", "next")]), "next", "{bad:?}");
        }
        assert_eq!(id(&[("x-request-id", &longest)]), longest);
    }

    #[test]
    fn a_traceparent_is_taken_only_if_it_is_valid() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(id(&[("traceparent", &format!("01-{trace}-{parent}-00-more"))]), trace);
        for bad in [
            String::new(),
            format!("ff-{trace}-{parent}-01"),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{parent}-01", trace.to_uppercase()),
            format!("00-{trace}-{parent}-01-more"),
            format!("00-{trace}-{parent}-1"),
            format!("00-{trace}-{parent}"),
            format!("00-{}-{parent}-01", "1".repeat(31)),
        ] {
            assert_eq!(id(&[("traceparent", &bad)]), FRESH, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_the_id_is_short_and_visible(values in prop::collection::vec((0usize..3, prop::collection::vec(any::<u8>(), 0..200)), 0..4)) {
            let names = NAMES.clone();
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.extend(HeaderValue::from_bytes(&value).ok().map(|value| (names[name].clone(), value)));
            }
            prop_assert!(is_id(&correlation_id(&headers, || 0)));
        }
    }
}
