//! The commands that ask the admin listener of a running instance: `inspect`, `reset`, `reload`, `top` and `health`.

mod client_buckets;
mod health;
mod http_client;
mod key;
mod reload;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use http::Method;
use ratewright_telemetry::{escape_hidden, escape_hidden_in_json};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{AdminArgs, InspectArgs, KeyArgs, ROWS_MAX, TopArgs};
use crate::text_table::TextTable;
pub(crate) use health::health;
pub(crate) use http_client::AdminClient;
pub(crate) use reload::reload;

pub(crate) use key::AdminKey;

/// The refresh interval of `top --watch`.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Clears a terminal, and moves the cursor to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// The usage of a key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyReply {
    basis: String,
    limits: Vec<LimitReply>,
    /// Set for a policy with `in_flight`.
    #[serde(default)]
    in_flight_limits: Vec<InFlightReply>,
}

/// The usage of a key under one quota.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LimitReply {
    policy: String,
    #[serde(rename = "override")]
    override_name: Option<String>,
    quota: Option<String>,
    mode: String,
    limit: u32,
    remaining: u32,
    reset_after_seconds: u64,
    basis: String,
}

/// The number of requests of a key in flight, under one limit.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InFlightReply {
    policy: String,
    #[serde(rename = "override")]
    override_name: Option<String>,
    mode: String,
    in_flight: u32,
    max: u32,
}

/// The reply to a reset.
#[derive(Deserialize)]
struct ResetResult {
    basis: String,
}

