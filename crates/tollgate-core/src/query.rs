//! What a front door asks.

use std::num::NonZeroU32;

use crate::quantity::Micros;

/// A question to the limiter: who asks, for what, and how much of it.
///
/// It borrows all it holds from the request that the door has in hand.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// Policies asked for by name, beside those that select the query themselves.
    pub policies: &'a [&'a str],
    /// What is known about the request.
    pub attributes: &'a [Attribute<'a>],
    /// What is asked.
    pub ask: Ask,
    /// The longest wait that the door can make its client wait. Zero for a door that cannot.
    pub patience: Micros,
}

/// One fact about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// What it is about.
    pub name: AttributeName<&'a str>,
    /// What it is.
    pub value: &'a str,
}

/// What an attribute is about. Queries borrow the text in it, policies own it.
///
/// The well-known ones have no text, so that finding them in a query compares none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttributeName<S> {
    /// The client's address.
    Ip,
    /// A name that the asker chose for the bucket.
    Key,
    /// Any other fact, by its name.
    Named(S),
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// To spend so many units, if all limits allow it.
    Spend(NonZeroU32),
    /// To count so many units that were spent already, whatever the limits say.
    Record(u32),
    /// To learn whether so many units could be spent; with zero, how things stand.
    Look(u32),
}

impl<S: AsRef<str>> AttributeName<S> {
    /// True if both are about the same.
    #[inline]
    pub fn is<T: AsRef<str>>(&self, other: &AttributeName<T>) -> bool {
        match (self, other) {
            (Self::Ip, AttributeName::Ip) | (Self::Key, AttributeName::Key) => true,
            (Self::Named(a), AttributeName::Named(b)) => a.as_ref() == b.as_ref(),
            (Self::Ip | Self::Key | Self::Named(_), _) => false,
        }
    }

    /// The same name, owning its text.
    pub fn to_owned(&self) -> AttributeName<String> {
        match self {
            Self::Ip => AttributeName::Ip,
            Self::Key => AttributeName::Key,
            Self::Named(name) => AttributeName::Named(name.as_ref().to_owned()),
        }
    }
}
