//! The types of single values: which texts each accepts, and what an error advises to write instead.

mod cors;
mod gateway;
mod program;
mod statuses;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use http::HeaderName;
use ipnet::IpNet;
use ratewright_core::Micros;
use ratewright_core::policy::{AfterAbort, Missing, Mode, OnFailure};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Leak, Rate, Refill, Share, WindowStart};
use ratewright_http::address::Forwarding;
use ratewright_http::headers::LimitMeaning;
use ratewright_http::identify::AmbiguousPaths;
use ratewright_http::identify::original_request::AuthorizeProtocol;
use ratewright_http::jwt::TokenAlgorithm;
use ratewright_http::path::Case;
#[cfg(test)]
use schemars::{Schema, json_schema};

use crate::raw_value::ConfigValue;
use crate::yaml_errors::closest;
pub use cors::{CorsHeader, CorsMethod, ExposedHeader, OriginText};
pub use gateway::{BodyMax, BodyRateMin, ByteCount, HostText, TotalTime, UpstreamUrl};
pub use program::{EnvoyCompat, EnvoyHeaders, FallbackShare, LoadBalancing, LogLevel, UpstreamProtocol};
pub use statuses::Statuses;

/// A text that is never shown.
#[derive(Clone)]
pub struct Secret(pub String);

/// A bearer token.
#[derive(Clone)]
pub struct Token(pub String);

/// A file's name.
#[derive(Clone)]
pub struct FileName(pub String);

/// The name of a policy, a group or a quota.
#[derive(Clone)]
pub struct Name(pub String);

/// The most units at once.
#[derive(Clone, Copy)]
pub struct Burst(pub NonZeroU32);

/// The most requests in flight at once.
#[derive(Clone, Copy)]
pub struct InFlight(pub NonZeroU32);

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// How many denials are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogDenials {
    /// At most this many each second.
    PerSecond(NonZeroU32),
    /// All of them.
    All,
}

/// A part of a whole, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio(pub f64);

/// A family of rate limit headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `X-RateLimit-*`.
    XRateLimit,
    /// `RateLimit` and `RateLimit-Policy`.
    Ietf,
}

/// The values of `missing`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnMissing {
    /// The client's address is used instead.
    Ip,
    /// The policy is skipped, or the request denied.
    Otherwise(Missing),
}

/// A type with a fixed set of names.
macro_rules! names {
    ($meaning:ty, $($word:literal => $value:expr),+ $(,)?) => {
        impl ConfigValue for $meaning {
            fn from_text(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($value),)+
                    _ => Err(format!("use one of {}", [$($word),+].join(", "))),
                }
            }
            #[cfg(test)]
            fn schema() -> Schema {
                json_schema!({ "enum": [$($word),+] })
            }
        }
    };
}

names!(Mode, "enforce" => Mode::Enforce, "shadow" => Mode::Shadow, "off" => Mode::Off);
names!(AfterAbort, "keep" => AfterAbort::Keep, "free" => AfterAbort::Free);
names!(OnFailure, "local" => OnFailure::Local, "open" => OnFailure::Open, "closed" => OnFailure::Closed);
names!(OnMissing, "skip" => OnMissing::Otherwise(Missing::Skip), "ip" => OnMissing::Ip, "deny" => OnMissing::Otherwise(Missing::Deny));
names!(Case, "sensitive" => Case::Sensitive, "insensitive" => Case::Insensitive);
names!(AmbiguousPaths, "count" => AmbiguousPaths::Count, "reject" => AmbiguousPaths::Reject);
names!(Refill, "smooth" => Refill::Smooth, "stepped" => Refill::Stepped);
names!(Leak, "meter" => Leak::Meter, "queue" => Leak::Queue);
names!(WindowStart, "epoch" => WindowStart::Epoch, "first_hit" => WindowStart::FirstHit);
names!(Forwarding, "x-forwarded-for" => Forwarding::XForwardedFor, "forwarded" => Forwarding::Forwarded);
names!(LimitMeaning, "capacity" => LimitMeaning::Capacity, "rate" => LimitMeaning::Rate);
names!(Option<AuthorizeProtocol>, "off" => None, "forward-auth" => Some(AuthorizeProtocol::ForwardAuth),
    "auth-request" => Some(AuthorizeProtocol::AuthRequest), "ext-authz" => Some(AuthorizeProtocol::ExtAuthz));
