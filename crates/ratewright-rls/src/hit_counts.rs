//! Counts the hits of each rule, and those over its limit, under the names that the files ask for.
//!
//! With `detailed_metric` and `value_to_metric`, names contain values from requests, which clients choose. So the number of names is bounded: the rest are
//! counted together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

/// The most names.
const NAMES_MAX: usize = 10_000;

/// The longest name, in bytes.
const NAME_MAX: usize = 500;

/// The name under which the rest are counted.
const OTHERS: &str = "others";

/// Hits of all rules, since the start.
#[derive(Debug, Default)]
pub struct HitCounts {
    by_name: RwLock<HashMap<Box<str>, HitCounters>>,
    /// How many names contain values from requests.
    n_by_clients: AtomicUsize,
    others: HitCounters,
}

/// Where a name comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameSource {
    /// The file alone.
    ByFile,
    /// Also from values in requests.
    ByClient,
}

#[derive(Debug, Default)]
struct HitCounters {
    n_all: AtomicU64,
    n_over: AtomicU64,
}

/// The hits of one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HitsOf {
    /// The rule: its domain and its levels.
    pub rule: String,
    /// All hits.
    pub n_all: u64,
    /// Those over the limit.
    pub n_over: u64,
}

impl HitCounts {
    pub(crate) fn add(&self, rule: &str, source: NameSource, hits: u32, is_over: bool) {
        let rule = rule.split_at(rule.floor_char_boundary(NAME_MAX)).0;
        if let Some(counts) = self.by_name.read().get(rule) {
            return counts.add(hits, is_over);
        }
        let is_full = self.n_by_clients.load(Ordering::Relaxed) >= NAMES_MAX;
        if source == NameSource::ByClient && is_full {
            return self.others.add(hits, is_over);
        }
        let mut by_name = self.by_name.write();
        if !by_name.contains_key(rule) && source == NameSource::ByClient {
            self.n_by_clients.fetch_add(1, Ordering::Relaxed);
        }
        by_name.entry(rule.into()).or_default().add(hits, is_over);
    }

    /// All hits so far, by rule.
    pub fn read(&self) -> Vec<HitsOf> {
        let by_name = self.by_name.read();
        let mut all: Vec<_> = by_name.iter().map(|(rule, counts)| counts.read(rule)).collect();
        all.extend(Some(self.others.read(OTHERS)).filter(|others| others.n_all > 0));
        all.sort_by(|a, b| a.rule.cmp(&b.rule));
        all
    }
}

impl HitCounters {
    fn read(&self, rule: &str) -> HitsOf {
        let [n_all, n_over] = [&self.n_all, &self.n_over].map(|n| n.load(Ordering::Relaxed));
        HitsOf { rule: rule.to_owned(), n_all, n_over }
    }

    fn add(&self, hits: u32, is_over: bool) {
        self.n_all.fetch_add(hits.into(), Ordering::Relaxed);
        if is_over {
            self.n_over.fetch_add(hits.into(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_end_to_names() {
        let counts = HitCounts::default();
        let name = |n: usize| format!("{n}é").repeat(200);
        (0..NAMES_MAX + 5).for_each(|n| counts.add(&name(n), NameSource::ByClient, 2, n % 2 == 0));
        counts.add("shop.a", NameSource::ByFile, 1, false);
        let all = counts.read();
        assert_eq!(all.len(), NAMES_MAX + 2);
        assert!(all.iter().all(|one| one.rule.len() <= NAME_MAX));
        let of = |rule: &str| all.iter().find(|one| one.rule == rule).map(|one| (one.n_all, one.n_over));
        assert_eq!(
            [of(OTHERS), of("shop.a")],
            [Some((10, 6)), Some((1, 0))],
            "the file's have places of their own"
        );
    }
}
