//! TLS to upstreams: which certificates are trusted.
//!
//! A [`ClientTls`] is a handle: clones share their configuration, and [`ClientTls::replace`] replaces it for all later
//! connections.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::rustls::ClientConfig;

use crate::upstream::Protocol;

/// TLS settings for upstream connections.
#[derive(Clone)]
pub struct ClientTls {
    configs: Arc<ArcSwap<ClientConfigs>>,
    /// The custom CA, if there is one.
    ca: Option<Arc<[u8]>>,
}

/// The same trust anchors for both protocols.
struct ClientConfigs {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl ClientTls {
    /// Uses `config`, with ALPN set for each protocol.
    pub fn new(config: ClientConfig) -> Self {
        let with_alpn = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        let configs = ClientConfigs { http1: with_alpn(b"http/1.1"), http2: with_alpn(b"h2") };
        Self { configs: Arc::new(ArcSwap::from_pointee(configs)), ca: None }
    }

    /// Uses `config`, which trusts only the authorities in `ca`. Connections are shared between upstreams with the same
    /// CA.
    pub fn with_ca(config: ClientConfig, ca: &[u8]) -> Self {
        Self { ca: Some(ca.into()), ..Self::new(config) }
    }

    /// Replaces the configuration in all clones.
    pub fn replace(&self, other: &Self) {
        self.configs.store(other.configs.load_full());
    }

    /// The custom CA. Connections with different CAs are not shared.
    pub(crate) fn ca(&self) -> Option<&Arc<[u8]>> {
        self.ca.as_ref()
    }

    pub(crate) fn config_for(&self, protocol: Protocol) -> Arc<ClientConfig> {
        let configs = self.configs.load();
        Arc::clone(if protocol == Protocol::Http1 { &configs.http1 } else { &configs.http2 })
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("has_own_ca", &self.ca.is_some()).finish_non_exhaustive()
    }
}
