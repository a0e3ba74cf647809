//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use http::Uri;

use crate::admin::AdminKey;
use crate::config::Source;
use crate::fetch;

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
    /// On SIGTERM, /ready answers 503 and connections are still accepted for stop_delay; then requests in flight have drain_timeout
    /// to finish. Ctrl-C skips stop_delay; Ctrl-C during a stop ends the process at once.
    #[command(after_help = EXAMPLES)]
    Serve(ServeArgs),

    /// Validate policy files, and describe their limits in words
    ///
    /// Nothing is started and nothing is sent. Variables come from the environment, as for `serve`. Files that a policy file names are
    /// checked too: certificates, keys, and rules for Envoy, which can also be checked by themselves.
    ///
    /// With --deployment, Kubernetes manifests are checked: the policy file in the ConfigMap, and whether probes, ports, grace period,
    /// replicas and disruption budgets fit it. --expect names a file with figures that must hold:
    /// `scaling: {ratewright: {cpu: 70, sustained: 2min, replicas: 2..10, scale_up_at: 75}}` and `policies: {per-ip: 100/min}`.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),

    /// Say what another policy file changes, and for whom
    ///
    /// Every setting is compared by its meaning: writing a default down is not a change. For each policy: whether it is softer or
    /// stricter, by how much, and whether counts are kept. Secrets are never shown. Nothing is started and nothing is sent.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),

    /// Write a policy file that means the same as the files of another limiter
    Convert(ConvertArgs),

    /// Say why a request is limited, or not
    ///
    /// For every policy: whether it covers the request, and if not, which condition failed on which value; where each part of the key
    /// comes from; what is left in its buckets; and which headers would be sent. Nothing is spent. It asks the admin listener of a running
    /// instance, or evaluates a policy file (-c) with full buckets.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),

    /// Show a key's usage in a running instance, or all buckets of a client address
    ///
    /// Nothing is spent. It asks the admin listener. For a policy with in_flight it shows how many requests are in flight.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),

    /// Reset a key in a running instance: its full quota is available again
    ///
    /// All quotas of the policy are reset. It asks the admin listener.
    #[command(after_help = RESET_EXAMPLES)]
    Reset(KeyArgs),

    /// Put the policy file of a running instance in force now, and print what changed
    ///
    /// Edits are put in force without this command, within a second; it reports whether they were, and why not. It prints what has changed
    /// since the last report, or since the start, and what waits for a restart. A file that drops more than 90 % of at least 10 policies is refused, unless it says
    /// policies: [] or enabled: false, or --force is given. It asks the admin listener. In Kubernetes, run it in the pod once the
    /// ConfigMap has arrived there.
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(ReloadArgs),

    /// Show the clients that a running instance denies most, and those that it denied last
    ///
    /// Counts cover the last five minutes of this one instance. Mode shadow: the request would have been denied, but passed.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),

    /// Replace the running process with this program, without refusing a connection
    ///
    /// The running process starts this program with its own arguments, and hands over its listening sockets. When the new process is
    /// ready, the old one finishes its requests and ends. If the new process does not become ready, the old one goes on as if
    /// nothing had happened. The running process needs a control socket: listen.control, set by default under systemd if the unit has
    /// RuntimeDirectory=. Buckets in memory start full; buckets in Redis are kept.
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),

    /// Report whether a running instance is ready for requests
    ///
    /// It asks the admin listener, and needs no token. A process is alive but not ready while it stops, or while Redis is unreachable
    /// and store.on_failure is closed.
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArgs),

    /// Print the digest that replaces a long or secret value in Redis keys
    ///
    /// Values longer than 64 bytes, and values of headers, cookies, parameters and `attribute:NAME` whose names sound like secrets (such as
    /// `X-Api-Key`), are stored in Redis keys as digests. The digest is printed for any value.
    #[command(after_help = KEY_EXAMPLES)]
    Key {
        /// The value, or `-` to read it from standard input and keep it out of process lists; a trailing newline is part of the value
        #[arg(value_name = "VALUE")]
        value: String,
    },

    /// Print the JSON Schema of the policy file, for editors
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
    /// Report whether it is alive instead
    #[arg(long)]
    pub(crate) live: bool,

    #[command(flatten)]
    pub(crate) door: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ReloadArgs {
    /// Put the file in force even if it drops policies, routes or rules; an invalid file is still refused
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) door: AdminArgs,
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
    /// Policy files in YAML, or folders of them, each by itself; without any, the defaults [env: RATEWRIGHT_CONFIG]
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The same as FILE
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,

    /// Merge the profile's file over each: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", env = "RATEWRIGHT_PROFILE")]
    pub(crate) profile: Option<String>,

    /// Compare Kubernetes manifests with the policy file that they deploy: a folder of rendered manifests, a file, or `-` for standard input
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["files", "config"])]
    pub(crate) deployment: Option<PathBuf>,

    /// With --deployment: a YAML file of figures that the manifests must have
    #[arg(long, value_name = "FILE", requires = "deployment", conflicts_with_all = ["files", "config"])]
    pub(crate) expect: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The policy file in force, or a folder of them; `-` is standard input
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,

    /// The policy file to come, or a folder of them; `-` is standard input
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
pub(crate) struct ConvertArgs {
    #[command(subcommand)]
    pub(crate) from: ConvertFrom,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConvertFrom {
    /// From the files of envoyproxy/ratelimit: a policy for each limit
    ///
    /// The policies are for callers of POST /api/v1/decide, with a descriptor's entries as attributes.other. What policies
    /// cannot say stands in comments. Envoy itself needs no conversion: name the files in envoy.files.
    #[command(after_help = CONVERT_EXAMPLES)]
    Envoy {
        /// Files with a domain and its descriptors, or folders of them; files of the same domain are one
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Policy and key, as POLICY and CLIENT of `ratewright top`: login:10.0.0.1, api:user:anna; for an ad hoc key the algorithm: token_bucket:user:123
    #[arg(value_name = "KEY")]
    pub(crate) key: AdminKey,

    #[command(flatten)]
    pub(crate) door: AdminArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Policy and key, as POLICY and CLIENT of `ratewright top`: login:10.0.0.1, api:user:anna; for an ad hoc key the algorithm: token_bucket:user:123
    #[arg(value_name = "KEY", required_unless_present = "client", conflicts_with = "client")]
    pub(crate) key: Option<AdminKey>,

    /// In place of a key: all buckets of this client address, under every policy
    #[arg(long, value_name = "ADDRESS", value_parser = client_address)]
    pub(crate) client: Option<std::net::IpAddr>,

    #[command(flatten)]
    pub(crate) door: AdminArgs,
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

    /// In place of --ip: the address of the connection; the client's then follows from X-Forwarded-For, if the peer is trusted
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<std::net::IpAddr>,

    /// A header of the request, any number of times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// The user, as if a verified token had named it
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Units that the request costs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cost: u32,

    /// A policy that applies too, as if the caller had named it
    #[arg(long = "policy", value_name = "NAME")]
    pub(crate) policies: Vec<String>,

    /// Evaluate this policy file instead of asking a running instance
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Merge the profile's file over it: ratewright.NAME.yaml over ratewright.yaml
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) profile: Option<String>,

    #[command(flatten)]
    pub(crate) door: AdminArgs,
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
    pub(crate) door: AdminArgs,
}

/// Where to ask, and how to answer.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// URL of the admin listener (listen.admin)
    #[arg(long, value_name = "URL", env = "RATEWRIGHT_ADMIN", default_value = "http://127.0.0.1:8082", value_parser = url)]
    pub(crate) admin: Uri,