/// The clients that are denied most, and the latest denials.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DenialsReply {
    window_seconds: u64,
    top: Vec<DenialCount>,
    denials: Vec<LatestDenial>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DenialCount {
    policy: String,
    client: String,
    at_least: u64,
    at_most: u64,
    mode: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LatestDenial {
    at_unix_ms: u64,
    policy: String,
    client: String,
    method: String,
    path: String,
    retry_after_seconds: Option<u64>,
    mode: String,
    correlation_id: String,
}

/// Shows a key's usage, or all buckets of a client address.
pub(crate) fn inspect(args: &InspectArgs) -> ExitCode {
    finish(&args.admin, async |client| {
        if let Some(ip) = args.client {
            let response = client.ask(Method::GET, "client", &[("ip", ip.to_string())]).await?;
            return show(&args.admin, response, |client: client_buckets::ClientBuckets| client.to_string());
        }
        let Some(key) = &args.key else { return Ok(()) }; // the parser requires one of the two
        let response = client.ask(Method::GET, "key", &key.params()).await?;
        show(&args.admin, response, |inspected: KeyReply| inspected.words(key))
    })
}

/// Resets a key.
pub(crate) fn reset(args: &KeyArgs) -> ExitCode {
    finish(&args.admin, async |client| {
        let response = client.ask(Method::DELETE, "key", &args.key.params()).await?;
        show(&args.admin, response, |reset: ResetResult| {
            let whose = if reset.basis == "shared" { "for all instances" } else { "in this instance" };
            format!("{} is reset, {whose}\n", escape_hidden(&args.key.to_string()))
        })
    })
}

/// Shows the denied clients, once or repeatedly.
pub(crate) fn top(args: &TopArgs) -> ExitCode {
    finish(&args.admin, async |client| {
        loop {
            let response = denied(client, args).await?;
            if args.watch && !args.admin.json && std::io::stdout().is_terminal() {
                crate::print(CLEAR);
            }
            show(&args.admin, response, |denied: DenialsReply| denied.words(args.policy.as_deref()))?;
            if !args.watch {
                return Ok(());
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    })
}

/// Requests the denied clients and the latest denials.
async fn denied(client: &AdminClient, args: &TopArgs) -> anyhow::Result<Value> {
    let n = ("n", args.rows.to_string());
    let policy = args.policy.iter().map(|policy| ("policy", policy.clone()));
    let top = client.ask(Method::GET, "top", &policy.chain([n]).collect::<Vec<_>>()).await?;
    // The admin API returns the latest denials of all policies.
    let n = if args.policy.is_some() { ROWS_MAX } else { args.rows };
    let mut denials = client.ask(Method::GET, "denials", &[("n", n.to_string())]).await?["denials"].take();
    if let (Some(policy), Some(rows)) = (&args.policy, denials.as_array_mut()) {
        rows.retain(|row| row["policy"] == **policy);
        rows.truncate(usize::from(args.rows));
    }
    Ok(json!({ "windowSeconds": top["windowSeconds"], "top": top["top"], "denials": denials }))
}

/// Runs a command, and prints its error.
pub(crate) fn finish(
    args: &AdminArgs,
    command: impl AsyncFnOnce(&AdminClient) -> anyhow::Result<()>,
) -> ExitCode {
    run_to_end(AdminClient::new(args), async |client| command(client).await.map(|()| ExitCode::SUCCESS))
}

/// Runs a command that chooses its exit status.
fn run_to_end(
    client: anyhow::Result<AdminClient>,
    command: impl AsyncFnOnce(&AdminClient) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let done = client.and_then(|client| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start the runtime")?.block_on(command(&client))
    });
    match done {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a reply: as JSON for programs, or as text for people.
pub(crate) fn show<T: serde::de::DeserializeOwned>(
    args: &AdminArgs,
    response: Value,
    words: impl FnOnce(T) -> String,
) -> anyhow::Result<()> {
    if args.json {
        crate::print(&format!("{}\n", escape_hidden_in_json(&response.to_string())));
    } else {
        let understood = serde_json::from_value(response);
        crate::print(&words(
            understood
                .context("unexpected response; does the instance run another version of Ratewright?")?,
        ));
    }
    std::io::stdout().flush().context("cannot write to standard output")
}

impl KeyReply {
    fn words(&self, key: &AdminKey) -> String {
        let key = escape_hidden(&key.to_string());
        if !self.in_flight_limits.is_empty() {
            let mut table = TextTable::new(["LIMIT", "IN FLIGHT", "MAX", "MODE"]);
            for limit in &self.in_flight_limits {
                let InFlightReply { in_flight, max, mode, .. } = limit;
                table.row([limit.name(), in_flight.to_string(), max.to_string(), mode.clone()]);
            }
            return format!("{key}\n\n{table}");
        }
        if self.limits.is_empty() {
            return format!(
                "{key}: not counted; the policy or all limits are {}\n",
                escape_hidden(&self.basis)
            );
        }
        let mut table = TextTable::new(["LIMIT", "LEFT", "OF", "FULL IN", "MODE", "BASIS"]);
        for limit in &self.limits {
            let [left, of, full_in, mode, basis] = limit.cells();
            table.row([limit.name(), left, of, full_in, mode, basis]);
        }
        format!("{key}\n\n{table}")
    }
}

/// A limit's name, as in Redis keys: `login+partners/day`.
fn limit_name(policy: &str, override_name: Option<&str>, quota: Option<&str>) -> String {
    let other = override_name.map_or(String::new(), |name| format!("+{name}"));
    let quota = quota.map_or(String::new(), |quota| format!("/{quota}"));
    format!("{policy}{other}{quota}")
}

impl InFlightReply {
    fn name(&self) -> String {
        limit_name(&self.policy, self.override_name.as_deref(), None)
    }
}

impl LimitReply {
    fn name(&self) -> String {
        limit_name(&self.policy, self.override_name.as_deref(), self.quota.as_deref())
    }

    /// Units left, burst, seconds until full, mode and basis.
    fn cells(&self) -> [String; 5] {
        [
            self.remaining.to_string(),
            self.limit.to_string(),
            format!("{} s", self.reset_after_seconds),
            self.mode.clone(),
            self.basis.clone(),
        ]
    }
}

impl DenialsReply {
    fn words(&self, policy: Option<&str>) -> String {
        let minutes = self.window_seconds / 60;
        let by = policy.map_or(String::new(), |policy| format!(" by policy {}", escape_hidden(policy)));
        let no_client = format!("No client was denied{by} in the last {minutes} minutes\n");
        if self.top.is_empty() && self.denials.is_empty() {
            return no_client;
        }
        let mut most = TextTable::new(["DENIED", "POLICY", "CLIENT", "MODE"]);
        for DenialCount { policy, client, at_least, at_most, mode } in &self.top {
            let times =
                if at_least == at_most { at_least.to_string() } else { format!("{at_least} to {at_most}") };
            most.row([times, policy.clone(), client.clone(), mode.clone()]);
        }
        let most = match self.top.is_empty() {
            true => no_client,
            false => format!("Most denied in the last {minutes} minutes\n\n{most}"),
        };
        let mut last =
            TextTable::new(["UTC", "POLICY", "CLIENT", "REQUEST", "RETRY AFTER", "MODE", "CORRELATION ID"]);
        for denial in &self.denials {
            last.row([
                time_of_day(denial.at_unix_ms),
                denial.policy.clone(),
                denial.client.clone(),
                format!("{} {}", denial.method, denial.path).trim().to_owned(),
                denial.retry_after_seconds.map_or("never".to_owned(), |wait| format!("{wait} s")),
                denial.mode.clone(),
                denial.correlation_id.clone(),
            ]);
        }
        let mut modes = self.top.iter().map(|row| &row.mode).chain(self.denials.iter().map(|row| &row.mode));
        let shadow = match modes.any(|mode| mode == "shadow") {
            true => "\nMode shadow: the policy would have denied these requests; it is not enforced\n",
            false => "",
        };
        format!("{most}\nLast denials\n\n{last}{shadow}")
    }
}

fn time_of_day(unix_ms: u64) -> String {
    let second = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}
