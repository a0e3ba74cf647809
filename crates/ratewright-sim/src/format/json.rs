//! Logs with one JSON object per line: Ratewright's, Envoy's, Traefik's, Caddy's, and any other by a field map.
//!
//! Every format is a table of fields. A line is read once; only the values of these fields are decoded:
//!
//! ```text
//!   fields   request.method        {"request":{"method":"GET","headers":{…}},"status":200}
//!            status                            └ request.method ┘              └ status
//! ```
//!
//! The name of a nested field has dots. A key may have dots too, so `a.b` is first the key `a.b`, then `b` in `a`.
//!
//! # Laws
//! - Of two values with the same key, the last counts.
//! - Work is bounded by the length of the line times the number of fields.

use std::borrow::Cow;
use std::fmt;

use ratewright_core::query::AttributeName;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::field_map::{Field, FieldMap, RequestMarker};
use super::record_builder::RecordBuilder;
use super::time::DurationUnit;
use super::{Line, LineError};

/// Parses lines of JSON.
#[derive(Clone, Debug)]
pub(super) struct JsonParser {
    /// Fields with their names. If a field appears twice, the first value counts.
    fields: Vec<(Field, Cow<'static, str>)>,
    /// The beginning of keys that hold headers.
    header_prefix: Option<&'static str>,
    /// What a line without a method or a path is.
    without_request: Result<(), LineError>,
}

type FieldTable = &'static [(Field, &'static str)];

const USER_AGENT: Field = Field::Attribute(AttributeName::Header(Cow::Borrowed("user-agent")));

const RATEWRIGHT: FieldTable = &[
    (Field::Time, "time"),
    (Field::Ip, "client"),
    (Field::Method, "method"),
    (Field::Host, "host"),
    (Field::Path, "path"),
    (Field::Route, "route"),
    (Field::Policy, "policy"),
    (Field::Denied, "denied"),
    (Field::Status, "status"),
    (USER_AGENT, "user_agent"),
];

const ENVOY: FieldTable = &[
    (Field::Time, "start_time"),
    (Field::Ip, "downstream_remote_address"),
    (Field::ForwardedFor, "x_forwarded_for"),
    (Field::ForwardedFor, "x-forwarded-for"),
    (Field::Method, "method"),
    (Field::Host, "authority"),
    (Field::Path, "path"),
    (Field::Status, "response_code"),
    (Field::RequestBytes, "bytes_received"),
    (USER_AGENT, "user_agent"),
    (USER_AGENT, "user-agent"),
];

const TRAEFIK: FieldTable = &[
    (Field::Time, "StartUTC"),
    (Field::Time, "StartLocal"),
    (Field::ResponseTime, "time"),
    (Field::Duration(DurationUnit::Nanos), "Duration"),
    (Field::Ip, "ClientHost"),
    (Field::Ip, "ClientAddr"),
    (Field::Method, "RequestMethod"),
    (Field::Host, "RequestHost"),
    (Field::Path, "RequestPath"),
    (Field::User, "ClientUsername"),
    (Field::Status, "DownstreamStatus"),
    (Field::RequestBytes, "RequestContentSize"),
];

const CADDY: FieldTable = &[
    (Field::RequestMarker(RequestMarker("http.log.access")), "logger"),
    (Field::RequestMarker(RequestMarker("handled request")), "msg"),
    (Field::ResponseTime, "ts"),
    (Field::Duration(DurationUnit::Seconds), "duration"),
    (Field::Ip, "request.client_ip"),
    (Field::Ip, "request.remote_ip"),
    (Field::Ip, "request.remote_addr"),
    (Field::Method, "request.method"),
    (Field::Host, "request.host"),
    (Field::Path, "request.uri"),
    (Field::User, "user_id"),
    (Field::Status, "status"),
    (Field::RequestBytes, "bytes_read"),
    (Field::Headers, "request.headers"),
];

const INVALID: LineError = LineError("line is not a JSON object");
const INVALID_TEXT: LineError = LineError("string has an invalid escape");

