//! `ratewright reload`: puts the policy file of a running program in force, and says what changed, or why it was not.

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
struct DoneChange {
    line: String,
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
        match self.changes.as_slice() {
            [] => "in force; no difference\n".to_owned(),
            changes => {
                let changes = changes.iter().map(|change| format!("  {}\n", plain(&change.line)));
                format!("in force\n{}", changes.collect::<String>())
            }
        }
    }
}

/// What may have several lines, without anything that a terminal takes for a command.
fn lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}
