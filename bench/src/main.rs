//! Tollgate beside its peers, in one run.
//!
//! Each benchmark plays ours and the peer in turn, several rounds, and compares CPU time per operation. A
//! line reads `bench NAME ours=… peer=… ratio=…`; the ratio is ours ÷ peer, so lower is better.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod api;
mod gateway;
mod load;
mod memory;
mod openloop;
mod policies;
mod redis;
mod rounds;

use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "memory" => memory::run(),
        "memory-bytes" => memory::bytes(&std::env::args().nth(2).unwrap_or_default()),
        "policies" => policies::run(),
        "redis" => return redis::run(std::env::args().nth(2).as_deref()),
        "api" => return api::run(),
        "gateway" => return gateway::run(std::env::args().nth(2).as_deref()),
        "constant" => api::serve_constant(),
        _ => {
            println!(
                "usage: tollgate-bench memory | policies | redis [LIMITADOR-PEER] | api | gateway [peers]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