impl JsonParser {
    pub(super) fn ratewright() -> Self {
        Self::of_table(RATEWRIGHT, None)
    }

    pub(super) fn envoy() -> Self {
        Self::of_table(ENVOY, None)
    }

    pub(super) fn traefik() -> Self {
        Self::of_table(TRAEFIK, Some("request_"))
    }

    pub(super) fn caddy() -> Self {
        Self::of_table(CADDY, None)
    }

    pub(super) fn of_map(map: &FieldMap) -> Self {
        let fields = map.fields.iter().map(|(field, name)| (field.clone(), Cow::Owned(name.clone())));
        let without_request = Err(LineError("method or path field is missing"));
        Self { fields: fields.collect(), header_prefix: None, without_request }
    }

    fn of_table(table: FieldTable, header_prefix: Option<&'static str>) -> Self {
        let fields = table.iter().map(|(field, name)| (field.clone(), Cow::Borrowed(*name)));
        Self { fields: fields.collect(), header_prefix, without_request: Ok(()) }
    }

    #[inline(never)]
    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> Result<Line<'a>, LineError> {
        let text = str::from_utf8(line).map_err(|_| LineError("line is not UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut found: Found<'a> = Found { values: SmallVec::new(), headers: SmallVec::new() };
        found.values.resize(self.fields.len(), None);
        let wanted: SmallVec<[(usize, &str); 16]> =
            self.fields.iter().enumerate().map(|(index, (_, name))| (index, &**name)).collect();
        let prefix = self.header_prefix;
        Level { wanted: &wanted, depth: 0, prefix, found: &mut found }.read(text).ok_or(INVALID)?;

        for (index, (field, _)) in self.fields.iter().enumerate() {
            let is_needed = matches!(field, Field::Method | Field::Path);
            if is_needed && found.values.get(index).is_none_or(Option::is_none) {
                return self.without_request.map(|()| Line::NotRequest);
            }
        }
        let mut builder = RecordBuilder::default();
        for ((field, _), value) in self.fields.iter().zip(&found.values) {
            let Some(value) = value else { continue };
            if *field == Field::Headers {
                add_headers(&mut builder, value.json)?;
            } else if let Some(value) = scalar(value.json)? {
                builder.add(field, value)?;
            } else if matches!(field, Field::Method | Field::Path) {
                return Ok(Line::NotRequest);
            }
        }
        for (name, json) in found.headers {
            if let Some(value) = scalar(json)? {
                builder.add_header(&name, value);
            }
        }
        builder.finish()
    }
}

/// The values of a line, as JSON.
struct Found<'a> {
    values: SmallVec<[Option<FoundValue<'a>>; 16]>,
    headers: SmallVec<[(Cow<'a, str>, &'a str); 0]>,
}

/// The value of a field, and how deep it was found.
#[derive(Clone, Copy)]
struct FoundValue<'a> {
    json: &'a str,
    depth: usize,
}

/// One object of a line: which fields are wanted in it, by the rest of their names.
struct Level<'l, 'a> {
    wanted: &'l [(usize, &'l str)],
    depth: usize,
    prefix: Option<&'static str>,
    found: &'l mut Found<'a>,
}

impl<'a> Level<'_, 'a> {
    fn read(self, json: &'a str) -> Option<()> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        deserializer.deserialize_map(self).ok()?;
        deserializer.end().ok()
    }

    fn add(&mut self, key: Cow<'a, str>, json: &'a str) -> Option<()> {
        let mut nested: SmallVec<[(usize, &str); 16]> = SmallVec::new();
        for (index, name) in self.wanted {
            if !is_start(&key, name) {
                continue;
            }
            let Some(rest) = name.strip_prefix(&*key) else { continue };
            if rest.is_empty() {
                let slot = self.found.values.get_mut(*index)?;
                // A key with dots is found less deep than the same name nested.
                if slot.is_none_or(|found| self.depth <= found.depth) {
                    *slot = Some(FoundValue { json, depth: self.depth });
                }
            } else if let Some(rest) = rest.strip_prefix('.') {
                nested.push((*index, rest));
            }
        }
        if !nested.is_empty() && json.starts_with('{') {
            let depth = self.depth + 1;
            Level { wanted: &nested, depth, prefix: None, found: self.found }.read(json)?;
        }
        if let Some(header) = self.prefix.and_then(|prefix| strip_prefix(key, prefix))
            && self.found.headers.len() < RecordBuilder::HEADERS_MAX
        {
            self.found.headers.push((header, json));
        }
        Some(())
    }
}

