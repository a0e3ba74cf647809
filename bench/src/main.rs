//! Tollgate beside its peers, in one run.
//!
//! Each benchmark plays ours and the peer in turn, several rounds, and compares CPU time per operation. A
//! line reads `bench NAME ours=… peer=… ratio=…`; the ratio is ours ÷ peer, so lower is better.
#![expect(clippy::print_stdout, reason = "the figures are the output")]

mod api;
mod gateway;
mod grpc;
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
        "grpc" => return grpc::run(std::env::args().nth(2).as_deref()),
        "constant" => api::serve_constant(),
        "constant-grpc" => {
            let arguments: Vec<String> = std::env::args().skip(2).collect();
            let [address, n_descriptors, reset] = &arguments[..] else { return ExitCode::from(2) };
            grpc::serve_constant(address, n_descriptors.parse().unwrap_or(1), reset.parse().unwrap_or(1));
        }
        _ => {
            println!(
                "usage: tollgate-bench memory | policies | redis [LIMITADOR-PEER] | api | gateway [peers] | grpc [THROTTLECRAB-SERVER]"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
