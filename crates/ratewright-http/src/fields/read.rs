//! The fields of an answer, ours or another server's.
//!
//! The draft says that a malformed field must be ignored, as a whole, and that unknown parameters must be.
//! Its next version may call `r` and `t` of `RateLimit` `a` and `w`: both are understood.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use sfv::{Item, List, ListEntry, Parser};

use super::{LIMIT, POLICY, X_LIMIT, X_REMAINING, X_RESET};

/// The longest list that is read, in bytes.
const LIST_MAX: usize = 8_192;

/// What the rate limit fields of an answer said. What is absent or malformed is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// `X-RateLimit-Limit`.
    pub limit: Option<u64>,
    /// `X-RateLimit-Remaining`: units left.
    pub remaining: Option<u64>,
    /// `X-RateLimit-Reset`: from us Unix seconds; some servers send seconds from now.
    pub reset: Option<u64>,
    /// `Retry-After`, where it is a number of seconds.
    pub retry_after: Option<u64>,
    /// `RateLimit-Policy`.
    pub policies: Vec<QuotaPolicy>,
    /// `RateLimit`.
    pub limits: Vec<ServiceLimit>,
}

/// An item of `RateLimit-Policy`: what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaPolicy {
    /// Its name.
    pub name: String,
    /// `q`: units.
    pub quota: u64,
    /// `w`: in so many seconds.
    pub window: Option<u64>,
}

/// An item of `RateLimit`: what is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceLimit {
    /// The name of its policy.
    pub name: String,
    /// `r`, or `a`: units left.
    pub available: u64,
    /// `t`, or `w`: seconds in which no more than those can be spent.
    pub window: Option<u64>,
}

/// The field is not what the draft says.
struct Malformed;

pub(super) fn parse(headers: &HeaderMap) -> Received {
    let number = |name: HeaderName| digits(headers.get(name)?.as_bytes());
    Received {
        limit: number(X_LIMIT),
        remaining: number(X_REMAINING),
        reset: number(X_RESET),
        retry_after: number(header::RETRY_AFTER),
        policies: items(headers, POLICY, quota_policy).unwrap_or_default(),
        limits: items(headers, LIMIT, service_limit).unwrap_or_default(),
    }
}

/// A whole number, in digits only.
fn digits(text: &[u8]) -> Option<u64> {
    let plain = text.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// The items of a list, which may be sent in several lines.
fn items<T>(
    headers: &HeaderMap,
    name: HeaderName,
    item: fn(&Item) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let lines = headers.get_all(name);
    if lines.iter().map(|line| line.len() + 2).sum::<usize>() > LIST_MAX {
        return Err(Malformed);
    }
    let lines: Vec<_> = lines.iter().map(HeaderValue::as_bytes).collect();
    let list: List = Parser::new(&lines.join(&b", "[..])).parse().map_err(|_| Malformed)?;
    let items = list.iter().map(|entry| match entry {
        ListEntry::Item(entry) => item(entry),
        ListEntry::InnerList(_) => Err(Malformed),
    });
    items.collect()
}

fn quota_policy(item: &Item) -> Result<QuotaPolicy, Malformed> {
    let (quota, window) = (parameter(item, &["q"])?.ok_or(Malformed)?, parameter(item, &["w"])?);
    if window == Some(0) {
        return Err(Malformed);
    }
    Ok(QuotaPolicy { name: name(item)?, quota, window })
}

fn service_limit(item: &Item) -> Result<ServiceLimit, Malformed> {
    let available = parameter(item, &["r", "a"])?.ok_or(Malformed)?;
    Ok(ServiceLimit { name: name(item)?, available, window: parameter(item, &["t", "w"])? })
}

fn name(item: &Item) -> Result<String, Malformed> {
    Ok(item.bare_item.as_string().ok_or(Malformed)?.as_str().to_owned())
}

/// The first of these parameters that is there, which must be a count.
fn parameter(item: &Item, names: &[&str]) -> Result<Option<u64>, Malformed> {
    let Some(value) = names.iter().find_map(|name| item.params.get(*name)) else { return Ok(None) };
    let integer = value.as_integer().ok_or(Malformed)?;
    u64::try_from(i64::from(integer)).map(Some).map_err(|_| Malformed)
}
