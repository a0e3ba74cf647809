//! `ratewright health`: whether a running program is ready, or alive, for probes that have no HTTP client.

use std::process::ExitCode;

use http::StatusCode;
use serde::Deserialize;

use super::{Door, run_to_end, show};
use crate::cli::HealthArgs;

/// The answer to `/ready` and `/health`.
#[derive(Deserialize)]
struct Health {
    reason: Option<String>,
}

/// Prints whether the program is ready, or alive. The exit status says the same.
pub(crate) fn health(args: &HealthArgs) -> ExitCode {
    let (path, good) = if args.live { ("/health", "alive") } else { ("/ready", "ready") };
    run_to_end(Door::without_token(&args.door), async |door| {
        let (status, answer) = door.probe(path).await?;
        let is_good = status == StatusCode::OK;
        show(&args.door, answer, |health: Health| match health.reason {
            _ if is_good => format!("{good}\n"),
            Some(reason) => format!("not {good}: {}\n", super::plain(&reason)),
            None => format!("not {good}\n"),
        })?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
