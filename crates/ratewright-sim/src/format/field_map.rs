//! The field map of JSON and CSV logs: which field holds what.
//!
//! ```text
//!   time=ts,ip=client.addr,method=verb,path=uri,header:x-api-key=request.headers.X-Api-Key
//! ```

use std::borrow::Cow;
use std::str::FromStr;

use ratewright_core::query::AttributeName;

use super::time::DurationUnit;

/// Which field of a line holds what: `time=ts,ip=client.addr,path=uri`.
///
/// ```
/// use ratewright_sim::FieldMap;
///
/// assert!("time=ts,ip=client.addr,path=uri".parse::<FieldMap>().is_ok());
/// assert!("ip=client.addr".parse::<FieldMap>().is_err(), "time is required");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldMap {
    pub(super) fields: Vec<(Field, String)>,
}

/// A mistake in a field map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FieldMapError {
    /// An entry without `=`.
    #[error("{entry:?} has no =; write it as time=NAME")]
    NoEquals {
        /// The entry.
        entry: String,
    },
    /// An unknown field name.
    #[error(
        "unknown field {name:?}; use {}, header:NAME, cookie:NAME, claim:NAME, query:NAME or \
             attribute:NAME",
        known()
    )]
    Unknown {
        /// The name.
        name: String,
    },
    /// An entry with nothing after `=`.
    #[error("{name}= names no log field; write {name}=NAME")]
    Empty {
        /// The name.
        name: String,
    },
    /// A name that appears twice.
    #[error("{name} appears twice")]
    Repeated {
        /// The name.
        name: String,
    },
    /// No field holds the time.
    #[error("time is missing; add time=NAME")]
    NoTime,
    /// Too many entries.
    #[error("more than {} entries", FieldMap::LEN_MAX)]
    TooMany,
    /// A name of a nested field that is too deep.
    #[error("{field:?} has more than {} parts", FieldMap::DEPTH_MAX)]
    TooDeep {
        /// The name of the field.
        field: String,
    },
}

/// What a field of a line holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// The time of arrival.
    Time,
    /// The time of the response. It is used if the log does not have the time of arrival.
    ResponseTime,
    /// The time from arrival to response.
    Duration(DurationUnit),
    Ip,
    ForwardedFor,
    Method,
    Path,
    Host,
    User,
    Route,
    Status,
    RequestBytes,
    Denied,
    Policy,
    Attribute(AttributeName<Cow<'static, str>>),
    /// An object of headers.
    Headers,
    /// A string that every line about a request has, or begins with.
    RequestMarker(RequestMarker),
}

/// The beginning of a string that marks lines about requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestMarker(pub(super) &'static str);

/// The simple names.
const KNOWN: [(&str, Field); 12] = [
    ("time", Field::Time),
    ("ip", Field::Ip),
    ("forwarded_for", Field::ForwardedFor),
    ("method", Field::Method),
    ("path", Field::Path),
    ("host", Field::Host),
    ("user", Field::User),
    ("route", Field::Route),
    ("status", Field::Status),
    ("request_bytes", Field::RequestBytes),
    ("denied", Field::Denied),
    ("policy", Field::Policy),
];

fn known() -> String {
    KNOWN.map(|(name, _)| name).join(", ")
}

impl FieldMap {
    /// Maximum number of entries.
    pub const LEN_MAX: usize = 64;

    /// Maximum parts of the name of a nested field.
    pub const DEPTH_MAX: usize = 16;

    /// True if a log with these fields can have this attribute.
    pub(super) fn has(&self, name: &AttributeName<String>) -> bool {
        match name {
            AttributeName::Ip => self.maps(|field| matches!(field, Field::Ip | Field::ForwardedFor)),
            AttributeName::User => self.maps(|field| *field == Field::User),
            AttributeName::Method => self.maps(|field| *field == Field::Method),
            AttributeName::Path => self.maps(|field| *field == Field::Path),
            AttributeName::Host => self.maps(|field| *field == Field::Host),
            AttributeName::Route => self.maps(|field| *field == Field::Route),
            AttributeName::Key => false,
            // A path comes with its query.
            AttributeName::Param(_) => self.maps(|field| *field == Field::Path || field.is_attribute(name)),
            AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => self.maps(|field| field.is_attribute(name)),
        }
    }

    /// True if a field holds this.
    pub(super) fn maps(&self, predicate: impl Fn(&Field) -> bool) -> bool {
        self.fields.iter().any(|(field, _)| predicate(field))
    }
}

impl FromStr for FieldMap {
    type Err = FieldMapError;

    fn from_str(text: &str) -> Result<Self, FieldMapError> {
        let mut fields: Vec<(Field, String)> = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let no_equals = || FieldMapError::NoEquals { entry: entry.to_owned() };
            let (name, path) = entry.split_once('=').ok_or_else(no_equals)?;
            let (name, path) = (name.trim(), path.trim());
            let unknown = || FieldMapError::Unknown { name: name.to_owned() };
            let field = Field::parse(name).ok_or_else(unknown)?;
            if path.is_empty() {
                return Err(FieldMapError::Empty { name: name.to_owned() });
            }
            if path.split('.').count() > Self::DEPTH_MAX {
                return Err(FieldMapError::TooDeep { field: path.to_owned() });
            }
            if fields.iter().any(|(known, _)| *known == field) {
                return Err(FieldMapError::Repeated { name: name.to_owned() });
            }
            if fields.len() == Self::LEN_MAX {
                return Err(FieldMapError::TooMany);
            }
            fields.push((field, path.to_owned()));
        }
        let map = Self { fields };
        if map.maps(|field| *field == Field::Time) { Ok(map) } else { Err(FieldMapError::NoTime) }
    }
}

impl Field {
    fn is_attribute(&self, name: &AttributeName<String>) -> bool {
        matches!(self, Self::Attribute(known) if known.is(name))
    }

    fn parse(name: &str) -> Option<Self> {
        if let Some((_, field)) = KNOWN.iter().find(|(known, _)| *known == name) {
            return Some(field.clone());
        }
        if name.contains(|char: char| char.is_ascii_control()) {
            return None;
        }
        match AttributeName::parse(name)? {
            AttributeName::Header(name) => Some(Self::Attribute(AttributeName::Header(Cow::Owned(name)))),
            AttributeName::Cookie(name) => Some(Self::Attribute(AttributeName::Cookie(Cow::Owned(name)))),
            AttributeName::Param(name) => Some(Self::Attribute(AttributeName::Param(Cow::Owned(name)))),
            AttributeName::Claim(name) => Some(Self::Attribute(AttributeName::Claim(Cow::Owned(name)))),
            AttributeName::Named(name) => Some(Self::Attribute(AttributeName::Named(Cow::Owned(name)))),
            AttributeName::Ip
            | AttributeName::User
            | AttributeName::Method
            | AttributeName::Path
            | AttributeName::Host
            | AttributeName::Route
            | AttributeName::Key => None,
        }
    }
}
