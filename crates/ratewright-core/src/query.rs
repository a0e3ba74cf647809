//! The query: what an entrypoint asks the limiter.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::key::{BucketName, Key};
use crate::policies::LimitId;
use crate::quantity::Micros;

/// What an entrypoint asks: the attributes of a request, and how many units it spends. It borrows from the request.
///
/// ```
/// use ratewright_core::Query;
/// use ratewright_core::query::{Attribute, AttributeName};
///
/// let attributes = [Attribute { name: AttributeName::User, value: "anna" }];
/// let query = Query::new(&attributes);
/// assert_eq!(query.values(&AttributeName::<&str>::User).next(), Some("anna"));
/// ```
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// Which policies may apply.
    pub select: Select<'a>,
    /// What is known about the request. A policy that partitions by an attribute which is missing here does not limit the query, unless
    /// its `missing` says otherwise. An attribute with several readings appears once for each.
    pub attributes: &'a [Attribute<'a>],
    /// The client's full address, for conditions by network and for logs. It names no bucket: a policy by address needs the attribute
    /// `Ip` in `attributes` too, and does not limit the query without it. That attribute may be a network.
    pub address: Option<IpAddr>,
    /// Whether to spend, record or look, and how many units.
    pub ask: Ask,
    /// The longest time that the entrypoint can delay the request. Zero if it cannot delay.
    pub patience: Micros,
    /// The id of the request, for logs.
    pub id: Option<&'a dyn RequestId>,
    /// The entrypoint that the query came through. Only metrics use it; decisions do not depend on it.
    pub entrypoint: Entrypoint,
}

impl<'a> Query<'a> {
    /// A request that costs one unit and cannot wait, under the policies that cover it. Set the other fields with
    /// `Query { ask: …, ..Query::new(&attributes) }`.
    pub fn new(attributes: &'a [Attribute<'a>]) -> Self {
        Self {
            select: Select::Covering(&[]),
            attributes,
            address: None,
            ask: Ask::Spend(NonZeroU32::MIN),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Tower,
        }
    }
}

/// The way a query came in, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entrypoint {
    /// The REST API.
    Rest,
    /// Forward authentication: a proxy asks for its clients.
    Authorize,
    /// The reverse proxy.
    Gateway,
    /// Envoy's rate limit service over gRPC.
    Grpc,
    /// The same service over JSON.
    Json,
    /// A program of your own: the tower layer, or direct calls.
    Tower,
}

impl Entrypoint {
    /// All entrypoints, each at the index `as usize`.
    pub const ALL: [Self; 6] =
        [Self::Rest, Self::Authorize, Self::Gateway, Self::Grpc, Self::Json, Self::Tower];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Authorize => "authorize",
            Self::Gateway => "gateway",
            Self::Grpc => "grpc",
            Self::Json => "json",
            Self::Tower => "tower",
        }
    }
}

/// The id of a request in logs. It is formatted only if the request is logged.
pub trait RequestId: fmt::Debug + fmt::Display + Sync {}

impl<T: fmt::Debug + fmt::Display + Sync> RequestId for T {}

/// Which policies may apply to a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select<'a> {
    /// Policies with selectors that cover the query, and these by name. None of them applies to an exempt query.
    Covering(&'a [&'a str]),
    /// The same for a query with several values of an attribute, because the upstream may read any of them. A policy covers the query
    /// if it covers one of the readings, and charges each; an exemption must hold for all.
    CoveringReadings(&'a [&'a str]),
    /// These by name, and no others. A name that no policy has is ignored: check it with
    /// [`Policies::named`](crate::Policies::named).
    Named(&'a [&'a str]),
    /// This one by name, with a look at the buckets of all its overrides.
    EveryBucket(&'a str),
}

/// One fact about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// The name.
    pub name: AttributeName<&'a str>,
    /// The value.
    pub value: &'a str,
}

