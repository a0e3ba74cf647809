//! The lowest rate that denies at most a given share.
//!
//! ```text
//!   logs ─► requests that the policy covers ─► events: (time, client), a few bytes each
//!                                                │ once for each group of candidate rates
//!                                                ▼
//!                    search: token buckets of many rates side by side, the bracket shrinks
//!                                                │ the rate found, and the next lower one
//!                                                ▼
//!                    confirmation: both replayed through the engine
//! ```
//!
//! # Laws
//! - The suggested rate denies at most the share, and the next lower candidate rate denies more: both are confirmed by a replay.
//! - A higher rate with the same burst never denies more requests or clients, so the search does not miss a lower rate.

mod candidate_rates;
mod event_file;
mod search;
mod share;

use std::num::NonZeroU32;

use ratewright_core::store::Charges;
use ratewright_core::{Query, Quota};

pub use event_file::EventFile;
pub use share::DeniedShare;

use crate::clients::ClientCounts;
use crate::logs::{Log, Logs, LogsReport};
use crate::policy_support::SimulatedPolicies;
use crate::record_facts;
use crate::reorder_buffer::ReorderBuffer;
use crate::replay::{SimulatedFile, client_id, client_name, is_exempt};
use crate::report::number::grouped;
use crate::report::{BurstSuggestion, CurvePoint, DeniedClient, Period, Suggestion};
use crate::simulate::{SimulateError, SimulationSettings, add_log_notes, exempt_note, select_policies};
use crate::stored_record::NeededAttributes;
use candidate_rates::{Candidate, candidate_rates};
use event_file::{EventReader, EventWriter};
use search::{DenialCounts, Search};

/// What the share is a share of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShareOf {
    /// Denied requests, of all requests that the policy covers.
    #[default]
    Requests,
    /// Clients with at least one denied request, of all clients.
    Clients,
}

/// What to search for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SuggestOptions {
    /// The bursts; each gets its own rate.
    pub bursts: Vec<NonZeroU32>,
    /// The largest share that may be denied.
    pub deny_at_most: DeniedShare,
    /// What it is a share of.
    pub of: ShareOf,
}

impl SuggestOptions {
    /// The lowest rate for one burst that denies at most this share of requests.
    pub fn new(burst: NonZeroU32, deny_at_most: DeniedShare) -> Self {
        Self { bursts: vec![burst], deny_at_most, of: ShareOf::Requests }
    }
}

/// Finds the lowest rate for the only policy of `file`, whose own quota does not matter. `render_policy` writes the policy with a rate and a burst.
pub fn suggest(
    file: &SimulatedFile,
    logs: Vec<Log>,
    options: &SuggestOptions,
    settings: &SimulationSettings,
    event_file: EventFile,
    render_policy: &dyn Fn(&str, NonZeroU32) -> String,
    progress: &mut dyn FnMut(u64),
) -> Result<Suggestion, SimulateError> {
    let reorder = ReorderBuffer::new(
        NeededAttributes::new(file.policies.needs().iter()),
        settings.spread_whole_seconds,
    );
    let mut logs = Logs::open(logs, reorder, settings.n_bytes_max)?;
    let SimulatedPolicies { notes, .. } = select_policies(file, &logs, settings)?;
    if let Some(obstacle) = notes.into_iter().find(|notes| !notes.is_simulated) {
        return Err(SimulateError::NotRecorded(obstacle.texts.join("; ")));
    }
    let mut writer = EventWriter::new(event_file);
    let mut suggestion = Suggestion {
        of: match options.of {
            ShareOf::Requests => "requests",
            ShareOf::Clients => "clients",
        },
        deny_at_most: options.deny_at_most.to_string(),
        ..Suggestion::default()
    };
    let mut has_whole_seconds = false;
    let mut left_out = LeftOut::default();
    logs.each(progress, |at, record| {
        let address = record_facts::address(record, &file.identity);
        let path = record_facts::path_seen(record, file);
        let Some((facts, _)) = record_facts::facts(record, address, file, &path) else {
            left_out.n_rejected += 1;
            return Ok(());
        };
        let attributes = facts.attributes();
        let query = Query { select: facts.select(&[]), address: facts.address, ..Query::new(&attributes) };
        let mut charges = Charges::new();
        file.policies.select(&query, &mut charges);
        let key = match &*charges {
            [charge] => &charge.key,
            [_, ..] => {
                left_out.n_ambiguous += 1;
                return Ok(());
            }
            [] => {
                let is_exempt = is_exempt(&file.policies, &query);
                *(if is_exempt { &mut left_out.n_exempt } else { &mut left_out.n_others }) += 1;
                return Ok(());
            }
        };
        has_whole_seconds |= record.is_whole_second;
        // Without a partition, all requests are one client.
        let name = if key.name().partition().is_empty() { Some("(all requests)") } else { None };
        let id = client_id(writer.hasher(), key, name).unwrap_or_default();
        writer.add(at, id, || client_name(key, name, settings.conceal))?;
        let period = suggestion.period.get_or_insert(Period { from: at, to: at });
        period.to = period.to.max(at);
        Ok::<_, SimulateError>(())
    })?;
    let was_full = logs.was_full();
    let LogsReport { logs, counts, unreadable } = logs.report();
    let mut events = writer.finish()?;
    (suggestion.requests, suggestion.clients) = (events.n_events(), events.n_clients() as u64);
    suggestion.lines = counts.n_lines;
    suggestion.unreadable = counts.n_unreadable;
    suggestion.lines_without_request = counts.n_without_request;
    suggestion.out_of_order = counts.n_out_of_order;
    (suggestion.logs, suggestion.unreadable_lines) = (logs, unreadable);
    let policy = file.policies.iter().next();
    let by = policy.map(|policy| policy.partition()).unwrap_or_default();
    suggestion.by = by.iter().flat_map(|part| part.names()).map(ToString::to_string).collect();
    if suggestion.requests > 0 {
        for burst in &options.bursts {
            let found = suggest_for_burst(&mut events, *burst, options, settings.n_top, render_policy)?;
            suggestion.bursts.push(found);
        }
    }
    let notes = &mut suggestion.notes;
    let has_no_requests =
        suggestion.requests == 0 && left_out.n_all() == 0 && suggestion.lines_without_request > 0;
    let has_whole_seconds = has_whole_seconds && !settings.spread_whole_seconds;
    let out_of_order = (suggestion.out_of_order, was_full);
    add_log_notes(notes, &suggestion.logs, has_no_requests, out_of_order, has_whole_seconds);
    left_out.add_to(notes);
    Ok(suggestion)
}

