//! Decisions by policy, entrypoint, verdict, basis and mode: `ratewright_decisions_total`; and how many of them left
//! less than a fifth of a limit: `ratewright_near_limit_total`.
//!
//! Each policy counts its own verdict, independent of the other policies. So a policy in shadow mode that would have
//! denied counts as denied: operators check that before they enforce it.
//!
//! ```text
//!   decision ─ rule set's generation ─→ its table ─ policy's index, entrypoint ──→ counters ─→ + 1
//!                                         │ an older generation, or first use
//!                                         └─ lock ─ policy's name, entrypoint ─→ the same counters
//! ```
//!
//! Counters belong to policy names, so they survive a reload; those of a removed policy keep their last count. A table
//! only remembers where they are. There is one for each of the two newest rule sets: limits on rates and limits on
//! requests in flight are separate sets. The last decisions of older sets find their counters by name. Beyond 100,000
//! names, all further policies are counted together as `other`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use ratewright_core::policy::Mode;
use ratewright_core::query::Entrypoint;
use ratewright_core::store::Basis;
use ratewright_core::{Decision, Policies, Verdict};

use super::{PolicyVerdict, policy_verdicts};

/// The most policies with counters of their own.
const POLICIES_MAX: usize = 100_000;

/// The name under which further policies are counted.
const OTHER: &str = "other";

/// In the order of the counters.
const BASES: [Option<Basis>; 5] =
    [Some(Basis::Shared), Some(Basis::Local), Some(Basis::FailOpen), Some(Basis::FailClosed), None];
const MODES: [&str; 2] = ["enforce", "shadow"];

/// Counts decisions.
#[derive(Debug)]
pub struct Decisions {
    tables: [ArcSwap<CounterTable>; 2],
    by_name: Mutex<ByName>,
    n_policies_max: usize,
    /// True while the live page wants to see decisions.
    is_recording: AtomicBool,
}

/// What remains to be done with a decision that was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AfterCount(u8);

impl AfterCount {
    const SHADOW_DENIED: u8 = 1;
    const RECORD: u8 = 2;

    /// True if nothing remains: the usual case.
    #[inline]
    pub(super) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// True if a policy in shadow mode would have denied.
    pub(super) fn is_shadow_denied(self) -> bool {
        self.0 & Self::SHADOW_DENIED != 0
    }

    /// True if the live page wants to see it.
    pub(super) fn is_recorded(self) -> bool {
        self.0 & Self::RECORD != 0
    }
}

/// How often one policy decided alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionCount {
    /// The policy.
    pub policy: Arc<str>,
    /// The entrypoint of the query.
    pub entrypoint: Entrypoint,
    /// The policy's verdict.
    pub verdict: Verdict,
    /// The basis; `None` if no store was asked.
    pub basis: Option<Basis>,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// How many.
    pub n: u64,
}

/// All decisions of a policy, through all entrypoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyTotals {
    /// Requests that it allowed.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Requests that it would have denied, but for its shadow mode.
    pub shadow: u64,
    /// Requests that it allowed with less than a fifth of a limit left.
    pub near: u64,
}

/// How often a policy had less than a fifth of a limit left after a decision. Denials are not counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NearLimit {
    /// The policy.
    pub policy: Arc<str>,
    /// The entrypoint of the query.
    pub entrypoint: Entrypoint,
    /// How many.
    pub n: u64,
}

/// The counters of each policy, by its name.
type ByName = BTreeMap<Arc<str>, ByEntrypoint<Option<Arc<PolicyCounters>>>>;

/// One for each entrypoint.
type ByEntrypoint<T> = [T; Entrypoint::ALL.len()];

/// The counters of one rule set's policies, as far as they were used.
#[derive(Debug, Default)]
pub(super) struct CounterTable {
    generation: u64,
    /// What remains to be done with each decision. It is here, and not beside the tables, because a decision loads the
    /// table anyway: while the page is closed, it costs no instruction.
    after_count: AtomicU8,
    counters: Box<[ByEntrypoint<OnceLock<Arc<PolicyCounters>>>]>,
}

/// One policy's counters, for one entrypoint.
#[derive(Debug, Default)]
struct PolicyCounters {
    /// By mode, basis and verdict.
    decisions: [[[AtomicU64; 2]; 5]; 2],
    near_limit: AtomicU64,
}

impl Default for Decisions {
    fn default() -> Self {
        Self::at_most(POLICIES_MAX)
    }
}

impl Decisions {
    pub(super) fn at_most(n_policies_max: usize) -> Self {
        Self {
            tables: Default::default(),
            by_name: Mutex::default(),
            n_policies_max,
            is_recording: AtomicBool::new(false),
        }
    }

    /// Counts the verdict of each policy.
    #[inline]
    pub(super) fn count(&self, decision: &Decision, entrypoint: Entrypoint) -> AfterCount {
        let policies = decision.policies();
        let table = self.table(policies.generation()).or_else(|| {
            self.renew(policies);
            self.table(policies.generation())
        });
        let mut after_count = table.as_deref().map_or(0, |table| table.after_count.load(Relaxed));
        for verdict in policy_verdicts(decision) {
            let index = verdict.standing.as_ref().zip(table.as_deref());
            match index.and_then(|(standing, table)| table.counters.get(standing.index)) {
                Some(by_entrypoint) => {
                    let counters = &by_entrypoint[entrypoint as usize];
                    counters.get_or_init(|| self.named(verdict.policy.name(), entrypoint)).count(&verdict);
                }
                None => self.named(verdict.policy.name(), entrypoint).count(&verdict),
            }
            let is_shadow_denied = verdict.is_denied && verdict.mode == Mode::Shadow;
            after_count |= if is_shadow_denied { AfterCount::SHADOW_DENIED } else { 0 };
        }
        AfterCount(after_count)
    }

