//! The YAML parser as a source. No other file of this crate names its functions.

mod scalar_text;

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize as _;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Options, Spanned};

use super::erased::{Entries, Error, Items, LocatedSource, Request, Scalar, Seed, Target, ValueSource};
use crate::raw_value::Position;
use scalar_text::VisitWritten;

/// Reads a text of one document.
pub(super) fn read(text: &str, options: Options, seed: &mut dyn Seed) -> Result<(), serde_saphyr::Error> {
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |parser| {
        SeedOf { seed, text }.deserialize(parser)
    })
}

/// The parser's deserializer until it is read, then its error if reading failed.
struct Parser<'t, 'd, D: Deserializer<'d>> {
    inner: Option<D>,
    error: Option<D::Error>,
    text: &'t str,
}

/// A list of the parser's.
struct List<'t, 'd, A: SeqAccess<'d>> {
    inner: A,
    error: Option<A::Error>,
    text: &'t str,
}

/// A table of the parser's.
struct Table<'t, 'd, A: MapAccess<'d>> {
    inner: A,
    error: Option<A::Error>,
    text: &'t str,
}

impl<'d, D: Deserializer<'d>> ValueSource for Parser<'_, 'd, D> {
    fn read(&mut self, request: Request, target: &mut dyn Target) -> Result<(), Error> {
        let inner = self.inner.take().expect("a value is read once");
        let target = Visit { target, text: self.text, written: None };
        let read = match request {
            Request::Any => inner.deserialize_any(target),
            Request::Str => inner.deserialize_str(target),
            Request::String => inner.deserialize_string(target),
            Request::Option => inner.deserialize_option(target),
            Request::List => inner.deserialize_seq(target),
            Request::Table => inner.deserialize_map(target),
            Request::Section => inner.deserialize_struct("", &[], target),
            Request::Identifier => inner.deserialize_identifier(target),
            Request::Ignored => inner.deserialize_ignored_any(target),
            Request::Located => inner.deserialize_newtype_struct(*SPANNED, VisitSpanned(target)),
            Request::Written => inner.deserialize_newtype_struct(*SPANNED, VisitWritten(target)),
        };
        keep(read, &mut self.error)
    }
}

impl<'d, A: SeqAccess<'d>> Items for List<'_, 'd, A> {
    fn next(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let item = self.inner.next_element_seed(SeedOf { seed, text: self.text });
        keep(item, &mut self.error).map(|item| item.is_some())
    }
}

impl<'d, A: MapAccess<'d>> Entries for Table<'_, 'd, A> {
    fn next_name(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let name = self.inner.next_key_seed(SeedOf { seed, text: self.text });
        keep(name, &mut self.error).map(|name| name.is_some())
    }
    fn next_value(&mut self, seed: &mut dyn Seed) -> Result<(), Error> {
        let value = self.inner.next_value_seed(SeedOf { seed, text: self.text });
        keep(value, &mut self.error)
    }
}

/// The parser passes a located value as a table: `value`, `referenced`, and names that do not matter here.
impl<'d, A: MapAccess<'d>> LocatedSource for Table<'_, 'd, A> {
    fn read(&mut self, seed: &mut dyn Seed) -> Result<Option<Position>, Error> {
        let mut read = || {
            let mut position = None;
            while let Some(name) = self.inner.next_key::<String>()? {
                match name.as_str() {
                    "value" => self.inner.next_value_seed(SeedOf { seed, text: self.text })?,
                    "referenced" => position = Position::of(self.inner.next_value::<Location>()?),
                    "defined" => drop(self.inner.next_value::<Location>()?),
                    _ => drop(self.inner.next_value::<IgnoredAny>()?),
                }
            }
            Ok(position)
        };
        let read = read();
        keep(read, &mut self.error)
    }
}

/// Keeps the error of a source, which the type does not see.
fn keep<T, E>(read: Result<T, E>, error: &mut Option<E>) -> Result<T, Error> {
    read.map_err(|failed| {
        *error = Some(failed);
        Error::Source
    })
}

/// A seed, for the parser.
struct SeedOf<'s> {
    seed: &'s mut dyn Seed,
    text: &'s str,
}

impl<'d> DeserializeSeed<'d> for SeedOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut parser = Parser { inner: Some(deserializer), error: None, text: self.text };
        let read = self.seed.read(&mut parser);
        read.map_err(|error| error.raise(parser.error))
    }
}

/// A target, for the parser.
struct Visit<'t> {
    target: &'t mut dyn Target,
    /// The text of the document.
    text: &'t str,
    /// A number or truth value as written, if the type asked for that.
    written: Option<&'t str>,
}

impl Visit<'_> {
    /// A number or truth value, as it is written if the type asked for that.
    fn plain<E: de::Error>(self, value: Scalar<'_>) -> Result<(), E> {
        match self.written {
            None => self.scalar(value),
            Some(text) if is_plain(text) => self.scalar(Scalar::Text(text)),
            Some(_) => Err(E::custom("a tag such as !!int cannot be used here; remove it")),
        }
    }

    fn scalar<E: de::Error>(self, scalar: Scalar<'_>) -> Result<(), E> {
        self.target.scalar(scalar).map_err(|error| error.raise(None))
    }
}

impl<'d> Visitor<'d> for Visit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.expecting(f)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.plain(Scalar::Bool(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.plain(Scalar::Unsigned(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.plain(Scalar::Signed(value))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.plain(Scalar::Float(value))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.scalar(Scalar::Text(text))
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.scalar(Scalar::Null)
    }
    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.scalar(Scalar::None)
    }
    fn visit_some<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut parser = Parser { inner: Some(deserializer), error: None, text: self.text };
        let read = self.target.some(&mut parser);
        read.map_err(|error| error.raise(parser.error))
    }
    fn visit_seq<A: SeqAccess<'d>>(self, items: A) -> Result<(), A::Error> {
        let mut list = List { inner: items, error: None, text: self.text };
        let read = self.target.list(&mut list);
        read.map_err(|error| error.raise(list.error))
    }
    fn visit_map<A: MapAccess<'d>>(self, entries: A) -> Result<(), A::Error> {
        let mut table = Table { inner: entries, error: None, text: self.text };
        let read = self.target.table(&mut table);
        read.map_err(|error| error.raise(table.error))
    }
}

/// True for a scalar that is written without quotes, in one line. Others are numbers or truth values only by a tag.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['\'', '"']) && !text.contains(char::is_whitespace)
}

/// A target that asks for a position, for the parser.
struct VisitSpanned<'t>(Visit<'t>);

impl<'d> Visitor<'d> for VisitSpanned<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_newtype_struct<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_map<A: MapAccess<'d>>(self, entries: A) -> Result<(), A::Error> {
        let mut table = Table { inner: entries, error: None, text: self.0.text };
        let read = self.0.target.located(&mut table);
        read.map_err(|error| error.raise(table.error))
    }
}

/// The name by which the parser's `Spanned` asks for a position. It is private, so it is taken from `Spanned` itself.
static SPANNED: LazyLock<&'static str> = LazyLock::new(|| {
    let mut name = "";
    let _ = Spanned::<IgnoredAny>::deserialize(NameOfNewtype(&mut name));
    name
});

/// A deserializer that only notes which newtype it is asked for.
struct NameOfNewtype<'n>(&'n mut &'static str);

impl<'d> Deserializer<'d> for NameOfNewtype<'_> {
    type Error = de::value::Error;

    fn deserialize_newtype_struct<V: Visitor<'d>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = name;
        self.deserialize_any(visitor)
    }
    fn deserialize_any<V: Visitor<'d>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("only the name is needed"))
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'d>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
