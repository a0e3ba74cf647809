//! Warns of mistyped environment variables: a typo must not switch off a limit.
//!
//! Only names that resemble a known one are reported. Kubernetes sets others in every pod if a Service is called `ratewright`:
//! `RATEWRIGHT_PORT`, `RATEWRIGHT_SERVICE_HOST`.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use tracing::warn;

use crate::cli::{CONFIG, Cli};
use crate::config::closest;
use crate::upgrade::TAKE_OVER;

const PREFIX: &str = "RATEWRIGHT_";

/// Warns of variables with a mistyped name. `asked` has the variables that the policy file uses.
pub(crate) fn warn_of_typos(asked: &BTreeSet<String>) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for (name, meant) in typos(names.filter(|name| !asked.contains(name))) {
        warn!("environment variable {name} is ignored; did you mean {meant}?");
    }
}

/// The unknown names that resemble a known one, with the known one.
fn typos(names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let ours = ours();
    let known: Vec<&str> = ours.iter().filter_map(|name| name.strip_prefix(PREFIX)).collect();
    let typo = |name: String| {
        let rest = name.strip_prefix(PREFIX).filter(|rest| !known.contains(rest))?;
        let meant = format!("{PREFIX}{}", closest(rest, &known)?);
        Some((name, meant))
    };
    names.filter_map(typo).collect()
}

/// The variables that the command line reads.
fn ours() -> BTreeSet<String> {
    let cli = Cli::command();
    let commands = std::iter::once(&cli).chain(cli.get_subcommands());
    let variables = commands.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_env);
    variables.filter_map(|name| name.to_str()).chain([CONFIG, TAKE_OVER]).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_found_and_other_programs_variables_are_not() {
        let names = [
            "RATEWRIGHT_CONF",
            "RATEWRIGHT_CONFG",
            "RATEWRIGHT_PROFIL",
            "RATEWRIGHT_CONFIG",
            "RATEWRIGHT_TOKEN",
            "RATEWRIGHT_PORT",
            "RATEWRIGHT_PORT_8080_TCP",
            "RATEWRIGHT_PORT_8080_TCP_ADDR",
            "RATEWRIGHT_SERVICE_HOST",
            "RATEWRIGHT_SERVICE_PORT",
            "CONFIG",
            "PATH",
        ];
        let found = typos(names.iter().map(ToString::to_string));
        let expected = [("CONF", "CONFIG"), ("CONFG", "CONFIG"), ("PROFIL", "PROFILE")];
        let expected = expected.map(|(name, meant)| (format!("{PREFIX}{name}"), format!("{PREFIX}{meant}")));
        assert_eq!(found, expected);
    }
}
