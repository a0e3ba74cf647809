//! Parses the headers of a response, ours or another server's.
//!
//! The draft requires that a malformed header is ignored as a whole, and unknown parameters too. Its next version may
//! rename `r` and `t` of `RateLimit` to `a` and `w`: both are accepted. Until its seventh version `RateLimit` was a
//! dictionary of one limit, `limit=10, remaining=0, reset=5`: that is accepted too.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

use super::{LIMIT, POLICY, X_LIMIT, X_REMAINING, X_RESET};

/// The longest list that is parsed, in bytes.
const LIST_MAX: usize = 8_192;

/// The rate limit headers of a response. Missing and malformed headers are `None` or empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ReceivedHeaders {
    /// `X-RateLimit-Limit`.
    pub limit: Option<u64>,
    /// `X-RateLimit-Remaining`: units left.
    pub remaining: Option<u64>,
    /// `X-RateLimit-Reset`: Unix seconds if Ratewright sent it; other servers may send seconds from now.
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
#[non_exhaustive]
pub struct QuotaPolicy {
    /// Its name.
    pub name: String,
    /// `q`: units.
    pub quota: u64,
    /// `w`: the window in seconds.
    pub window: Option<u64>,
}

/// An item of `RateLimit`: what is left.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServiceLimit {
    /// The name of its policy.
    pub name: String,
    /// `r`, or `a`: units left.
    pub available: u64,
    /// `t`, or `w`: seconds during which no more units can be spent.
    pub window: Option<u64>,
}

/// The header does not conform to the draft.
struct Malformed;

pub(super) fn parse(headers: &HeaderMap) -> ReceivedHeaders {
    let number = |name: HeaderName| digits(headers.get(name)?.as_bytes());
    ReceivedHeaders {
        limit: number(X_LIMIT),
        remaining: number(X_REMAINING),
        reset: number(X_RESET),
        retry_after: number(header::RETRY_AFTER),
        policies: policies(headers),
        limits: limits(headers),
    }
}

pub(super) fn policies(headers: &HeaderMap) -> Vec<QuotaPolicy> {
    items(headers, POLICY, quota_policy).unwrap_or_default()
}

pub(super) fn limits(headers: &HeaderMap) -> Vec<ServiceLimit> {
    items(headers, LIMIT, service_limit)
        .or_else(|_| dictionary(headers).map(Vec::from_iter))
        .unwrap_or_default()
}

/// The older form of `RateLimit`.
fn dictionary(headers: &HeaderMap) -> Result<Option<ServiceLimit>, Malformed> {
    let members: Dictionary = Parser::new(&joined(headers, &LIMIT)?).parse().map_err(|_| Malformed)?;
    let member = |name: &str| match members.get(name) {
        Some(ListEntry::Item(item)) => count(&item.bare_item).map(Some),
        Some(ListEntry::InnerList(_)) => Err(Malformed),
        None => Ok(None),
    };
    let (remaining, window) = (member("remaining")?, member("reset")?);
    Ok(remaining.map(|available| ServiceLimit { name: String::new(), available, window }))
}

/// A whole number, digits only.
fn digits(text: &[u8]) -> Option<u64> {
    let plain = text.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// The items of a list, which may span several lines.
fn items<T>(
    headers: &HeaderMap,
    name: HeaderName,
    item: fn(&Item) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let list: List = Parser::new(&joined(headers, &name)?).parse().map_err(|_| Malformed)?;
    let items = list.iter().map(|entry| match entry {
        ListEntry::Item(entry) => item(entry),
        ListEntry::InnerList(_) => Err(Malformed),
    });
    items.collect()
}

/// All lines of a header as one.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Vec<u8>, Malformed> {
    let lines: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let joined = lines.join(&b", "[..]);
    if joined.len() > LIST_MAX { Err(Malformed) } else { Ok(joined) }
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

/// The first of these parameters that is present; it must be a count.
fn parameter(item: &Item, names: &[&str]) -> Result<Option<u64>, Malformed> {
    let Some(value) = names.iter().find_map(|name| item.params.get(*name)) else { return Ok(None) };
    count(value).map(Some)
}

fn count(value: &BareItem) -> Result<u64, Malformed> {
    u64::try_from(i64::from(value.as_integer().ok_or(Malformed)?)).map_err(|_| Malformed)
}
