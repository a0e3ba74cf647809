//! Scalars as they are written: `0x10` stays `0x10`.
//!
//! Where a value may be a scalar, a list or a section, the parser decides by itself what a scalar is, and passes `0x10` as the number 16. The
//! text is found again by the scalar's place in the document. The parser tells a place only after the value, so the value is asked for
//! twice: first for its place, which reads nothing, then for itself.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::Location;

use super::{SPANNED, Visit};

/// A target that asks for scalars as written, for the parser.
pub(super) struct VisitWritten<'t>(pub(super) Visit<'t>);

impl<'d> Visitor<'d> for VisitWritten<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_newtype_struct<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_map<A: MapAccess<'d>>(self, mut parts: A) -> Result<(), A::Error> {
        while let Some(name) = parts.next_key::<String>()? {
            if name == "value" {
                let Place(place) = parts.next_value()?;
                let written = place.and_then(|place| written(self.0.text, place)).unwrap_or_default();
                return parts.next_value_seed(Seed(Visit { written: Some(written), ..self.0 }));
            }
            parts.next_value::<IgnoredAny>()?;
        }
        Err(A::Error::custom("no value"))
    }
}

/// Reads the value itself.
struct Seed<'t>(Visit<'t>);

impl<'d> serde::de::DeserializeSeed<'d> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self.0)
    }
}

/// The place of the next value in the document. The value is not read.
struct Place(Option<Location>);

impl<'d> Deserialize<'d> for Place {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'d> Visitor<'d> for Parts {
            type Value = Place;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its place")
            }
            fn visit_newtype_struct<D: Deserializer<'d>>(self, deserializer: D) -> Result<Place, D::Error> {
                deserializer.deserialize_any(self)
            }
            fn visit_map<A: MapAccess<'d>>(self, mut parts: A) -> Result<Place, A::Error> {
                let mut place = None;
                while let Some(name) = parts.next_key::<String>()? {
                    match name.as_str() {
                        "value" => {} // left for the second time
                        // Behind an alias, where the value is defined and not where it is used.
                        "defined" => place = Some(parts.next_value()?),
                        "referenced" => drop(parts.next_value::<Location>()?),
                        _ => drop(parts.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Place(place))
            }
        }
        deserializer.deserialize_newtype_struct(*SPANNED, Parts)
    }
}

/// The text at a place.
fn written(text: &str, place: Location) -> Option<&str> {
    let span = place.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    text.get(start..end)
}
