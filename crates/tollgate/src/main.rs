//! The program: reads the command line and the policy file, and opens the doors.
#![expect(clippy::print_stderr, reason = "the program talks to a terminal")]

mod buckets;
mod cli;
mod config;
mod figures;
#[cfg_attr(not(test), expect(dead_code, reason = "the seam that the gateway's wiring takes up"))]
mod jwks;
mod log;
mod serve;

use std::process::ExitCode;

use clap::Parser;

/// Something in the file or on the command line is wrong; nothing was started.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let cli::Cli { serve, command } = cli::Cli::parse();
    let cli::ServeArgs { config: file } = match command {
        Some(cli::Command::Serve(args)) => args,
        None => serve,
    };
    let config = match config::Config::read(file.as_deref()) {
        Ok(config) => config,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("error: {error}"));
            return ExitCode::from(MISUSED);
        }
    };
    log::begin(config.log);
    match serve::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
