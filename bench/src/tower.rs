//! One axum handler under `RateLimitLayer::per_ip`, against the same handler under tower_governor.
//!
//! Both are processes of `bench/tower`, asked by wrk over loopback, in turn. What is compared is the servers' CPU time per
//! request.
//!
//! | line | peer |
//! |---|---|
//! | `tower-bare` | the handler without a layer: what the limit costs |
//! | `tower-x` | tower_governor with `use_headers`, and our layer with `X-RateLimit-` headers only |
//! | `tower` | tower_governor with `use_headers`, and our layer with all its headers |

use std::process::Command;

use crate::api::Server;
use crate::rounds::{in_turn, report};

/// Short and many: a neighbour's load comes and goes.
const ROUNDS: usize = 15;

/// Runs all of it. `servers` is the program of `bench/tower`.
pub(crate) fn run(servers: &str) {
    let sides =
        ["ours", "bare", "ours-x", "governor"].map(|side| Server::start(Command::new(servers).arg(side)));
    let medians = in_turn(&sides, ROUNDS, |server| [server.micros_per_request("/", None)]);
    let [[ours], [bare], [ours_x], [governor]] = medians[..] else { return };
    report("tower-bare", ours, bare);
    report("tower-x", ours_x, governor);
    report("tower", ours, governor);
}
