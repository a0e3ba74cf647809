//! The responses to requests that hyper cannot parse: a problem with an id, and a line in the log.
//!
//! An upstream's response may look exactly like hyper's. The connection distinguishes them: if no request was in progress at the last
//! flush, and none has come since, only hyper can have written.

use std::net::IpAddr;
use std::sync::Weak;

use http::StatusCode;
use ratewright_http::Problem;
use ratewright_listen::{ParseErrorLog, RenderParseError};

use crate::routing::hex;
use crate::strict::Flag;

/// Answers the requests of one connection that hyper cannot parse. Each request in progress holds an `Arc` of `shared`, and so
/// does the connection.
#[derive(Debug)]
pub(crate) struct Unparsed<T> {
    pub(crate) shared: Weak<T>,
    pub(crate) flag: Flag,
    pub(crate) peer: IpAddr,
    /// How many requests there were when the last of them was answered, and all of its response was written.
    pub(crate) n_answered: u64,
}

impl<T> Unparsed<T> {
    fn is_idle(&self) -> bool {
        self.shared.strong_count() <= 1
    }
}

impl<T> RenderParseError for Unparsed<T> {
    fn render(&mut self, status: u16) -> Option<Vec<u8>> {
        if !self.is_idle() || self.flag.n_taken() != self.n_answered || !self.flag.is_http1() {
            return None;
        }
        let id = String::from_utf8_lossy(&hex(fastrand::u128(..))).into_owned();
        ParseErrorLog::report(self.peer, status, &id);
        let status = StatusCode::from_u16(status).ok()?;
        Some(Problem::unparsed(status).of_request(None, &id).render_http1())
    }

    fn flushed(&mut self) {
        if self.is_idle() {
            self.n_answered = self.flag.n_taken();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_an_idle_connection_has_responses_of_hyper() {
        let shared = Arc::new(());
        let peer = IpAddr::from([127, 0, 0, 1]);
        let mut unparsed =
            Unparsed { shared: Arc::downgrade(&shared), flag: Flag::default(), peer, n_answered: 0 };
        assert!(unparsed.render(400).is_some(), "nothing was asked before");
        let request = Arc::clone(&shared);
        unparsed.flag.take();
        assert!(unparsed.render(400).is_none(), "a request is in progress");
        drop(request);
        assert!(unparsed.render(400).is_none(), "its response may not be written yet");
        unparsed.flushed();
        assert!(unparsed.render(400).is_some(), "all of it was written");
        unparsed.flag.let_through();
        assert!(unparsed.render(400).is_none(), "a tunnel");
    }
}
