//! One policy file as a whole.
//!
//! Routes name policies, and policies depend on the identification rules. If a request were routed by one file and
//! decided by another, its route could name a policy that does not exist, and nothing would count it. So a reload
//! replaces everything at once, and a request keeps its snapshot.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_core::Policies;
use ratewright_http::HttpSettings;

use crate::settings::GatewaySettings;

/// The contents of one policy file.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Routes and settings.
    pub settings: Arc<GatewaySettings>,
    /// The policies on rates, including those that routes name.
    pub policies: Arc<Policies>,
    /// The policies on concurrency.
    pub permits: Arc<Policies>,
    /// The identification rules, and which headers responses carry.
    pub http_settings: Arc<HttpSettings>,
}

/// The current snapshot.
pub type SharedSnapshot = Arc<ArcSwap<Snapshot>>;

impl Snapshot {
    /// A snapshot that can be replaced while requests are served.
    pub fn shared(self) -> SharedSnapshot {
        Arc::new(ArcSwap::from_pointee(self))
    }
}
