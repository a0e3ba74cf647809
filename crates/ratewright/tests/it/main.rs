//! The program as its users meet it: started as a process, asked over sockets, stopped by signals.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod admin;
mod api;
mod attack;
mod client_loops;
mod commands;
mod cost;
mod curl;
mod decide;
mod docs;
mod envoy;
mod examples;
mod explain;
mod files;
mod gateway;
mod health;
mod kubernetes;
mod listeners;
mod log;
mod openapi;
mod packages;
mod process;
mod prometheus;
mod redis;
mod reload;
mod restart;
mod retrying;
mod rollback;
mod scaling;
mod tidy;
mod tls;
#[cfg(feature = "otel")]
mod traces;
mod watching;
