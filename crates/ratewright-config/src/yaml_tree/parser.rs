//! The YAML parser as a source. No other file of this crate names its functions.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize as _;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Options, Spanned};

use super::erased::{Entries, Error, Items, LocatedSource, Request, Scalar, Seed, Target, ValueSource};
use crate::raw_value::Position;

/// Reads a text of one document.
pub(super) fn read(text: &str, options: Options, seed: &mut dyn Seed) -> Result<(), serde_saphyr::Error> {
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |parser| {
        SeedOf(seed).deserialize(parser)
    })
}

/// The parser's deserializer until it is read, then its error if reading failed.
struct Parser<'d, D: Deserializer<'d>> {
    inner: Option<D>,
    error: Option<D::Error>,
}

/// A list of the parser's.
struct List<'d, A: SeqAccess<'d>> {
    inner: A,
    error: Option<A::Error>,
}

/// A table of the parser's.
struct Table<'d, A: MapAccess<'d>> {
    inner: A,
    error: Option<A::Error>,
}

impl<'d, D: Deserializer<'d>> ValueSource for Parser<'d, D> {
    fn read(&mut self, request: Request, target: &mut dyn Target) -> Result<(), Error> {
        let inner = self.inner.take().expect("a value is read once");
        let target = Visit(target);
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
            Request::Located => inner.deserialize_newtype_struct(*SPANNED, VisitSpanned(target.0)),
        };
        keep(read, &mut self.error)
    }
}

impl<'d, A: SeqAccess<'d>> Items for List<'d, A> {
    fn next(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let item = self.inner.next_element_seed(SeedOf(seed));
        keep(item, &mut self.error).map(|item| item.is_some())
    }
}

impl<'d, A: MapAccess<'d>> Entries for Table<'d, A> {
    fn next_name(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let name = self.inner.next_key_seed(SeedOf(seed));
        keep(name, &mut self.error).map(|name| name.is_some())
    }
    fn next_value(&mut self, seed: &mut dyn Seed) -> Result<(), Error> {
        let value = self.inner.next_value_seed(SeedOf(seed));
        keep(value, &mut self.error)
    }
}

/// The parser passes a located value as a table: `value`, `referenced`, and names that do not matter here.
impl<'d, A: MapAccess<'d>> LocatedSource for Table<'d, A> {
    fn read(&mut self, seed: &mut dyn Seed) -> Result<Option<Position>, Error> {
        let mut read = || {
            let mut position = None;
            while let Some(name) = self.inner.next_key::<String>()? {
                match name.as_str() {
                    "value" => self.inner.next_value_seed(SeedOf(seed))?,
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
struct SeedOf<'s>(&'s mut dyn Seed);

impl<'d> DeserializeSeed<'d> for SeedOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut parser = Parser { inner: Some(deserializer), error: None };
        let read = self.0.read(&mut parser);
        read.map_err(|error| error.raise(parser.error))
    }
}

/// A target, for the parser.
struct Visit<'t>(&'t mut dyn Target);

impl Visit<'_> {
    fn scalar<E: de::Error>(self, scalar: Scalar<'_>) -> Result<(), E> {
        self.0.scalar(scalar).map_err(|error| error.raise(None))
    }
}

impl<'d> Visitor<'d> for Visit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.scalar(Scalar::Bool(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.scalar(Scalar::Unsigned(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.scalar(Scalar::Signed(value))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.scalar(Scalar::Float(value))
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
        let mut parser = Parser { inner: Some(deserializer), error: None };
        let read = self.0.some(&mut parser);
        read.map_err(|error| error.raise(parser.error))
    }
    fn visit_seq<A: SeqAccess<'d>>(self, items: A) -> Result<(), A::Error> {
        let mut list = List { inner: items, error: None };
        let read = self.0.list(&mut list);
        read.map_err(|error| error.raise(list.error))
    }
    fn visit_map<A: MapAccess<'d>>(self, entries: A) -> Result<(), A::Error> {
        let mut table = Table { inner: entries, error: None };
        let read = self.0.table(&mut table);
        read.map_err(|error| error.raise(table.error))
    }
}

/// A target that asks for a position, for the parser.
struct VisitSpanned<'t>(&'t mut dyn Target);

impl<'d> Visitor<'d> for VisitSpanned<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_newtype_struct<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_map<A: MapAccess<'d>>(self, entries: A) -> Result<(), A::Error> {
        let mut table = Table { inner: entries, error: None };
        let read = self.0.located(&mut table);
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
