//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Source;

/// Rate limiting that you can put anywhere
///
/// Without a command, Tollgate serves. Without a file, it serves its defaults: REST decisions on
/// 127.0.0.1:8080, buckets in memory.
#[derive(Parser, Debug)]
#[command(version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Open the doors and answer until told to stop
    ///
    /// SIGTERM and ctrl-c stop it: requests in hand are finished, new ones are not accepted.
    #[command(after_help = EXAMPLES)]
    Serve(ServeArgs),

    /// Say what policy files mean, or what is wrong with them
    ///
    /// Nothing is started and nothing is sent. The environment counts as it would for the program, and so do files that a
    /// policy file names: certificates and keys.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),

    /// Print the JSON Schema of the policy file, for editors
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema(SchemaArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Policy files in YAML, or folders of them, each by itself; without any, the defaults
    #[arg(value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub(crate) files: Vec<PathBuf>,

    /// Lay a second file over each: tollgate.NAME.yaml over tollgate.yaml
    #[arg(long, value_name = "NAME", env = "TOLLGATE_PROFILE", requires = "files")]
    pub(crate) profile: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// Print a reference in Markdown instead
    #[arg(long)]
    pub(crate) reference: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// Policy file in YAML, or a folder of them
    #[arg(short, long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Lay a second file over the first: tollgate.NAME.yaml over tollgate.yaml
    #[arg(long, value_name = "NAME", env = "TOLLGATE_PROFILE", requires = "config")]
    pub(crate) profile: Option<String>,
}

impl From<SourceArgs> for Source {
    fn from(SourceArgs { config: path, profile }: SourceArgs) -> Self {
        Self { path, profile }
    }
}

impl CheckArgs {
    /// What to check, one after the other.
    pub(crate) fn sources(self) -> Vec<Source> {
        let Self { files, profile } = self;
        if files.is_empty() {
            return vec![Source::default()];
        }
        files.into_iter().map(|path| Source { path: Some(path), profile: profile.clone() }).collect()
    }
}

const EXAMPLES: &str = "\
Exit status:
  0  it was told to stop, and did
  1  it could not go on, for example because the address is in use
  2  an option or the policy file is wrong; nothing was started

Examples:
  tollgate
  tollgate serve -c tollgate.yaml
  tollgate serve -c tollgate.yaml --profile dev
  curl 'http://127.0.0.1:8080/api/v1/rate-limit/check?key=user:123'";

const CHECK_EXAMPLES: &str = "\
Exit status:
  0  all files are sound; what each policy means is on standard output
  2  an option or a file is wrong; all that is wrong is on standard error, with its place

Examples:
  tollgate check tollgate.yaml
  tollgate check tollgate.yaml --profile production
  tollgate check /etc/tollgate && systemctl reload tollgate";

const SCHEMA_EXAMPLES: &str = "\
Exit status:
  0  it is on standard output

Examples:
  tollgate schema > tollgate.schema.json
  tollgate schema --reference | less

An editor with a YAML language server reads the schema if the file begins with
  # yaml-language-server: $schema=tollgate.schema.json";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
