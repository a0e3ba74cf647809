//! The doors through which others ask for decisions.
//!
//! # Layout
//! - [`rest`]: `GET /api/v1/rate-limit/check` and its siblings.
//! - [`serve`]: accepts connections for a door until told to stop, then lets those in hand finish; with [`Tls`] or
//!   without.
//! - [`Access`]: who may ask, from where and with which token.
//!
//! A door does three things: it makes a query of what was asked, has it decided, and renders the decision.

mod access;
mod listen;
pub mod rest;
pub mod watch;

pub use access::{Access, TokenDigest, exposed};
pub use listen::{Listening, Tls, TlsError, TlsPart, serve};
