//! Ratewright beside its peers, in one run.
//!
//! Each benchmark plays ours and the peer in turn, several rounds, and compares CPU time per operation. A
//! line reads `bench NAME ours=… peer=… ratio=…`; the ratio is ours ÷ peer, so lower is better.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the figures are the output")]

mod api;
mod authorize;
mod client;
mod footprint;
mod gateway;
mod grpc;
mod load;
mod memory;
mod openloop;
mod page;
mod policies;
mod redis;
mod rounds;
mod simulate;
mod tower;
mod worst;

use std::process::ExitCode;

const USAGE: &str = "usage: ratewright-bench \
    memory | policies | redis [LIMITADOR-PEER] | redis-worst | api | authorize | client | footprint | gateway [peers] | grpc [THROTTLECRAB-SERVER] | page | simulate | tower TOWER-PEER";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), String> {
    match *arguments {
        ["memory"] => memory::run(),
        ["memory-bytes", whose] => memory::bytes(whose),
        ["policies"] => policies::run(),
        ["redis-worst"] => return redis::worst(),
        ["redis", ref peer @ ..] => return redis::run(peer.first().copied()),
        ["api"] => return api::run(),
        ["authorize"] => return authorize::run(),
        ["client"] => return client::run(),
        ["client-play", side, calls] => client::play(side == "ours", calls.parse().unwrap_or(1)),
        ["footprint"] => return footprint::run(),
        ["gateway", ref only @ ..] => return gateway::run(only.first().copied()),
        ["page"] => return page::run(),
        ["simulate"] => return simulate::run(),
        ["tower", servers] => tower::run(servers),
        ["grpc", ref peer @ ..] => return grpc::run(peer.first().copied()),
        ["constant"] => api::serve_constant(),
        ["constant-grpc", address, n_descriptors, reset] => {
            grpc::serve_constant(address, n_descriptors.parse().unwrap_or(1), reset.parse().unwrap_or(1));
        }
        _ => return Err(USAGE.to_owned()),
    }
    Ok(())
}
