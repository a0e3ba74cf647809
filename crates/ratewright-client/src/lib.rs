//! Retries that cooperate with rate limits.
//!
//! A limiter is half of the bargain. The other half is a client that waits as long as the server asks, does not return in
//! the same instant as all others, sends nothing twice that must not be, and stops when retries do harm.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = ratewright_client::Client::new();
//! let response = client.get("https://api.example.com/items").send().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! - [`Client`]: reqwest with retries. [`Retry`] is also a middleware for `reqwest-middleware`, and
//!   [`RetryLayer`] a layer for any tower client; [`Retry::send`] takes a plain function.
//! - [`decide`](retry_decision::decide): the decision after an attempt. Pure.
//! - [`RetryPolicy`]: how patient a caller is.
//! - [`RetryBudget`]: how many retries an origin can be asked to bear.
//! - [`Lane`](lane::Lane): the pace of requests under one limit.
//! - [`Call`](call::Call): one call, for adapters of your own.
//! - [`RetrySummary`]: how a call ended. [`Event`]: what happens, for metrics and logs.
//!
//! `clients/vectors` of the repository defines all of this for other languages.

mod body;
mod budget;
pub mod call;
mod event;
mod failure;
mod gate;
pub mod lane;
#[cfg(feature = "tower")]
pub mod layer;
mod policy;
#[cfg(feature = "reqwest")]
mod reqwest_client;
mod response;
mod retry;
pub mod retry_decision;
mod retry_summary;
mod server_wait;
mod timer;

pub use budget::{BudgetSize, RetryBudget};
pub use event::{Event, EventKind};
#[cfg(feature = "tower")]
pub use layer::RetryLayer;
pub use policy::{Backoff, RetryPolicy};
#[cfg(feature = "reqwest")]
pub use reqwest_client::Client;
pub use retry::{Retry, RetryBuilder};
pub use retry_decision::Why;
pub use retry_summary::{DeadlineError, HasRetrySummary, RetrySummary};
/// What [`Client`] is made of, in the versions that it takes; requests and errors are theirs.
#[cfg(feature = "reqwest")]
pub use {reqwest, reqwest_middleware};

/// The code on these pages is compiled with the documentation's.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}

    #[doc = include_str!("../../../docs/guides/clients.md")]
    mod guide {}
}