impl Attribute<'_> {
    /// Marks an attribute that the request has but that cannot be read reliably: a refused token, bytes that are not
    /// text, or a name or value that parsers read differently. It may appear together with readable values. Policies
    /// that count by it use the client's address instead, or deny with `missing: deny`. It matches every condition in
    /// `when` (if the attribute identifies the client, only for policies that count by client), but no override and no
    /// exemption.
    ///
    /// No other value contains a NUL.
    pub const UNREADABLE: &'static str = "\0";

    /// Marks an attribute that was sent more than once but must be unique. Policies that count by it deny the request.
    pub const REPEATED: &'static str = "\0\0";

    /// Marks an attribute with too many values. It matches every condition but no exemption; policies that use it deny the request.
    pub const TOO_MANY: &'static str = "\0\0\0";

    /// True if the value is one that the request has, and not one of these markers.
    #[inline(always)]
    pub fn is_readable(&self) -> bool {
        !self.value.starts_with('\0')
    }
}

/// The name of an attribute. Queries borrow its text, policies own it.
///
/// The well-known names have no text, so finding them compares none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttributeName<S> {
    /// The client's address.
    Ip,
    /// The authenticated user.
    User,
    /// The method of an HTTP request, in capitals.
    Method,
    /// The path of an HTTP request, in its normal form.
    Path,
    /// The host that an HTTP request is for, in lower case.
    Host,
    /// The route that a gateway chose.
    Route,
    /// A bucket name that the caller chose (ad hoc keys).
    Key,
    /// A header, by its name in lower case. In a query, a name with capitals matches no policy.
    Header(S),
    /// A cookie.
    Cookie(S),
    /// A parameter of the URL.
    Param(S),
    /// A claim of a verified token.
    Claim(S),
    /// Any other fact, by its name.
    Named(S),
}

/// What a query does with its units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Spends these units if all limits allow it.
    Spend(NonZeroU32),
    /// Counts units that were already spent, even past the limits.
    Record(u32),
    /// Checks whether these units could be spent; with zero, only reads the standing.
    Look(u32),
}

impl Select<'_> {
    /// The policies that are asked for by name.
    pub(crate) fn names(&self) -> &[&str] {
        match self {
            Self::Covering(names) | Self::CoveringReadings(names) | Self::Named(names) => names,
            Self::EveryBucket(name) => std::slice::from_ref(name),
        }
    }
}

impl<'a> Query<'a> {
    /// All values of an attribute that the query has, also those that cannot be read.
    #[inline(always)]
    pub fn values<S: AsRef<str>>(&self, name: &AttributeName<S>) -> impl Iterator<Item = &'a str> {
        self.attributes.iter().filter(|attribute| name.is(&attribute.name)).map(|attribute| attribute.value)
    }

    /// The key that a limit has for this query.
    pub fn key(&self, name: &'a BucketName, id: LimitId) -> Option<Key<'a>> {
        Key::read(name, self.attributes, id.reading())
    }
}

impl<S: AsRef<str>> AttributeName<S> {
    /// True if both name the same attribute.
    #[inline(always)]
    pub fn is<T: AsRef<str>>(&self, other: &AttributeName<T>) -> bool {
        match (self, other) {
            (Self::Ip, AttributeName::Ip)
            | (Self::User, AttributeName::User)
            | (Self::Method, AttributeName::Method)
            | (Self::Path, AttributeName::Path)
            | (Self::Host, AttributeName::Host)
            | (Self::Route, AttributeName::Route)
            | (Self::Key, AttributeName::Key) => true,
            (Self::Header(a), AttributeName::Header(b))
            | (Self::Cookie(a), AttributeName::Cookie(b))
            | (Self::Param(a), AttributeName::Param(b))
            | (Self::Claim(a), AttributeName::Claim(b))
            | (Self::Named(a), AttributeName::Named(b)) => a.as_ref() == b.as_ref(),
            _ => false,
        }
    }

    /// The same name with its text borrowed.
    #[inline]
    pub fn as_deref(&self) -> AttributeName<&str> {
        self.map(|text| text.as_ref())
    }

