//! Counts requests, denials and clients of one policy.

use ratewright_core::Timestamp;
use ratewright_core::policy::{Mode, Part, Policy};
use ratewright_core::quota::Quota;

use crate::clients::{ClientCounts, ClientId};
use crate::policy_support::PolicyNotes;
use crate::report::{PolicyReport, RequestSummary};
use crate::timeline_counter::TimelineCounter;

/// Counts the requests of one policy.
#[derive(Debug)]
pub(crate) struct PolicyCounts {
    n_requests: u64,
    n_denied: u64,
    n_near: u64,
    first_denial: Option<RequestSummary>,
    clients: ClientCounts,
    timeline: TimelineCounter,
}

/// What a policy did with one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyOutcome {
    pub(crate) is_denied: bool,
    /// It was allowed, with less than 20% of a limit left.
    pub(crate) is_near: bool,
}

impl PolicyCounts {
    pub(crate) fn n_clients(&self) -> u64 {
        self.clients.n_clients()
    }

    pub(crate) fn new(n_top: usize) -> Self {
        Self {
            n_requests: 0,
            n_denied: 0,
            n_near: 0,
            first_denial: None,
            clients: ClientCounts::new(n_top),
            timeline: TimelineCounter::default(),
        }
    }

    /// Counts a request of a client; `None` if the log does not say which.
    #[inline]
    pub(crate) fn count(
        &mut self,
        at: Timestamp,
        outcome: PolicyOutcome,
        client: Option<ClientId>,
        name: impl Fn() -> String,
        request: impl FnOnce() -> (String, String),
    ) {
        self.n_requests += 1;
        self.n_denied += u64::from(outcome.is_denied);
        self.n_near += u64::from(outcome.is_near);
        self.timeline.count(at, outcome.is_denied);
        if let Some(id) = client {
            self.clients.count(id);
            if outcome.is_denied {
                self.clients.deny(id, at, &name);
            }
        }
        if outcome.is_denied && self.first_denial.is_none() {
            let (method, path) = request();
            self.first_denial = Some(RequestSummary { at, client: name(), method, path });
        }
    }

    pub(crate) fn report(&self, policy: &Policy, notes: PolicyNotes) -> PolicyReport {
        let limits: Vec<_> = policy.limits().iter().map(|limit| limit_text(limit.quota())).collect();
        let by = |part: &Part| part.names().map(ToString::to_string).collect::<Vec<_>>().join("|");
        PolicyReport {
            policy: policy.name().to_owned(),
            mode: match notes.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Off => "off",
            },
            limit: limits.join(" and "),
            by: policy.partition().iter().map(by).collect(),
            requests: self.n_requests,
            allowed: self.n_requests - self.n_denied,
            denied: self.n_denied,
            near_misses: self.n_near,
            clients: self.clients.n_clients(),
            clients_denied: self.clients.n_denied(),
            first_denial: self.first_denial.clone(),
            most_denied: self.clients.most_denied(),
            timeline: self.timeline.report(),
            notes: notes.texts,
            is_simulated: notes.is_simulated,
        }
    }
}

/// A quota in the words of the policy file: `100/min, burst 20`.
fn limit_text(quota: &Quota) -> String {
    let algorithm = quota.algorithm();
    let mut text = quota.rate().to_string();
    if algorithm.has_burst() {
        text.push_str(&format!(", burst {}", quota.capacity()));
    }
    if algorithm != ratewright_core::quota::Algorithm::default() {
        text.push_str(&format!(", {}", algorithm.name()));
    }
    text
}
