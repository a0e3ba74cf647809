//! Connection setup before HTTP: the PROXY protocol header, then the TLS handshake, each if configured.

use crate::proxy_protocol::ProxyProtocol;
use crate::tls::Tls;

/// What happens on each connection of a listener before HTTP: the PROXY protocol, then TLS, each if configured.
#[derive(Clone, Debug, Default)]
pub struct ConnectionSetup {
    /// Reads the client's address from the load balancer.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Performs the TLS handshake.
    pub tls: Option<Tls>,
}

impl From<Option<Tls>> for ConnectionSetup {
    fn from(tls: Option<Tls>) -> Self {
        Self { tls, proxy_protocol: None }
    }
}
