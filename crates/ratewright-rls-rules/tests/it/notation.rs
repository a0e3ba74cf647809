//! A notation for trees and requests: one line for each descriptor.
//!
//! ```text
//!   client=red 10/minute           a descriptor; the value is optional
//!   route=api* share               further words are its settings
//!     method=post 1/second         indented by two spaces: nested
//! ```

use ratewright_core::quota::Algorithm;
use ratewright_rls_rules::{
    Descriptor, DescriptorError, Domains, DuplicateDomains, Entry, Matched, RateLimit,
};

/// The domain of most tests.
pub(crate) const DOMAIN: &str = "shop";

/// One domain with these descriptors.
#[track_caller]
pub(crate) fn domains(text: &str) -> Domains {
    let mut domains = Domains::default();
    domains.add(DOMAIN, &descriptors(text), DuplicateDomains::Reject).unwrap();
    domains
}

/// The errors in these descriptors, one line each.
pub(crate) fn errors(text: &str) -> String {
    let added = Domains::default().add(DOMAIN, &descriptors(text), DuplicateDomains::Reject);
    let line = |error: &DescriptorError| format!("{:?} {:?}: {error}\n", error.path, error.field);
    added.err().unwrap_or_default().iter().map(line).collect()
}

/// Descriptors in the notation above.
pub(crate) fn descriptors(text: &str) -> Vec<Descriptor> {
    let mut whole = Descriptor::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let mut above = &mut whole;
        for _ in 0..depth {
            above = above.descriptors.last_mut().unwrap();
        }
        above.descriptors.push(descriptor(line.trim()));
    }
    whole.descriptors
}

fn descriptor(line: &str) -> Descriptor {
    let (entry, words) = line.split_once(' ').unwrap_or((line, ""));
    let Entry { key, value } = entry_of(entry);
    let mut descriptor = Descriptor { key: key.to_owned(), value: value.to_owned(), ..Descriptor::default() };
    for word in words.split_whitespace() {
        match word.split_once(':').unwrap_or((word, "")) {
            ("shadow", _) => descriptor.shadow_mode = true,
            ("quota", _) => descriptor.quota_mode = true,
            ("share", _) => descriptor.share_threshold = true,
            ("detailed", _) => descriptor.detailed_metric = true,
            ("to_metric", _) => descriptor.value_to_metric = true,
            ("unlimited", _) => {
                descriptor.rate_limits.push(RateLimit { unlimited: true, ..RateLimit::default() })
            }
            ("unit", unit) => limit(&mut descriptor).unit = unit.to_owned(),
            ("name", name) => limit(&mut descriptor).name = name.to_owned(),
            ("replaces", name) => limit(&mut descriptor).replaces.push(name.to_owned()),
            ("by", name) => limit(&mut descriptor).algorithm = Algorithm::named(name).unwrap(),
            ("burst", n) => limit(&mut descriptor).burst = Some(n.parse().unwrap()),
            ("times", n) => limit(&mut descriptor).unit_multiplier = n.parse().unwrap(),
            (rate, _) => {
                let (n, unit) = rate.split_once('/').unwrap();
                let requests_per_unit = n.parse().unwrap();
                let limit = RateLimit { requests_per_unit, unit: unit.to_owned(), ..RateLimit::default() };
                descriptor.rate_limits.push(limit);
            }
        }
    }
    descriptor
}

/// The last limit.
fn limit(descriptor: &mut Descriptor) -> &mut RateLimit {
    descriptor.rate_limits.last_mut().unwrap()
}

/// A request's descriptor: `client=red method=get`.
pub(crate) fn entries(text: &str) -> Vec<Entry<'_>> {
    text.split_whitespace().map(entry_of).collect()
}

fn entry_of(text: &str) -> Entry<'_> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    Entry { key, value }
}

/// The rule that matches a request, as text.
pub(crate) fn summary(matched: &Matched<'_>) -> String {
    match matched {
        Matched::Nothing => "nothing".to_owned(),
        Matched::Unlimited(rule) => format!("unlimited {}", rule.path()),
        Matched::Blocked(rule) => format!("blocked {}", rule.path()),
        Matched::Limited(limited) => {
            let attributes = limited.attributes();
            let values = attributes.iter().map(|one| format!(" {}={}", one.name.text().unwrap(), one.value));
            format!("{}{}", limited.rule().path(), values.collect::<String>())
        }
    }
}
