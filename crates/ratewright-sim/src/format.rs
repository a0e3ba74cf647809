//! Formats of access logs: from one line to a [`Record`].
//!
//! ```text
//!   combined  envoy  alb                            words, and quoted fields ───┐
//!   ratewright  envoy-json  traefik  caddy  json    fields of an object ────────┼─► Line: a Record, or not a request
//!   csv                                             columns ────────────────────┘
//! ```
//!
//! Clients choose most of a line. A parser therefore expects any bytes: it reports a line that it cannot read, and
//! never guesses.
//!
//! # Laws
//! - No line makes a parser panic, and the work for a line is bounded by its length times the number of fields.
//! - No string of a record contains an ASCII control character. The engine marks unreadable attributes by a NUL.
//! - Except for the header line of CSV, the result for a line does not depend on the lines before it.

mod address;
mod alb;
mod combined;
mod csv;
mod envoy;
mod field_map;
mod json;
mod record_builder;
mod request_line;
mod text;
mod time;

#[cfg(test)]
mod tests;

use ratewright_core::query::AttributeName;

use self::combined::CombinedParser;
use self::csv::CsvParser;
use self::field_map::Field;
pub use self::field_map::{FieldMap, FieldMapError};
use self::json::JsonParser;
pub use crate::record::{LoggedDecision, Record};

/// The format of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// `combined` and `common` of nginx and Apache; fields after them are ignored.
    Combined,
    /// Ratewright's own access log.
    Ratewright,
    /// Envoy's default text format.
    Envoy,
    /// Envoy's format in JSON, with the names of its default fields.
    EnvoyJson,
    /// Traefik's format in JSON.
    Traefik,
    /// Caddy's format in JSON.
    Caddy,
    /// The access log of an AWS Application Load Balancer.
    Alb,
    /// Lines of JSON with these fields.
    Json(FieldMap),
    /// Lines of CSV with these columns.
    Csv(FieldMap),
}

/// What a line is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every line is a request")]
pub enum Line<'a> {
    /// A request.
    Request(Record<'a>),
    /// A line of the log that is not about a request that a limiter would have seen: a comment, a header, or a
    /// connection that sent no valid request.
    NotRequest,
}

/// Parses the lines of one log.
#[derive(Clone, Debug)]
pub struct Parser {
    kind: ParserKind,
}

#[derive(Clone, Debug)]
enum ParserKind {
    Combined(CombinedParser),
    Envoy,
    Alb,
    Json(JsonParser),
    Csv(CsvParser),
}

/// Why a line cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LineError(pub &'static str);

/// Why a format cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// No format has this name.
    #[error("format {name:?} is unknown; use one of {}", Format::NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The format needs a field map.
    #[error("format {name} needs --fields, such as time=ts,ip=client,method=verb,path=uri")]
    FieldsMissing {
        /// The name of the format.
        name: &'static str,
    },
    /// The format has fixed fields.
    #[error("--fields works only with --format json or csv, not {name}")]
    FieldsFixed {
        /// The name of the format.
        name: &'static str,
    },
}