    /// The same name, owning its text.
    pub fn to_owned(&self) -> AttributeName<String> {
        self.map(|text| text.as_ref().to_owned())
    }

    /// The kind of attribute, as policy files and keys write it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::User => "user",
            Self::Method => "method",
            Self::Path => "path",
            Self::Host => "host",
            Self::Route => "route",
            Self::Key => "key",
            Self::Header(_) => "header",
            Self::Cookie(_) => "cookie",
            Self::Param(_) => "query",
            Self::Claim(_) => "claim",
            Self::Named(_) => "attribute",
        }
    }

    /// The name within its kind, for the kinds that have many.
    #[inline]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Ip | Self::User | Self::Method | Self::Path | Self::Host | Self::Route | Self::Key => None,
            Self::Header(text)
            | Self::Cookie(text)
            | Self::Param(text)
            | Self::Claim(text)
            | Self::Named(text) => Some(text.as_ref()),
        }
    }

    /// The separator of the segments in its values. A single `*` does not cross it.
    pub const fn separator(&self) -> Option<u8> {
        match self {
            Self::Path => Some(b'/'),
            Self::Host => Some(b'.'),
            Self::Ip
            | Self::User
            | Self::Method
            | Self::Route
            | Self::Key
            | Self::Header(_)
            | Self::Cookie(_)
            | Self::Param(_)
            | Self::Claim(_)
            | Self::Named(_) => None,
        }
    }

    /// The same name with its text replaced.
    pub fn map<'s, T>(&'s self, f: impl Fn(&'s S) -> T) -> AttributeName<T> {
        match self {
            Self::Ip => AttributeName::Ip,
            Self::User => AttributeName::User,
            Self::Method => AttributeName::Method,
            Self::Path => AttributeName::Path,
            Self::Host => AttributeName::Host,
            Self::Route => AttributeName::Route,
            Self::Key => AttributeName::Key,
            Self::Header(text) => AttributeName::Header(f(text)),
            Self::Cookie(text) => AttributeName::Cookie(f(text)),
            Self::Param(text) => AttributeName::Param(f(text)),
            Self::Claim(text) => AttributeName::Claim(f(text)),
            Self::Named(text) => AttributeName::Named(f(text)),
        }
    }
}

impl AttributeName<String> {
    /// Reads a name as policy files write it: `ip`, `header:X-Api-Key`.
    pub fn parse(text: &str) -> Option<Self> {
        let simple = [Self::Ip, Self::User, Self::Method, Self::Path, Self::Host, Self::Route, Self::Key];
        let Some((kind, name)) = text.split_once(':') else {
            return simple.into_iter().find(|name| name.kind() == text);
        };
        if name.is_empty() {
            return None;
        }
        match kind {
            "header" => Some(Self::Header(name.to_ascii_lowercase())),
            "cookie" => Some(Self::Cookie(name.to_owned())),
            "query" => Some(Self::Param(name.to_owned())),
            "claim" => Some(Self::Claim(name.to_owned())),
            "attribute" => Some(Self::Named(name.to_owned())),
            _ => None,
        }
    }
}

impl<S: AsRef<str>> fmt::Display for AttributeName<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        self.text().map_or(Ok(()), |text| write!(f, ":{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_are_written() {
        for text in [
            "ip",
            "user",
            "method",
            "path",
            "host",
            "route",
            "key",
            "header:x-api-key",
            "cookie:Sid",
            "query:q",
            "claim:realm.plan",
            "attribute:a",
        ] {
            let name = AttributeName::parse(text).unwrap();
            assert_eq!(name.to_string(), text);
            assert!(name.is(&name.as_deref()));
        }
        assert_eq!(AttributeName::parse("header:X-A"), AttributeName::parse("header:x-a"));
        for bad in ["", "header", "header:", "IP", "ip:1", "jwt:sub"] {
            assert_eq!(AttributeName::parse(bad), None, "{bad}");
        }
    }
}
