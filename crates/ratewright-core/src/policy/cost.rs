//! The cost of a query under a policy.

use std::num::NonZeroU32;
use std::sync::LazyLock;

use crate::pattern::Pattern;
use crate::query::{Ask, AttributeName, Query};

/// How many units of a policy one unit of a query costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Always this many units. With zero, nothing is charged.
    Fixed(u32),
    /// The value of the attribute: a whole number from 1. Anything else costs 1, so no query is free.
    Of(AttributeName<String>),
    /// By method.
    ByMethod {
        /// Methods in capitals, with their costs.
        costs: Vec<(String, u32)>,
        /// The cost of all others.
        others: u32,
    },
    /// By path.
    ByPath {
        /// Patterns with their costs. Of those that match, the largest cost counts.
        costs: Vec<(Pattern, u32)>,
        /// The cost of all others.
        others: u32,
    },
    /// One unit for each byte of the request's body, by `Content-Length`. Without that attribute, the query's own cost is the number of
    /// bytes. If the length is unknown, the request needs room for one byte, and [`Limiter::take_more`](crate::Limiter::take_more) charges
    /// the bytes as they come.
    RequestBytes,
}

/// The header that says how long a body is. It is [`Attribute::UNREADABLE`](crate::query::Attribute::UNREADABLE) if the length is not known before.
pub(crate) static CONTENT_LENGTH: LazyLock<AttributeName<String>> =
    LazyLock::new(|| AttributeName::Header("content-length".to_owned()));

impl Cost {
    /// The query's units, multiplied by the cost. `None` if the query costs nothing.
    pub(crate) fn multiply(&self, query: &Query<'_>) -> Option<Ask> {
        let factor = match self {
            Self::Fixed(factor) => *factor,
            Self::Of(name) => query.values(name).map(units).max().unwrap_or(1),
            Self::ByMethod { costs, others } => {
                let cost_of =
                    |method: &str| costs.iter().find(|(name, _)| name == method).map(|(_, cost)| *cost);
                let cost = |method: &str| match cost_of(method) {
                    None if method == "HEAD" => cost_of("GET"),
                    cost => cost,
                };
                let methods = query.values(&AttributeName::<&str>::Method);
                methods.map(|method| cost(method).unwrap_or(*others)).max().unwrap_or(*others)
            }
            Self::ByPath { costs, others } => {
                let cost_of = |path: &str| {
                    let matching = costs.iter().filter(|(pattern, _)| pattern.matches(path));
                    matching.map(|(_, cost)| *cost).max().unwrap_or(*others)
                };
                query.values(&AttributeName::<&str>::Path).map(cost_of).max().unwrap_or(*others)
            }
            Self::RequestBytes => {
                // Anything but a number is longer than any limit, so that no odd spelling is a way around it.
                let is_number =
                    |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let length =
                    |text: &str| if is_number(text) { text.parse().unwrap_or(u32::MAX) } else { u32::MAX };
                let is_unknown = |text: &str| text.starts_with('\0');
                if query.values(&*CONTENT_LENGTH).any(is_unknown) {
                    return Some(Ask::Look(u32::from(!matches!(query.ask, Ask::Record(_)))));
                }
                // Without a length, the query's own cost is the number of bytes.
                query.values(&*CONTENT_LENGTH).map(length).max().unwrap_or(1)
            }
        };
        match query.ask {
            _ if factor == 0 => None,
            Ask::Spend(cost) => {
                cost.checked_mul(factor.try_into().ok()?).or(Some(NonZeroU32::MAX)).map(Ask::Spend)
            }
            Ask::Record(cost) => Some(Ask::Record(cost.saturating_mul(factor))),
            Ask::Look(cost) => Some(Ask::Look(cost.saturating_mul(factor))),
        }
    }
}

/// The units that a text asks for: at least one, and if it asks for more than can be counted, as many as can.
fn units(text: &str) -> u32 {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().unwrap_or(u32::MAX).max(1) } else { 1 }
}
