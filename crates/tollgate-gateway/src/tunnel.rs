//! Connections that speak something else than HTTP from here on: WebSockets, mostly.
//!
//! They were limited at the handshake. Now bytes go both ways until one side closes. It is the client's connection still: it keeps
//! its place, and a stop waits for it as it waits for requests.

use std::sync::Arc;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use crate::h1::Stream;
use crate::upstream::Lease;

/// What joins both ends when the client has switched too. The server counts as busy until it is over.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    pub(crate) server: Stream,
    /// What the server has said already.
    pub(crate) said: Bytes,
    pub(crate) lease: Lease,
}

/// Where a tunnel is left for the connection that it will go through. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening(Arc<Mutex<Option<Tunnel>>>);

impl Opening {
    pub(crate) fn of(tunnel: Tunnel) -> Self {
        Self(Arc::new(Mutex::new(Some(tunnel))))
    }

    /// Takes over what is left in another place.
    pub(crate) fn take_over(&self, other: &Self) {
        let tunnel = other.0.lock().take();
        *self.0.lock() = tunnel;
    }

    /// Passes bytes on until one side closes, if there is a tunnel.
    pub(crate) async fn pass(&self) {
        let tunnel = self.0.lock().take();
        let Some(Tunnel { client, mut server, said, lease }) = tunnel else { return };
        let Ok(client) = client.await else { return };
        let mut client = TokioIo::new(client);
        // How it ends is the affair of those who speak.
        if client.write_all(&said).await.is_ok() {
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
        drop(lease);
    }
}