    /// Sets whether the live page wants to see decisions.
    pub(super) fn set_recording(&self, is_recording: bool) {
        self.is_recording.store(is_recording, SeqCst);
        self.tables.iter().for_each(|table| self.mark(&table.load()));
    }

    fn mark(&self, table: &CounterTable) {
        let after_count = if self.is_recording.load(SeqCst) { AfterCount::RECORD } else { 0 };
        table.after_count.store(after_count, Relaxed);
    }

    /// All counts that are not zero, each with its opposite verdict, so that `rate` sees the first one.
    pub fn read(&self) -> Vec<DecisionCount> {
        let mut counts = Vec::new();
        for (policy, entrypoint, counters) in self.each() {
            counters.read(&policy, entrypoint, &mut counts);
        }
        counts
    }

    /// How often each policy was near a limit, including never.
    pub fn near_limit(&self) -> Vec<NearLimit> {
        let near = |(policy, entrypoint, counters): (_, _, Arc<PolicyCounters>)| NearLimit {
            policy,
            entrypoint,
            n: counters.near_limit.load(Relaxed),
        };
        self.each().map(near).collect()
    }

    /// All decisions of each policy.
    pub fn totals(&self) -> BTreeMap<Arc<str>, PolicyTotals> {
        let mut totals: BTreeMap<Arc<str>, PolicyTotals> = BTreeMap::new();
        for (policy, _, counters) in self.each() {
            totals.entry(policy).or_default().add(counters.totals());
        }
        totals
    }

    fn each(&self) -> impl Iterator<Item = (Arc<str>, Entrypoint, Arc<PolicyCounters>)> {
        let by_name = self.by_name.lock().clone();
        by_name.into_iter().flat_map(|(name, counters)| {
            let used = Entrypoint::ALL.into_iter().zip(counters);
            used.filter_map(move |(entrypoint, counters)| Some((Arc::clone(&name), entrypoint, counters?)))
        })
    }

    /// The table of a rule set, if it is one of the two newest.
    #[inline]
    pub(super) fn table(&self, generation: u64) -> Option<Guard<Arc<CounterTable>>> {
        self.tables.iter().map(ArcSwap::load).find(|table| table.generation == generation)
    }

    /// Replaces the oldest table with one for this rule set, unless that is older.
    #[cold]
    fn renew(&self, policies: &Policies) {
        let Some(oldest) = self.tables.iter().min_by_key(|table| table.load().generation) else { return };
        if oldest.load().generation >= policies.generation() {
            return;
        }
        let counters = (0..policies.n_policies()).map(|_| Default::default()).collect();
        let table =
            Arc::new(CounterTable { generation: policies.generation(), counters, ..CounterTable::default() });
        oldest.rcu(
            |oldest| {
                if oldest.generation < table.generation { table.clone() } else { oldest.clone() }
            },
        );
        self.mark(&table); // after it can be found: the page may have been opened meanwhile
    }

    /// The counters of a name, for an entrypoint.
    #[cold]
    fn named(&self, name: &str, entrypoint: Entrypoint) -> Arc<PolicyCounters> {
        let mut by_name = self.by_name.lock();
        let is_full = by_name.len() >= self.n_policies_max && !by_name.contains_key(name);
        let name = if is_full { OTHER } else { name };
        let counters = match by_name.get_mut(name) {
            Some(counters) => &mut counters[entrypoint as usize],
            None => &mut by_name.entry(name.into()).or_default()[entrypoint as usize],
        };
        counters.get_or_insert_default().clone()
    }
}

impl PolicyCounters {
    #[inline]
    fn count(&self, verdict: &PolicyVerdict<'_>) {
        let mode = usize::from(verdict.mode != Mode::Enforce);
        let basis = verdict.standing.as_ref().map_or(BASES.len() - 1, |standing| standing.basis as usize);
        self.decisions[mode][basis][usize::from(verdict.is_denied)].fetch_add(1, Relaxed);
        if verdict.is_near && !verdict.is_denied {
            self.near_limit.fetch_add(1, Relaxed);
        }
    }

    fn totals(&self) -> PolicyTotals {
        let mut totals = PolicyTotals { near: self.near_limit.load(Relaxed), ..PolicyTotals::default() };
        for (mode, by_basis) in MODES.into_iter().zip(&self.decisions) {
            for [allowed, denied] in by_basis {
                totals.allowed += allowed.load(Relaxed);
                let is_shadow = mode != MODES[0];
                *(if is_shadow { &mut totals.shadow } else { &mut totals.denied }) += denied.load(Relaxed);
            }
        }
        totals
    }

    fn read(&self, policy: &Arc<str>, entrypoint: Entrypoint, counts: &mut Vec<DecisionCount>) {
        for (mode, by_basis) in MODES.into_iter().zip(&self.decisions) {
            for (basis, by_verdict) in BASES.into_iter().zip(by_basis) {
                let [n_allowed, n_denied] = by_verdict.each_ref().map(|n| n.load(Relaxed));
                if n_allowed > 0 || n_denied > 0 {
                    let count = |verdict, n| DecisionCount {
                        policy: policy.clone(),
                        entrypoint,
                        verdict,
                        basis,
                        mode,
                        n,
                    };
                    counts.extend([count(Verdict::Allow, n_allowed), count(Verdict::Deny, n_denied)]);
                }
            }
        }
    }
}

impl PolicyTotals {
    /// Adds these.
    pub(super) fn add(&mut self, more: Self) {
        self.allowed += more.allowed;
        self.denied += more.denied;
        self.shadow += more.shadow;
        self.near += more.near;
    }

    /// What was counted after `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow: self.shadow.saturating_sub(before.shadow),
            near: self.near.saturating_sub(before.near),
        }
    }
}
