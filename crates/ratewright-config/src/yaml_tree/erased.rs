//! Deserializers, visitors and seeds as trait objects, so that each type of the policy file is compiled once.
//!
//! serde compiles every type anew for every deserializer, and the YAML parser anew for every type. For the hundreds of settings of a
//! policy file that was a quarter of the program. Here the two sides meet at [`ValueSource`] and [`Target`]:
//!
//! ```text
//!   YAML parser ─┐                                  ┌─ File
//!   Recorder ────┼─► dyn ValueSource ─► dyn Target ─┼─ Policy
//!   Node ────────┘                                  └─ …
//! ```
//!
//! A type returns an [`Error`], for example for an unknown field; the source converts it to its own error type and adds the position. A
//! source that fails keeps its error and returns [`Error::Source`] to the type.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected, Visitor,
};

use crate::raw_value::Position;

/// A value that can be read once.
pub(crate) trait ValueSource {
    /// Passes the value to the target, which is called once.
    fn read(&mut self, request: Request, target: &mut dyn Target) -> Result<(), Error>;
}

/// Receives a value, like a visitor of serde. Rejects kinds of value that it did not request.
pub(crate) trait Target {
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    fn scalar(&mut self, scalar: Scalar<'_>) -> Result<(), Error> {
        Err(Error::unrequested(scalar.unexpected(), &|f| self.expecting(f)))
    }
    fn some(&mut self, _: &mut dyn ValueSource) -> Result<(), Error> {
        Err(Error::unrequested(Unexpected::Option, &|f| self.expecting(f)))
    }
    fn list(&mut self, _: &mut dyn Items) -> Result<(), Error> {
        Err(Error::unrequested(Unexpected::Seq, &|f| self.expecting(f)))
    }
    fn table(&mut self, _: &mut dyn Entries) -> Result<(), Error> {
        Err(Error::unrequested(Unexpected::Map, &|f| self.expecting(f)))
    }
    fn located(&mut self, _: &mut dyn LocatedSource) -> Result<(), Error> {
        Err(Error::unrequested(Unexpected::NewtypeStruct, &|f| self.expecting(f)))
    }
}

/// Reads one value.
pub(crate) trait Seed {
    fn read(&mut self, source: &mut dyn ValueSource) -> Result<(), Error>;
}

/// The items of a list.
pub(crate) trait Items {
    /// Reads the next item. False: the list has ended.
    fn next(&mut self, seed: &mut dyn Seed) -> Result<bool, Error>;
}

/// The entries of a table: a name, then its value.
pub(crate) trait Entries {
    /// Reads the next name. False: the table has ended.
    fn next_name(&mut self, seed: &mut dyn Seed) -> Result<bool, Error>;
    fn next_value(&mut self, seed: &mut dyn Seed) -> Result<(), Error>;
}

/// A value with a position.
pub(crate) trait LocatedSource {
    /// Reads the value, and returns its position.
    fn read(&mut self, seed: &mut dyn Seed) -> Result<Option<Position>, Error>;
}

/// The kind of value that a type asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Any,
    Str,
    String,
    Option,
    List,
    Table,
    /// A struct.
    Section,
    /// The name of a setting.
    Identifier,
    Ignored,
    /// A value with its position: [`located`].
    Located,
    /// Any value, a scalar as its text: [`written`].
    Written,
}

/// A value that has no parts.
#[derive(Clone, Copy)]
pub(crate) enum Scalar<'s> {
    Null,
    /// Null where a type asked for an option.
    None,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'s str),
}

/// Why a value could not be read.
#[derive(Debug)]
pub(crate) enum Error {
    /// The source failed, and has kept its own error.
    Source,
    InvalidType {
        found: Found,
        expected: String,
    },
    InvalidValue {
        found: Found,
        expected: String,
    },
    UnknownField {
        name: String,
        known: &'static [&'static str],
    },
    MissingField(&'static str),
    DuplicateField(&'static str),
    Other(String),
}

/// serde's `Unexpected`, owned.
#[derive(Debug)]
pub(crate) enum Found {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    Unit,
    Option,
    List,
    Table,
    Other(String),
}

/// The name by which [`located`] asks an [`Erased`] deserializer for a position.
const LOCATED: &str = "ratewright located";

/// The name by which [`written`] asks an [`Erased`] deserializer for texts.
const WRITTEN: &str = "ratewright written";

const ONCE: &str = "a value is read once";

/// A value and its position, from a deserializer of this module.
pub(crate) fn located<'d, T: de::Deserialize<'d>, D: Deserializer<'d>>(
    deserializer: D,
) -> Result<(T, Option<Position>), D::Error> {
    deserializer.deserialize_newtype_struct(LOCATED, LocatedVisitor(PhantomData))
}

