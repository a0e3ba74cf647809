//! All buckets of a client address, for people.

use std::fmt;

use serde::Deserialize;

use super::table::{Table, plain};
use super::{InFlightLimit, Limit};

/// The buckets of a client address.
#[derive(Deserialize)]
pub(super) struct Client {
    ip: String,
    /// The name that buckets have for it.
    client: String,
    policies: Vec<Policy>,
}

/// What one policy has for it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    policy: String,
    key: Option<String>,
    #[serde(default)]
    needs: Vec<String>,
    note: Option<String>,
    limits: Vec<Limit>,
    #[serde(default)]
    in_flight_limits: Vec<InFlightLimit>,
}

impl Policy {
    /// The key. A policy without one has one bucket for everybody.
    fn key(&self) -> String {
        match self.key.as_deref() {
            None | Some("") => "(everybody)".to_owned(),
            Some(key) => key.to_owned(),
        }
    }

    /// What the tables do not show.
    fn remark(&self) -> Option<String> {
        let part = |part: &String| match self.needs.len() > 1 && part.contains(" or ") {
            true => format!("({part})"),
            false => part.clone(),
        };
        let needs = self.needs.iter().map(part).collect::<Vec<_>>().join(" and ");
        let needs = (!needs.is_empty()).then(|| format!("needs {needs}"));
        let words: Vec<_> = needs.into_iter().chain(self.note.clone()).collect();
        (!words.is_empty()).then(|| plain(&format!("{}: {}", self.policy, words.join("; "))))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, client, policies } = self;
        let counted_as = if ip == client { String::new() } else { format!(", counted as {client}") };
        writeln!(f, "{}", plain(&format!("{ip}{counted_as}")))?;
        if policies.is_empty() {
            return writeln!(f, "\nThere are no policies");
        }
        let mut rates = Table::new(["LIMIT", "KEY", "LEFT", "OF", "FULL IN", "MODE", "BASIS"]);
        let mut in_flight = Table::new(["LIMIT", "KEY", "IN FLIGHT", "MAX", "MODE"]);
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
        let remarks: Vec<_> = policies.iter().filter_map(Policy::remark).collect();
        if remarks.is_empty() { Ok(()) } else { writeln!(f, "\n{}", remarks.join("\n")) }
    }
}
