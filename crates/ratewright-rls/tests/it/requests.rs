//! What holds for every request, whatever its descriptors are.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use ratewright_core::query::Entrypoint;
use ratewright_core::store::{Basis, Charge, Key, Refund, Standings};
use ratewright_core::{Policies, Store};
use ratewright_rls::wire::{Code, RateLimitDescriptor, RateLimitRequest};
use ratewright_rls::{Compat, Refunds, RlsSettings, RuleSet, override_policies};
use ratewright_rls_rules::{Descriptor, Domains, DuplicateDomains};

use crate::world::{Memory, World, costing, limit, of};

/// The rules, each with a number of its own: what a status shows says whose it is.
fn rules() -> Vec<Descriptor> {
    vec![
        limit("plain", "", 3, "minute"),
        limit("zero", "", 0, "minute"),
        Descriptor { record_mode: true, ..limit("record", "", 4, "minute") },
        Descriptor { quota_mode: true, ..limit("quota", "", 2, "minute") },
        Descriptor { quota_mode: true, ..limit("spare", "", 5, "minute") },
        Descriptor { shadow_mode: true, ..limit("shadow", "", 1, "minute") },
    ]
}

/// Counts calls.
struct Counting {
    memory: Memory,
    n_applied: AtomicU32,
}

impl Store for Counting {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        self.n_applied.fetch_add(1, Ordering::SeqCst);
        self.memory.apply(charges, standings).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        self.memory.refund(refunds).await
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        self.memory.reset(keys).await
    }
}

/// A rule and a value, how many hits, and whether they are negative.
type Asked = (usize, bool, Option<u64>, bool);

fn requests() -> impl Strategy<Value = Vec<Vec<Asked>>> {
    let hits = prop_oneof![Just(None), (0..4_u64).prop_map(Some), Just(Some(u64::MAX))];
    let asked = (0..rules().len(), any::<bool>(), hits, prop::bool::weighted(0.2));
    prop::collection::vec(prop::collection::vec(asked, 1..5), 1..6)
}

fn descriptor((rule, value, hits_addend, is_negative_hits): Asked) -> RateLimitDescriptor {
    let value = if value { "x" } else { "y" };
    let entries = of(&[(&rules()[rule].key, value)]);
    RateLimitDescriptor { hits_addend, is_negative_hits, ..entries }
}

proptest! {
    /// C9: there is one status for each descriptor, in their order; the overall code says OK or OVER_LIMIT; and the response waits for one
    /// call to the store.
    #[test]
    fn c9_a_response_has_a_status_for_each_descriptor_after_one_call(
        requests in requests(),
        strict: bool,
        shadow_mode in prop::bool::weighted(0.2),
        quota_mode in prop::bool::weighted(0.2),
    ) {
        let compat = if strict { Compat::Strict } else { Compat::AllOrNothing };
        let settings = RlsSettings { compat, shadow_mode, quota_mode, ..RlsSettings::default() };
        let world = World::over(&rules(), settings, |memory| Counting { memory, n_applied: AtomicU32::new(0) });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for asked in requests {
            let descriptors = asked.iter().copied().map(descriptor).collect();
            let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
            let n_before = world.store.n_applied.load(Ordering::SeqCst);
            let mut answered = None;
            let reply = |answer| answered = Some((answer, world.store.n_applied.load(Ordering::SeqCst) - n_before));
            runtime.block_on(world.rls.answer_first(&request, Refunds::Allowed, Entrypoint::Grpc, reply));
            let (answer, n_calls) = answered.unwrap();
            let answer = answer.unwrap();
            prop_assert_eq!(n_calls, 1);
            let shown = answer.statuses.iter().map(|status| status.current_limit.as_ref().unwrap().requests_per_unit);
            let expected = asked.iter().map(|(rule, ..)| rules()[*rule].rate_limits[0].requests_per_unit);
            prop_assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            prop_assert_ne!(answer.overall_code(), Code::Unknown);
            let none_is_over = answer.statuses.iter().all(|status| status.code() == Code::Ok);
            prop_assert!(answer.overall_code() == Code::Ok || !(none_is_over || shadow_mode));
        }
    }
}

/// A request meets one rule set: the one before a reload or the one after it. Buckets stay.
#[tokio::test]
async fn a_reload_between_two_requests_changes_the_rules_and_keeps_the_buckets() {
    let world =
        World::new(&[limit("a", "", 5, "minute"), limit("b", "", 5, "minute")], RlsSettings::default());
    let both = || world.ask(vec![costing(2, of(&[("a", "x")])), costing(2, of(&[("b", "x")]))]);
    assert_eq!(both().await, "OK | OK 5/MINUTE left 3 in 43 | OK 5/MINUTE left 3 in 43");

    let mut domains = Domains::default();
    domains.add("shop", &[limit("a", "", 5, "minute")], DuplicateDomains::Reject).unwrap();
    let all = domains.policies().iter().cloned().chain(override_policies()).collect();
    world.rls.limiter.swap(Policies::new(all).unwrap());
    let policies = world.rls.limiter.policies();
    let settings = RlsSettings::default();
    world.rls.rules.store(Arc::new(RuleSet { domains: Arc::new(domains), policies, settings }));
    assert_eq!(both().await, "OK | OK 5/MINUTE left 1 in 43 | OK");
}

/// `hits_addend: 0` asks how things stand, and charges nothing, in either mode.
#[tokio::test]
async fn no_hits_charge_nothing() {
    for compat in [Compat::AllOrNothing, Compat::Strict] {
        let world = World::new(&rules(), RlsSettings { compat, ..RlsSettings::default() });
        for _ in 0..3 {
            let looks = ["plain", "record", "quota", "shadow"].map(|key| costing(0, of(&[(key, "x")])));
            let expected = "OK | OK 3/MINUTE left 3 in 43 | OK 4/MINUTE left 4 in 43 | OK 2/MINUTE left 2 in 43 | OK 1/MINUTE left 1 in 43";
            assert_eq!(world.ask(looks.to_vec()).await, expected, "{compat:?}");
        }
    }
}
