//! The limiter of requests in flight.

use std::sync::Arc;

use ratewright_core::decision::{Observe, Unobserved};
use ratewright_core::{Limiter, Policies};

use crate::permits::Permits;

/// Limits requests in flight: policies over [`Permits`]. The capacity of a policy is the most requests that may be in
/// flight at once; its rate is ignored.
#[derive(Debug)]
pub struct PermitLimiter<O = Unobserved> {
    pub(crate) permits: Arc<Permits>,
    pub(crate) limiter: Arc<Limiter<Arc<Permits>, O>>,
}

impl PermitLimiter {
    /// A limiter without an observer, under which no request is in flight yet.
    pub fn new(policies: Policies) -> Self {
        Self::observed(policies, Unobserved)
    }
}

impl<O: Observe> PermitLimiter<O> {
    /// A limiter that reports each decision to `observer`.
    pub fn observed(policies: Policies, observer: O) -> Self {
        let permits = Arc::<Permits>::default();
        let limiter = Arc::new(Limiter::observed(policies, Arc::clone(&permits), observer));
        Self { permits, limiter }
    }

    /// What is in flight.
    pub fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }

    /// The rule set in force.
    pub fn policies(&self) -> Arc<Policies> {
        self.limiter.policies()
    }

    /// Replaces the rule set. Requests in flight stay counted.
    pub fn swap(&self, policies: Policies) {
        self.limiter.swap(policies);
    }
}

impl<O> Clone for PermitLimiter<O> {
    fn clone(&self) -> Self {
        Self { permits: Arc::clone(&self.permits), limiter: Arc::clone(&self.limiter) }
    }
}
