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
//! - [`decide()`]: the decision after an attempt. Pure.
//! - [`RetryPolicy`]: how patient a caller is.
//! - [`RetryBudget`]: how many retries an origin can be asked to bear.
//! - [`Lane`]: the pace of requests under one limit.
//! - [`Call`]: one call, for adapters of your own.
//! - [`RetrySummary`]: how a call ended. [`Event`]: what happens, for metrics and logs.
//!
//! `clients/vectors` of the repository defines all of this for other languages.

mod body;
mod budget;
mod call;
mod decide;
mod event;
mod failure;
mod gate;
mod lane;
#[cfg(feature = "tower")]
mod layer;
mod policy;
#[cfg(feature = "reqwest")]
mod reqwest_client;
mod response;
mod retry;
mod server_wait;
mod summary;
mod timer;

pub use body::{BodyFactory, ReplayBody};
pub use budget::{BudgetSize, RetryBudget};
pub use call::{ATTEMPT, Call, CallError, Next};
pub use decide::{BodyKind, Cause, Failure, NextStep, Now, Repeat, RequestKind, Seen, State, Why, decide};
pub use event::{Event, EventKind};
pub use lane::{Lane, Throttle, Turn};
#[cfg(feature = "tower")]
pub use layer::{RetryLayer, RetryService};
pub use policy::{Backoff, RetryPolicy};
#[cfg(feature = "reqwest")]
pub use reqwest_client::Client;
pub use response::ResponseHead;
pub use retry::{Partition, RequestInfo, Retry, RetryBuilder};
pub use server_wait::Source;
pub use summary::{DeadlineError, HasRetrySummary, RetrySummary};
pub use timer::Timer;
/// What [`Client`] is made of, in the versions that it takes; requests and errors are theirs.
#[cfg(feature = "reqwest")]
pub use {reqwest, reqwest_middleware};
/// The traits of [`RetryLayer`] and [`RetryService`], in the versions that they take.
#[cfg(feature = "tower")]
pub use {tower_layer, tower_service};

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
