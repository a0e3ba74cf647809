//! The command line.

mod examples;
mod simulation;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use http::Uri;

use crate::admin_client::AdminKey;
use crate::config::Source;
use crate::fetch;
use examples::{
    CHECK_EXAMPLES, COMPLETIONS_EXAMPLES, DIFF_EXAMPLES, EXAMPLES, EXPLAIN_EXAMPLES, HEALTH_EXAMPLES,
    INSPECT_EXAMPLES, KEY_EXAMPLES, MAN_EXAMPLES, RELOAD_EXAMPLES, RESET_EXAMPLES, SCHEMA_EXAMPLES,
    TOP_EXAMPLES, UPGRADE_EXAMPLES,
};
pub(crate) use simulation::{LogArgs, ShareOfArg, SimulateArgs, SuggestArgs};
use simulation::{SIMULATE_EXAMPLES, SUGGEST_EXAMPLES};

/// Exact rate limiting for HTTP APIs
///
/// Without a command, Ratewright serves. Without a file, it serves its defaults: REST decisions on
/// 127.0.0.1:8080, buckets in memory.
#[derive(Parser, Debug)]
#[command(version, long_version = LONG_VERSION, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) source: SourceArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run the configured listeners until stopped
    ///
    /// On SIGTERM, /ready returns 503 and connections are still accepted for stop_delay; then requests in flight have drain_timeout
    /// to finish. Ctrl-C skips stop_delay; a second Ctrl-C forces the process to end.
    #[command(after_help = EXAMPLES)]
    Serve(ServeArgs),

    /// Validate policy files, and describe their limits in words
    ///
    /// It starts and sends nothing. Variables come from the environment, as for `serve`. It also checks the files that a policy file
    /// names: certificates, keys, and rules for Envoy. Rules for Envoy can also be checked by themselves.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),

    /// Show what another policy file changes, and for which requests
    ///
    /// Settings are compared by meaning: writing a default explicitly is not a change. For each policy it shows whether the new one is
    /// softer or stricter, by how much, and whether counts are kept. It never shows secrets, and starts and sends nothing.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),

    /// Explain why a request is limited, or not
    ///
    /// For every policy it shows whether the policy covers the request, and if not, which condition failed on which value; where each
    /// part of the key comes from; the units left in its buckets; and the response headers. It spends nothing. It asks the admin
    /// listener of a running instance, or evaluates a policy file (-c) with full buckets.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),

    /// Replay access logs against a policy file, and report who would have been denied
    ///
    /// Requests are replayed at their logged times, so the same logs always give the same report; nothing is sent. Logs are merged by
    /// time, and lines up to a minute out of order are sorted. A policy is skipped, with a note, if it needs an attribute that the log
    /// does not record, such as a header. Concurrency limits (in_flight) and Envoy rules are not simulated.
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),

    /// Find the lowest rate that denies at most a given share of the requests in access logs
    ///
    /// Prints the rate, the clients that it denies most, the share denied at other rates, and a policy to paste. A replay confirms that
    /// this rate stays within the share and that the next lower rate does not. The rates tried are 1 to 590 per
    /// hour, 10 to 590 per minute, and from 10 per second on, with at most two significant digits. Requests that are exempt by default, such as /static/** and /health, are not counted; a policy file (-c) with
    /// another section `exempt` changes that.
    #[command(after_help = SUGGEST_EXAMPLES)]
    Suggest(SuggestArgs),

    /// Show a key's usage in a running instance, or all buckets of a client address
    ///
    /// It asks the admin listener, and spends nothing. For a policy with in_flight it shows the number of requests in flight.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),

    /// Reset a key in a running instance: its full quota is available again
    ///
    /// It asks the admin listener, and resets all quotas of the policy.
    #[command(after_help = RESET_EXAMPLES)]
    Reset(KeyArgs),

    /// Put the policy file of a running instance in force now, and print what changed
    ///
    /// A running instance puts edits in force by itself, within a second; this command reports whether it did, and why not. It prints
    /// the changes since the last report, or since the start, and the changes that need a restart. A file that drops more than 90 % of
    /// at least 10 policies is rejected, unless it has policies: [] or enabled: false, or --force is given. It asks the admin listener.
    /// In Kubernetes, run it in the pod after the ConfigMap has been updated there.
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(ReloadArgs),

    /// Show the clients that a running instance denies most, and its latest denials
    ///
    /// Counts cover the last five minutes of this one instance. Mode shadow: the policy would have denied the request, but let it pass.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),

    /// Replace the running process with this program, without refusing a connection
    ///
    /// The running process starts this program with its own arguments, and hands over its listening sockets. When the new process is
    /// ready, the old one drains and ends. If the new process does not become ready, the old one keeps serving. The running process
    /// needs a control socket: listen.control, set by default under systemd if the unit has RuntimeDirectory=. Buckets in memory start
    /// full; buckets in Redis are kept.
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),

    /// Report whether a running instance is ready for requests
    ///
    /// It asks the admin listener, and needs no token. An instance is alive but not ready while it stops, or while Redis is
    /// unreachable and store.on_failure is closed.
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArgs),

    /// Print the digest that replaces a long or secret value in Redis keys
    ///
    /// Redis keys contain digests in place of values longer than 64 bytes, and of values of headers, cookies, parameters and
    /// `attribute:NAME` whose names suggest a secret (such as `X-Api-Key`). This command prints the digest of any value.
    #[command(after_help = KEY_EXAMPLES)]
    Key {
        /// The value, or `-` to read it from standard input and keep it out of process lists; a trailing newline is part of the value
        #[arg(value_name = "VALUE")]
        value: String,
    },

    /// Print the JSON Schema of the policy file, for editors, or of a report
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema(SchemaArgs),

    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: ShellName,
    },

    /// Print the man page
    #[command(hide = true, after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

