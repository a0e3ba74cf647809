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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["memory"] => Ok(memory::run()),
        ["memory-bytes", whose] => Ok(memory::bytes(whose)),
        ["policies"] => Ok(policies::run()),
        ["redis", ref peer @ ..] => return redis::run(peer.first().copied()),
        ["api"] => api::run(),
        ["gateway", ref only @ ..] => gateway::run(only.first().copied()),
        ["grpc", ref peer @ ..] => grpc::run(peer.first().copied()),
        ["constant"] => Ok(api::serve_constant()),
        ["constant-grpc", address, n_descriptors, reset] => {
            Ok(grpc::serve_constant(address, n_descriptors.parse().unwrap_or(1), reset.parse().unwrap_or(1)))
        }
        _ => Err("usage: tollgate-bench memory | policies | redis [LIMITADOR-PEER] | api | gateway [peers] | grpc [THROTTLECRAB-SERVER]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("error: {why}");
            ExitCode::from(2)
        }
    }
}
