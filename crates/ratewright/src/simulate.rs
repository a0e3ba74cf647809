//! `ratewright simulate`: who would have been denied, according to access logs.

use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use http::Method;
use ratewright_core::policy::{Policy, PolicyError, Selector};
use ratewright_core::{Micros, Policies};
use ratewright_gateway::RouteTable;
use ratewright_gateway::route::RouteLookup;
use ratewright_sim::report::LogReport;
use ratewright_sim::{Report, Routes, SimulatedFile, SimulationSettings};
use ratewright_telemetry::{escape_hidden, escape_hidden_in_json};
use ratewright_tower::RequestReader;
use tempfile::NamedTempFile;

use crate::cli::{LogArgs, SimulateArgs};
use crate::config::{Config, ConfigError, Source};
use crate::input_logs::LogFiles;

/// Simulates a policy file, and prints the report.
pub(crate) fn simulate(args: &SimulateArgs) -> ExitCode {
    match run(args) {
        Ok(report) => {
            let applies = report.policies.iter().any(|policy| policy.requests > 0);
            if report.requests > 0 && !applies && !report.policies.is_empty() {
                eprintln!("warning: no policy applied to any request; the notes of the report say why");
            }
            let n_requests = report.requests + report.out_of_order;
            let is_complete =
                warn_of_lost_requests(n_requests, report.out_of_order, report.unreadable, &report.logs);
            let is_complete = is_complete && report.requests > 0 && (applies || report.policies.is_empty());
            crate::print(&if args.json { to_json_text(&report) } else { report.to_text() });
            ExitCode::from(u8::from(!is_complete))
        }
        Err(error) => error.report(),
    }
}

/// Warns on standard error if a part of the logs was not replayed: a reader of a filtered report must see it too. Returns true if all was.
pub(crate) fn warn_of_lost_requests(
    n_requests: u64,
    n_out_of_order: u64,
    n_unreadable: u64,
    logs: &[LogReport],
) -> bool {
    if n_unreadable > 0 {
        eprintln!("warning: {n_unreadable} lines could not be read; the report shows the first of them");
    }
    if n_out_of_order > 0 {
        eprintln!(
            "warning: {n_out_of_order} of {n_requests} requests were not replayed: they are out of order; pass the logs as \
             separate arguments, or sort the log by time"
        );
    }
    let failed = logs.iter().filter_map(|log| Some((&log.log, log.error.as_ref()?)));
    let failed: Vec<_> = failed.map(|(log, error)| escape_hidden(&format!("{log}: {error}"))).collect();
    failed.iter().for_each(|failed| eprintln!("warning: log not fully read: {failed}"));
    n_unreadable == 0 && n_out_of_order == 0 && failed.is_empty()
}

/// Why a command that reads logs failed.
pub(crate) enum CommandError {
    Config(Vec<ConfigError>),
    Other(anyhow::Error),
}

impl CommandError {
    /// Prints it, and returns the exit status. Names of logs may have control characters.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Config(errors) => crate::report_errors(&errors),
            Self::Other(error) => {
                eprintln!("error: {}", escape_hidden(&format!("{error:#}")));
                ExitCode::from(crate::EXIT_USAGE)
            }
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// A value as one JSON object. Serialization cannot fail: all map keys are strings.
pub(crate) fn to_json_text(value: &impl serde::Serialize) -> String {
    format!("{}\n", escape_hidden_in_json(&serde_json::to_string_pretty(value).unwrap_or_default()))
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
            let (against, of_other) = policy_file(path, args.profile.as_deref())?;
            notes.extend(of_other.into_iter().map(|note| format!("{}: {note}", path.display())));
            Some(against)
        }
        None => None,
    };
    let page = match &args.html {
        Some(path) => Some(HtmlPage::create(path, &args.logs.logs)?),
        None => None,
    };
    let LogFiles { logs, mut progress } = LogFiles::new(&args.logs)?;
    let mut settings = settings(&args.logs, args.top);
    settings.enforce.clone_from(&args.enforce);
    let report = ratewright_sim::simulate(file, against, logs, &settings, &mut |n| progress.show(n));
    progress.finish();
    let mut report = report?;
    report.notes.append(&mut notes);
    if let Some(page) = page {
        let title = format!("Simulation of {}", args.config.display());
        page.write(&report.to_html(&title))?;
    }
    Ok(report)
}

/// The page that a report is written to. Until it is complete, it is a temporary file beside the page.
struct HtmlPage {
    path: PathBuf,
    file: NamedTempFile,
}

impl HtmlPage {
    /// Checks that the page can be written before logs are read for minutes. A file that is not a page is not replaced: `--html access.log`
    /// is a mistake.
    fn create(path: &Path, logs: &[PathBuf]) -> anyhow::Result<Self> {
        let name = path.display();
        let is_page = |start: &[u8]| start.to_ascii_lowercase().starts_with(b"<!doctype html");
        // A link stays a link to the page.
        let path = match path.metadata() {
            Ok(metadata) => {
                ensure!(metadata.is_file(), "--html: {name} is not a regular file; use another name");
                let mut start = Vec::new();
                let page = File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
                page.with_context(|| format!("--html: cannot replace {name}"))?;
                let real = path.canonicalize().with_context(|| format!("--html: cannot replace {name}"))?;
                let is_log = logs.iter().any(|log| log.canonicalize().is_ok_and(|log| log == real));
                let is_empty_page = start.is_empty() && real.extension().is_some_and(|name| name == "html");
                let is_replaceable = !is_log && (is_empty_page || is_page(&start));
                ensure!(is_replaceable, "--html: {name} exists and is not an HTML page; use another name");
                real
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                ensure!(
                    !path.is_symlink(),
                    "--html: {name} is a link to a file that does not exist; use another name"
                );
                path.to_owned()
            }
            Err(error) => return Err(error).with_context(|| format!("--html: cannot write {name}")),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder);
        let file = file.with_context(|| format!("--html: cannot write {name}"))?;
        Ok(Self { path, file })
    }

    fn write(mut self, text: &str) -> anyhow::Result<()> {
        let context = || format!("cannot write {}", self.path.display());
        self.file.write_all(text.as_bytes()).with_context(context)?;
        self.file.persist(&self.path).with_context(context)?;
        Ok(())
    }
}

/// The settings that both commands have.
pub(crate) fn settings(logs: &LogArgs, top: u16) -> SimulationSettings {
    let mut settings = SimulationSettings::default();
    settings.n_top = usize::from(top);
    settings.spread_whole_seconds = logs.spread;
    settings.n_bytes_max = logs.max_size;
    settings.assume_absent.clone_from(&logs.assume_absent);
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
    Ok(simulated_file(config, path.display().to_string())?)
}

/// A configuration to simulate, which reports call by this name, and notes on what of it is not simulated.
pub(crate) fn simulated_file(
    config: Config,
    name: String,
) -> Result<(SimulatedFile, Vec<String>), PolicyError> {
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
    let mut file = SimulatedFile::new(name, policies);
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

    fn match_hosts(&self) -> bool {
        self.0.iter().any(|(matched, _)| !matched.hosts.is_empty())
    }

    fn lists(&self, policy: &str) -> bool {
        self.0.iter().any(|(_, route)| route.policies.iter().any(|name| name == policy))
    }
}