/// A shell that completes commands.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ShellName {
    Bash,
    Fish,
    Zsh,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// Report whether the instance is alive instead
    #[arg(long)]
    pub(crate) live: bool,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ReloadArgs {
    /// Put the file in force even if it drops policies, routes or rules; an invalid file is still rejected
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Policy file in YAML, or a folder of them; the same as -c
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Policy files in YAML, or folders of them, each checked by itself; if none is given, the defaults [env: RATEWRIGHT_CONFIG]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The same as FILE
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,

    /// Merge the profile's file over each: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", env = "RATEWRIGHT_PROFILE")]
    pub(crate) profile: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The policy file in force, or a folder of them; `-` is standard input
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,

    /// The new policy file, or a folder of them; `-` is standard input
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Merge the profile's file over each: ratewright.NAME.yaml over ratewright.yaml; not over standard input
    #[arg(long, value_name = "NAME", env = "RATEWRIGHT_PROFILE")]
    pub(crate) profile: Option<String>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Policy and key, as POLICY and CLIENT of `ratewright top`: login:10.0.0.1, api:user:anna; for an ad hoc key the algorithm: token_bucket:user:123
    #[arg(value_name = "KEY")]
    pub(crate) key: AdminKey,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Policy and key, as POLICY and CLIENT of `ratewright top`: login:10.0.0.1, api:user:anna; for an ad hoc key the algorithm: token_bucket:user:123
    #[arg(value_name = "KEY", required_unless_present = "client", conflicts_with = "client")]
    pub(crate) key: Option<AdminKey>,

    /// Instead of a key: all buckets of this client address, under every policy
    #[arg(long, value_name = "ADDRESS", value_parser = client_address)]
    pub(crate) client: Option<std::net::IpAddr>,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The path, with or without a query
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) path: String,

    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET", value_parser = crate::explain::method)]
    pub(crate) method: String,

    /// The client's address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "peer")]
    pub(crate) ip: Option<std::net::IpAddr>,

    /// Instead of --ip: the address of the connection; if it is a trusted proxy, its headers name the client's address and the user
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<std::net::IpAddr>,

    /// A request header; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// The user, as if a verified token had named it
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Units that the request costs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cost: u32,

    /// Another policy to apply, as if the caller had named it; repeatable
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,

    /// Evaluate this policy file instead of asking a running instance
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Merge the profile's file over it: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) profile: Option<String>,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Only clients that this policy denies
    #[arg(short, long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Rows to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=i64::from(ROWS_MAX)))]
    pub(crate) rows: u16,

    /// Refresh every two seconds
    #[arg(short, long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// The admin listener to ask, and the output format.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// URL of the admin listener (listen.admin)
    #[arg(long = "admin", value_name = "URL", env = "RATEWRIGHT_ADMIN", default_value = "http://127.0.0.1:8082", value_parser = url)]
    pub(crate) url: Uri,

    /// One of api.tokens, for an admin listener on another machine; use the variable to keep it out of process lists
    #[arg(long, value_name = "TOKEN", env = "RATEWRIGHT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,

    /// CA certificate (PEM) that signed the listener's certificate, if the system does not trust it
    #[arg(long, value_name = "FILE", env = "RATEWRIGHT_CA")]
    pub(crate) ca: Option<PathBuf>,

    /// Client certificate (PEM), if the listener has client_ca
    #[arg(long, value_name = "FILE", env = "RATEWRIGHT_CERT", requires_all = ["cert_key", "ca"])]
    pub(crate) cert: Option<PathBuf>,

    /// Private key (PEM) of --cert
    #[arg(long, value_name = "FILE", env = "RATEWRIGHT_CERT_KEY", requires = "cert")]
    pub(crate) cert_key: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct UpgradeArgs {
    /// The running process's control socket: listen.control
    #[arg(
        long,
        value_name = "PATH",
        env = "RATEWRIGHT_CONTROL",
        default_value = "/run/ratewright/control.sock"
    )]
    pub(crate) control: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// Print a reference in Markdown instead
    #[arg(long)]
    pub(crate) reference: bool,

    /// Print the schema of `simulate --json` instead
    #[arg(long, conflicts_with = "reference")]
    pub(crate) simulate: bool,

    /// Print the schema of `suggest --json` instead
    #[arg(long, conflicts_with_all = ["reference", "simulate"])]
    pub(crate) suggest: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// Policy file in YAML, or a folder of them [env: RATEWRIGHT_CONFIG]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Merge the profile's file over it: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", env = "RATEWRIGHT_PROFILE")]
    pub(crate) profile: Option<String>,
}

