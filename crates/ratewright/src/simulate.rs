//! `ratewright simulate`: who would have been denied, according to access logs.

use std::path::Path;
use std::process::ExitCode;

use http::Method;
use ratewright_core::policy::{Policy, Selector};
use ratewright_core::{Micros, Policies};
use ratewright_gateway::RouteTable;
use ratewright_gateway::route::RouteLookup;
use ratewright_sim::{Report, Routes, SimulatedFile, SimulationSettings};
use ratewright_tower::RequestReader;

use crate::cli::{LogArgs, SimulateArgs};
use crate::config::{Config, ConfigError, Source};
use crate::log_files::LogFiles;

/// Simulates a policy file, and prints the report.
pub(crate) fn simulate(args: &SimulateArgs) -> ExitCode {
    match run(args) {
        Ok(report) => {
            let is_complete = report.unreadable == 0
                && report.out_of_order == 0
                && report.logs.iter().all(|log| log.error.is_none());
            crate::print(&if args.json { to_json_text(&report) } else { report.to_text() });
            ExitCode::from(u8::from(!is_complete))
        }
        Err(CommandError::Config(errors)) => crate::report_errors(&errors),
        Err(CommandError::Other(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::from(crate::EXIT_USAGE)
        }
    }
}

/// Why a command that reads logs failed.
pub(crate) enum CommandError {
    Config(Vec<ConfigError>),
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// A value as one JSON object. Serialization cannot fail: all map keys are strings.
pub(crate) fn to_json_text(value: &impl serde::Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

fn run(args: &SimulateArgs) -> Result<Report, CommandError> {
    let (file, mut notes) = policy_file(&args.config, args.profile.as_deref())?;
    for name in args.enforce.iter().filter(|name| *name != "*") {
        if file.policies.named(name).is_none() {
            let names: Vec<_> = file.policies.iter().map(Policy::name).collect();
            return Err(anyhow::anyhow!(
                "unknown policy in --enforce: {name}; {} has {}",
                args.config.display(),
                names.join(", ")
            )
            .into());
        }
    }
    let against = match &args.against {
        Some(path) => {
            let (against, _) = policy_file(path, args.profile.as_deref())?;
            Some(against)
        }
        None => None,
    };
    let LogFiles { logs, mut progress } = LogFiles::new(&args.logs)?;
    let mut settings = settings(&args.logs, args.top);
    settings.enforce.clone_from(&args.enforce);
    settings.assume_absent.clone_from(&args.assume_absent);
    let report = ratewright_sim::simulate(file, against, logs, &settings, &mut |n| progress.show(n));
    progress.finish();
    let mut report = report?;
    report.notes.append(&mut notes);
    if let Some(path) = &args.html {
        let title = format!("Simulation of {}", args.config.display());
        std::fs::write(path, report.to_html(&title))
            .map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))?;
    }
    Ok(report)
}

/// The settings that both commands have.
pub(crate) fn settings(logs: &LogArgs, top: u16) -> SimulationSettings {
    let mut settings = SimulationSettings::default();
    settings.n_top = usize::from(top);
    settings.spread_whole_seconds = logs.spread;
    settings.n_bytes_max = logs.max_size;
    settings.conceal = ratewright_store::redis::digest_of;
    settings
}

/// A policy file to simulate, and notes on what of it is not simulated. Certificates and keys that it names are not read.
pub(crate) fn policy_file(
    path: &Path,
    profile: Option<&str>,
) -> Result<(SimulatedFile, Vec<String>), CommandError> {
    let source = Source { path: Some(path.to_owned()), profile: profile.map(str::to_owned) };
    let config = Config::read_alone(&source, &crate::environment).map_err(CommandError::Config)?;
    config.warnings.iter().for_each(|warning| eprintln!("warning: {warning:#}"));
    let mut notes = Vec::new();
    let in_flight: Vec<_> = config.permits.iter().map(Policy::name).collect();
    if !in_flight.is_empty() {
        notes.push(format!(
            "concurrency limits (in_flight) were not simulated: {}; a log does not record concurrent requests",
            in_flight.join(", ")
        ));
    }
    if config.envoy.is_some() {
        notes.push("Envoy rules were not simulated: an access log does not record descriptors".to_owned());
    }
    let routes = config.gateway.routes;
    let is_routed = |policy: &Policy| {
        routes.iter().any(|(_, route)| route.policies.iter().any(|name| name == policy.name()))
    };
    // Policies of ad hoc keys and of Envoy apply only to requests that name them.
    let is_simulated = |policy: &&Policy| *policy.selector() != Selector::Named || is_routed(policy);
    let policies = config.policies.iter().filter(is_simulated).cloned().collect();
    let policies = Policies::new(policies)?.with_exempt(config.policies.exempt().to_vec());
    let mut file = SimulatedFile::new(path.display().to_string(), policies);
    file.identity = config.clients.rules;
    if !routes.is_empty() {
        file.patience = Micros::from_secs(RequestReader::PATIENCE.as_secs());
        file.routes = Some(Box::new(GatewayRoutes(routes)));
    }
    Ok((file, notes))
}

/// The gateway's routes, as it would find them.
struct GatewayRoutes(RouteTable);

impl Routes for GatewayRoutes {
    fn find(&self, host: Option<&str>, path: &str, method: &str) -> Option<(&str, &[String])> {
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        match self.0.find(host, path, &method) {
            RouteLookup::Route(route, _) => Some((&route.id, &route.policies)),
            RouteLookup::MethodNotAllowed(_) | RouteLookup::NoRoute => None,
        }
    }

    fn lists(&self, policy: &str) -> bool {
        self.0.iter().any(|(_, route)| route.policies.iter().any(|name| name == policy))
    }
}
