//! Responses to requests that hyper cannot parse: a problem with an id, and a log line.
//!
//! An upstream's response may look exactly like hyper's. The connection distinguishes them: if no request was in flight
//! at the last flush, and none has arrived since, only hyper can have written.

use std::net::IpAddr;
use std::sync::Weak;

use http::StatusCode;
use ratewright_http::Problem;
use ratewright_listen::{ParseErrorLog, RenderParseError};

use crate::framing_guard::GuardHandle;
use crate::routing::hex;

/// Renders the responses of one connection to requests that hyper cannot parse. The connection and each request in
/// flight hold an `Arc` of `shared`.
#[derive(Debug)]
pub(crate) struct ParseErrorResponder<T> {
    pub(crate) shared: Weak<T>,
    pub(crate) guard: GuardHandle,
    pub(crate) peer: IpAddr,
    /// The number of requests when the last response was completely written.
    pub(crate) n_responded: u64,
}

impl<T> ParseErrorResponder<T> {
    fn is_idle(&self) -> bool {
        self.shared.strong_count() <= 1
    }
}

impl<T> RenderParseError for ParseErrorResponder<T> {
    fn render(&mut self, status: u16) -> Option<Vec<u8>> {
        if !self.is_idle() || self.guard.n_requests() != self.n_responded || !self.guard.is_http1() {
            return None;
        }
        let id = String::from_utf8_lossy(&hex(fastrand::u128(..))).into_owned();
        ParseErrorLog::report(self.peer, status, &id);
        let status = StatusCode::from_u16(status).ok()?;
        Some(Problem::unparsed(status).of_request(None, &id).render_http1())
    }

    fn flushed(&mut self) {
        if self.is_idle() {
            self.n_responded = self.guard.n_requests();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn parse_errors_are_rendered_only_on_idle_connections() {
        let shared = Arc::new(());
        let peer = IpAddr::from([127, 0, 0, 1]);
        let mut responder = ParseErrorResponder {
            shared: Arc::downgrade(&shared),
            guard: GuardHandle::default(),
            peer,
            n_responded: 0,
        };
        assert!(responder.render(400).is_some(), "nothing was asked before");
        let request = Arc::clone(&shared);
        responder.guard.next_verdict();
        assert!(responder.render(400).is_none(), "a request is in progress");
        drop(request);
        assert!(responder.render(400).is_none(), "its response may not be written yet");
        responder.flushed();
        assert!(responder.render(400).is_some(), "all of it was written");
        responder.guard.pass_through();
        assert!(responder.render(400).is_none(), "a tunnel");
    }
}
