//! What doors go by: the dialect of HTTP that is spoken, and who may ask.
//!
//! All of it is replaced at once when the policy file changes; a request sees one whole state of it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_http::Dialect;

use crate::access::Access;

/// What doors go by.
#[derive(Debug, Default)]
pub struct Settings {
    /// Whom to believe, and what answers carry.
    pub dialect: Arc<Dialect>,
    /// Who may ask.
    pub access: Access,
}

/// The settings in force, shared by all doors.
pub type SharedSettings = Arc<ArcSwap<Settings>>;

impl Settings {
    /// Settings that can be replaced while doors are open.
    pub fn shared(self) -> SharedSettings {
        Arc::new(ArcSwap::from_pointee(self))
    }
}
