//! `ratewright reload`: puts the policy file of a running instance in force, and prints the changes, or why it was rejected.

use std::process::ExitCode;

use http::{Method, StatusCode};
use ratewright_telemetry::escape_hidden;
use serde::Deserialize;

use super::{AdminClient, run_to_end, show};
use crate::cli::ReloadArgs;

/// The response if the file is in force.
#[derive(Deserialize)]
struct ReloadDone {
    changes: Vec<ReloadChange>,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReloadChange {
    line: String,
    needs_restart: bool,
}

/// The response if the file was rejected.
#[derive(Deserialize)]
struct ReloadRejected {
    errors: Vec<String>,
}

/// Requests a reload. The exit status says whether the file is in force.
pub(crate) fn reload(args: &ReloadArgs) -> ExitCode {
    run_to_end(AdminClient::new(&args.admin), async |client| {
        let force = [("force", "true".to_owned())];
        let force = if args.force { force.as_slice() } else { &[] };
        let (status, response) = client.ask_status(Method::POST, "reload", force).await?;
        if status == StatusCode::OK {
            show(&args.admin, response, |done: ReloadDone| done.words())?;
            return Ok(ExitCode::SUCCESS);
        }
        show(&args.admin, response, |rejected: ReloadRejected| {
            rejected.errors.iter().for_each(|error| eprintln!("error: {}", lines(error)));
            String::new()
        })?;
        Ok(ExitCode::from(crate::EXIT_USAGE))
    })
}

impl ReloadDone {
    fn words(&self) -> String {
        self.warnings.iter().for_each(|warning| eprintln!("warning: {}", lines(warning)));
        let lines = |needs_restart: bool| -> String {
            let some = self.changes.iter().filter(|change| change.needs_restart == needs_restart);
            some.map(|change| format!("  {}\n", escape_hidden(&change.line))).collect()
        };
        match (lines(false).as_str(), lines(true).as_str()) {
            ("", "") => "in force; no difference\n".to_owned(),
            (now, "") => format!("in force\n{now}"),
            ("", later) => format!("in force; these changes need a restart\n{later}"),
            (now, later) => format!("in force\n{now}these changes need a restart\n{later}"),
        }
    }
}

/// A text of several lines, without control characters.
fn lines(text: &str) -> String {
    text.lines().map(escape_hidden).collect::<Vec<_>>().join("\n")
}
