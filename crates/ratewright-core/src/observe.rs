//! The seam to whoever counts decisions.

use std::sync::Arc;

use crate::decision::Decision;
use crate::quantity::Timestamp;
use crate::query::Query;

/// Is told of each decision, after it is made. It cannot change it.
pub trait Observe: Send + Sync {
    /// The time by the observer's own clock, asked before a decision is made. An observer that does not measure how long
    /// decisions take needs none.
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    /// True if it reads attributes of queries. If not, a query may have only those that policies need.
    #[inline]
    fn reads_attributes(&self) -> bool {
        true
    }

    /// A decision was made. `begun_at` is what [`Observe::now`] told before.
    fn observe(&self, query: &Query<'_>, decision: &Decision, begun_at: Timestamp);
}

/// Nobody watches.
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
