//! A rule set that threads read while a reload replaces it.
//!
//! Reading takes no lock and does not touch the counter of the rule set that all threads share: one decision pays a few
//! nanoseconds for it.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::policies::Policies;

/// A rule set that can be replaced at any time.
#[derive(Debug)]
pub struct SharedPolicies(ArcSwap<Policies>);

/// A rule set as it was loaded, for one decision. A reload does not change it.
#[derive(Debug)]
pub struct LoadedPolicies(Guard<Arc<Policies>>);

impl SharedPolicies {
    /// A rule set, until it is replaced.
    pub fn new(policies: Arc<Policies>) -> Self {
        Self(ArcSwap::new(policies))
    }

    /// The rule set in force, for one decision.
    #[inline(always)]
    pub fn load(&self) -> LoadedPolicies {
        LoadedPolicies(self.0.load())
    }

    /// The rule set in force, to keep.
    pub fn load_full(&self) -> Arc<Policies> {
        self.0.load_full()
    }

    /// Replaces the rule set.
    pub fn store(&self, policies: Arc<Policies>) {
        self.0.store(policies);
    }
}

impl LoadedPolicies {
    /// The same rule set, for keeping it longer than one decision. Only a few loaded rule sets at a time are cheap; this frees one.
    pub(crate) fn kept(self) -> Self {
        Self(Guard::from_inner(Guard::into_inner(self.0)))
    }
}

impl From<Arc<Policies>> for LoadedPolicies {
    fn from(policies: Arc<Policies>) -> Self {
        Self(Guard::from_inner(policies))
    }
}

impl From<&Arc<Policies>> for LoadedPolicies {
    fn from(policies: &Arc<Policies>) -> Self {
        Arc::clone(policies).into()
    }
}

impl Deref for LoadedPolicies {
    type Target = Arc<Policies>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Policies> {
        &self.0
    }
}
