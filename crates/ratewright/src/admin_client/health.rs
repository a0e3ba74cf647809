//! `ratewright health`: whether a running instance is ready or alive, for probes without an HTTP client.

use std::process::ExitCode;

use http::StatusCode;
use ratewright_telemetry::escape_hidden;
use serde::Deserialize;

use super::{AdminClient, run_to_end, show};
use crate::cli::HealthArgs;

/// The response to `/ready` and `/health`.
#[derive(Deserialize)]
struct HealthReply {
    reason: Option<String>,
}

/// Prints whether the instance is ready or alive. The exit status says the same.
pub(crate) fn health(args: &HealthArgs) -> ExitCode {
    let (path, good) = if args.live { ("/health", "alive") } else { ("/ready", "ready") };
    run_to_end(AdminClient::without_token(&args.admin), async |client| {
        let (status, response) = client.probe(path).await?;
        let is_good = status == StatusCode::OK;
        show(&args.admin, response, |health: HealthReply| match health.reason {
            _ if is_good => format!("{good}\n"),
            Some(reason) => format!("not {good}: {}\n", escape_hidden(&reason)),
            None => format!("not {good}\n"),
        })?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
