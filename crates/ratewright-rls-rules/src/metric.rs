//! What the metric of a descriptor is called, for one request.

use ratewright_core::sounds_secret;

use crate::domains::Domains;
use crate::level::{By, Entry, Node};

impl Domains {
    /// The name of the metric that a request's descriptor counts in: domain and levels, with the request's values where the file asks
    /// for them (`detailed_metric`, `value_to_metric`). Nothing if no rule is met.
    ///
    /// Values are a client's, and there may be any number of them.
    pub fn metric_name(&self, domain: &str, entries: &[Entry<'_>]) -> Option<String> {
        let (mut plain, mut detailed) = (domain.to_owned(), domain.to_owned());
        let mut whole = domain.to_owned();
        let mut shares = false;
        let node = self.walk(domain, entries, |node, by, entry| {
            let shared = (node.shares && by == By::Wildcard).then(|| pattern(node, entry));
            plain.push_str(&format!(".{}", named(node, by, entry)));
            let is_secret = sounds_secret(entry.key);
            whole.push_str(&format!(".{}_{}", entry.key, if is_secret { "#" } else { entry.value }));
            shares |= shared.is_some();
            detailed.push_str(&format!(".{}", shared.unwrap_or_else(|| valued(entry))));
        });
        Some(match node?.rule.as_ref()?.has_detailed_metric() {
            true if shares => detailed,
            true => whole,
            false => plain,
        })
    }
}

fn named(node: &Node, by: By, entry: Entry<'_>) -> String {
    match by {
        By::Text => valued(entry),
        By::Wildcard if node.value_to_metric && !node.shares => valued(entry),
        By::Wildcard => pattern(node, entry),
        By::Key if node.value_to_metric => valued(entry),
        By::Key => entry.key.to_owned(),
    }
}

/// The key, and the value if there is one and it is no secret.
fn valued(entry: Entry<'_>) -> String {
    if entry.value.is_empty() || sounds_secret(entry.key) {
        entry.key.to_owned()
    } else {
        format!("{}_{}", entry.key, entry.value)
    }
}

/// The key, and the pattern in the place of the value.
fn pattern(node: &Node, entry: Entry<'_>) -> String {
    let rest = node.text.strip_prefix(entry.key).and_then(|rest| rest.strip_prefix('_'));
    format!("{}_{}", entry.key, rest.unwrap_or(&node.text))
}
