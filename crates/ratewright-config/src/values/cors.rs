//! The types of single values of `cors`.

use http::{HeaderName, Method};
#[cfg(test)]
use schemars::{Schema, json_schema};

use crate::raw_value::ConfigValue;

/// A method that a preflight may ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorsMethod(pub Method);

/// A request header that a preflight may ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CorsHeader {
    /// All of them: `*`.
    Any,
    /// This one.
    Named(HeaderName),
}

/// An origin that may read responses. The gateway parses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginText(pub String);

/// A response header that scripts may read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExposedHeader(pub HeaderName);

impl ConfigValue for OriginText {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^(\\*|[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#@]+)$",
            "examples": ["https://app.example.com", "https://*.example.com", "*"] })
    }
}

impl ConfigValue for CorsMethod {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.contains('*') {
            return Err(
                "stars are not supported here; list the methods, for example [GET, POST, PUT]".to_owned()
            );
        }
        Method::from_text(text).map(Self)
    }
    #[cfg(test)]
    fn schema() -> Schema {
        Method::schema()
    }
}

impl ConfigValue for CorsHeader {
    fn from_text(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let name = text.parse().ok().filter(|_| !text.contains('*')).map(Self::Named);
        name.ok_or_else(|| "use a header name, for example Authorization, or * alone for all".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "examples": ["Content-Type", "Authorization", "*"] })
    }
}

impl ConfigValue for ExposedHeader {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.contains('*') {
            return Err("stars are not supported here; list the headers, for example [ETag, X-Total-Count]"
                .to_owned());
        }
        text.parse().map(Self).map_err(|_| "use a header name, for example X-Total-Count".to_owned())
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "examples": ["ETag", "X-Total-Count"] })
    }
}
