//! Which callers may give units back by negative hits.
//!
//! A client that gives units back at will has no limit. So only negative hits from this machine, or from a peer with a certificate that
//! `client_ca` has signed, give units back. Others are ignored; an error would make Envoy let the request pass.

use std::net::IpAddr;
use std::time::Duration;

use ratewright_core::Timestamp;
use ratewright_listen::LogThrottle;
use tracing::warn;

/// Whether negative hits give units back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refunds {
    /// Negative hits give units back.
    Allowed,
    /// Negative hits give nothing back; the response only shows what is left.
    Ignored {
        /// The caller.
        peer: IpAddr,
    },
}

/// A certificate that the listener's `client_ca` has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientCertificate;

/// Reports negative hits that were ignored, once in ten seconds.
#[derive(Debug)]
pub(crate) struct IgnoredRefunds(LogThrottle);

impl Refunds {
    /// For calls of a peer that showed a certificate, or none. A peer whose address the PROXY protocol announced is never on
    /// this machine: a load balancer that is must not lend its privileges.
    pub(crate) fn of(peer: IpAddr, is_announced: bool, certificate: Option<ClientCertificate>) -> Self {
        let is_local = peer.to_canonical().is_loopback() && !is_announced;
        let is_trusted = is_local || certificate.is_some();
        if is_trusted { Self::Allowed } else { Self::Ignored { peer } }
    }
}

impl IgnoredRefunds {
    #[cold]
    pub(crate) fn report(&self, peer: IpAddr, now: Timestamp) {
        if let Some(suppressed) = self.0.admit_at(now.as_micros()) {
            warn!(
                %peer,
                suppressed,
                "negative hits ignored: peer on another machine without a client certificate; set tls with client_ca for listen.grpc"
            );
        }
    }
}

impl Default for IgnoredRefunds {
    fn default() -> Self {
        Self(LogThrottle::new(Duration::from_secs(10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_and_certificates_give_units_back() {
        for (peer, certificate, is_allowed) in [
            ("127.0.0.1", None, true),
            ("127.9.9.9", None, true),
            ("::1", None, true),
            ("::ffff:127.0.0.1", None, true),
            ("192.0.2.7", None, false),
            ("192.0.2.7", Some(ClientCertificate), true),
            ("::ffff:192.0.2.7", None, false),
            ("fe80::1", None, false),
            ("fe80::1", Some(ClientCertificate), true),
            ("0.0.0.0", None, false),
            ("::", None, false),
        ] {
            let peer = peer.parse().unwrap();
            let is_allowed_for =
                |is_announced| Refunds::of(peer, is_announced, certificate) == Refunds::Allowed;
            assert_eq!(is_allowed_for(false), is_allowed, "{peer} {certificate:?}");
            assert_eq!(
                is_allowed_for(true),
                certificate.is_some(),
                "{peer} {certificate:?} by PROXY protocol"
            );
        }
    }
}
