//! Connections that speak something else than HTTP from here on: WebSockets, mostly.
//!
//! They were limited at the handshake. Now bytes go both ways until one side closes.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::upstream::Lease;

/// Joins both ends when both have switched. The server counts as busy until it is over.
pub(crate) fn open(client: OnUpgrade, server: OnUpgrade, lease: Lease) {
    tokio::spawn(async move {
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else { return };
        // How it ends is the affair of those who speak.
        let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
        drop(lease);
    });
}