impl<'a> Visitor<'a> for Level<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key_seed(Text)? {
            let is_wanted = self.wanted.iter().any(|(_, name)| is_start(&key, name))
                || self.prefix.is_some_and(|prefix| key.starts_with(prefix));
            if is_wanted {
                let json = map.next_value::<&'a RawValue>()?.get();
                self.add(key, json).ok_or_else(|| serde::de::Error::custom("invalid object"))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A text, borrowed if it has no escapes.
struct Text;

impl<'a> DeserializeSeed<'a> for Text {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Cow<'a, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for Text {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A string, number or boolean as text; of a list, the first string. `None` for `null` and objects.
fn scalar(json: &str) -> Result<Option<Cow<'_, str>>, LineError> {
    match json.as_bytes().first() {
        Some(b'"') => text(json).map(Some),
        Some(b'[') => texts(json)?.into_iter().next().map(text).transpose(),
        Some(b'{' | b'n') | None => Ok(None),
        Some(_) => Ok(Some(Cow::Borrowed(json))),
    }
}

/// A JSON text without its quotes and escapes.
fn text(json: &str) -> Result<Cow<'_, str>, LineError> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Text.deserialize(&mut deserializer).map_err(|_| INVALID_TEXT)
}

/// The strings of a list, still as JSON.
fn texts(json: &str) -> Result<Vec<&str>, LineError> {
    let list: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| INVALID)?;
    Ok(list.into_iter().map(RawValue::get).filter(|json| json.starts_with('"')).collect())
}

/// Adds the headers of an object: `{"Accept":["*/*"]}`.
fn add_headers<'a>(builder: &mut RecordBuilder<'a>, json: &'a str) -> Result<(), LineError> {
    if !json.starts_with('{') {
        return Ok(());
    }
    let Headers(headers) = serde_json::from_str(json).map_err(|_| INVALID)?;
    for (name, json) in headers {
        let values = if json.starts_with('[') { texts(json)? } else { vec![json] };
        for json in values {
            if let Some(value) = scalar(json)? {
                builder.add_header(&name, value);
            }
        }
    }
    Ok(())
}

/// The first headers of an object, with their values as JSON.
struct Headers<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> serde::Deserialize<'a> for Headers<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'a> Visitor<'a> for HeadersVisitor {
    type Value = Headers<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of headers")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Headers<'a>, M::Error> {
        let mut headers = Vec::new();
        while let Some(name) = map.next_key_seed(Text)? {
            let json = map.next_value::<&'a RawValue>()?.get();
            if headers.len() < RecordBuilder::HEADERS_MAX {
                headers.push((name, json));
            }
        }
        Ok(Headers(headers))
    }
}

/// True if a key may be the start of a name. It compares only the first byte and the one after the key: most keys
/// differ in these.
#[inline]
fn is_start(key: &str, name: &str) -> bool {
    let (key, name) = (key.as_bytes(), name.as_bytes());
    key.first() == name.first() && name.get(key.len()).map_or(key.len() == name.len(), |next| *next == b'.')
}

fn strip_prefix<'a>(text: Cow<'a, str>, prefix: &str) -> Option<Cow<'a, str>> {
    match text {
        Cow::Borrowed(text) => text.strip_prefix(prefix).map(Cow::Borrowed),
        Cow::Owned(text) => text.strip_prefix(prefix).map(|rest| Cow::Owned(rest.to_owned())),
    }
    .filter(|rest| !rest.is_empty())
}
