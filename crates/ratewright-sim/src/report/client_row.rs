//! One row of a table of clients: denied ones, and those for which two policy files differ.

use ratewright_core::Timestamp;

use super::{ClientChange, DeniedClient};

/// A client and its counted requests.
pub(super) struct ClientRow<'a> {
    pub(super) client: &'a str,
    /// Its denied, newly denied or newly allowed requests.
    pub(super) counted: u64,
    pub(super) requests: u64,
    /// The first and the last counted request.
    pub(super) times: [Timestamp; 2],
}

impl<'a> From<&'a DeniedClient> for ClientRow<'a> {
    fn from(client: &'a DeniedClient) -> Self {
        let DeniedClient { client, requests, denied, first_denied_at, last_denied_at } = client;
        Self { client, counted: *denied, requests: *requests, times: [*first_denied_at, *last_denied_at] }
    }
}

impl<'a> From<&'a ClientChange> for ClientRow<'a> {
    fn from(client: &'a ClientChange) -> Self {
        let ClientChange { client, requests, changed, first_at, last_at } = client;
        Self { client, counted: *changed, requests: *requests, times: [*first_at, *last_at] }
    }
}
