//! Tests of the program as users run it: a process, requests over sockets, signals.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod admin_client;
mod api;
mod attack;
mod authorize;
mod client_loops;
mod commands;
mod cost_by_path;
mod curl;
mod decide;
mod docs;
mod envoy;
mod examples;
mod explain;
mod gateway;
mod health;
mod kubernetes;
mod listeners;
mod live_page;
mod log_levels;
mod monitoring;
mod openapi;
mod packages;
mod policy_file_argument;
mod process;
mod prometheus;
mod redis;
mod reload;
mod restart;
mod retry_clients;
mod rollback;
mod scaling;
mod simulate;
mod tidy;
mod tls;
#[cfg(feature = "otel")]
mod traces;
