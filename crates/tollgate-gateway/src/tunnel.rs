//! Connections that speak something else than HTTP from here on: WebSockets, mostly.
//!
//! They were limited at the handshake. Now bytes go both ways until one side closes.

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use crate::h1::Stream;
use crate::upstream::Lease;

/// Joins both ends when the client has switched too. What the server has said already comes first, and it counts as busy
/// until it is over.
pub(crate) fn open(client: OnUpgrade, mut server: Stream, said: Bytes, lease: Lease) {
    tokio::spawn(async move {
        let Ok(client) = client.await else { return };
        let mut client = TokioIo::new(client);
        // How it ends is the affair of those who speak.
        if client.write_all(&said).await.is_ok() {
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
        drop(lease);
    });
}