/// A value that may be a scalar, a list or a section, from a deserializer of this module. The visitor gets a scalar as its text, whatever
/// type it looks like.
pub(crate) fn written<'d, V: Visitor<'d>, D: Deserializer<'d>>(
    deserializer: D,
    visitor: V,
) -> Result<V::Value, D::Error> {
    deserializer.deserialize_newtype_struct(WRITTEN, visitor)
}

/// A source as a deserializer.
pub(crate) struct Erased<'s>(pub(crate) &'s mut dyn ValueSource);

/// A seed, and then the value that it has read.
pub(crate) struct SeedSlot<S: DeserializeSeed<'static>> {
    seed: Option<S>,
    pub(crate) value: Option<S::Value>,
}

/// A visitor, and then the value that it has built.
struct VisitorSlot<V: Visitor<'static>> {
    visitor: Option<V>,
    value: Option<V::Value>,
}

/// A visitor that takes only the kind of value that was requested, so that its other methods are not compiled.
struct Only<K, V: Visitor<'static>>(VisitorSlot<V>, PhantomData<K>);

struct ScalarKind;
struct OptionKind;
struct ListKind;
struct TableKind;
struct LocatedKind;

impl<S: DeserializeSeed<'static>> SeedSlot<S> {
    pub(crate) fn new(seed: S) -> Self {
        Self { seed: Some(seed), value: None }
    }
}

impl<S: DeserializeSeed<'static>> Seed for SeedSlot<S> {
    fn read(&mut self, source: &mut dyn ValueSource) -> Result<(), Error> {
        let seed = self.seed.take().expect(ONCE);
        self.value = Some(seed.deserialize(Erased(source))?);
        Ok(())
    }
}

impl Erased<'_> {
    fn read<V: Visitor<'static>>(self, request: Request, visitor: V) -> Result<V::Value, Error> {
        let mut slot = VisitorSlot::new(visitor);
        self.0.read(request, &mut slot)?;
        slot.into_value()
    }

    fn read_only<K, V: Visitor<'static>>(self, _: K, request: Request, visitor: V) -> Result<V::Value, Error>
    where
        Only<K, V>: Target,
    {
        let mut slot = Only(VisitorSlot::new(visitor), PhantomData);
        self.0.read(request, &mut slot)?;
        slot.0.into_value()
    }
}

macro_rules! requests {
    ($($method:ident => $kind:ident $request:ident;)*) => {
        $(fn $method<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
            self.read_only($kind, Request::$request, visitor)
        })*
    };
}

impl Deserializer<'static> for Erased<'_> {
    type Error = Error;

    requests! {
        deserialize_str => ScalarKind Str;
        deserialize_string => ScalarKind String;
        deserialize_identifier => ScalarKind Identifier;
        deserialize_option => OptionKind Option;
        deserialize_seq => ListKind List;
        deserialize_map => TableKind Table;
    }

    fn deserialize_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(Request::Any, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(Request::Ignored, visitor)
    }