    /// One of api.tokens, for an admin listener on another machine; set the variable to keep it out of process lists
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

/// The variable that names the policy file where the command line does not. The parser does not read it, since a FILE would then
/// conflict with it.
pub(crate) const CONFIG: &str = "RATEWRIGHT_CONFIG";

fn of_environment() -> Option<PathBuf> {
    crate::environment(CONFIG).filter(|path| !path.is_empty()).map(PathBuf::from)
}

impl ServeArgs {
    /// What to serve.
    pub(crate) fn source(self) -> Source {
        let Self { file, source: SourceArgs { config, profile } } = self;
        Source { path: file.or(config).or_else(of_environment), profile }
    }
}

/// What a process would serve that was started with these arguments, in an environment of which nothing is known here.
pub(crate) fn served_by(args: &[String]) -> Result<ServeArgs, String> {
    fn without_environment(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|arg| arg.env(clap::builder::Resettable::Reset));
        command.mut_subcommands(without_environment)
    }
    let args = std::iter::once("ratewright").chain(args.iter().map(String::as_str));
    let parsed = without_environment(Cli::command()).try_get_matches_from(args);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = parsed.map_err(|error| {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return "they only print a text; use serve".to_owned();
        }
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    let Some(command) = cli.command else { return Ok(cli.source.into()) };
    if let Command::Serve(args) = command {
        return Ok(args);
    }
    let name = matches.subcommand_name().unwrap_or_default();
    Err(format!("they run the command {name}, which does not serve; use serve"))
}

impl From<SourceArgs> for ServeArgs {
    fn from(source: SourceArgs) -> Self {
        Self { file: None, source }
    }
}

/// The address of one client.
fn client_address(text: &str) -> Result<std::net::IpAddr, &'static str> {
    text.parse().map_err(
        |_| "use an address, for example 192.0.2.7 or 2001:db8::7; of a network any of its addresses",
    )
}

