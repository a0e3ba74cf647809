//! How listeners stop: in phases, so that no request is lost that finishes within the drain timeout.
//!
//! ```text
//!              accepts    HTTP/1.1                                HTTP/2
//!   Serving    yes        keeps connections open                  keeps connections open
//!   Leaving    yes        answers with `Connection: close`        keeps connections open
//!   HandedOver no         answers with `Connection: close`        GOAWAY: requests in flight finish
//!   Draining   no         closes idle connections too             GOAWAY
//! ```
//!
//! A server that closes an idle connection of HTTP/1.1 races with the client's next request on it. So the next
//! response carries `Connection: close`; only connections that stay idle until the drain are closed by us.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Time for the first request of a connection, handshakes included, once listeners drain.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_secs(1);

/// How far a stop has come. Phases only go forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum StopPhase {
    /// Nobody has asked for a stop.
    #[default]
    Serving,
    /// Readiness has failed, and load balancers are given time to notice. Connections are still accepted.
    Leaving,
    /// Another process accepts connections now.
    HandedOver,
    /// No connection is accepted; requests in flight finish.
    Draining,
}

/// Tells listeners to stop.
#[derive(Debug)]
pub struct StopSwitch(watch::Sender<StopPhase>);

/// Tells a listener how far a stop has come.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<StopPhase>);

impl StopSwitch {
    /// A switch, and what it tells listeners.
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(StopPhase::Serving);
        (Self(sender), Stop(receiver))
    }

    /// Goes to a phase, or stays where it is if that is further.
    pub fn go_to(&self, phase: StopPhase) {
        self.0.send_if_modified(|current| {
            let is_new = phase > *current;
            *current = phase.max(*current);
            is_new
        });
    }
}

impl Stop {
    /// Drains as soon as a future is ready.
    pub fn when(ready: impl Future<Output = ()> + Send + 'static) -> Self {
        let (switch, stop) = StopSwitch::new();
        tokio::spawn(async move {
            ready.await;
            switch.go_to(StopPhase::Draining);
        });
        stop
    }

    /// True if responses must say that their connection ends. Costs one atomic load.
    pub fn has_begun(&self) -> bool {
        // Nobody marks the value as seen, so every change counts. Without a switch the last phase stays.
        self.0.has_changed().unwrap_or_else(|_| *self.0.borrow() > StopPhase::Serving)
    }

    /// Ready once a phase is reached; never, if the switch is gone before.
    pub async fn reaches(&self, phase: StopPhase) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|current| *current >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Ready once no connection is to be accepted any more.
    pub async fn ends_accepting(&self) {
        self.reaches(StopPhase::HandedOver).await;
    }

    /// Ready once connections that have not asked for anything yet are to be closed. Those accepted just before have
    /// a second for their first request.
    pub async fn ends_unused(&self) {
        self.reaches(StopPhase::Draining).await;
        tokio::time::sleep(FIRST_REQUEST_WITHIN).await;
    }
}

/// Closes a listener, after the connections that wait in the system's queue: the kernel has completed their handshakes, and
/// closing the listener would reset them. The system itself is asked: the runtime may not have heard of them yet.
pub fn accept_queued(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let listener = listener.into_std();
    std::iter::from_fn(move || {
        let listener = listener.as_ref().ok()?;
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    if let Ok(stream) = stream {
                        return Some((stream, peer));
                    }
                }
                // This one was given up by its client; others may wait behind it.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn phases_only_go_forward() {
        let (switch, stop) = StopSwitch::new();
        assert!(!stop.has_begun());
        switch.go_to(StopPhase::HandedOver);
        switch.go_to(StopPhase::Leaving);
        assert!(stop.has_begun() && stop.clone().has_begun());
        stop.ends_accepting().await;
        let drains = tokio::time::timeout(Duration::from_secs(1), stop.reaches(StopPhase::Draining));
        assert!(drains.await.is_err());
        switch.go_to(StopPhase::Draining);
        stop.reaches(StopPhase::Draining).await;
    }

    /// Without a single turn of the runtime, so that it cannot have heard of any connection.
    #[tokio::test]
    async fn queued_connections_are_accepted_before_a_listener_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        assert_eq!(accept_queued(listener).count(), clients.len());
        assert!(std::net::TcpStream::connect(address).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_switch_that_is_gone_stops_nothing() {
        let (switch, stop) = StopSwitch::new();
        drop(switch);
        assert!(!stop.has_begun());
        assert!(tokio::time::timeout(Duration::from_secs(1), stop.ends_accepting()).await.is_err());
    }
}