    fn deserialize_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.read_only(TableKind, Request::Section, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == LOCATED {
            return self.read_only(LocatedKind, Request::Located, visitor);
        }
        if name == WRITTEN {
            return self.read(Request::Written, visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    // Settings are texts, so no type asks for a number.
    serde::forward_to_deserialize_any! {
        <V: Visitor<'static>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
    }
}

impl<V: Visitor<'static>> VisitorSlot<V> {
    fn new(visitor: V) -> Self {
        Self { visitor: Some(visitor), value: None }
    }

    fn into_value(self) -> Result<V::Value, Error> {
        self.value.ok_or_else(|| Error::Other("no value".to_owned()))
    }

    fn visit(&mut self, visit: impl FnOnce(V) -> Result<V::Value, Error>) -> Result<(), Error> {
        self.value = Some(visit(self.visitor.take().expect(ONCE))?);
        Ok(())
    }
}

impl<V: Visitor<'static>> Target for VisitorSlot<V> {
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.as_ref().map_or(Ok(()), |visitor| visitor.expecting(f))
    }
    fn scalar(&mut self, scalar: Scalar<'_>) -> Result<(), Error> {
        self.visit(|visitor| match scalar {
            Scalar::Null => visitor.visit_unit(),
            Scalar::None => visitor.visit_none(),
            Scalar::Bool(value) => visitor.visit_bool(value),
            Scalar::Unsigned(value) => visitor.visit_u64(value),
            Scalar::Signed(value) => visitor.visit_i64(value),
            Scalar::Float(value) => visitor.visit_f64(value),
            Scalar::Text(text) => visitor.visit_str(text),
        })
    }
    fn some(&mut self, source: &mut dyn ValueSource) -> Result<(), Error> {
        self.visit(|visitor| visitor.visit_some(Erased(source)))
    }
    fn list(&mut self, items: &mut dyn Items) -> Result<(), Error> {
        self.visit(|visitor| visitor.visit_seq(ErasedItems(items)))
    }
    fn table(&mut self, entries: &mut dyn Entries) -> Result<(), Error> {
        self.visit(|visitor| visitor.visit_map(ErasedEntries(entries)))
    }
    fn located(&mut self, value: &mut dyn LocatedSource) -> Result<(), Error> {
        self.visit(|visitor| visitor.visit_seq(LocatedParts { value, place: [0; 3], n_read: 0 }))
    }
}

macro_rules! only {
    ($($kind:ident: $($method:ident($type:ty))*;)*) => {
        $(impl<V: Visitor<'static>> Target for Only<$kind, V> {
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.expecting(f)
            }
            $(fn $method(&mut self, value: $type) -> Result<(), Error> {
                self.0.$method(value)
            })*
        })*
    };
}

only! {
    ScalarKind: scalar(Scalar<'_>);
    OptionKind: scalar(Scalar<'_>) some(&mut dyn ValueSource);
    ListKind: list(&mut dyn Items);
    TableKind: table(&mut dyn Entries);
    LocatedKind: located(&mut dyn LocatedSource);
}

struct ErasedItems<'s>(&'s mut dyn Items);

impl SeqAccess<'static> for ErasedItems<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'static>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let mut slot = SeedSlot::new(seed);
        self.0.next(&mut slot)?;
        Ok(slot.value)
    }
}

struct ErasedEntries<'s>(&'s mut dyn Entries);

impl MapAccess<'static> for ErasedEntries<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'static>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let mut slot = SeedSlot::new(seed);
        self.0.next_name(&mut slot)?;
        Ok(slot.value)
    }
    fn next_value_seed<S: DeserializeSeed<'static>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let mut slot = SeedSlot::new(seed);
        self.0.next_value(&mut slot)?;
        Ok(slot.value.expect("entries read the value of a name"))
    }
}

/// A located value as a list: the value, then its file, line and column. Lines begin with 1; line 0 means: no position.
struct LocatedParts<'s> {
    value: &'s mut dyn LocatedSource,
    place: [u64; 3],
    n_read: usize,
}

impl SeqAccess<'static> for LocatedParts<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'static>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.n_read += 1;
        if let Some(number) = self.n_read.checked_sub(2) {
            return self.place.get(number).map(|n| seed.deserialize(n.into_deserializer())).transpose();
        }
        let mut slot = SeedSlot::new(seed);
        let position = self.value.read(&mut slot)?;
        self.place = position.map_or([0; 3], |Position { file, line, column }| [file as u64, line, column]);
        Ok(slot.value)
    }
}

/// Reads [`LocatedParts`].
struct LocatedVisitor<T>(PhantomData<fn() -> T>);

