//! Settings of the REST and admin listeners: the HTTP settings and the access control.
//!
//! A reload replaces all of them at once; each request uses one consistent version.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_http::HttpSettings;
use ratewright_http::identify::original_request::AuthorizeProtocol;

use crate::access_control::Access;

/// Settings of the REST and admin listeners.
#[derive(Debug, Default)]
pub struct ServerSettings {
    /// Which identities to trust, and what responses carry.
    pub http_settings: Arc<HttpSettings>,
    /// Which callers are authorized.
    pub access: Access,
    /// How proxies send the client's request to `/api/v1/authorize`. None: the endpoint is disabled.
    pub authorize: Option<AuthorizeProtocol>,
}

/// The current settings, shared by all listeners.
pub type SharedServerSettings = Arc<ArcSwap<ServerSettings>>;

impl ServerSettings {
    /// Settings that can be replaced while listeners use them.
    pub fn shared(self) -> SharedServerSettings {
        Arc::new(ArcSwap::from_pointee(self))
    }
}