/// The variable that names the policy file if the command line does not. Clap does not read it: a FILE argument would then conflict
/// with it.
pub(crate) const CONFIG: &str = "RATEWRIGHT_CONFIG";

fn of_environment() -> Option<PathBuf> {
    crate::environment(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from)
}

impl ServeArgs {
    /// The policy file to serve.
    pub(crate) fn source(self) -> Source {
        let Self { file, source: SourceArgs { config, profile } } = self;
        Source { path: file.or(config).or_else(of_environment), profile }
    }
}

impl From<SourceArgs> for ServeArgs {
    fn from(source: SourceArgs) -> Self {
        Self { file: None, source }
    }
}

/// The address of one client.
fn client_address(text: &str) -> Result<std::net::IpAddr, &'static str> {
    text.parse().map_err(
        |_| "use an IP address, for example 192.0.2.7 or 2001:db8::7; for a network, any of its addresses",
    )
}

/// The URL of a listener.
fn url(text: &str) -> Result<Uri, &'static str> {
    fetch::parse(text).ok_or("use http:// or https://, a host and a port: http://127.0.0.1:8082")
}

impl CheckArgs {
    /// The policy files to check, in order.
    pub(crate) fn sources(self) -> Vec<Source> {
        let Self { mut files, config, profile } = self;
        files.extend(config);
        if files.is_empty() {
            files.extend(of_environment());
        }
        if files.is_empty() {
            return vec![Source { path: None, profile }];
        }
        files.into_iter().map(|path| Source { path: Some(path), profile: profile.clone() }).collect()
    }
}

/// The version with its build, for bug reports.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("BUILD_COMMIT"),
    ", features: ",
    cfg_select! { feature = "otel" => "otel", _ => "none" },
    ", profile: ",
    env!("BUILD_PROFILE"),
    ")"
);

/// The most rows that the admin listener returns.
pub(crate) const ROWS_MAX: u16 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }
}