impl<'d, T: de::Deserialize<'d>> Visitor<'d> for LocatedVisitor<T> {
    type Value = (T, Option<Position>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its position")
    }
    fn visit_seq<A: SeqAccess<'d>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        const COMPLETE: &str = "a located value has four parts";
        let value = parts.next_element()?.expect(COMPLETE);
        let mut number = || parts.next_element::<u64>().map(|n| n.expect(COMPLETE));
        let (file, line, column) = (number()?, number()?, number()?);
        let file = usize::try_from(file).unwrap_or(usize::MAX);
        Ok((value, (line > 0).then_some(Position { file, line, column })))
    }
}

impl Scalar<'_> {
    fn unexpected(&self) -> Unexpected<'_> {
        match *self {
            Self::Null => Unexpected::Unit,
            Self::None => Unexpected::Option,
            Self::Bool(value) => Unexpected::Bool(value),
            Self::Unsigned(value) => Unexpected::Unsigned(value),
            Self::Signed(value) => Unexpected::Signed(value),
            Self::Float(value) => Unexpected::Float(value),
            Self::Text(text) => Unexpected::Str(text),
        }
    }
}

impl Error {
    /// The error of a target that is passed a kind of value that it did not request.
    fn unrequested(
        found: Unexpected<'_>,
        expecting: &dyn Fn(&mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> Self {
        let expected = fmt::from_fn(expecting).to_string();
        Self::InvalidType { found: found.into(), expected }
    }

    /// Converts to a deserializer's error. `kept` is the error of the source, if the source failed.
    pub(crate) fn raise<E: de::Error>(self, kept: Option<E>) -> E {
        match self {
            Self::Source => kept.unwrap_or_else(|| E::custom("unreadable value")),
            Self::InvalidType { found, expected } => E::invalid_type(found.unexpected(), &expected.as_str()),
            Self::InvalidValue { found, expected } => {
                E::invalid_value(found.unexpected(), &expected.as_str())
            }
            Self::UnknownField { name, known } => E::unknown_field(&name, known),
            Self::MissingField(name) => E::missing_field(name),
            Self::DuplicateField(name) => E::duplicate_field(name),
            Self::Other(problem) => E::custom(problem),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self::Other(problem.to_string())
    }
    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::InvalidType { found: unexpected.into(), expected: expected.to_string() }
    }
    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::InvalidValue { found: unexpected.into(), expected: expected.to_string() }
    }
    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownField { name: name.to_owned(), known }
    }
    fn missing_field(name: &'static str) -> Self {
        Self::MissingField(name)
    }
    fn duplicate_field(name: &'static str) -> Self {
        Self::DuplicateField(name)
    }
}

impl From<Unexpected<'_>> for Found {
    fn from(unexpected: Unexpected<'_>) -> Self {
        match unexpected {
            Unexpected::Bool(value) => Self::Bool(value),
            Unexpected::Unsigned(value) => Self::Unsigned(value),
            Unexpected::Signed(value) => Self::Signed(value),
            Unexpected::Float(value) => Self::Float(value),
            Unexpected::Str(text) => Self::Text(text.to_owned()),
            Unexpected::Unit => Self::Unit,
            Unexpected::Option => Self::Option,
            Unexpected::Seq => Self::List,
            Unexpected::Map => Self::Table,
            other @ (Unexpected::Char(_)
            | Unexpected::Bytes(_)
            | Unexpected::NewtypeStruct
            | Unexpected::Enum
            | Unexpected::UnitVariant
            | Unexpected::NewtypeVariant
            | Unexpected::TupleVariant
            | Unexpected::StructVariant
            | Unexpected::Other(_)) => Self::Other(other.to_string()),
        }
    }
}

impl Found {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Unsigned(value) => Unexpected::Unsigned(*value),
            Self::Signed(value) => Unexpected::Signed(*value),
            Self::Float(value) => Unexpected::Float(*value),
            Self::Text(text) => Unexpected::Str(text),
            Self::Unit => Unexpected::Unit,
            Self::Option => Unexpected::Option,
            Self::List => Unexpected::Seq,
            Self::Table => Unexpected::Map,
            Self::Other(text) => Unexpected::Other(text),
        }
    }
}