names!(LoadBalancing, "round_robin" => LoadBalancing::RoundRobin, "least_connections" => LoadBalancing::LeastConnections);
names!(UpstreamProtocol, "http1" => UpstreamProtocol::Http1, "http2" => UpstreamProtocol::Http2);
names!(LogFormat, "auto" => LogFormat::Auto, "text" => LogFormat::Text, "json" => LogFormat::Json);
names!(EnvoyHeaders, "x-ratelimit" => EnvoyHeaders::XRateLimit, "ratelimit" => EnvoyHeaders::RateLimit, "retry-after" => EnvoyHeaders::RetryAfter);
names!(EnvoyCompat, "all_or_nothing" => EnvoyCompat::AllOrNothing, "strict" => EnvoyCompat::Strict);
names!(Family, "x-ratelimit" => Family::XRateLimit, "ietf" => Family::Ietf);
names!(LogLevel, "off" => LogLevel::Off, "error" => LogLevel::Error, "warn" => LogLevel::Warn,
    "info" => LogLevel::Info, "debug" => LogLevel::Debug, "trace" => LogLevel::Trace);
names!(Algorithm, "token_bucket" => Algorithm::TokenBucket(Refill::default()),
    "leaky_bucket" => Algorithm::LeakyBucket(Leak::default()), "sliding_window" => Algorithm::SlidingWindow,
    "sliding_window_counter" => Algorithm::SlidingWindowCounter,
    "fixed_window" => Algorithm::FixedWindow(WindowStart::default()));
names!(TokenAlgorithm, "HS256" => TokenAlgorithm::Hs256, "RS256" => TokenAlgorithm::Rs256,
    "ES256" => TokenAlgorithm::Es256, "EdDSA" => TokenAlgorithm::EdDsa);

impl ConfigValue for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "use true or false".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

impl ConfigValue for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl ConfigValue for u32 {
    fn from_text(text: &str) -> Result<Self, String> {
        whole(text).ok_or_else(|| format!("use a whole number from 0 to {}", u32::MAX))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
}

impl ConfigValue for NonZeroU32 {
    fn from_text(text: &str) -> Result<Self, String> {
        let n = whole(text).and_then(Self::new);
        n.ok_or_else(|| format!("use a whole number from 1 to {}", u32::MAX))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX })
    }
}

impl ConfigValue for Burst {
    fn from_text(text: &str) -> Result<Self, String> {
        if whole(text) == Some(0) {
            return Err("a burst of 0 would deny everything. Use at least 1".to_owned());
        }
        let in_units = n_bytes(text)?.map(|n_bytes| n_bytes.to_string());
        NonZeroU32::from_text(in_units.as_deref().unwrap_or(text)).map(Self)
    }
    #[cfg(test)]
    fn schema() -> Schema {
        let number = NonZeroU32::schema();
        json_schema!({ "anyOf": [number, { "type": "string", "pattern": "^[0-9]+ *([kKmMgG]?[bB])$", "examples": ["20MB"] }] })
    }
}

/// The number of bytes in a text such as `10MB`, for `cost: {bytes: request}`. None for a plain number.
fn n_bytes(text: &str) -> Result<Option<u32>, String> {
    let text = text.trim();
    if !text.ends_with(['b', 'B']) {
        return Ok(None);
    }
    let ByteCount(n_bytes) = ByteCount::from_text(text)?;
    let n_bytes = u32::try_from(n_bytes);
    n_bytes.map(Some).map_err(|_| format!("{text} is too large; use at most 4095MB"))
}

impl ConfigValue for InFlight {
    fn from_text(text: &str) -> Result<Self, String> {
        if whole(text) == Some(0) {
            return Err("an in_flight of 0 would deny everything. Use at least 1".to_owned());
        }
        NonZeroU32::from_text(text).map(Self)
    }
    #[cfg(test)]
    fn schema() -> Schema {
        NonZeroU32::schema()
    }
}

/// A whole number, in digits alone.
fn whole(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl ConfigValue for Micros {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| "use a whole number and us, ms, s, min, h or d: 5ms, 60s".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ *(us|ms|s|min|h|d)$", "examples": ["5ms", "60s", "5min"] })
    }
    fn canonical(text: String) -> String {
        Self::parse(&text).map_or(text, span)
    }
}

impl ConfigValue for Rate {
    fn from_text(text: &str) -> Result<Self, String> {
        let in_units = match text.split_once('/') {
            Some((bytes, time)) => n_bytes(bytes)?.map(|n_bytes| format!("{n_bytes}/{time}")),
            None => None,
        };
        let text = in_units.as_deref().unwrap_or(text);
        text.parse().map_err(|error: ratewright_core::quota::RateError| error.to_string())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["10/s", "1/6s", "250/min", "1000/h", "10MB/min"] })
    }
}

impl ConfigValue for SocketAddr {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "use an address and a port, for example 127.0.0.1:8080".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["127.0.0.1:8080", "[::1]:8080"] })
    }
}

impl ConfigValue for IpNet {
    fn from_text(text: &str) -> Result<Self, String> {
        let address = text.parse().ok().map(|address: std::net::IpAddr| Self::from(address));
        let network: Option<Self> = text.parse().ok().or(address);
        match network {
            Some(network) if network.trunc() != network => {
                let (whole, address) = (network.trunc(), network.addr());
                Err(format!("write {whole} for the whole network, or {address} for this address only"))
            }
            Some(network) => Ok(network),
            None => Err("use a network or an address, for example 10.0.0.0/8 or 192.0.2.7".to_owned()),
        }
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"] })
    }
}

