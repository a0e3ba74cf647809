//! The name of a descriptor's metric, for one request.

use crate::domains::Domains;
use crate::tree_level::{DescriptorNode, Entry, MatchKind};
use ratewright_telemetry::sounds_secret;

impl Domains {
    /// The name of the metric of a request's descriptor: domain and levels, with the request's values where the file
    /// asks for them (`detailed_metric`, `value_to_metric`). None if no rule matches.
    ///
    /// The values come from clients, so there may be any number of names.
    pub fn metric_name(&self, domain: &str, entries: &[Entry<'_>]) -> Option<String> {
        let (mut plain, mut detailed) = (domain.to_owned(), domain.to_owned());
        let mut whole = domain.to_owned();
        let mut shares_bucket = false;
        let node = self.walk(domain, entries, |node, kind, entry| {
            let shared =
                (node.shares_bucket && kind == MatchKind::Wildcard).then(|| key_and_wildcard(node, entry));
            plain.push_str(&format!(".{}", level_name(node, kind, entry)));
            let is_secret = sounds_secret(entry.key);
            whole.push_str(&format!(".{}_{}", entry.key, if is_secret { "#" } else { entry.value }));
            shares_bucket |= shared.is_some();
            detailed.push_str(&format!(".{}", shared.unwrap_or_else(|| key_and_value(entry))));
        });
        Some(match node?.rule.as_ref()?.has_detailed_metric() {
            true if shares_bucket => detailed,
            true => whole,
            false => plain,
        })
    }
}

fn level_name(node: &DescriptorNode, kind: MatchKind, entry: Entry<'_>) -> String {
    match kind {
        MatchKind::Text => key_and_value(entry),
        MatchKind::Wildcard if node.value_to_metric && !node.shares_bucket => key_and_value(entry),
        MatchKind::Wildcard => key_and_wildcard(node, entry),
        MatchKind::Key if node.value_to_metric => key_and_value(entry),
        MatchKind::Key => entry.key.to_owned(),
    }
}

/// The key, and the value unless it is empty or secret.
fn key_and_value(entry: Entry<'_>) -> String {
    if entry.value.is_empty() || sounds_secret(entry.key) {
        entry.key.to_owned()
    } else {
        format!("{}_{}", entry.key, entry.value)
    }
}

/// The key, and the wildcard in place of the value.
fn key_and_wildcard(node: &DescriptorNode, entry: Entry<'_>) -> String {
    let rest = node.text.strip_prefix(entry.key).and_then(|rest| rest.strip_prefix('_'));
    format!("{}_{}", entry.key, rest.unwrap_or(&node.text))
}
