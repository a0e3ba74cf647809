//! The Rust code on the pages of docs/ is compiled as doctests.

#[doc = include_str!("../../docs/guides/axum.md")]
mod axum {}

#[doc = include_str!("../../docs/guides/clients.md")]
mod clients {}

#[doc = include_str!("../../docs/moving/governor.md")]
mod moving_from_governor {}

#[doc = include_str!("../../docs/start/axum.md")]
mod start_axum {}