impl Format {
    /// The names of all formats. `common` is another name of `combined`.
    pub const NAMES: [&'static str; 10] =
        ["combined", "common", "ratewright", "envoy", "envoy-json", "traefik", "caddy", "alb", "json", "csv"];

    /// Formats that are recognised by their lines.
    const DETECTED: [Self; 7] = [
        Self::Combined,
        Self::Envoy,
        Self::Alb,
        Self::Ratewright,
        Self::EnvoyJson,
        Self::Traefik,
        Self::Caddy,
    ];

    /// Maximum lines that detection looks at.
    const DETECTION_LINES: usize = 100;

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Ratewright => "ratewright",
            Self::Envoy => "envoy",
            Self::EnvoyJson => "envoy-json",
            Self::Traefik => "traefik",
            Self::Caddy => "caddy",
            Self::Alb => "alb",
            Self::Json(_) => "json",
            Self::Csv(_) => "csv",
        }
    }

    /// The format of a name. `json` and `csv` need a field map.
    ///
    /// # Errors
    /// If no format has this name, or if the field map is missing or useless.
    pub fn named(name: &str, fields: Option<FieldMap>) -> Result<Self, FormatError> {
        let format = match (name, fields.clone()) {
            ("json", Some(fields)) => return Ok(Self::Json(fields)),
            ("csv", Some(fields)) => return Ok(Self::Csv(fields)),
            ("json", None) => return Err(FormatError::FieldsMissing { name: "json" }),
            ("csv", None) => return Err(FormatError::FieldsMissing { name: "csv" }),
            ("combined" | "common", _) => Self::Combined,
            ("ratewright", _) => Self::Ratewright,
            ("envoy", _) => Self::Envoy,
            ("envoy-json", _) => Self::EnvoyJson,
            ("traefik", _) => Self::Traefik,
            ("caddy", _) => Self::Caddy,
            ("alb", _) => Self::Alb,
            _ => return Err(FormatError::Unknown { name: name.to_owned() }),
        };
        match fields {
            Some(_) => Err(FormatError::FieldsFixed { name: format.name() }),
            None => Ok(format),
        }
    }

    /// The format of a log by its first lines: the one that reads the most of them as requests. `None` if no format
    /// does. Never `json` or `csv`, which need a field map.
    pub fn detect(start: &[u8]) -> Option<Self> {
        let is_empty = |line: &&[u8]| line.trim_ascii().is_empty();
        let lines = start.split(|byte| *byte == b'\n').filter(|line| !is_empty(line));
        let lines: Vec<&[u8]> = lines.take(Self::DETECTION_LINES).collect();
        let n_requests = |format: &Self| {
            let mut parser = format.parser();
            lines.iter().filter(|line| parser.parse(line).is_ok_and(|line| format.is_typical(&line))).count()
        };
        let counted = Self::DETECTED.into_iter().rev().map(|format| (n_requests(&format), format));
        let (n_requests, format) = counted.max_by_key(|(n_requests, _)| *n_requests)?;
        // A log of nothing but broken connections: its lines have the fields of `combined`, with a date.
        let is_combined = |line: &&&[u8]| {
            line.contains(&b'[')
                && Self::Combined.parser().parse(line).is_ok_and(|line| line == Line::NotRequest)
        };
        match n_requests {
            0 => (lines.iter().filter(is_combined).count() > lines.len() / 2).then_some(Self::Combined),
            _ => Some(format),
        }
    }

    /// True if a line is a request with what every line of this format has. Other logs in JSON have a time, a method
    /// and a path too.
    fn is_typical(&self, line: &Line<'_>) -> bool {
        match line {
            Line::Request(record) if *self == Self::Ratewright => {
                record.decision.is_some() && record.address.is_some()
            }
            Line::Request(_) => true,
            Line::NotRequest => false,
        }
    }

    /// True if a log of this format can have this attribute.
    pub fn has(&self, name: &AttributeName<String>) -> bool {
        if let Self::Json(fields) | Self::Csv(fields) = self {
            return fields.has(name);
        }
        match name {
            AttributeName::Ip | AttributeName::Method | AttributeName::Path => true,
            AttributeName::User => matches!(self, Self::Combined | Self::Traefik | Self::Caddy),
            AttributeName::Host => *self != Self::Combined,
            AttributeName::Route => *self == Self::Ratewright,
            // Ratewright's log has no queries, which may contain secrets.
            AttributeName::Param(_) => *self != Self::Ratewright,
            AttributeName::Header(name) => match name.as_str() {
                "user-agent" => true,
                "referer" if *self == Self::Combined => true,
                _ => matches!(self, Self::Traefik | Self::Caddy),
            },
            AttributeName::Key
            | AttributeName::Cookie(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => false,
        }
    }

    /// True if a log of this format has the size of a request's body.
    pub fn has_request_bytes(&self) -> bool {
        match self {
            Self::Envoy | Self::EnvoyJson | Self::Traefik | Self::Caddy => true,
            Self::Combined | Self::Ratewright | Self::Alb => false,
            Self::Json(fields) | Self::Csv(fields) => fields.maps(|field| *field == Field::RequestBytes),
        }
    }

    /// True if a log of this format has the status of a response.
    pub fn has_status(&self) -> bool {
        match self {
            Self::Json(fields) | Self::Csv(fields) => fields.maps(|field| *field == Field::Status),
            Self::Combined
            | Self::Ratewright
            | Self::Envoy
            | Self::EnvoyJson
            | Self::Traefik
            | Self::Caddy
            | Self::Alb => true,
        }
    }

    /// A parser for one log of this format.
    pub fn parser(&self) -> Parser {
        let kind = match self {
            Self::Combined => ParserKind::Combined(CombinedParser::default()),
            Self::Envoy => ParserKind::Envoy,
            Self::Alb => ParserKind::Alb,
            Self::Ratewright => ParserKind::Json(JsonParser::ratewright()),
            Self::EnvoyJson => ParserKind::Json(JsonParser::envoy()),
            Self::Traefik => ParserKind::Json(JsonParser::traefik()),
            Self::Caddy => ParserKind::Json(JsonParser::caddy()),
            Self::Json(fields) => ParserKind::Json(JsonParser::of_map(fields)),
            Self::Csv(fields) => ParserKind::Csv(CsvParser::of_map(fields)),
        };
        Parser { kind }
    }
}

impl Parser {
    /// The fields that the header line of a log in CSV lacks, and its columns, once it was read.
    pub(crate) fn missing_columns(&self) -> Option<(Vec<&str>, String)> {
        match &self.kind {
            ParserKind::Csv(parser) => parser.missing_columns(),
            ParserKind::Combined(_) | ParserKind::Envoy | ParserKind::Alb | ParserKind::Json(_) => None,
        }
    }

    /// Parses a line, without its line feed. A carriage return at its end is ignored.
    ///
    /// # Errors
    /// If the line is not one of this format.
    pub fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, LineError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match &mut self.kind {
            _ if line.first() == Some(&b'#') => Ok(Line::NotRequest),
            ParserKind::Combined(parser) => parser.parse(line),
            ParserKind::Envoy => envoy::parse(line),
            ParserKind::Alb => alb::parse(line),
            ParserKind::Json(parser) => parser.parse(line),
            ParserKind::Csv(parser) => parser.parse(line),
        }
    }
}

/// Reads a status. `None` if there was no response: `-` or 0.
#[inline]
fn status(text: &[u8]) -> Result<Option<u16>, LineError> {
    match text {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok(Some(digit(a) * 100 + digit(b) * 10 + digit(c)))
        }
        b"-" | b"0" | b"000" => Ok(None),
        _ => Err(LineError("status is not a number from 100 to 999")),
    }
}
