//! The program: reads the command line and the policy file, and opens the listeners.
//!
//! # Layout
//! - `cli`: the command line. `config`: the policy file, from YAML to typed settings. `variable_typos`: mistyped environment variables.
//! - `serve`: opens the listeners. `reload`: puts a changed policy file in force.
//! - `gateway`, `envoy`: the program's handles on the gateway and on Envoy's rate limit service. `store`: memory or Redis.
//! - `metrics`, `access_log`, `log`, `traces`: what an operator sees. `jwks`: fetches keys for tokens.
//! - `sockets`: where listening sockets come from. `upgrade`: hands them to a new process. `systemd`: notifies systemd.
//! - `check`, `diff`, `explain`: the commands that read policy files.
//! - `simulate`, `suggest`: the commands that read access logs. `input_logs`: opens the logs, shows progress.
//! - `admin_client`: the commands that ask a running instance. `fetch`: one HTTP request. `text_table`: columns on a terminal.
//! - `man_pages`: man pages and shell completions.
#![expect(clippy::print_stderr, reason = "the program talks to a terminal")]

mod access_log;
mod admin_client;
mod check;
mod cli;
mod config;
mod diff;
mod envoy;
mod explain;
mod fetch;
mod gateway;
mod input_logs;
mod jwks;
mod log;
mod man_pages;
mod metrics;
mod reload;
mod serve;
mod simulate;
mod sockets;
mod store;
mod suggest;
mod systemd;
mod text_table;
#[cfg(feature = "otel")]
mod traces;
mod upgrade;
mod variable_typos;
mod what_if;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read as _, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use check::Checked;
use config::{Config, ConfigError};
use sockets::Sockets;
use upgrade::TakeOver;

/// The usual name of a policy file.
const DEFAULT_FILE_NAME: &str = "ratewright.yaml";

/// Exit status: the policy file or an option is invalid; nothing was started.
const EXIT_USAGE: u8 = 2;

/// Runs the command of the command line, and returns its exit status.
pub fn main() -> ExitCode {
    let cli::Cli { source, command } = cli::Cli::parse();
    match command {
        Some(cli::Command::Serve(args)) => run(args),
        Some(cli::Command::Check(args)) => check(args),
        Some(cli::Command::Diff(args)) => diff::diff(&args),
        Some(cli::Command::Explain(args)) => explain::explain(&args),
        Some(cli::Command::Simulate(args)) => simulate::simulate(&args),
        Some(cli::Command::Suggest(args)) => suggest::suggest(&args),
        Some(cli::Command::Inspect(args)) => admin_client::inspect(&args),
        Some(cli::Command::Reset(args)) => admin_client::reset(&args),
        Some(cli::Command::Reload(args)) => admin_client::reload(&args),
        Some(cli::Command::Top(args)) => admin_client::top(&args),
        Some(cli::Command::Health(args)) => admin_client::health(&args),
        Some(cli::Command::Upgrade(args)) => upgrade::upgrade(&args),
        Some(cli::Command::Key { value }) => key(value),
        Some(cli::Command::Schema(args)) => schema(&args),
        Some(cli::Command::Completions { shell }) => man_pages::completions(shell),
        Some(cli::Command::Man(args)) => man_pages::man(&args),
        None => run(source.into()),
    }
}

/// Prints the digest that replaces a value in Redis keys.
fn key(mut value: String) -> ExitCode {
    if value == "-" {
        value.clear();
        if let Err(error) = std::io::stdin().read_to_string(&mut value) {
            eprintln!("error: cannot read the value from standard input: {error}");
            return ExitCode::FAILURE;
        }
    }
    print(&format!("{}\n", ratewright_store::redis::digest_of(&value)));
    ExitCode::SUCCESS
}

