//! The statuses of `count`.

use std::ops::RangeInclusive;

#[cfg(test)]
use schemars::{Schema, json_schema};

use crate::raw_value::ConfigValue;

/// A range of response statuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statuses(pub RangeInclusive<u16>);

impl ConfigValue for Statuses {
    fn from_text(text: &str) -> Result<Self, String> {
        let range = match text.split_once('-') {
            Some((first, last)) => status(first.trim()).zip(status(last.trim())),
            None => class(text).or_else(|| status(text).map(|only| (only, only))),
        };
        match range {
            Some((first, last)) if first > last => {
                Err(format!("a range goes from the smaller to the larger; write {last}-{first}"))
            }
            Some((first, last)) => Ok(Self(first..=last)),
            None => {
                Err("use a status from 100 to 599, a class such as 5xx, or a range such as 500-599"
                    .to_owned())
            }
        }
    }
    #[cfg(test)]
    fn schema() -> Schema {
        let status = json_schema!({ "type": "integer", "minimum": 100, "maximum": 599 });
        let more = json_schema!({ "type": "string", "pattern": "^[1-5]([0-9]{2}|[xX]{2})$|^[1-5][0-9]{2} *- *[1-5][0-9]{2}$",
            "examples": ["4xx", "500-599"] });
        json_schema!({ "anyOf": [status, more] })
    }
}

/// One status, in three digits.
fn status(text: &str) -> Option<u16> {
    let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?.filter(|status| (100..=599).contains(status))
}

/// All statuses that begin with a digit.
fn class(text: &str) -> Option<(u16, u16)> {
    let first = match text.as_bytes() {
        [digit @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => u16::from(digit - b'0') * 100,
        _ => return None,
    };
    Some((first, first + 99))
}
