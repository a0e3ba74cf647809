//! `ratewright suggest`: the lowest rate that denies at most a given share, according to access logs.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::process::ExitCode;

use anyhow::anyhow;
use ratewright_core::Policies;
use ratewright_sim::{ShareOf, SimulatedFile, SuggestOptions, Suggestion};

use crate::cli::{ShareOfArg, SuggestArgs};
use crate::config::Config;
use crate::input_logs::LogFiles;
use crate::simulate::{self, CommandError};

/// Events up to this size are kept in memory, more in a temporary file.
const IN_MEMORY_MAX: usize = 64 * 1024 * 1024;

/// The name of the suggested policy.
const NAME: &str = "suggested";

/// Searches for a rate, and prints it.
pub(crate) fn suggest(args: &SuggestArgs) -> ExitCode {
    match run(args) {
        Ok(suggestion) => {
            let has_rates =
                !suggestion.bursts.is_empty() && suggestion.bursts.iter().all(|burst| burst.rate.is_some());
            let n_requests = suggestion.lines - suggestion.unreadable - suggestion.lines_without_request;
            let is_complete = simulate::warn_of_lost_requests(
                n_requests,
                suggestion.out_of_order,
                suggestion.unreadable,
                &suggestion.logs,
            ) && has_rates;
            crate::print(&if args.json { simulate::to_json_text(&suggestion) } else { suggestion.to_text() });
            ExitCode::from(u8::from(!is_complete))
        }
        Err(error) => error.report(),
    }
}

fn run(args: &SuggestArgs) -> Result<Suggestion, CommandError> {
    let file = policy_file(args)?;
    let LogFiles { logs, mut progress } = LogFiles::new(&args.logs)?;
    let mut options = SuggestOptions::new(NonZeroU32::MIN, args.deny_at_most);
    options.bursts.clone_from(&args.burst);
    options.of = match args.of {
        ShareOfArg::Requests => ShareOf::Requests,
        ShareOfArg::Clients => ShareOf::Clients,
    };
    let suggestion = ratewright_sim::suggest(
        &file,
        logs,
        &options,
        &simulate::settings(&args.logs, args.top),
        Box::new(tempfile::SpooledTempFile::new(IN_MEMORY_MAX)),
        &|rate, burst| policy(args, rate, burst),
        &mut |n| progress.show(n),
    );
    progress.finish();
    Ok(suggestion?)
}

/// The policy without its rate, as a file. The same text is simulated and suggested.
fn policy_file(args: &SuggestArgs) -> Result<SimulatedFile, CommandError> {
    let text = policy(args, "1/s", NonZeroU32::MIN);
    let config = Config::of_input("options", text, &|_| None).map_err(|errors| {
        let texts: Vec<_> = errors.iter().map(|error| error.problem().to_owned()).collect();
        CommandError::Other(anyhow!("{}", texts.join("; ")))
    })?;
    let policies = config.policies.iter().filter(|policy| policy.name() == NAME).cloned().collect();
    // The default exemptions hold for the suggested policy too.
    let policies = Policies::new(policies)?.with_exempt(config.policies.exempt().to_vec());
    let mut file = SimulatedFile::new("options", policies);
    if let Some(path) = &args.config {
        let (with_clients, _) = simulate::policy_file(path, args.profile.as_deref())?;
        file.identity = with_clients.identity;
        file.routes = with_clients.routes;
        file.policies = file.policies.with_exempt(with_clients.policies.exempt().to_vec());
    }
    Ok(file)
}

/// A policy file with one policy.
fn policy(args: &SuggestArgs, rate: &str, burst: NonZeroU32) -> String {
    // JSON is YAML; it quotes what needs quotes.
    let list = |texts: &[String]| serde_json::json!(texts).to_string();
    let by: Vec<String> =
        args.by.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    let mut text = format!("policies:\n  - name: {NAME}\n");
    match by.as_slice() {
        [] => {}
        [one] if one.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            let _ = writeln!(text, "    by: {one}");
        }
        by => {
            let _ = writeln!(text, "    by: {}", list(by));
        }
    }
    let conditions = [("path", &args.path), ("method", &args.method)];
    let conditions: Vec<_> = conditions
        .into_iter()
        .filter(|(_, patterns)| !patterns.is_empty())
        .map(|(name, patterns)| format!("{name}: {}", list(patterns)))
        .collect();
    if !conditions.is_empty() {
        let _ = writeln!(text, "    when: {{ {} }}", conditions.join(", "));
    }
    let _ = writeln!(text, "    quota: {{ rate: {rate}, burst: {burst} }}");
    text
}
