//! A simulation: logs and policy files in, a report out.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratewright_core::Timestamp;
use ratewright_core::policy::PolicyError;
use ratewright_core::query::AttributeName;
use ratewright_http::address::ClientName;

use crate::clients::{ClientCounts, ClientHasher, ClientId, ClientSet};
use crate::logs::{Log, LogError, Logs, LogsReport};
use crate::policy_support::{RecordedAttributes, SimulatedPolicies};
use crate::record::Record;
use crate::record_facts;
use crate::reorder_buffer::ReorderBuffer;
use crate::replay::{AllPolicyCounts, Replay, ReplayOutcome, SimulatedFile};
use crate::report::number::grouped;
use crate::report::{
    ClientChange, ComparisonReport, DecisionDifference, DeniedClient, LogReport, LoggedDecisionsReport,
    Period, Report, RequestSummary,
};
use crate::stored_record::NeededAttributes;
use crate::timeline_counter::TimelineCounter;

/// Requests between two checks of the number of clients.
const CLIENTS_CHECKED_EVERY: u64 = 64;

/// How to simulate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimulationSettings {
    /// Policies that are simulated as enforced, whatever their mode; `*` is all of them.
    pub enforce: Vec<String>,
    /// Attributes that no request has. Otherwise, policies that need what the log does not record are not simulated.
    pub assume_absent: Vec<AttributeName<String>>,
    /// How many of the most denied clients are listed.
    pub n_top: usize,
    /// Spreads requests whose time is a whole second evenly over that second.
    pub spread_whole_seconds: bool,
    /// Maximum bytes of each log, after decompression.
    pub n_bytes_max: u64,
    /// Replaces a value that may be a secret, such as an API key.
    pub conceal: fn(&str) -> String,
    /// Maximum number of clients, counted once for each policy. Each takes about 140 bytes.
    pub n_clients_max: u64,
    /// Ends the simulation when it becomes true.
    pub cancel: Arc<AtomicBool>,
}

