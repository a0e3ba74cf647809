//! A value as it stands in a file: its text, its place, and what it is meant to be.
//!
//! Every scalar is kept as text until the whole file is there. So `${NAME}` works for a number as well as for a
//! text, and everything that is wrong can be told at once, each with its place.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor, value};
use serde_saphyr::{Location, Spanned};

/// Where something stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Which of the files.
    pub(crate) file: usize,
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// Something with its place.
#[derive(Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Option<Place>,
}

/// A scalar with its place, meant to be a `T`.
pub(crate) struct Written<T> {
    pub(crate) text: String,
    pub(crate) place: Option<Place>,
    meant: PhantomData<fn() -> T>,
}

/// One scalar, or a list of them.
pub(crate) struct Several<T> {
    pub(crate) items: Vec<Written<T>>,
    pub(crate) place: Option<Place>,
}

/// One section, or a list of them.
#[derive(Clone)]
pub(crate) struct Sections<T> {
    pub(crate) items: Vec<At<T>>,
    pub(crate) place: Option<Place>,
}

/// What a scalar can be meant to be.
pub(crate) trait Meaning: Sized {
    /// True if the text must not be shown.
    const IS_SECRET: bool = false;

    /// True if the text must not be shown although it is valid.
    const IS_SECRET_IF_VALID: bool = Self::IS_SECRET;

    /// What the text means, or what to write instead.
    fn understand(text: &str) -> Result<Self, String>;

    /// What editors may offer.
    fn schema() -> Schema;

    /// The text in the one way in which texts of the same meaning are compared.
    fn canonical(text: String) -> String {
        text
    }
}

thread_local! {
    /// The file that is being read. A parser tells lines, not files.
    static FILE: Cell<usize> = const { Cell::new(0) };
}

/// Reads the text of a file, so that what is in it knows its file.
pub(crate) fn in_file<T>(file: usize, read: impl FnOnce() -> T) -> T {
    let before = FILE.replace(file);
    let read = read();
    FILE.set(before);
    read
}

impl Place {
    pub(crate) fn of(location: Location) -> Option<Self> {
        let (line, column) = (location.line(), location.column());
        (location != Location::UNKNOWN).then(|| Self { file: FILE.get(), line, column })
    }
}

impl<T> Written<T> {
    /// What nobody wrote.
    pub(super) fn unwritten(text: &str) -> Self {
        Self { text: text.to_owned(), place: None, meant: PhantomData }
    }

    /// The same text, meant otherwise.
    pub(super) fn meaning<U>(&self) -> Written<U> {
        Written { text: self.text.clone(), place: self.place, meant: PhantomData }
    }
}

impl<T> Clone for Written<T> {
    fn clone(&self) -> Self {
        self.meaning()
    }
}

impl<T> Clone for Several<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), place: self.place }
    }
}

/// A scalar's text, whatever it looks like.
struct Text(String);

impl<'d> Deserialize<'d> for Text {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;
        impl Visitor<'_> for AnyScalar {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
        }
        deserializer.deserialize_str(AnyScalar)
    }
}

impl<'d, T> Deserialize<'d> for Written<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: Text(text), referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { text, place: Place::of(referenced), meant: PhantomData })
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for At<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { value, place: Place::of(referenced) })
    }
}

/// What stands where one or several may stand.
enum Few<T, U> {
    One(T),
    Several(Vec<U>),
}

impl<'d, T> Deserialize<'d> for Several<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } =
            Spanned::<Few<String, Written<T>>>::deserialize(deserializer)?;
        let place = Place::of(referenced);
        let items = match value {
            Few::One(text) => vec![Written { text, place, meant: PhantomData }],
            Few::Several(items) => items,
        };
        Ok(Self { items, place })
    }
}

impl<'d, T> Deserialize<'d> for Few<String, Written<T>> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<fn() -> T>);
        impl<'d, T> Visitor<'d> for Visit<T> {
            type Value = Few<String, Written<T>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Few::One(text.to_owned()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(Few::One(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Few::One(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(Few::One(value.to_string()))
            }
            fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
                Err(E::custom(
                    "a number with a point or an exponent could be read in several ways; put it in quotes",
                ))
            }
            fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Few::Several(all))
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Sections<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<Few<T, At<T>>>::deserialize(deserializer)?;
        let place = Place::of(referenced);
        let items = match value {
            Few::One(value) => vec![At { value, place }],
            Few::Several(items) => items,
        };
        Ok(Self { items, place })
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Few<T, At<T>> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<fn() -> T>);
        impl<'d, T: Deserialize<'d>> Visitor<'d> for Visit<T> {
            type Value = Few<T, At<T>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section such as {rate: 10/s}, or a list of them,")
            }
            fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(value::MapAccessDeserializer::new(map)).map(Few::One)
            }
            fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Few::Several(all))
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

/// What a text may also be: a variable of the environment stands in it.
fn or_variable(schema: Schema) -> Schema {
    json_schema!({ "anyOf": [schema, { "type": "string", "pattern": "\\$\\{" }] })
}

impl<T: Meaning> JsonSchema for Written<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Value".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        or_variable(T::schema())
    }
}

impl<T: Meaning> JsonSchema for Several<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Values".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = or_variable(T::schema());
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for Sections<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Sections of {}", T::schema_name()).into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}
