//! The REST entrypoint and the admin API.
//!
//! # Layout
//! - [`rest`]: `GET /api/v1/rate-limit/check`, `POST /api/v1/decide` and related calls.
//! - [`telemetry`]: counts decisions, and remembers denials.
//! - [`admin`]: metrics, health and denials, for operators.
//! - [`Access`]: authorizes callers by address, token or certificate.
//! - [`serve`]: accepts connections, with or without [`Tls`], and drains them on stop.
//!
//! An entrypoint turns a request into a query, has it decided, and renders the decision.

mod access_control;
pub mod admin;
mod body;
mod key;
mod listen;
mod response;
pub mod rest;
mod settings;
pub mod telemetry;
mod url;

pub use access_control::{Access, Caller, ClientCertified, TokenDigest, authorized, guard, is_exposed};
pub use listen::{HttpListenerSettings, RejectRequest, serve, serve_checked};
pub use ratewright_listen::{ConnectionSetup, Tls};
pub use settings::{ServerSettings, SharedServerSettings};