impl Default for SimulationSettings {
    fn default() -> Self {
        Self {
            enforce: Vec::new(),
            assume_absent: Vec::new(),
            n_top: 10,
            spread_whole_seconds: false,
            n_bytes_max: 1 << 40,
            conceal: |_| "(hidden)".to_owned(),
            n_clients_max: u64::MAX,
            cancel: Arc::default(),
        }
    }
}

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// A log cannot be read, or its format is unknown.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The policies are invalid as a set.
    #[error(transparent)]
    Policies(#[from] PolicyError),
    /// The temporary file cannot be written or read.
    #[error("cannot use the temporary file: {0}")]
    TemporaryFile(#[from] std::io::Error),
    /// [`SimulationSettings::cancel`] became true.
    #[error("simulation cancelled")]
    Cancelled,
    /// There are more clients than [`SimulationSettings::n_clients_max`].
    #[error("too many clients: more than {n_max}, counted once for each policy")]
    TooManyClients {
        /// The maximum.
        n_max: u64,
    },
    /// The logs do not record what a policy needs.
    #[error("{0}")]
    NotRecorded(String),
    /// The engine does not confirm what the search found.
    #[error("suggested rate {rate} failed its replay check; please report this bug")]
    NotConfirmed {
        /// The rate.
        rate: String,
    },
}

/// The requests of all logs together.
struct Totals {
    n_requests: u64,
    n_allowed: u64,
    n_denied: u64,
    n_exempt: u64,
    n_without_policy: u64,
    n_rejected: u64,
    n_without_address: u64,
    n_from_proxies: u64,
    n_status_429: u64,
    has_whole_seconds: bool,
    period: Option<Period>,
    timeline: TimelineCounter,
    hasher: ClientHasher,
    clients: ClientSet,
    clients_denied: ClientSet,
    logged_decisions: Option<LoggedDecisionsReport>,
}

/// The differences to another policy file.
struct Comparison {
    replay: Replay,
    report: ComparisonReport,
    newly_denied: ClientCounts,
    newly_allowed: ClientCounts,
    /// What of the other file was not simulated.
    notes: Vec<String>,
}

/// Replays logs against a policy file, and compares it with another one. `progress` is called every 8,192
/// lines with the number of lines so far.
pub fn simulate(
    file: SimulatedFile,
    against: Option<SimulatedFile>,
    logs: Vec<Log>,
    settings: &SimulationSettings,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, SimulateError> {
    let needs = file.policies.needs().iter();
    let needs = needs.chain(against.iter().flat_map(|file| file.policies.needs().iter()));
    let reorder = ReorderBuffer::new(NeededAttributes::new(needs), settings.spread_whole_seconds);
    let mut logs = Logs::open(logs, reorder, settings.n_bytes_max)?;
    let SimulatedPolicies { policies, notes, general } = select_policies(&file, &logs, settings)?;
    let replay = Replay::new(file, policies);
    let mut all_counts =
        AllPolicyCounts::new(replay.policies().n_policies(), settings.n_top, settings.conceal);
    let mut comparison = match against {
        Some(against) => {
            let selected = select_policies(&against, &logs, settings)?;
            Some(Comparison::new(against, selected, settings.n_top))
        }
        None => None,
    };
    let mut totals = Totals::new();
    let mut n_replayed: u64 = 0;
    logs.each(progress, |at, record| {
        if settings.cancel.load(Ordering::Relaxed) {
            return Err(SimulateError::Cancelled);
        }
        n_replayed += 1;
        if n_replayed.is_multiple_of(CLIENTS_CHECKED_EVERY) && all_counts.n_clients() > settings.n_clients_max
        {
            return Err(SimulateError::TooManyClients { n_max: settings.n_clients_max });
        }
        let address = record_facts::address(record, replay.identity());
        let outcome = replay.decide(at, record, address, Some(&mut all_counts));
        let client = totals.count(at, record, address, &replay, outcome);
        if let Some(comparison) = &mut comparison {
            comparison.count(at, record, outcome, client);
        }
        Ok::<_, SimulateError>(())
    })?;
    let was_full = logs.was_full();
    let LogsReport { logs, counts, unreadable } = logs.report();
    let policies = replay.policies().iter().zip(&all_counts.policies).zip(notes);
    let mut report = Report {
        lines: counts.n_lines,
        unreadable: counts.n_unreadable,
        lines_without_request: counts.n_without_request,
        out_of_order: counts.n_out_of_order,
        unreadable_lines: unreadable,
        logs,
        policies: policies.map(|((policy, counts), notes)| counts.report(policy, notes)).collect(),
        notes: comparison.iter().flat_map(|comparison| &comparison.notes).cloned().chain(general).collect(),
        against: comparison.map(Comparison::report),
        ..Report::default()
    };
    for policy in &mut report.policies {
        policy.timeline.align(&totals.timeline.report());
    }
    totals.add_to(&mut report, settings, replay.n_evicted(), was_full);
    Ok(report)
}

/// The policies of a file that the logs allow us to simulate.
pub(crate) fn select_policies(
    file: &SimulatedFile,
    logs: &Logs,
    settings: &SimulationSettings,
) -> Result<SimulatedPolicies, PolicyError> {
    let recorded = RecordedAttributes {
        formats: logs.formats(),
        absent: &settings.assume_absent,
        routes: file.routes.as_deref(),
        can_wait: !file.patience.is_zero(),
    };
    let is_routed = |name: &str| file.routes.as_ref().is_some_and(|routes| routes.lists(name));
    recorded.select_policies(&file.policies, &settings.enforce, is_routed)
}

impl Totals {
    fn new() -> Self {
        Self {
            n_requests: 0,
            n_allowed: 0,
            n_denied: 0,
            n_exempt: 0,
            n_without_policy: 0,
            n_rejected: 0,
            n_without_address: 0,
            n_from_proxies: 0,
            n_status_429: 0,
            has_whole_seconds: false,
            period: None,
            timeline: TimelineCounter::default(),
            hasher: ClientHasher::default(),
            clients: ClientSet::default(),
            clients_denied: ClientSet::default(),
            logged_decisions: None,
        }
    }

    /// Counts a request. Returns its client.
    fn count(
        &mut self,
        at: Timestamp,
        record: &Record<'_>,
        address: Option<IpAddr>,
        replay: &Replay,
        outcome: ReplayOutcome,
    ) -> Option<AddressClient> {
        let is_denied = outcome == ReplayOutcome::Denied;
        self.n_requests += 1;
        self.n_denied += u64::from(is_denied);
        self.n_allowed += u64::from(!is_denied);
        self.n_exempt += u64::from(outcome == ReplayOutcome::Exempt);
        self.n_without_policy += u64::from(outcome == ReplayOutcome::NoPolicy);
        self.n_rejected += u64::from(outcome == ReplayOutcome::Rejected);
        self.n_status_429 += u64::from(record.status == Some(429));
        self.has_whole_seconds |= record.is_whole_second;
        let period = self.period.get_or_insert(Period { from: at, to: at });
        period.to = period.to.max(at);
        self.timeline.count(at, is_denied);
        let client = address.map(|address| {
            let name = ClientName::new(address, replay.identity().ipv6_prefix);
            let id = self.hasher.id(name.as_str().as_bytes());
            self.clients.insert(id);
            if is_denied {
                self.clients_denied.insert(id);
            }
            AddressClient { id, name }
        });
        self.n_without_address += u64::from(address.is_none());
        let proxies = &replay.identity().proxies;
        if !proxies.trusted.is_empty() && address.is_some_and(|address| proxies.trust(address)) {
            self.n_from_proxies += 1;
        }
        if let Some(decision) = &record.decision {
            let logged = self.logged_decisions.get_or_insert_default();
            logged.requests += 1;
            logged.denied += u64::from(decision.is_denied);
            logged.denied_only_in_log += u64::from(decision.is_denied && !is_denied);
            logged.denied_only_in_simulation += u64::from(is_denied && !decision.is_denied);
            if decision.is_denied != is_denied && logged.first_difference.is_none() {
                let (path, _) = record_facts::path_and_query(&record.target);
                let request = RequestSummary {
                    at,
                    client: client.as_ref().map_or("unknown", |client| client.name.as_str()).to_owned(),
                    method: record.method.clone().into_owned(),
                    path: path.to_owned(),
                };
                let denied_in = if is_denied { "simulation" } else { "log" };
                logged.first_difference = Some(DecisionDifference { request, denied_in });
            }
        }
        client
    }

    /// Adds the totals, and the caveats that apply to them.
    fn add_to(self, report: &mut Report, settings: &SimulationSettings, n_evicted: u64, was_full: bool) {
        report.period = self.period;
        (report.requests, report.allowed, report.denied) = (self.n_requests, self.n_allowed, self.n_denied);
        report.clients = self.clients.len() as u64;
        report.clients_denied = self.clients_denied.len() as u64;
        report.timeline = self.timeline.report();
        (report.logged_decisions, report.status_429) = (self.logged_decisions, self.n_status_429);
        let notes = &mut report.notes;
        add_log_notes(
            notes,
            &report.logs,
            report.requests == 0 && report.lines_without_request > 0,
            (report.out_of_order, was_full),
            self.has_whole_seconds && !settings.spread_whole_seconds,
        );
        notes.extend(exempt_note(self.n_exempt));
        if self.n_without_policy > 0 {
            notes.push(format!("{} requests match no policy", grouped(self.n_without_policy)));
        }
        if self.n_rejected > 0 {
            notes.push(format!(
                "{} requests count as allowed although the gateway would reject them before rate limiting: no route, \
                 or ambiguous path",
                grouped(self.n_rejected)
            ));
        }
        if self.n_without_address > 0 {
            notes.push(format!(
                "the log does not record the client address of {} requests; policies by ip did not apply to them",
                grouped(self.n_without_address)
            ));
        }
        if self.n_from_proxies > 0 {
            notes.push(format!(
                "{} requests have a trusted proxy's address as client: the log does not record the real client",
                grouped(self.n_from_proxies)
            ));
        }
        if n_evicted > 0 {
            notes.push(format!(
                "{} buckets were dropped because more than 40 million were in use; denials may be missing",
                grouped(n_evicted)
            ));
        }
    }
}

/// The note on exempt requests, if there are some.
pub(crate) fn exempt_note(n_exempt: u64) -> Option<String> {
    let text = "requests are exempt, so no policy counts them (section exempt; by default static files, health checks and OPTIONS)";
    (n_exempt > 0).then(|| format!("{} {text}", grouped(n_exempt)))
}

/// Adds the notes on reading the logs, which all reports have.
pub(crate) fn add_log_notes(
    notes: &mut Vec<String>,
    logs: &[LogReport],
    has_no_requests: bool,
    (n_out_of_order, was_full): (u64, bool),
    has_whole_seconds: bool,
) {
    for log in logs {
        if let Some(error) = &log.error {
            notes.push(format!("log not fully read: {}: {error}", log.log));
        }
    }
    if has_no_requests {
        notes.push("no requests found in the logs; check --format".to_owned());
    }
    if n_out_of_order > 0 {
        notes.push(format!(
            "{} requests were not replayed: more than {} out of order; pass the logs as separate arguments, or sort the \
             log by time",
            grouped(n_out_of_order),
            if was_full { "100 MB of records" } else { "a minute" }
        ));
    }
    if has_whole_seconds {
        notes.push(
            "the log has whole seconds only, so the requests of one second were replayed at the same instant; use \
             --spread to spread them over the second"
                .to_owned(),
        );
    }
}

/// A client by its address.
struct AddressClient {
    id: ClientId,
    name: ClientName,
}

impl Comparison {
    fn new(file: SimulatedFile, selected: SimulatedPolicies, n_top: usize) -> Self {
        let report = ComparisonReport { file: file.name.clone(), ..ComparisonReport::default() };
        let left_out = selected.policies.iter().zip(&selected.notes).filter(|(_, notes)| !notes.is_simulated);
        let left_out = left_out.map(|(policy, notes)| {
            format!("{}: policy {} was not simulated: {}", file.name, policy.name(), notes.texts.join("; "))
        });
        let notes =
            left_out.chain(selected.general.iter().map(|note| format!("{}: {note}", file.name))).collect();
        let SimulatedPolicies { policies, .. } = selected;
        let replay = Replay::new(file, policies);
        Self {
            replay,
            report,
            newly_denied: ClientCounts::new(n_top),
            newly_allowed: ClientCounts::new(n_top),
            notes,
        }
    }

    /// Compares the decision of the new file with that of the other one.
    fn count(
        &mut self,
        at: Timestamp,
        record: &Record<'_>,
        new: ReplayOutcome,
        client: Option<AddressClient>,
    ) {
        let address = record_facts::address(record, self.replay.identity());
        let old = self.replay.decide(at, record, address, None);
        let (is_new, is_old) = (new == ReplayOutcome::Denied, old == ReplayOutcome::Denied);
        self.report.denied += u64::from(is_old);
        if let Some(client) = &client {
            self.newly_denied.count(client.id);
            self.newly_allowed.count(client.id);
        }
        let (n, clients) = match (is_old, is_new) {
            (false, true) => (&mut self.report.newly_denied, &mut self.newly_denied),
            (true, false) => (&mut self.report.newly_allowed, &mut self.newly_allowed),
            (true, true) | (false, false) => return,
        };
        *n += 1;
        if let Some(client) = client {
            clients.deny(client.id, at, || client.name.as_str().to_owned());
        }
    }

    fn report(self) -> ComparisonReport {
        ComparisonReport {
            clients_newly_denied: self.newly_denied.n_denied(),
            clients_newly_allowed: self.newly_allowed.n_denied(),
            most_newly_denied: client_changes(&self.newly_denied),
            most_newly_allowed: client_changes(&self.newly_allowed),
            ..self.report
        }
    }
}

/// The clients with the most changed decisions, which were counted as denials.
fn client_changes(counts: &ClientCounts) -> Vec<ClientChange> {
    let change = |client: DeniedClient| ClientChange {
        client: client.client,
        requests: client.requests,
        changed: client.denied,
        first_at: client.first_denied_at,
        last_at: client.last_denied_at,
    };
    counts.most_denied().into_iter().map(change).collect()
}
