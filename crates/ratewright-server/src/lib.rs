//! The doors through which others ask for decisions.
//!
//! # Layout
//! - [`rest`]: `GET /api/v1/rate-limit/check` and its siblings.
//! - [`watch`]: what is counted of the decisions, and who is being denied.
//! - [`admin`]: metrics, health, and who is being denied, for those who run it.
//! - [`Access`]: who may ask, from where and with which token.
//! - [`serve`]: accepts connections for a door until told to stop, then lets those in hand finish; with [`Tls`] or
//!   without.
//!
//! A door does three things: it makes a query of what was asked, has it decided, and renders the decision.

mod access;
pub mod admin;
mod answer;
mod key;
mod listen;
pub mod rest;
mod settings;
mod url;
pub mod watch;

pub use access::{Access, Caller, Certified, TokenDigest, entrusted, exposed, guard};
pub use listen::{Listening, serve};
pub use ratewright_listen::{ConnectionSetup, Tls};
pub use settings::{Settings, SharedSettings};
