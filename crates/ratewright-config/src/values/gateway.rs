//! The types of single values of `gateway` and `routes`.

use http::Method;
use ratewright_core::Micros;
#[cfg(test)]
use schemars::{Schema, json_schema};

use crate::raw_value::ConfigValue;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteCount(pub u64);

/// The longest body, in bytes. None: any length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyMax(pub Option<u64>);

/// The slowest upload allowed: bytes in a window of time. None: no minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyRateMin(pub Option<(u64, Micros)>);

/// A duration that a file may set to `none`. None: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TotalTime(pub Option<Micros>);

/// Which `Host` an upstream sees. The gateway parses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostText(pub String);

/// The url of an upstream server. The gateway parses it.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamUrl(pub String);

impl ConfigValue for ByteCount {
    fn from_text(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let factor = match unit.trim_start().to_ascii_uppercase().as_str() {
            "B" => 1,
            "KB" => 1_u64 << 10,
            "MB" => 1 << 20,
            "GB" => 1 << 30,
            "TB" => 1 << 40,
            _ => 0,
        };
        let n_bytes = digits.parse().ok().and_then(|n: u64| n.checked_mul(factor)).filter(|n| *n > 0);
        n_bytes.map(Self).ok_or_else(|| {
            "use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB".to_owned()
        })
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ *([kKmMgGtT]?[bB])$", "examples": ["32KB", "10MB", "1GB"] })
    }
}

impl ConfigValue for BodyMax {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let n_bytes = ByteCount::from_text(text)
            .map_err(|why| format!("{why}; or write `none` to remove the limit"))?;
        Ok(Self(Some(n_bytes.0)))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "anyOf": [ByteCount::schema(), { "const": "none" }] })
    }
}

impl ConfigValue for BodyRateMin {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let checked_servers = text.split_once('/').and_then(|(size, time)| {
            let ByteCount(n_bytes) = ByteCount::from_text(size.trim_end()).ok()?;
            let has_number = time.starts_with(|c: char| c.is_ascii_digit());
            let time = if has_number { time.to_owned() } else { format!("1{time}") };
            Some((n_bytes, Micros::from_text(&time).ok()?))
        });
        checked_servers.map(|rate| Self(Some(rate))).ok_or_else(|| {
            "use bytes per window, such as 240B/s or 8KB/30s, or `none` to allow any rate".to_owned()
        })
    }
    #[cfg(test)]
    fn schema() -> Schema {
        let pattern = "^([0-9]+ *([kKmMgGtT]?[bB])/([0-9]+ *)?(us|ms|s|min|h|d)|none)$";
        json_schema!({ "type": "string", "pattern": pattern, "examples": ["240B/s", "8KB/30s", "none"] })
    }
}

impl ConfigValue for TotalTime {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        Micros::from_text(text)
            .map(|time| Self(Some(time)))
            .map_err(|why| format!("{why}; or write `none` to disable it"))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "anyOf": [Micros::schema(), { "const": "none" }] })
    }
    fn canonical(text: String) -> String {
        Micros::canonical(text)
    }
}

impl ConfigValue for Method {
    fn from_text(text: &str) -> Result<Self, String> {
        let method = Self::from_bytes(text.to_ascii_uppercase().as_bytes());
        method.map_err(|_| "use a method such as GET or POST".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "examples": ["GET", "POST"] })
    }
    fn canonical(text: String) -> String {
        text.to_ascii_uppercase()
    }
}

impl ConfigValue for HostText {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "examples": ["keep", "upstream", "api.internal"] })
    }
}

impl ConfigValue for UpstreamUrl {
    /// An invalid one may have a password in it.
    const IS_SECRET: bool = true;
    const IS_SECRET_IF_VALID: bool = false;

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://", "examples": ["http://127.0.0.1:3000"] })
    }
}
