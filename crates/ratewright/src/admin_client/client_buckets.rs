//! `ratewright inspect --client`: all buckets of a client address, as text.

use std::fmt;

use ratewright_telemetry::escape_hidden;
use serde::Deserialize;

use super::{InFlightReply, LimitReply};
use crate::text_table::TextTable;

/// The buckets of a client address.
#[derive(Deserialize)]
pub(super) struct ClientBuckets {
    ip: String,
    /// The address as bucket keys contain it: of IPv6 the network.
    client: String,
    policies: Vec<ClientPolicy>,
}

/// The buckets of one policy.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientPolicy {
    policy: String,
    key: Option<String>,
    #[serde(default)]
    needs: Vec<String>,
    note: Option<String>,
    limits: Vec<LimitReply>,
    #[serde(default)]
    in_flight_limits: Vec<InFlightReply>,
}

impl ClientPolicy {
    /// The key. A policy without a key has one bucket for all clients.
    fn key(&self) -> String {
        match self.key.as_deref() {
            None | Some("") => "(all clients)".to_owned(),
            Some(key) => key.to_owned(),
        }
    }

    /// Remarks that do not fit into the tables.
    fn remark(&self) -> Option<String> {
        let part = |part: &String| match self.needs.len() > 1 && part.contains(" or ") {
            true => format!("({part})"),
            false => part.clone(),
        };
        let needs = self.needs.iter().map(part).collect::<Vec<_>>().join(" and ");
        let needs = (!needs.is_empty()).then(|| format!("needs {needs}"));
        let words: Vec<_> = needs.into_iter().chain(self.note.clone()).collect();
        (!words.is_empty()).then(|| escape_hidden(&format!("{}: {}", self.policy, words.join("; "))))
    }
}

impl fmt::Display for ClientBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, client, policies } = self;
        let counted_as = if ip == client { String::new() } else { format!(", counted as {client}") };
        writeln!(f, "{}", escape_hidden(&format!("{ip}{counted_as}")))?;
        if policies.is_empty() {
            return writeln!(f, "\nThere are no policies");
        }
        let mut rates = TextTable::new(["LIMIT", "KEY", "LEFT", "OF", "FULL IN", "MODE", "BASIS"]);
        let mut in_flight = TextTable::new(["LIMIT", "KEY", "IN FLIGHT", "MAX", "MODE"]);
        for policy in policies {
            for limit in &policy.limits {
                let [left, of, full_in, mode, basis] = limit.cells();
                rates.row([limit.name(), policy.key(), left, of, full_in, mode, basis]);
            }
            for limit in &policy.in_flight_limits {
                let (n, max) = (limit.in_flight.to_string(), limit.max.to_string());
                in_flight.row([limit.name(), policy.key(), n, max, limit.mode.clone()]);
            }
        }
        if policies.iter().any(|policy| !policy.limits.is_empty()) {
            write!(f, "\n{rates}")?;
        }
        if policies.iter().any(|policy| !policy.in_flight_limits.is_empty()) {
            write!(f, "\n{in_flight}")?;
        }
        let remarks: Vec<_> = policies.iter().filter_map(ClientPolicy::remark).collect();
        if remarks.is_empty() { Ok(()) } else { writeln!(f, "\n{}", remarks.join("\n")) }
    }
}
