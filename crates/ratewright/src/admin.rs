//! The commands that ask a running program, through its admin door: `inspect`, `reset` and `top`.

mod door;
mod key;
mod table;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{AdminArgs, KeyArgs, ROWS_MAX, TopArgs};
pub(crate) use door::Door;
pub(crate) use table::{Table, plain};

pub(crate) use key::AdminKey;

/// How often `top --watch` looks.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Clears a terminal, and begins at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// How a key stands.
#[derive(Deserialize)]
struct Inspected {
    basis: String,
    limits: Vec<Limit>,
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
}

/// Tells how a key stands.
pub(crate) fn inspect(args: &KeyArgs) -> ExitCode {
    finish(&args.door, async |door| {
        let answer = door.ask(Method::GET, "key", &args.key.params()).await?;
        show(&args.door, answer, |inspected: Inspected| inspected.words(&args.key))
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
            show(&args.door, answer, |denied: Denied| denied.words())?;
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
    let done = Door::new(args).and_then(|door| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start")?.block_on(command(&door))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
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
        if self.limits.is_empty() {
            return format!(
                "{key}: nothing is counted, the policy or all limits are {}\n",
                table::plain(&self.basis)
            );
        }
        let mut table = Table::new(["LIMIT", "LEFT", "OF", "FULL IN", "MODE", "BASIS"]);
        for limit in &self.limits {
            let quota = limit.quota.as_ref().map_or(String::new(), |quota| format!("/{quota}"));
            let other = limit.override_name.as_ref().map_or(String::new(), |name| format!("+{name}"));
            table.row([
                format!("{}{other}{quota}", limit.policy),
                limit.remaining.to_string(),
                limit.limit.to_string(),
                format!("{} s", limit.reset_after_seconds),
                limit.mode.clone(),
                limit.basis.clone(),
            ]);
        }
        format!("{key}\n\n{table}")
    }
}

impl Denied {
    fn words(&self) -> String {
        let minutes = self.window_seconds / 60;
        if self.top.is_empty() && self.denials.is_empty() {
            return format!("Nobody was denied in the last {minutes} minutes\n");
        }
        let mut most = Table::new(["DENIED", "POLICY", "CLIENT"]);
        for TopRow { policy, client, at_least, at_most } in &self.top {
            let times =
                if at_least == at_most { at_least.to_string() } else { format!("{at_least} to {at_most}") };
            most.row([times, policy.clone(), client.clone()]);
        }
        let mut last = Table::new(["UTC", "POLICY", "CLIENT", "REQUEST", "RETRY AFTER"]);
        for denial in &self.denials {
            last.row([
                time_of_day(denial.at_unix_ms),
                denial.policy.clone(),
                denial.client.clone(),
                format!("{} {}", denial.method, denial.path).trim().to_owned(),
                denial.retry_after_seconds.map_or("never".to_owned(), |wait| format!("{wait} s")),
            ]);
        }
        format!("Most denied in the last {minutes} minutes\n\n{most}\nLast denials\n\n{last}")
    }
}

fn time_of_day(unix_ms: u64) -> String {
    let second = unix_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}
