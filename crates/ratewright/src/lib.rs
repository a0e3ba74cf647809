//! The program: reads the command line and the policy file, and opens the doors.
//!
//! # Layout
//! - `cli`: the command line. `check`: what a policy file means. `config`: the policy file, from what a person wrote to what the program needs.
//! - `convert`: rules of others as a policy file. `diff`: what another policy file changes.
//! - `deployment`: manifests of Kubernetes, compared with the policy file in them.
//! - `explain`: why a request is limited. `admin`: the commands that ask a running program. `fetch`: one request as a client.
//! - `serve`: opens the doors, and puts another configuration in force when the files change.
//! - `sockets`: where listening sockets come from. `upgrade`: another process takes them over. `systemd`: what it is told.
//! - `gateway`: the reverse proxy's door. `access_log`: a line for each of its requests.
//! - `manual`: man pages and shell completions.
//! - `variables`: names of the environment that are mistyped. `buckets`: the choice of stores. `jwks`: keys that are fetched. `figures`: what metrics tell of the program.
#![expect(clippy::print_stderr, reason = "the program talks to a terminal")]

mod access_log;
mod admin;
mod buckets;
mod check;
mod cli;
mod config;
mod convert;
mod deployment;
mod diff;
mod envoy;
mod explain;
mod fetch;
mod figures;
mod gateway;
mod jwks;
mod log;
mod manual;
mod reload;
mod serve;
mod sockets;
mod systemd;
#[cfg(feature = "otel")]
mod traces;
mod upgrade;
mod variables;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Read as _, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use check::Checked;
use config::{Config, ConfigError};
use deployment::Report;
use sockets::Sockets;
use upgrade::TakeOver;

/// What people call their policy file.
const USUAL: &str = "ratewright.yaml";

/// Something in the file or on the command line is wrong; nothing was started.
const MISUSED: u8 = 2;

/// Does what the command line says, and tells how it went.
pub fn main() -> ExitCode {
    let cli::Cli { source, command } = cli::Cli::parse();
    match command {
        Some(cli::Command::Serve(args)) => run(args),
        Some(cli::Command::Check(args)) => check(args),
        Some(cli::Command::Diff(args)) => diff::diff(&args),
        Some(cli::Command::Explain(args)) => explain::explain(&args),
        Some(cli::Command::Inspect(args)) => admin::inspect(&args),
        Some(cli::Command::Reset(args)) => admin::reset(&args),
        Some(cli::Command::Reload(args)) => admin::reload(&args),
        Some(cli::Command::Top(args)) => admin::top(&args),
        Some(cli::Command::Health(args)) => admin::health(&args),
        Some(cli::Command::Convert(args)) => convert(&args),
        Some(cli::Command::Upgrade(args)) => upgrade::upgrade(&args),
        Some(cli::Command::Key { value }) => key(value),
        Some(cli::Command::Schema(args)) => schema(&args),
        Some(cli::Command::Completions { shell }) => manual::completions(shell),
        Some(cli::Command::Man(args)) => manual::man(&args),
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
    print(&format!("{}\n", ratewright_store::digest_of(&value)));
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
                take_over.fail(&format!("the policy file is not valid: {error}"));
            }
            return complain(&errors);
        }
    };
    log::begin(&config.log, config.traces.as_ref());
    variables::warn_of_typos(&asked.take());
    config::log_warnings(&config.warnings);
    if source.path.is_none() && Path::new(USUAL).exists() {
        tracing::warn!("{USUAL} in this folder is not read; to use it: ratewright serve {USUAL}");
    }
    let served = serve::run(config, source, sockets, take_over);
    #[cfg(feature = "otel")]
    traces::finish();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// The sockets that this process was given, and the process that it is to replace, if there is one.
fn given_sockets() -> anyhow::Result<(Option<TakeOver>, Sockets)> {
    Ok(match TakeOver::begin()? {
        Some((take_over, sockets)) => (Some(take_over), sockets),
        None => (None, Sockets::from_systemd()?),
    })
}

/// Says why the program cannot go on.
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn check(args: cli::CheckArgs) -> ExitCode {
    if let Some(folder) = &args.deployment {
        return check_deployment(folder, args.expect.as_deref());
    }
    let mut exit = ExitCode::SUCCESS;
    for source in args.sources() {
        match check::check(&source, &environment) {
            Ok(Checked { words, warnings }) => {
                print(&words);
                warnings.iter().for_each(|warning| eprintln!("warning: {warning:#}"));
                if source.path.is_none() && Path::new(USUAL).exists() {
                    eprintln!(
                        "warning: {USUAL} in this folder is not checked; to check it: ratewright check {USUAL}"
                    );
                }
            }
            Err(errors) => exit = complain(&errors),
        }
    }
    exit
}

fn check_deployment(folder: &Path, expect: Option<&Path>) -> ExitCode {
    let Report { words, warnings, errors } = deployment::check(folder, expect, &environment);
    print(&words);
    warnings.iter().for_each(|warning| eprintln!("warning: {warning:#}"));
    if errors.is_empty() { ExitCode::SUCCESS } else { complain(&errors) }
}

fn convert(cli::ConvertArgs { from }: &cli::ConvertArgs) -> ExitCode {
    let cli::ConvertFrom::Envoy { files } = from;
    match convert::envoy(files) {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(errors) => complain(&errors),
    }
}

fn schema(args: &cli::SchemaArgs) -> ExitCode {
    print(&if args.reference { config::reference() } else { format!("{:#}\n", config::schema()) });
    ExitCode::SUCCESS
}

/// Writes to standard output. Who has stopped reading, as `head` does, has seen enough.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Tells what is wrong with the files.
fn complain(errors: &[ConfigError]) -> ExitCode {
    errors.iter().for_each(|error| eprintln!("error: {error:#}"));
    ExitCode::from(MISUSED)
}

/// Reads the text of a policy file, and tells what is wrong with it. For fuzzing: nothing is started, and the environment is
/// empty.
#[doc(hidden)]
pub fn understand(text: &str) -> Result<(), Vec<String>> {
    let read = Config::of_text(text);
    read.map(|_| ()).map_err(|errors| errors.iter().map(|error| format!("{error:#}")).collect())
}

/// Reads the text of a file of rules for Envoy, and tells what is wrong with it. For fuzzing.
#[doc(hidden)]
pub fn understand_envoy(text: &str) -> Result<ratewright_rls_rules::Domains, Vec<String>> {
    let read = config::envoy_of_text(text);
    read.map_err(|errors| errors.iter().map(|error| format!("{error:#}")).collect())
}

/// A variable of the environment.
fn environment(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    std::env::var(name).ok()
}