impl ConfigValue for HeaderName {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "use a header name, for example X-User-Id".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["X-User-Id"] })
    }
}

impl ConfigValue for AttributeName<String> {
    fn from_text(text: &str) -> Result<Self, String> {
        const ALL: &str = "use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME";
        let known = Self::parse(text).filter(|name| !matches!(name, Self::Key));
        let Some(known) = known else {
            let is_header = text.contains('-') && text.parse::<HeaderName>().is_ok();
            return Err(match closest(text, &["ip", "user", "route", "method", "path", "host"]) {
                Some(like) => format!("did you mean {like}? Otherwise {ALL}"),
                None if is_header => {
                    format!("for the header of that name write header:{text}; otherwise {ALL}")
                }
                None => ALL.to_owned(),
            });
        };
        let name = known.text().unwrap_or_default();
        if name.trim() != name {
            return Err(format!("write {}:{}, without a space", known.kind(), name.trim()));
        }
        if matches!(known, Self::Header(_)) && name.parse::<HeaderName>().is_err() {
            return Err(
                "invalid header name; use letters, digits and -, for example header:X-Api-Key".to_owned()
            );
        }
        Ok(known)
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": ATTRIBUTE, "examples": ["ip", "user", "header:X-Api-Key"] })
    }
}

/// The names of attributes, for editors.
#[cfg(test)]
pub(crate) const ATTRIBUTE: &str =
    "^(ip|user|route|method|path|host|(header|cookie|query|claim|attribute):.+)$";

impl ConfigValue for FallbackShare {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let share = decimal(text).filter(|share| (1..=share.of.get()).contains(&share.part));
        share.map(Self::Fixed).ok_or_else(|| {
            "use a decimal above 0 and up to 1 such as 0.5, or `auto` for an equal part per instance"
                .to_owned()
        })
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }, { "const": "auto" }] })
    }
}

/// A decimal such as `0.5`, exactly.
fn decimal(text: &str) -> Option<Share> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    if digits.len() > 9 || fraction.len() > 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let of = 10_u32.pow(u32::try_from(fraction.len()).ok()?);
    Some(Share { part: digits.parse().ok()?, of: NonZeroU32::new(of)? })
}

impl ConfigValue for Ratio {
    fn from_text(text: &str) -> Result<Self, String> {
        let ratio = decimal(text).map(|share| f64::from(share.part) / f64::from(share.of.get()));
        ratio
            .filter(|ratio| *ratio <= 1.0)
            .map(Self)
            .ok_or_else(|| "use a decimal from 0 to 1 such as 0.01".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl ConfigValue for Secret {
    const IS_SECRET: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err("the value is empty; write the secret, or a variable that holds it: ${NAME}".to_owned())
        } else {
            Ok(Self(text.to_owned()))
        }
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "examples": ["${RATEWRIGHT_TOKEN}"] })
    }
}

impl ConfigValue for Token {
    const IS_SECRET: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        if (1..=1_024).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(text.to_owned()));
        }
        Err("invalid token; use 1 to 1024 visible ASCII characters without spaces".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 1024, "examples": ["${RATEWRIGHT_TOKEN}"] })
    }
}

impl ConfigValue for FileName {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("use a file name".to_owned()) } else { Ok(Self(text.to_owned())) }
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

impl ConfigValue for Name {
    fn from_text(text: &str) -> Result<Self, String> {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
        let n_max = ratewright_core::Policy::NAME_MAX;
        if (1..=n_max).contains(&text.len()) && text.bytes().all(known) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("invalid name; use 1 to {n_max} characters of a-z 0-9 . _ -"))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-z0-9._-]{1,64}$" })
    }
}

impl ConfigValue for LogDenials {
    fn from_text(text: &str) -> Result<Self, String> {
        match (text, whole(text)) {
            ("all", _) => Ok(Self::All),
            (_, Some(n)) if n > 0 => Ok(Self::PerSecond(NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN))),
            _ => Err("use `all`, or a maximum number of lines per second, for example 10".to_owned()),
        }
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "const": "all" }, { "type": "integer", "minimum": 1 }] })
    }
}

const SECOND: u64 = 1_000_000;

/// A duration in seconds up to two minutes, then in the largest unit that needs no fraction.
pub fn span(time: Micros) -> String {
    let units = [
        (86_400 * SECOND, "d"),
        (3_600 * SECOND, "h"),
        (60 * SECOND, "min"),
        (SECOND, "s"),
        (1_000, "ms"),
        (1, "us"),
    ];
    let time = time.as_micros();
    let fits = |length: u64| time.is_multiple_of(length) && (length != 60 * SECOND || time >= 2 * length);
    let (length, name) = units.into_iter().find(|(length, _)| fits(*length)).unwrap_or((1, "us"));
    format!("{} {name}", time / length)
}
