//! How many hits each rule got, and how many of them were over its limit, by the names that the files ask for.
//!
//! With `detailed_metric` and `value_to_metric` names have values of requests in them, and those are a client's. So there is an end to them: what comes
//! when there are too many is counted together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// The most names.
const NAMES_MAX: usize = 10_000;

/// The longest name, in bytes.
const NAME_MAX: usize = 500;

/// What those are called that have no name of their own any more.
const OTHERS: &str = "others";

/// Hits of all rules, since the start.
#[derive(Debug, Default)]
pub struct HitCounts {
    by_name: RwLock<HashMap<Box<str>, Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
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
    pub(crate) fn add(&self, rule: &str, hits: u32, is_over: bool) {
        let rule = &rule[..rule.floor_char_boundary(NAME_MAX)];
        if let Some(counts) = self.by_name.read().get(rule) {
            return counts.add(hits, is_over);
        }
        let mut by_name = self.by_name.write();
        let rule = if by_name.len() < NAMES_MAX || by_name.contains_key(rule) { rule } else { OTHERS };
        by_name.entry(rule.into()).or_default().add(hits, is_over);
    }

    /// All hits so far, by rule.
    pub fn read(&self) -> Vec<HitsOf> {
        let by_name = self.by_name.read();
        let all = by_name.iter().map(|(rule, counts)| HitsOf {
            rule: rule.to_string(),
            n_all: counts.n_all.load(Ordering::Relaxed),
            n_over: counts.n_over.load(Ordering::Relaxed),
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| a.rule.cmp(&b.rule));
        all
    }
}

impl Counts {
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
        (0..NAMES_MAX + 5).for_each(|n| counts.add(&format!("{n:?}é").repeat(200), 2, n % 2 == 0));
        let all = counts.read();
        assert_eq!(all.len(), NAMES_MAX + 1);
        assert!(all.iter().all(|one| one.rule.len() <= NAME_MAX));
        let others = all.iter().find(|one| one.rule == OTHERS).unwrap();
        assert_eq!((others.n_all, others.n_over), (10, 6));
    }
}
