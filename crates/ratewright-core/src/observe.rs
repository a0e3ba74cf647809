//! The seam to whoever counts decisions.

use std::sync::Arc;

use crate::decision::Decision;
use crate::query::Query;

/// Is told of each decision, after it is made. It cannot change it.
pub trait Observe: Send + Sync {
    /// A decision was made.
    fn observe(&self, query: &Query<'_>, decision: &Decision);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observe for Unobserved {
    fn observe(&self, _: &Query<'_>, _: &Decision) {}
}

impl<O: Observe + ?Sized> Observe for Arc<O> {
    fn observe(&self, query: &Query<'_>, decision: &Decision) {
        (**self).observe(query, decision);
    }
}
