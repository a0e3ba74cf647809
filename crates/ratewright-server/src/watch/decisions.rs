//! Decisions so far, by policy, verdict, basis and mode: `ratewright_decisions_total`.
//!
//! Counted is what each policy says for itself, however the query fared under the others. So a policy in shadow mode
//! that would have denied counts as denied: that is what people look at before they enforce it.
//!
//! ```text
//!   decision ─ rule set's generation ─→ the newest's table ─ policy's number ─→ counters ─→ + 1
//!                                         │ another generation, or first use
//!                                         └─ lock ─ policy's name ─→ the same counters
//! ```
//!
//! Counters belong to names, so they go on over a reload; those of a policy that is gone keep their last count. The
//! table only remembers where they are. It is of the newest rule set; the last decisions of an older one find their
//! counters by name. Past 100,000 names all further ones are counted together, as `other`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratewright_core::{Basis, Decision, Mode, Policies, Verdict};

use super::{Word, words};

/// The most policies that are told apart.
const POLICIES_MAX: usize = 100_000;

/// What policies past the most are counted as.
const OTHER: &str = "other";

/// In the order of their counters.
const BASES: [Option<Basis>; 5] =
    [Some(Basis::Shared), Some(Basis::Local), Some(Basis::FailOpen), Some(Basis::FailClosed), None];
const MODES: [&str; 2] = ["enforce", "shadow"];

/// Counts decisions.
#[derive(Debug)]
pub struct Decisions {
    newest: ArcSwap<Table>,
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Counters>>>,
    n_policies_max: usize,
}

/// Decisions of one policy that are alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Count {
    /// The policy.
    pub policy: Arc<str>,
    /// What the policy said.
    pub verdict: Verdict,
    /// On what ground; nothing if no store was asked.
    pub basis: Option<Basis>,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// How many.
    pub n: u64,
}

/// Where the counters of one rule set's policies are, as far as they were used.
#[derive(Debug, Default)]
struct Table {
    generation: u64,
    counters: Box<[OnceLock<Arc<Counters>>]>,
}

/// One policy's counters: by mode, basis and verdict.
#[derive(Debug, Default)]
struct Counters([[[AtomicU64; 2]; 5]; 2]);

impl Default for Decisions {
    fn default() -> Self {
        Self::at_most(POLICIES_MAX)
    }
}

impl Decisions {
    pub(super) fn at_most(n_policies_max: usize) -> Self {
        Self { newest: ArcSwap::default(), by_name: Mutex::default(), n_policies_max }
    }

    /// Counts what each policy said. True if one in shadow mode would have denied.
    #[inline]
    pub fn count(&self, decision: &Decision) -> bool {
        let mut is_shadow_denied = false;
        let policies = decision.policies();
        let mut table = self.newest.load();
        if table.generation < policies.generation() {
            self.renew(policies);
            table = self.newest.load();
        }
        for word in words(decision) {
            let index = word.ground.as_ref().filter(|_| table.generation == policies.generation());
            match index.and_then(|ground| table.counters.get(ground.index)) {
                Some(place) => place.get_or_init(|| self.named(word.policy.name())).count(&word),
                None => self.named(word.policy.name()).count(&word),
            }
            is_shadow_denied |= word.is_against && word.mode == Mode::Shadow;
        }
        is_shadow_denied
    }

    /// All that are not zero. Beside each, the other verdict is there too, so that `rate` sees its first one.
    pub fn read(&self) -> Vec<Count> {
        let by_name = self.by_name.lock().clone();
        let mut counts = Vec::new();
        by_name.iter().for_each(|(name, counters)| counters.read(name, &mut counts));
        counts
    }

    /// Begins a table for a rule set, unless there is one for it or a newer one.
    #[cold]
    fn renew(&self, policies: &Policies) {
        let places = || (0..policies.n_policies()).map(|_| OnceLock::new()).collect();
        let table = Arc::new(Table { generation: policies.generation(), counters: places() });
        self.newest.rcu(
            |newest| {
                if newest.generation < table.generation { table.clone() } else { newest.clone() }
            },
        );
    }

    /// The counters of a name.
    #[cold]
    fn named(&self, name: &str) -> Arc<Counters> {
        let mut by_name = self.by_name.lock();
        let is_full = by_name.len() >= self.n_policies_max && !by_name.contains_key(name);
        let name = if is_full { OTHER } else { name };
        if let Some(counters) = by_name.get(name) {
            return counters.clone();
        }
        by_name.entry(name.into()).or_default().clone()
    }
}

impl Counters {
    #[inline]
    fn count(&self, word: &Word<'_>) {
        let mode = usize::from(word.mode != Mode::Enforce);
        let basis = word.ground.as_ref().map_or(BASES.len() - 1, |ground| ground.basis as usize);
        self.0[mode][basis][usize::from(word.is_against)].fetch_add(1, Relaxed);
    }

    fn read(&self, policy: &Arc<str>, counts: &mut Vec<Count>) {
        for (mode, by_basis) in MODES.into_iter().zip(&self.0) {
            for (basis, by_verdict) in BASES.into_iter().zip(by_basis) {
                let [n_allowed, n_denied] = by_verdict.each_ref().map(|n| n.load(Relaxed));
                if n_allowed > 0 || n_denied > 0 {
                    let count = |verdict, n| Count { policy: policy.clone(), verdict, basis, mode, n };
                    counts.extend([count(Verdict::Allow, n_allowed), count(Verdict::Deny, n_denied)]);
                }
            }
        }
    }
}