/// The URL of a listener.
fn url(text: &str) -> Result<Uri, &'static str> {
    fetch::parse(text).ok_or("use http:// or https://, a host and a port: http://127.0.0.1:8082")
}

impl CheckArgs {
    /// What to check, one after the other.
    pub(crate) fn sources(self) -> Vec<Source> {
        let Self { mut files, config, profile, .. } = self;
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

/// What exactly runs, for reports of errors.
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

const EXAMPLES: &str = "\
Exit status:
  0  it was stopped by a signal
  1  it failed, for example because the address is in use
  2  an option or the policy file is wrong; nothing was started
  130  Ctrl-C during a stop forced it to end

Examples:
  ratewright
  ratewright serve ratewright.yaml
  ratewright serve ratewright.yaml --profile dev
  curl 'http://127.0.0.1:8080/api/v1/rate-limit/check?key=user:123'";

const CHECK_EXAMPLES: &str = "\
Exit status:
  0  all files are valid; each policy is described on standard output
  2  an option or a file is invalid, or manifests do not fit what they deploy; every error is on standard error, with its position

Examples:
  ratewright check ratewright.yaml
  ratewright check ratewright.yaml --profile production
  ratewright check /etc/ratewright && systemctl reload ratewright
  ratewright check --deployment manifests/ --expect expect.yaml
  kubectl kustomize overlays/production | ratewright check --deployment - --expect expect.yaml";

const DIFF_EXAMPLES: &str = "\
Exit status:
  0  no difference
  1  there are differences; they are on standard output
  2  an option or a file is invalid; every error is on standard error, with its position

Examples:
  ratewright diff /etc/ratewright/ratewright.yaml ratewright.yaml
  git show HEAD~1:ratewright.yaml | ratewright diff - ratewright.yaml
  ratewright diff old new --profile production --json | jq -r '.changes[] | select(.effect == \"softer\") | .subject'";

const CONVERT_EXAMPLES: &str = "\
Exit status:
  0  the policy file is on standard output
  2  an option or a file is invalid; every error is on standard error, with its position

Examples:
  ratewright convert envoy ratelimit.yaml > ratewright.yaml
  ratewright convert envoy /etc/ratelimit/config > ratewright.yaml && ratewright check ratewright.yaml";

const EXPLAIN_EXAMPLES: &str = "\
Exit status:
  0  the explanation is on standard output
  1  the admin listener cannot be reached, or refuses
  2  an option or the policy file is wrong

Examples:
  ratewright explain -X POST /api/login --ip 203.0.113.7
  ratewright explain /orders --peer 10.0.0.1 -H 'X-Forwarded-For: 203.0.113.7' -H 'Host: api.example.com'
  ratewright explain /orders --user anna -c ratewright.yaml
  ratewright explain /orders --ip 203.0.113.7 --json | jq -r '.policies[] | select(.applies) | .policy'";

const INSPECT_EXAMPLES: &str = "\
Exit status:
  0  the usage is on standard output
  1  the admin listener cannot be reached, or refuses
  2  an option is wrong; nothing was asked

Examples:
  ratewright inspect login:10.0.0.1
  ratewright inspect --client 10.0.0.1
  ratewright inspect --client 2001:db8::7 --json | jq -c '.policies[] | [.policy, .needs]'
  ratewright inspect token_bucket:user:123 --json | jq .remaining
  ratewright inspect api:user:anna --admin https://10.0.0.7:8082";

const RESET_EXAMPLES: &str = "\
Exit status:
  0  it is reset
  1  the admin listener cannot be reached, or refuses
  2  an option is wrong; nothing was asked

Examples:
  ratewright reset login:10.0.0.1
  ratewright reset token_bucket:user:123";

const RELOAD_EXAMPLES: &str = "\
Exit status:
  0  the file is in force; what changed is on standard output
  1  the admin listener cannot be reached, or refuses
  2  an option is wrong, or the file was not put in force; the reason is on standard error

Examples:
  ratewright reload
  ratewright check ratewright.yaml && ratewright reload
  ratewright reload --force
  kubectl exec deploy/ratewright -- ratewright reload --json | jq -r '.changes[].subject'";

const TOP_EXAMPLES: &str = "\
Exit status:
  0  the denied clients are on standard output
  1  the admin listener cannot be reached, or refuses, for example because there is no policy of that name
  2  an option is wrong; nothing was asked

Examples:
  ratewright top
  ratewright top --policy login -n 3
  ratewright top --watch
  ratewright top --json | jq -r '.top[].client'";

const UPGRADE_EXAMPLES: &str = "\
Exit status:
  0  the new process serves, and the old one ends when its requests are finished
  1  the upgrade failed, or its outcome is unknown; the reason is on standard error
  2  an option is wrong; nothing was asked
  3  no running process could be reached

Examples:
  ratewright upgrade
  /opt/ratewright-0.2.0/ratewright upgrade --control /run/ratewright/control.sock";

const HEALTH_EXAMPLES: &str = "\
Exit status:
  0  it is ready; with --live, it is alive
  1  it is not ready, or the admin listener cannot be reached
  2  an option is wrong; nothing was asked

Examples:
  ratewright health
  ratewright health --live
  until ratewright health; do sleep 1; done
  ratewright health --admin https://10.0.0.7:8082 --ca ca.pem";

const KEY_EXAMPLES: &str = "\
Exit status:
  0  the digest is on standard output
  1  standard input cannot be read, or is not text

Examples:
  ratewright key k-123
  printf %s \"$KEY\" | ratewright key -
  redis-cli --scan --pattern \"ratelimit:per-key*:*$(ratewright key k-123)*\"";

const SCHEMA_EXAMPLES: &str = "\
Exit status:
  0  it is on standard output

Examples:
  ratewright schema > ratewright.schema.json
  ratewright schema --reference | less

An editor with a YAML language server reads the schema if the file begins with
  # yaml-language-server: $schema=ratewright.schema.json";

const COMPLETIONS_EXAMPLES: &str = "\
Exit status:
  0  the script is on standard output

Examples:
  ratewright completions bash > /usr/share/bash-completion/completions/ratewright
  ratewright completions zsh > /usr/local/share/zsh/site-functions/_ratewright
  ratewright completions fish > ~/.config/fish/completions/ratewright.fish
  source <(ratewright completions bash)";

const MAN_EXAMPLES: &str = "\
Exit status:
  0  the page is on standard output, or the pages are in the folder
  1  the folder cannot be written

Examples:
  ratewright man | man -l -
  ratewright man --folder /usr/local/share/man/man1";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
