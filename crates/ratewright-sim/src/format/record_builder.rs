//! From the values of a JSON or CSV line to a record.

use std::borrow::Cow;

use ratewright_core::query::AttributeName;

use super::field_map::Field;
use super::request_line::{Target, is_method};
use super::text::plain_text;
use super::time::{self, LogTime};
use super::{Line, LineError, address, status};
use crate::record::{LoggedDecision, Record};

/// A record that is being put together. The first value of a field wins.
#[derive(Debug, Default)]
pub(super) struct RecordBuilder<'a> {
    record: Record<'a>,
    arrived_at: Option<LogTime>,
    responded_at: Option<LogTime>,
    duration: u64,
    is_denied: Option<bool>,
    policy: Option<Cow<'a, str>>,
    /// True if a value shows that the line is not about a request.
    is_not_request: bool,
}

impl<'a> RecordBuilder<'a> {
    /// Maximum headers of a request that are kept.
    pub(super) const HEADERS_MAX: usize = 100;

    /// Adds the value of a field, unless it is empty or `-`.
    pub(super) fn add(&mut self, field: &Field, value: Cow<'a, str>) -> Result<(), LineError> {
        let value = trimmed(value);
        let is_missing = matches!(&*value, "" | "-");
        match field {
            Field::Method if is_missing => self.is_not_request = true,
            Field::Method => self.set_method(value),
            Field::Path => self.set_target(value)?,
            Field::RequestMarker(marker) => self.is_not_request |= !value.starts_with(marker.0),
            _ if is_missing => {}
            Field::Time => set(&mut self.arrived_at, time::parse(value.as_bytes())?),
            Field::ResponseTime => set(&mut self.responded_at, time::parse(value.as_bytes())?),
            Field::Duration(unit) => self.duration = time::duration(value.as_bytes(), *unit)?,
            Field::Ip => {
                self.record.address =
                    self.record.address.or_else(|| address::parse_with_port(value.as_bytes()));
            }
            Field::ForwardedFor => set(&mut self.record.forwarded_for, plain_text(value)),
            Field::Host => set(&mut self.record.host, plain_text(value)),
            Field::User => set(&mut self.record.user, plain_text(value)),
            Field::Route => set(&mut self.record.route, plain_text(value)),
            Field::Status => self.record.status = status(value.as_bytes())?,
            Field::RequestBytes => self.record.request_bytes = size(&value)?,
            Field::Denied => self.is_denied = Some(parse_bool(&value)?),
            Field::Policy => self.policy = Some(plain_text(value)),
            Field::Attribute(name) if self.record.attributes.iter().any(|(known, _)| known == name) => {}
            Field::Attribute(name) => self.add_attribute(name.clone(), value),
            Field::Headers => {}
        }
        Ok(())
    }

    /// Adds a header, up to a maximum. Its name may have capitals. If Caddy or Traefik wrote `REDACTED` in place of a
    /// secret, the header is absent.
    pub(super) fn add_header(&mut self, name: &str, value: Cow<'a, str>) {
        let is_known = !matches!(&*value, "" | "REDACTED");
        if is_known && self.record.attributes.len() < Self::HEADERS_MAX {
            let name = Cow::Owned(name.to_ascii_lowercase());
            self.add_attribute(AttributeName::Header(plain_text(name)), value);
        }
    }

    /// The line, when all values are added.
    pub(super) fn finish(mut self) -> Result<Line<'a>, LineError> {
        if self.is_not_request {
            return Ok(Line::NotRequest);
        }
        let time = match (self.arrived_at, self.responded_at) {
            (Some(arrived_at), _) => arrived_at,
            (None, Some(responded_at)) => responded_at.before(self.duration)?,
            (None, None) => return Err(LineError("time field is empty or missing")),
        };
        self.record.at = time.at;
        self.record.is_whole_second = time.is_whole_second;
        let policy = self.policy;
        self.record.decision = self
            .is_denied
            .map(|is_denied| LoggedDecision { is_denied, policy: policy.filter(|_| is_denied) });
        Ok(Line::Request(self.record))
    }

    fn set_method(&mut self, method: Cow<'a, str>) {
        self.is_not_request |= !is_method(method.as_bytes());
        self.record.method = method;
    }

    fn set_target(&mut self, target: Cow<'a, str>) -> Result<(), LineError> {
        match Target::of_text(target)? {
            None => self.is_not_request = true,
            Some(target) => {
                self.record.target = target.path;
                if let Some(host) = target.host {
                    self.record.host = Some(host);
                }
            }
        }
        Ok(())
    }

    fn add_attribute(&mut self, name: AttributeName<Cow<'a, str>>, value: Cow<'a, str>) {
        self.record.attributes.push((name, plain_text(value)));
    }
}

/// Sets a value that is not set yet.
fn set<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
        Cow::Owned(text) if text.len() == text.trim_ascii().len() => Cow::Owned(text),
        Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_owned()),
    }
}

/// A size in bytes. A negative one means that the size is unknown.
fn size(text: &str) -> Result<Option<u64>, LineError> {
    if text.starts_with('-') {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| LineError("size of the request is not a whole number"))
}

fn parse_bool(text: &str) -> Result<bool, LineError> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(LineError("denied is not true, false, 1 or 0")),
    }
}