fn run(args: cli::ServeArgs) -> ExitCode {
    let (take_over, sockets) = match given_sockets() {
        Ok(given) => given,
        Err(error) => return fail(&error),
    };
    let source = args.source();
    let asked = RefCell::new(BTreeSet::new());
    let config = Config::read(&source, &|name| {
        asked.borrow_mut().insert(name.to_owned());
        environment(name)
    });
    let config = match config {
        Ok(config) => config,
        Err(errors) => {
            if let (Some(take_over), Some(error)) = (take_over, errors.first()) {
                take_over.fail(&format!("invalid policy file: {error}"));
            }
            return report_errors(&errors);
        }
    };
    log::begin(&config.log, config.traces.as_ref());
    variable_typos::warn_of_typos(&asked.take());
    config::log_warnings(&config.warnings);
    if source.path.is_none() && Path::new(DEFAULT_FILE_NAME).exists() {
        tracing::warn!(
            "{DEFAULT_FILE_NAME} in this folder is ignored; to use it: ratewright serve {DEFAULT_FILE_NAME}"
        );
    }
    let served = serve::run(config, source, sockets, take_over);
    #[cfg(feature = "otel")]
    traces::finish();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// The sockets that this process inherited, and the process that it replaces, if there is one.
fn given_sockets() -> anyhow::Result<(Option<TakeOver>, Sockets)> {
    Ok(match TakeOver::begin()? {
        Some((take_over, sockets)) => (Some(take_over), sockets),
        None => (None, Sockets::from_systemd()?),
    })
}

/// Prints an error, and returns the exit status for a failure.
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn check(args: cli::CheckArgs) -> ExitCode {
    let mut exit = ExitCode::SUCCESS;
    for source in args.sources() {
        match check::check(&source, &environment) {
            Ok(Checked { words, warnings }) => {
                print(&words);
                warnings.iter().for_each(|warning| eprintln!("warning: {warning:#}"));
                if source.path.is_none() && Path::new(DEFAULT_FILE_NAME).exists() {
                    eprintln!(
                        "warning: {DEFAULT_FILE_NAME} in this folder is not checked; to check it: ratewright check {DEFAULT_FILE_NAME}"
                    );
                }
            }
            Err(errors) => exit = report_errors(&errors),
        }
    }
    exit
}

fn schema(args: &cli::SchemaArgs) -> ExitCode {
    print(&match args {
        cli::SchemaArgs { reference: true, .. } => config::reference(),
        cli::SchemaArgs { simulate: true, .. } => ratewright_sim::report::SCHEMA.to_owned(),
        cli::SchemaArgs { suggest: true, .. } => ratewright_sim::report::SUGGESTION_SCHEMA.to_owned(),
        cli::SchemaArgs { .. } => config::SCHEMA.to_owned(),
    });
    ExitCode::SUCCESS
}

/// Writes to standard output. If that fails, the program ends: a full disk must not look like a success. A closed pipe is not a failure,
/// since a reader such as `head` may have seen enough.
#[expect(clippy::exit, reason = "no caller could do better")]
fn print(text: &str) {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to standard output: {error}");
            std::process::exit(i32::from(EXIT_USAGE));
        }
        Ok(()) | Err(_) => {}
    }
}

/// Prints the errors of policy files.
fn report_errors(errors: &[ConfigError]) -> ExitCode {
    errors.iter().for_each(|error| eprintln!("error: {error:#}"));
    ExitCode::from(EXIT_USAGE)
}

/// Parses a policy file, and returns its errors. For fuzzing: starts nothing, and the environment is empty.
#[doc(hidden)]
pub fn parse_policy_file(text: &str) -> Result<(), Vec<String>> {
    let read = Config::of_text(text);
    read.map(|_| ()).map_err(|errors| errors.iter().map(|error| format!("{error:#}")).collect())
}

/// Parses a file of rules for Envoy, and returns its errors. For fuzzing.
#[doc(hidden)]
pub fn parse_envoy_rules(text: &str) -> Result<ratewright_rls_rules::Domains, Vec<String>> {
    let read = config::envoy_of_text(text);
    read.map_err(|errors| errors.iter().map(|error| format!("{error:#}")).collect())
}

/// An environment variable.
fn environment(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the only function that reads the environment")]
    std::env::var(name).ok()
}
