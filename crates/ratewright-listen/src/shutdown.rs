//! Shutdown in phases: no request is lost that finishes within the drain timeout.
//!
//! ```text
//!              accepts    HTTP/1.1                                HTTP/2
//!   Serving    yes        keeps connections open                  keeps connections open
//!   NotReady   yes        responds with `Connection: close`       keeps connections open
//!   HandedOver no         responds with `Connection: close`       GOAWAY: requests in flight finish
//!   Draining   no         closes idle connections too             GOAWAY
//! ```
//!
//! Closing an idle HTTP/1.1 connection races with the client's next request on it. So the next response carries
//! `Connection: close`, and the listener closes only the connections that are still idle when draining begins.

use std::time::Duration;

use tokio::sync::watch;

/// How long a new connection may take to send its first request, handshakes included, once listeners drain.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How far shutdown has progressed. Phases only advance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ShutdownPhase {
    /// Shutdown has not begun.
    #[default]
    Serving,
    /// Readiness checks fail, so that load balancers stop sending requests. Connections are still accepted.
    NotReady,
    /// Another process accepts connections now.
    HandedOver,
    /// No connections are accepted; requests in flight finish.
    Draining,
}

/// Starts and advances the shutdown of listeners.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<ShutdownPhase>);

/// A listener's view of the shutdown phase.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<ShutdownPhase>);

impl ShutdownTrigger {
    /// A trigger, and the view of it for listeners.
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(ShutdownPhase::Serving);
        (Self(sender), Shutdown(receiver))
    }

    /// Advances to a phase; has no effect if that phase is already over.
    pub fn advance_to(&self, phase: ShutdownPhase) {
        self.0.send_if_modified(|current| {
            let is_new = phase > *current;
            *current = phase.max(*current);
            is_new
        });
    }
}

impl Shutdown {
    /// Draining begins as soon as `ready` resolves.
    pub fn when(ready: impl Future<Output = ()> + Send + 'static) -> Self {
        let (trigger, shutdown) = ShutdownTrigger::new();
        tokio::spawn(async move {
            ready.await;
            trigger.advance_to(ShutdownPhase::Draining);
        });
        shutdown
    }

    /// True if responses must carry `Connection: close`. Costs one atomic load.
    pub fn has_begun(&self) -> bool {
        // No receiver marks the value as seen, so every change counts. Without a trigger the last phase stays.
        self.0.has_changed().unwrap_or_else(|_| *self.0.borrow() > ShutdownPhase::Serving)
    }

    /// Waits until a phase is reached; forever if the trigger is dropped before.
    pub async fn reached(&self, phase: ShutdownPhase) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|current| *current >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the listener must stop accepting connections.
    pub async fn accepting_ended(&self) {
        self.reached(ShutdownPhase::HandedOver).await;
    }

    /// Waits until connections without a request must be closed: one second after draining begins, so that connections
    /// accepted just before can still send their first request.
    pub async fn first_request_timeout(&self) {
        self.reached(ShutdownPhase::Draining).await;
        tokio::time::sleep(FIRST_REQUEST_TIMEOUT).await;
    }

    /// Waits until requests in flight are cut off: `drain_timeout` after draining begins.
    pub async fn drain_timeout(&self, drain_timeout: Duration) {
        self.reached(ShutdownPhase::Draining).await;
        tokio::time::sleep(drain_timeout).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn phases_only_advance() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        assert!(!shutdown.has_begun());
        trigger.advance_to(ShutdownPhase::HandedOver);
        trigger.advance_to(ShutdownPhase::NotReady);
        assert!(shutdown.has_begun() && shutdown.clone().has_begun());
        shutdown.accepting_ended().await;
        let drains = tokio::time::timeout(Duration::from_secs(1), shutdown.reached(ShutdownPhase::Draining));
        assert!(drains.await.is_err());
        trigger.advance_to(ShutdownPhase::Draining);
        shutdown.reached(ShutdownPhase::Draining).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_trigger_does_not_begin_shutdown() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        drop(trigger);
        assert!(!shutdown.has_begun());
        assert!(tokio::time::timeout(Duration::from_secs(1), shutdown.accepting_ended()).await.is_err());
    }
}
