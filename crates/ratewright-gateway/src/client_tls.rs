//! How servers are spoken to over TLS: whose certificates are good.
//!
//! A [`ClientTls`] is a handle: clones share what it holds, and [`ClientTls::replace`] puts something else in place for every
//! connection from then on.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::rustls::ClientConfig;

use crate::upstream::Protocol;

/// How servers are spoken to over TLS.
#[derive(Clone)]
pub struct ClientTls {
    configs: Arc<ArcSwap<Configs>>,
    /// Who must have signed, if that is somebody of one's own.
    ca: Option<Arc<[u8]>>,
}

/// The same trust, for both protocols.
struct Configs {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl ClientTls {
    /// Speaks to servers as `config` says.
    pub fn new(config: ClientConfig) -> Self {
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        let configs = Configs { http1: speaking(b"http/1.1"), http2: speaking(b"h2") };
        Self { configs: Arc::new(ArcSwap::from_pointee(configs)), ca: None }
    }

    /// Speaks to servers as `config` says, which trusts the authorities in `ca` and nobody else. Connections are shared with those
    /// who trust the same.
    pub fn of_ca(config: ClientConfig, ca: &[u8]) -> Self {
        Self { ca: Some(ca.into()), ..Self::new(config) }
    }

    /// Puts another's trust in place of this, in all clones.
    pub fn replace(&self, other: &Self) {
        self.configs.store(other.configs.load_full());
    }

    /// What tells connections apart that must not be shared.
    pub(crate) fn ca(&self) -> Option<&Arc<[u8]>> {
        self.ca.as_ref()
    }

    pub(crate) fn speaking(&self, protocol: Protocol) -> Arc<ClientConfig> {
        let configs = self.configs.load();
        Arc::clone(if protocol == Protocol::Http1 { &configs.http1 } else { &configs.http2 })
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("has_own_ca", &self.ca.is_some()).finish_non_exhaustive()
    }
}
