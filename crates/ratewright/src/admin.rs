//! The commands that ask a running program, through its admin door: `inspect`, `reset`, `reload`, `top` and `health`.

mod client;
mod door;
mod health;
mod key;
mod reload;
mod table;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{AdminArgs, InspectArgs, KeyArgs, ROWS_MAX, TopArgs};
pub(crate) use door::Door;
pub(crate) use health::health;
pub(crate) use reload::reload;
pub(crate) use table::{Table, plain};

pub(crate) use key::AdminKey;

/// How often `top --watch` looks.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Clears a terminal, and begins at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// How a key stands.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inspected {
    basis: String,
    limits: Vec<Limit>,
    /// Of a policy with `in_flight`.
    #[serde(default)]
    in_flight_limits: Vec<InFlightLimit>,
}

/// How it stands under one quota.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limit {
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

/// How many requests of a key are in flight.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InFlightLimit {
    policy: String,
    #[serde(rename = "override")]
    override_name: Option<String>,
    mode: String,
    in_flight: u32,
    max: u32,
}

/// That a key was forgotten.
#[derive(Deserialize)]
struct Forgotten {
    basis: String,
}

/// Who is denied.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Denied {
    window_seconds: u64,
    top: Vec<TopRow>,
    denials: Vec<Denial>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TopRow {
    policy: String,
    client: String,
    at_least: u64,
    at_most: u64,
    mode: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Denial {
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
    finish(&args.door, async |door| {
        if let Some(ip) = args.client {
            let answer = door.ask(Method::GET, "client", &[("ip", ip.to_string())]).await?;
            return show(&args.door, answer, |client: client::Client| client.to_string());
        }
        let Some(key) = &args.key else { return Ok(()) }; // the parser requires one of the two
        let answer = door.ask(Method::GET, "key", &key.params()).await?;
        show(&args.door, answer, |inspected: Inspected| inspected.words(key))
    })
}

/// Forgets a key.
pub(crate) fn reset(args: &KeyArgs) -> ExitCode {
    finish(&args.door, async |door| {
        let answer = door.ask(Method::DELETE, "key", &args.key.params()).await?;
        show(&args.door, answer, |forgotten: Forgotten| {
            let whose = if forgotten.basis == "shared" { "for all instances" } else { "in this instance" };
            format!("{} is reset, {whose}\n", table::plain(&args.key.to_string()))
        })
    })
}

/// Tells who is denied, once or until the reader has enough.
pub(crate) fn top(args: &TopArgs) -> ExitCode {
    finish(&args.door, async |door| {
        loop {
            let answer = denied(door, args).await?;
            if args.watch && !args.door.json && std::io::stdout().is_terminal() {
                crate::print(CLEAR);
            }
            show(&args.door, answer, |denied: Denied| denied.words(args.policy.as_deref()))?;
            if !args.watch {
                return Ok(());
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    })
}

/// Asks who is denied: most, and last.
async fn denied(door: &Door, args: &TopArgs) -> anyhow::Result<Value> {
    let n = ("n", args.rows.to_string());
    let policy = args.policy.iter().map(|policy| ("policy", policy.clone()));
    let top = door.ask(Method::GET, "top", &policy.chain([n]).collect::<Vec<_>>()).await?;
    // The door tells the last of all policies.
    let n = if args.policy.is_some() { ROWS_MAX } else { args.rows };
    let mut denials = door.ask(Method::GET, "denials", &[("n", n.to_string())]).await?["denials"].take();
    if let (Some(policy), Some(rows)) = (&args.policy, denials.as_array_mut()) {
        rows.retain(|row| row["policy"] == **policy);
        rows.truncate(usize::from(args.rows));
    }
    Ok(json!({ "windowSeconds": top["windowSeconds"], "top": top["top"], "denials": denials }))
}

/// Runs a command to its end, and tells what went wrong.
pub(crate) fn finish(args: &AdminArgs, command: impl AsyncFnOnce(&Door) -> anyhow::Result<()>) -> ExitCode {
    run_to_end(Door::new(args), async |door| command(door).await.map(|()| ExitCode::SUCCESS))
}

/// Runs a command that chooses its own exit status.
fn run_to_end(
    door: anyhow::Result<Door>,
    command: impl AsyncFnOnce(&Door) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    let done = door.and_then(|door| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start")?.block_on(command(&door))
    });
    match done {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints an answer: as it is for programs, or in words for people.
pub(crate) fn show<T: serde::de::DeserializeOwned>(
    args: &AdminArgs,
    answer: Value,
    words: impl FnOnce(T) -> String,
) -> anyhow::Result<()> {
    if args.json {
        crate::print(&format!("{answer}\n"));
    } else {
        let understood = serde_json::from_value(answer);
        crate::print(&words(
            understood.context("the answer is not understood; is it Ratewright of another version?")?,
        ));
    }
    std::io::stdout().flush().context("cannot write")
}

impl Inspected {
    fn words(&self, key: &AdminKey) -> String {
        let key = table::plain(&key.to_string());
        if !self.in_flight_limits.is_empty() {
            let mut table = Table::new(["LIMIT", "IN FLIGHT", "MAX", "MODE"]);
            for limit in &self.in_flight_limits {
                let InFlightLimit { in_flight, max, mode, .. } = limit;
                table.row([limit.name(), in_flight.to_string(), max.to_string(), mode.clone()]);
            }
            return format!("{key}\n\n{table}");
        }
        if self.limits.is_empty() {
            return format!(
                "{key}: nothing is counted, the policy or all limits are {}\n",
                table::plain(&self.basis)
            );
        }
        let mut table = Table::new(["LIMIT", "LEFT", "OF", "FULL IN", "MODE", "BASIS"]);
        for limit in &self.limits {
            let [left, of, full_in, mode, basis] = limit.cells();
            table.row([limit.name(), left, of, full_in, mode, basis]);
        }
        format!("{key}\n\n{table}")
    }
}

/// A limit as Redis keys write it: `login+partners/day`.
fn limit_name(policy: &str, override_name: Option<&str>, quota: Option<&str>) -> String {
    let other = override_name.map_or(String::new(), |name| format!("+{name}"));
    let quota = quota.map_or(String::new(), |quota| format!("/{quota}"));
    format!("{policy}{other}{quota}")
}

impl InFlightLimit {
    fn name(&self) -> String {
        limit_name(&self.policy, self.override_name.as_deref(), None)
    }
}

impl Limit {
    fn name(&self) -> String {
        limit_name(&self.policy, self.override_name.as_deref(), self.quota.as_deref())
    }

    /// What is left, of how much, when it is full again, the mode and the basis.
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

impl Denied {
    fn words(&self, policy: Option<&str>) -> String {
        let minutes = self.window_seconds / 60;
        let by = policy.map_or(String::new(), |policy| format!(" by policy {}", table::plain(policy)));
        let nobody = format!("Nobody was denied{by} in the last {minutes} minutes\n");
        if self.top.is_empty() && self.denials.is_empty() {
            return nobody;
        }
        let mut most = Table::new(["DENIED", "POLICY", "CLIENT", "MODE"]);
        for TopRow { policy, client, at_least, at_most, mode } in &self.top {
            let times =
                if at_least == at_most { at_least.to_string() } else { format!("{at_least} to {at_most}") };
            most.row([times, policy.clone(), client.clone(), mode.clone()]);
        }
        let most = match self.top.is_empty() {
            true => nobody,
            false => format!("Most denied in the last {minutes} minutes\n\n{most}"),
        };
        let mut last =
            Table::new(["UTC", "POLICY", "CLIENT", "REQUEST", "RETRY AFTER", "MODE", "CORRELATION ID"]);
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
