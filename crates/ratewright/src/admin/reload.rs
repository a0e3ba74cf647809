//! `ratewright reload`: puts the policy file of a running instance in force, and says what changed, or why it was refused.

use std::process::ExitCode;

use http::{Method, StatusCode};
use serde::Deserialize;

use super::{Door, plain, run_to_end, show};
use crate::cli::ReloadArgs;

/// The answer if the file is in force.
#[derive(Deserialize)]
struct Done {
    changes: Vec<DoneChange>,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DoneChange {
    line: String,
    needs_restart: bool,
}

/// The answer if the one before stays.
#[derive(Deserialize)]
struct Rejected {
    errors: Vec<String>,
}

/// Asks for a reload. The exit status tells whether the file is in force.
pub(crate) fn reload(args: &ReloadArgs) -> ExitCode {
    run_to_end(Door::new(&args.door), async |door| {
        let force = [("force", "true".to_owned())];
        let force = if args.force { force.as_slice() } else { &[] };
        let (status, answer) = door.ask_status(Method::POST, "reload", force).await?;
        if status == StatusCode::OK {
            show(&args.door, answer, |done: Done| done.words())?;
            return Ok(ExitCode::SUCCESS);
        }
        show(&args.door, answer, |rejected: Rejected| {
            rejected.errors.iter().for_each(|error| eprintln!("error: {}", lines(error)));
            String::new()
        })?;
        Ok(ExitCode::from(crate::MISUSED))
    })
}

impl Done {
    fn words(&self) -> String {
        self.warnings.iter().for_each(|warning| eprintln!("warning: {}", lines(warning)));
        let lines = |needs_restart: bool| -> String {
            let some = self.changes.iter().filter(|change| change.needs_restart == needs_restart);
            some.map(|change| format!("  {}\n", plain(&change.line))).collect()
        };
        match (lines(false).as_str(), lines(true).as_str()) {
            ("", "") => "in force; no difference\n".to_owned(),
            (now, "") => format!("in force\n{now}"),
            ("", later) => format!("in force; these changes wait for a restart\n{later}"),
            (now, later) => format!("in force\n{now}these changes wait for a restart\n{later}"),
        }
    }
}

/// What may have several lines, without anything that a terminal takes for a command.
fn lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}
