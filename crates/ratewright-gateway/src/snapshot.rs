//! What one policy file says, as a whole.
//!
//! Routes name policies, and policies depend on the identification rules. If a request were routed by one file and decided by another,
//! its route could name a policy that does not exist, and nothing would count it. So a reload replaces all of it at once, and a request
//! keeps the snapshot that it began with.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_core::Policies;
use ratewright_http::Dialect;

use crate::settings::Settings;

/// What one policy file says.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Routes and bounds.
    pub settings: Arc<Settings>,
    /// The policies on rates, with those that the routes name.
    pub policies: Arc<Policies>,
    /// The policies on requests in flight.
    pub permits: Arc<Policies>,
    /// Whom to believe, and what responses carry.
    pub dialect: Arc<Dialect>,
}

/// The snapshot in force.
pub type SharedSnapshot = Arc<ArcSwap<Snapshot>>;

impl Snapshot {
    /// A snapshot that can be replaced while requests are answered.
    pub fn shared(self) -> SharedSnapshot {
        Arc::new(ArcSwap::from_pointee(self))
    }
}
