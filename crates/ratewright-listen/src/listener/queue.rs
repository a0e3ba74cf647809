//! Serves the connections of one queue: set-up, handler, drain.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::slots::ConnectionSlot;
use super::{ClientStream, Incoming, ListenerInner, Socket};
use crate::connection_setup::ConnectionSetup;
use crate::shutdown::Shutdown;
use crate::write_timeout::WriteTimeout;

/// Accepted connections, to be served by one runtime.
pub struct ConnectionQueue {
    pub(super) shared: Arc<ListenerInner>,
    pub(super) receiver: mpsc::UnboundedReceiver<Incoming>,
}

/// A connection that is ready for HTTP. Its slot is released when the handler ends.
#[derive(Debug)]
pub struct Accepted {
    /// The stream, after the PROXY protocol and TLS.
    pub stream: ClientStream,
    /// The client's address: the announced one, or the peer's.
    pub client: SocketAddr,
    /// True if a load balancer announced the address by the PROXY protocol.
    pub is_announced: bool,
    /// The listener's stop.
    pub stop: Shutdown,
}

/// The connections that a runtime serves, each in its own task.
pub(super) struct Connections<H> {
    shared: Arc<ListenerInner>,
    handler: Arc<H>,
    tasks: JoinSet<()>,
}

impl ConnectionQueue {
    /// Serves connections until the listener has stopped and all connections have ended. After the drain timeout the
    /// rest are cut off.
    pub async fn serve<F>(mut self, handler: impl Fn(Accepted) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = Connections::new(self.shared, handler);
        loop {
            tokio::select! {
                incoming = self.receiver.recv() => match incoming {
                    Some(incoming) => connections.spawn(incoming),
                    None => break,
                },
                // Releases its memory.
                _ = connections.tasks.join_next(), if !connections.tasks.is_empty() => {}
            }
        }
        connections.drain().await;
    }
}

impl<H, F> Connections<H>
where
    H: Fn(Accepted) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    pub(super) fn new(shared: Arc<ListenerInner>, handler: H) -> Self {
        Self { shared, handler: Arc::new(handler), tasks: JoinSet::new() }
    }

    /// Prepares a connection, and serves it. Also removes the tasks of connections that have ended. Awaiting each of them
    /// instead would wake another thread on a multi-threaded runtime.
    pub(super) fn spawn(&mut self, incoming: Incoming) {
        while self.tasks.try_join_next().is_some() {}
        let (shared, handler) = (Arc::clone(&self.shared), Arc::clone(&self.handler));
        self.tasks.spawn(async move {
            let Incoming { socket, peer, mut slot } = incoming;
            if let Some(accepted) = shared.prepare((socket, peer), &mut slot).await {
                handler(accepted).await;
            }
        });
    }

    /// Waits until all connections have ended, or until the drain timeout. Then the rest are cut off.
    pub(super) async fn drain(self) {
        let Self { shared, handler, mut tasks } = self;
        drop(handler);
        tokio::select! {
            () = async { while tasks.join_next().await.is_some() {} } => {}
            () = shared.stop.drain_timeout(shared.options.drain_timeout) => {}
        }
    }
}

impl ListenerInner {
    /// Prepares a connection for HTTP. None: it failed, or the listener stops.
    async fn prepare(
        &self,
        (socket, peer): (Socket, SocketAddr),
        slot: &mut ConnectionSlot,
    ) -> Option<Accepted> {
        let stream = match socket {
            Socket::Registered(stream) => stream,
            Socket::Unregistered(stream) => TcpStream::from_std(stream).ok()?,
        };
        let ConnectionSetup { proxy_protocol, tls } = &self.options.setup;
        if proxy_protocol.is_none() && tls.is_none() {
            let stream = WriteTimeout::new(stream, self.options.write_timeout);
            return Some(self.accepted(ClientStream::Plain(stream), peer));
        }
        // Boxed, so that plain connections stay small.
        Box::pin(async move {
            tokio::select! {
                accepted = self.shake_hands((stream, peer), slot) => accepted,
                () = self.stop.first_request_timeout() => None,
            }
        })
        .await
    }

    /// Reads the PROXY protocol header and performs the TLS handshake, each if configured.
    async fn shake_hands(
        &self,
        (mut stream, peer): (TcpStream, SocketAddr),
        slot: &mut ConnectionSlot,
    ) -> Option<Accepted> {
        let ConnectionSetup { proxy_protocol, tls } = &self.options.setup;
        let mut client = peer;
        if let Some(proxy) = proxy_protocol {
            client = proxy.client(&mut stream, peer, self.limits.handshake_timeout()).await?;
            if !slot.take_for(self.limits.client(client.ip())) {
                return None;
            }
        }
        let stream = WriteTimeout::new(stream, self.options.write_timeout);
        let Some(tls) = tls else { return Some(self.accepted(ClientStream::Plain(stream), client)) };
        let (alpn, within) = (self.options.alpn, self.limits.handshake_timeout());
        let stream = tls.accept(stream, client.ip(), alpn, within).await?;
        Some(self.accepted(ClientStream::Tls(Box::new(stream)), client))
    }

    fn accepted(&self, stream: ClientStream, client: SocketAddr) -> Accepted {
        let is_announced = self.options.setup.proxy_protocol.is_some();
        Accepted { stream, client, is_announced, stop: self.stop.clone() }
    }
}

impl std::fmt::Debug for ConnectionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionQueue").finish_non_exhaustive()
    }
}
