//! What happens on a connection before HTTP.

use crate::proxy_protocol::ProxyProtocol;
use crate::tls::Tls;

/// What happens on each connection of a listener before HTTP: first the PROXY protocol, then TLS, each if it is set.
#[derive(Clone, Debug, Default)]
pub struct ConnectionSetup {
    /// Load balancers announce the client.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The client shakes hands.
    pub tls: Option<Tls>,
}

impl From<Option<Tls>> for ConnectionSetup {
    fn from(tls: Option<Tls>) -> Self {
        Self { tls, proxy_protocol: None }
    }
}