/// Requests that the policy does not count.
#[derive(Default)]
struct LeftOut {
    n_exempt: u64,
    n_rejected: u64,
    /// Requests with several values of an attribute that the policy counts by.
    n_ambiguous: u64,
    n_others: u64,
}

impl LeftOut {
    fn n_all(&self) -> u64 {
        self.n_exempt + self.n_rejected + self.n_ambiguous + self.n_others
    }

    fn add_to(&self, notes: &mut Vec<String>) {
        notes.extend(exempt_note(self.n_exempt));
        for (n, reason) in [
            (self.n_others, "they do not match --path or --method, or lack a --by attribute"),
            (
                self.n_rejected,
                "the gateway would reject them before rate limiting: no route, or ambiguous path",
            ),
            (self.n_ambiguous, "they have several values of a --by attribute, and would count under each"),
        ] {
            if n > 0 {
                notes.push(format!("{} requests were not counted: {reason}", grouped(n)));
            }
        }
    }
}

/// The lowest rate for one burst.
fn suggest_for_burst(
    events: &mut EventReader,
    burst: NonZeroU32,
    options: &SuggestOptions,
    n_top: usize,
    render_policy: &dyn Fn(&str, NonZeroU32) -> String,
) -> Result<BurstSuggestion, SimulateError> {
    let candidates = candidate_rates(burst);
    let (n_requests, n_clients) = (events.n_events(), events.n_clients() as u64);
    let is_enough = |denied: &DenialCounts| match options.of {
        ShareOf::Requests => options.deny_at_most.covers(denied.n_requests, n_requests),
        ShareOf::Clients => options.deny_at_most.covers(denied.n_clients, n_clients),
    };
    let search = Search::run(&candidates, events, is_enough)?;
    let point = |candidate: &Candidate, denied: &DenialCounts| CurvePoint {
        rate: candidate.text(),
        denied: denied.n_requests,
        clients_denied: denied.n_clients,
    };
    let mut found = BurstSuggestion {
        burst: burst.get(),
        curve: search.curve().map(|(index, denied)| point(&candidates[index], denied)).collect(),
        ..BurstSuggestion::default()
    };
    let Some(chosen) = search.lowest() else {
        found.sufficient_burst = search::sufficient_burst(events, burst, is_enough)?;
        return Ok(found);
    };
    let candidate = &candidates[chosen];
    let confirmed = search::replay_quota(events, &candidate.quota, n_top)?;
    if !is_enough(&confirmed.denied) {
        return Err(SimulateError::NotConfirmed { rate: candidate.text() });
    }
    if let Some(lower) = chosen.checked_sub(1).and_then(|index| candidates.get(index)) {
        let denied = search::replay_quota(events, &lower.quota, 0)?.denied;
        if is_enough(&denied) {
            return Err(SimulateError::NotConfirmed { rate: lower.text() });
        }
        found.next_lower = Some(point(lower, &denied));
    }
    (found.denied, found.clients_denied) = (confirmed.denied.n_requests, confirmed.denied.n_clients);
    found.most_denied = with_names(confirmed.clients, events)?;
    found.policy = Some(render_policy(&candidate.text(), burst));
    found.rate = Some(candidate.text());
    Ok(found)
}

/// The most denied clients, with the names that the events have for their numbers.
fn with_names(clients: ClientCounts, events: &mut EventReader) -> Result<Vec<DeniedClient>, SimulateError> {
    let mut most = clients.most_denied();
    let numbers: Vec<u32> = most.iter().filter_map(|client| client.client.parse().ok()).collect();
    for (client, name) in most.iter_mut().zip(events.names(&numbers)?) {
        client.client = name;
    }
    Ok(most)
}

/// A quota of a rate and a burst, if the burst is valid for it.
fn quota(rate: ratewright_core::quota::Rate, burst: NonZeroU32) -> Option<Quota> {
    Quota::new(ratewright_core::quota::Algorithm::default(), rate).ok()?.with_burst(burst).ok()
}
