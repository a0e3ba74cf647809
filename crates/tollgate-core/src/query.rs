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
    /// What it is called: `client`, `route`, `method`.
    pub name: &'a str,
    /// What it is.
    pub value: &'a str,
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

impl<'a> Query<'a> {
    /// The value of an attribute, if the query has it.
    #[inline]
    pub fn value(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| attribute.value)
    }
}
