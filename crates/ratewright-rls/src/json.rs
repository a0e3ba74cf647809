//! The protocol in JSON, for `POST /json`: the JSON mapping of Protocol Buffers. Names may be in camel case or snake case, numbers may be
//! quoted, and unknown fields are rejected.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wire::{
    Code, DescriptorStatus, Entry, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, RateLimitUnit, Unit,
};

/// Reads a request.
///
/// # Errors
/// If the text is not a request.
pub fn read(text: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(text)?;
    check_objects(&value)?;
    let Request { domain, descriptors, hits_addend } = serde_json::from_slice(text).or_else(|error| {
        tidy(&mut value);
        serde_json::from_value(value).map_err(|_| error) // the first error has the position
    })?;
    let descriptors = descriptors.into_iter().map(JsonDescriptor::meant).collect();
    Ok(RateLimitRequest { domain, descriptors, hits_addend: hits_addend.0 })
}

/// Rejects lists in place of objects, which serde would accept.
fn check_objects(request: &Value) -> Result<(), serde_json::Error> {
    fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
        value.get(name).and_then(Value::as_array).into_iter().flatten()
    }
    let descriptors = || items(request, "descriptors");
    let entries = descriptors().flat_map(|descriptor| items(descriptor, "entries"));
    let limits = descriptors().filter_map(|descriptor| descriptor.get("limit"));
    let mut all = std::iter::once(request).chain(descriptors()).chain(entries).chain(limits);
    match all.any(Value::is_array) {
        true => Err(de::Error::custom("invalid type: sequence, expected an object")),
        false => Ok(()),
    }
}

/// Removes nulls, which mean the same as a missing field, and writes whole numbers as integers: 1e1 is 10.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..1e15).contains(float));
            if let Some(float) = whole
                && let Ok(whole) = format!("{float:.0}").parse::<u64>()
            {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Writes a response.
pub fn write(answer: &RateLimitResponse) -> String {
    serde_json::to_string(&JsonResponse::of(answer)).unwrap_or_default() // text and numbers can always be written
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Request {
    domain: String,
    descriptors: Vec<JsonDescriptor>,
    #[serde(alias = "hits_addend")]
    hits_addend: Number<u32>,
}

// `expecting`: errors use the protocol's names.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields, expecting = "struct Descriptor")]
struct JsonDescriptor {
    entries: Vec<ReadEntry>,
    limit: Option<JsonOverride>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u64>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ReadEntry {
    key: String,
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields, expecting = "struct Override")]
struct JsonOverride {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Number<u32>,
    unit: NamedUnit,
}

/// A unit, by its name or its number.
#[derive(Default)]
struct NamedUnit(i32);

/// A number, perhaps in quotes.
#[derive(Default)]
struct Number<T>(T);

impl JsonDescriptor {
    fn meant(self) -> RateLimitDescriptor {
        let entries = self.entries.into_iter().map(|ReadEntry { key, value }| Entry { key, value });
        let limit = self.limit.map(|limit| RateLimitOverride {
            requests_per_unit: limit.requests_per_unit.0,
            unit: limit.unit.0,
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            limit,
            hits_addend: self.hits_addend.map(|hits| hits.0),
            is_negative_hits: self.is_negative_hits,
        }
    }
}

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = u64;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
                Ok(number)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
                text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        let number = deserializer.deserialize_any(Visit)?;
        let too_large = || de::Error::custom(format_args!("{number} is too large"));
        T::try_from(number).map(Self).map_err(|_| too_large())
    }
}

impl<'de> Deserialize<'de> for NamedUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = NamedUnit;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a unit: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<NamedUnit, E> {
                i32::try_from(number).map(NamedUnit).map_err(|_| E::custom("invalid unit"))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<NamedUnit, E> {
                let unit = RateLimitUnit::from_str_name(name);
                unit.map(|unit| NamedUnit(unit.into()))
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonResponse<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<Field<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLimit<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct Field<'a> {
    key: &'a str,
    value: &'a str,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'a> JsonResponse<'a> {
    fn of(answer: &'a RateLimitResponse) -> Self {
        let field = |HeaderValue { key, value, .. }: &'a HeaderValue| Field { key, value };
        Self {
            overall_code: code(answer.overall_code),
            statuses: answer.statuses.iter().map(Status::of).collect(),
            response_headers_to_add: answer.response_headers_to_add.iter().map(field).collect(),
        }
    }
}

impl<'a> Status<'a> {
    fn of(status: &'a DescriptorStatus) -> Self {
        let limit = |limit: &'a RateLimit| JsonLimit {
            requests_per_unit: limit.requests_per_unit,
            unit: Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).as_str_name(),
            name: &limit.name,
        };
        Self {
            code: code(status.code),
            current_limit: status.current_limit.as_ref().map(limit),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status
                .duration_until_reset
                .as_ref()
                .map(|reset| format!("{}s", reset.seconds)),
        }
    }
}

fn code(code: i32) -> &'static str {
    Code::try_from(code).unwrap_or(Code::Unknown).as_str_name()
}
