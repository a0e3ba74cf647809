//! Formats of access logs: from one line to a [`Record`].

use crate::record::Record;

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

/// Which field of a line holds what.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldMap {}

/// What a line is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A request.
    Request(Record<'a>),
    /// A line of the log that is not about a request that a limiter would have seen: a comment, a header, or a
    /// connection that sent no valid request.
    NotRequest,
}

/// Why a line cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LineError(pub &'static str);
