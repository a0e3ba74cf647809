//! What if the policies were different? Replays a log, or recent decisions, through policies that the operator edits on the live
//! page, and compares them with those in force.
//!
//! The text comes from a browser: it opens no file, and variables are not expanded in it.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ratewright_core::Policies;
use ratewright_core::policy::{Condition, Policy, Selector};
use ratewright_core::query::AttributeName;
use ratewright_server::admin::{LogSource, PolicyFileText, SimulateRequest, SimulationError};
use ratewright_sim::{FieldMap, Format, Log, SimulateError, SimulationSettings};
use ratewright_telemetry::may_be_secret;
use serde_json::{Value, json};

use crate::config::{Config, ConfigError, Environment, SourceFile};
use crate::simulate::simulated_file;

/// The name of the edited text in errors.
const EDITED: &str = "edited policies";

/// The sections that are edited. The others stay as they are in force.
const SECTIONS: [&str; 2] = ["policies", "exempt"];

/// The most bytes of a log, once it is decompressed.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most clients, counted once for each policy: some 300 MB.
const CLIENTS_MAX: u64 = 2_000_000;

/// Clients in each list of the report.
const N_TOP: usize = 10;

/// The policies as they are written in the files in force, if they can be shown and edited.
pub(crate) fn policy_file(in_force: &[SourceFile]) -> PolicyFileText {
    let hidden = |reason: &str| {
        let reason =
            format!("{reason}; paste the policies to try into the editor, with all values written out");
        PolicyFileText { text: None, reason: Some(reason) }
    };
    let file = match in_force {
        [] => return PolicyFileText { text: Some("policies: []\n".to_owned()), reason: None },
        [file] => file,
        [_, ..] => {
            return hidden(&format!("the configuration in force consists of {} files", in_force.len()));
        }
    };
    let Some(text) = file.sections(&SECTIONS) else {
        return hidden(
            "the policies in force may contain secrets, or cannot be separated from the rest of the file",
        );
    };
    let text = text.trim_start_matches('\n').to_owned();
    if text.contains("${") {
        return hidden(
            "the policies in force use environment variables, which are not expanded on this page",
        );
    }
    let edited = SourceFile { path: EDITED.into(), text: text.clone(), is_profile: false };
    match Config::with_policies_of(edited, in_force, &crate::environment) {
        Ok(config) if config.policies.iter().chain(config.permits.iter()).any(compares_secrets) => hidden(
            "the policies in force compare headers, cookies or parameters, whose values may be secrets",
        ),
        Ok(_) => PolicyFileText { text: Some(text), reason: None },
        Err(_) => hidden("the policies in force refer to other sections of the file"),
    }
}

/// Replays a log. Blocks: a long log takes seconds.
pub(crate) fn simulate(
    in_force: &[SourceFile],
    request: SimulateRequest,
    cancel: Arc<AtomicBool>,
) -> Result<Value, SimulationError> {
    let SimulateRequest { policy_text, source, log, slot: _slot } = request;
    let environment: Environment<'_> = &crate::environment;
    let edited = SourceFile { path: EDITED.into(), text: policy_text, is_profile: false };
    let edited = Config::with_policies_of(edited, in_force, environment).map_err(invalid)?;
    let in_force = Config::of_elsewhere(in_force.to_vec(), environment).map_err(invalid)?;
    let warnings: Vec<_> = edited.warnings.iter().map(ToString::to_string).collect();
    let mut settings = SimulationSettings::default();
    let (name, format) = match source {
        LogSource::Decisions => ("recent decisions".to_owned(), Some(decisions_format([&edited, &in_force]))),
        LogSource::Log { name, format, fields, assume_absent } => {
            if assume_absent {
                let needs =
                    [&edited, &in_force].into_iter().flat_map(|config| config.policies.needs().iter());
                settings.assume_absent = needs.filter(|name| may_be_absent(name)).cloned().collect();
            }
            (name, log_format(format, fields)?)
        }
    };
    let policies =
        |error: ratewright_core::policy::PolicyError| SimulationError::Policies(vec![error.to_string()]);
    let (edited, mut notes) = simulated_file(edited, EDITED.to_owned()).map_err(policies)?;
    let (in_force, _) = simulated_file(in_force, "in force".to_owned()).map_err(policies)?;
    settings.n_clients_max = CLIENTS_MAX;
    settings.cancel = cancel;
    settings.n_top = N_TOP;
    settings.n_bytes_max = LOG_BYTES_MAX;
    settings.conceal = ratewright_store::redis::digest_of;
    let logs = vec![Log::once(name, format, Cursor::new(log))];
    let report = ratewright_sim::simulate(edited, Some(in_force), logs, &settings, &mut |_| {});
    let mut report = report.map_err(refusal)?;
    report.notes.append(&mut notes);
    let report = serde_json::to_value(&report).unwrap_or_default(); // all map keys are strings
    Ok(json!({ "report": report, "warnings": warnings }))
}

