//! A value of a file before it is parsed: its text, its position, and the type that it will have.
//!
//! Every scalar is kept as text until the whole file is there. So `${NAME}` works for numbers as well as
//! texts, and all errors can be reported at once, each with its position.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor, value};
use serde_saphyr::Location;

use crate::yaml_tree::erased;

/// A position in one of the files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// The index of the file.
    pub file: usize,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
}

/// A value with its position.
#[derive(Clone)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its position; None for a default.
    pub position: Option<Position>,
}

/// A scalar with its position, to be parsed as a `T`.
pub struct RawValue<T> {
    /// The text.
    pub text: String,
    /// Its position; None for a default.
    pub position: Option<Position>,
    value_type: PhantomData<fn() -> T>,
}

/// A scalar with its position, of any type.
#[derive(Clone, Copy)]
pub(crate) struct RawText<'a> {
    pub(crate) text: &'a str,
    pub(crate) position: Option<Position>,
}

/// One scalar, or a list of them.
pub struct RawList<T> {
    /// The scalars.
    pub items: Vec<RawValue<T>>,
    /// The position of the list.
    pub position: Option<Position>,
}

/// One section, or a list of them.
#[derive(Clone)]
pub struct Sections<T> {
    /// The sections.
    pub items: Vec<Located<T>>,
    /// The position of the first or of the list.
    pub position: Option<Position>,
}

/// A type that a scalar can have.
pub trait ConfigValue: Sized {
    /// True if the text must not be shown.
    const IS_SECRET: bool = false;

    /// True if even a valid text must not be shown.
    const IS_SECRET_IF_VALID: bool = Self::IS_SECRET;

    /// Parses the text; the error says what to write instead.
    fn from_text(text: &str) -> Result<Self, String>;

    /// The schema for editors.
    #[cfg(test)]
    fn schema() -> schemars::Schema;

    /// The text in a form in which equal values have equal texts.
    fn canonical(text: String) -> String {
        text
    }
}

thread_local! {
    /// The file that is being read, since the parser reports lines without files.
    static FILE: Cell<usize> = const { Cell::new(0) };
}

/// Sets the file of all positions that `read` creates.
pub(crate) fn in_file<T>(file: usize, read: impl FnOnce() -> T) -> T {
    let before = FILE.replace(file);
    let read = read();
    FILE.set(before);
    read
}

impl Position {
    /// A position in the file that is being read.
    pub(crate) fn of(location: Location) -> Option<Self> {
        let (line, column) = (location.line(), location.column());
        let file = FILE.get();
        (location != Location::UNKNOWN).then_some(Self { file, line, column })
    }
}

impl<T> RawValue<T> {
    /// A value without a position, such as a default.
    pub fn without_position(text: &str) -> Self {
        Self { text: text.to_owned(), position: None, value_type: PhantomData }
    }

    /// The same without its type.
    pub(crate) fn untyped(&self) -> RawText<'_> {
        RawText { text: &self.text, position: self.position }
    }

    /// The same text as another type.
    pub fn cast<U>(&self) -> RawValue<U> {
        RawValue { text: self.text.clone(), position: self.position, value_type: PhantomData }
    }
}

impl<T> Clone for RawValue<T> {
    fn clone(&self) -> Self {
        self.cast()
    }
}

impl<T> Clone for RawList<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), position: self.position }
    }
}

/// A scalar's text, whatever type it looks like.
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

impl<'d, T> Deserialize<'d> for RawValue<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Located { value: Text(text), position } = Located::deserialize(deserializer)?;
        Ok(Self { text, position, value_type: PhantomData })
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Located<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let (value, position) = erased::located(deserializer)?;
        Ok(Self { value, position })
    }
}

/// One value, or a list of values.
enum OneOrList<T, U> {
    One(T),
    List(Vec<U>),
}

impl<'d, T> Deserialize<'d> for RawList<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Located { value, position } =
            Located::<OneOrList<String, RawValue<T>>>::deserialize(deserializer)?;
        let items = match value {
            OneOrList::One(text) => vec![RawValue { text, position, value_type: PhantomData }],
            OneOrList::List(items) => items,
        };
        Ok(Self { items, position })
    }
}

impl<'d, T> Deserialize<'d> for OneOrList<String, RawValue<T>> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<fn() -> T>);
        impl<'d, T> Visitor<'d> for Visit<T> {
            type Value = OneOrList<String, RawValue<T>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrList::One(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(OneOrList::List(all))
            }
        }
        erased::written(deserializer, Visit(PhantomData))
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Sections<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Located { value, position } = Located::<OneOrList<T, Located<T>>>::deserialize(deserializer)?;
        let items = match value {
            OneOrList::One(value) => vec![Located { value, position }],
            OneOrList::List(items) => items,
        };
        Ok(Self { items, position })
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for OneOrList<T, Located<T>> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<fn() -> T>);
        impl<'d, T: Deserialize<'d>> Visitor<'d> for Visit<T> {
            type Value = OneOrList<T, Located<T>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section such as {rate: 10/s}, or a list of them,")
            }
            fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(value::MapAccessDeserializer::new(map)).map(OneOrList::One)
            }
            fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(OneOrList::List(all))
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
