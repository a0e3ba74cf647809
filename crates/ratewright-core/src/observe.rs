//! Observers of decisions, such as metrics and logs.

use std::sync::Arc;

use crate::decision::Decision;
use crate::quantity::Timestamp;
use crate::query::Query;

/// Sees each decision after it is made, and cannot change it.
pub trait Observe: Send + Sync {
    /// The time by the observer's own clock, read before a decision is made. Only observers that measure how long decisions take
    /// need it.
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    /// True if it reads attributes of queries. If not, a query may have only those that policies need.
    #[inline]
    fn reads_attributes(&self) -> bool {
        true
    }

    /// Sees a decision. `begun_at` is what [`Observe::now`] returned before it.
    fn observe(&self, query: &Query<'_>, decision: &Decision, begun_at: Timestamp);
}

/// No observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observe for Unobserved {
    #[inline]
    fn reads_attributes(&self) -> bool {
        false
    }

    #[inline]
    fn observe(&self, _: &Query<'_>, _: &Decision, _: Timestamp) {}
}

impl<O: Observe + ?Sized> Observe for Arc<O> {
    #[inline]
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    #[inline]
    fn reads_attributes(&self) -> bool {
        (**self).reads_attributes()
    }

    #[inline]
    fn observe(&self, query: &Query<'_>, decision: &Decision, begun_at: Timestamp) {
        (**self).observe(query, decision, begun_at);
    }
}