/// A page has less time and memory than a command.
fn refusal(error: SimulateError) -> SimulationError {
    let is_too_large = matches!(error, SimulateError::Cancelled | SimulateError::TooManyClients { .. });
    let advice = if is_too_large { "; use the command ratewright simulate" } else { "" };
    SimulationError::Log(format!("{error}{advice}"))
}

fn invalid(errors: Vec<ConfigError>) -> SimulationError {
    SimulationError::Policies(errors.iter().map(ToString::to_string).collect())
}

fn log_format(format: Option<String>, fields: Option<String>) -> Result<Option<Format>, SimulationError> {
    let problem = |error: String| SimulationError::Log(error);
    let fields = fields.map(|fields| fields.parse::<FieldMap>().map_err(|error| problem(error.to_string())));
    let fields = fields.transpose()?;
    match format {
        Some(name) => Format::named(&name, fields).map(Some).map_err(|error| problem(error.to_string())),
        None if fields.is_some() => {
            Err(problem("fields given without a format; choose json or csv".to_owned()))
        }
        None => Ok(None),
    }
}

/// The format of recent decisions, with the attributes that these policies need. Decisions contain digests of headers, cookies
/// and query parameters. Digests tell clients apart but match no condition, so policies with conditions on them are not simulated.
fn decisions_format(configs: [&Config; 2]) -> Format {
    let mut fields: Vec<_> =
        ["ip", "method", "path", "host", "user", "route"].map(|name| format!("{name}={name}")).into();
    fields.push("time=at".to_owned());
    let policies = || configs.into_iter().map(|config| &config.policies);
    let compared: BTreeSet<String> =
        policies().flat_map(Policies::iter).flat_map(compared_attributes).map(ToString::to_string).collect();
    let needed: BTreeSet<String> = policies()
        .flat_map(|policies| policies.needs().iter())
        .filter(|name| may_be_digest(name))
        .map(ToString::to_string)
        .collect();
    // A dot or a comma in a field map separates names.
    let is_usable = |name: &&String| !compared.contains(*name) && !name.contains(['.', ',', '=']);
    fields.extend(needed.iter().filter(is_usable).map(|name| format!("{name}={name}")));
    fields.truncate(FieldMap::LEN_MAX);
    let fields = fields.join(",").parse().unwrap_or_default(); // every name is known
    Format::Json(fields)
}

/// True for attributes that requests may lack.
fn may_be_absent(name: &AttributeName<String>) -> bool {
    !matches!(name, AttributeName::Ip | AttributeName::Method | AttributeName::Path | AttributeName::Host)
}

/// The attributes that a policy compares with values.
fn compared_attributes(policy: &Policy) -> impl Iterator<Item = &AttributeName<String>> {
    let own = match policy.selector() {
        Selector::When(condition) => Some(condition),
        Selector::Named => None,
    };
    let conditions = own.into_iter().chain(policy.overrides().map(|other| other.condition));
    conditions.flat_map(Condition::attributes)
}

/// True if a policy compares an attribute whose values may be secrets.
fn compares_secrets(policy: &Policy) -> bool {
    compared_attributes(policy).any(may_be_secret)
}

/// True for attributes that are recorded as digests, or only in some decisions.
fn may_be_digest(name: &AttributeName<String>) -> bool {
    match name {
        AttributeName::Header(_)
        | AttributeName::Cookie(_)
        | AttributeName::Param(_)
        | AttributeName::Claim(_)
        | AttributeName::Named(_) => true,
        AttributeName::Ip
        | AttributeName::User
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    /// In process: a program without a policy file would listen on the default ports.
    #[test]
    fn without_a_policy_file_the_page_shows_an_empty_list() {
        let Ok(config) = Config::read(&Source::default(), &|_| None) else {
            panic!("the defaults are valid")
        };
        let shown = policy_file(config.fingerprint.files());
        assert_eq!((shown.text.as_deref(), shown.reason), (Some("policies: []\n"), None));
    }

    #[test]
    fn who_has_too_many_clients_is_sent_to_the_command() {
        let refusal = refusal(SimulateError::TooManyClients { n_max: CLIENTS_MAX });
        let SimulationError::Log(text) = refusal else { panic!("{refusal:?}") };
        assert!(
            text.starts_with("too many clients: more than 2000000") && text.ends_with("ratewright simulate")
        );
    }
}
