//! Quotas do not repay each other: overrides within one policy file, and two policy files on one store.

use std::num::NonZeroU32;

use proptest::prelude::*;
use ratewright_core::policy::{Condition, Pattern};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Rate, Refill};
use ratewright_core::store::{Act, Charges, Outcome};
use ratewright_core::{Micros, Policies, Policy, Query, Quota, Timestamp};

use super::{World, config};
use crate::bounds::{check_never_over, check_never_over_together};
use crate::generate::{algorithms, cost, gaps, quotas, quotas_on_one_key, starts, visits};
use crate::world::{Gate, take};

/// What a client of two quotas does: when, under the second one, so much of it, and how.
type Visit = (crate::generate::Gap, bool, u32, u8);

fn alternating(n_max: usize) -> impl Strategy<Value = Vec<Visit>> {
    let shares = prop_oneof![6 => Just(0u32), 3 => 0u32..400, 1 => 0u32..1_050];
    prop::collection::vec((gaps(), any::<bool>(), shares, 0u8..8), 1..n_max)
}

/// Two quotas whose states have nothing in common but the policy's name. Now and then their windows are alike.
fn quotas_of_two_kinds() -> impl Strategy<Value = [Quota; 2]> {
    (quotas(), quotas(), any::<bool>())
        .prop_map(|(first, second, is_alike)| {
            let alike = Rate::new(second.rate().units(), first.window()).ok();
            let alike = alike.filter(|_| is_alike).and_then(|rate| Quota::new(second.algorithm(), rate).ok());
            [first, alike.unwrap_or(second)]
        })
        .prop_filter("two kinds", |[first, second]| first.kind() != second.kind())
}

fn now(world: &World) -> Timestamp {
    ratewright_core::Clock::now(&world.clock)
}

/// The share of a quota that is left, as a fraction.
fn share_left(world: &World, gate: &Gate) -> (u64, u64) {
    (world.peek(gate).remaining.into(), gate.capacity().into())
}

proptest! {
    #![proptest_config(config())]

    /// Two policy files alternate on one key, also with records and looks: each quota's own law holds for what it judged,
    /// and so all together is never more than the sum of both.
    #[test]
    fn each_quota_keeps_its_law_whatever_another_does_to_the_key(
        (first, second) in algorithms().prop_flat_map(quotas_on_one_key),
        start in starts(),
        visits in alternating(120),
    ) {
        let world = World::at(start);
        let gates = [Gate::new("g", first), Gate::new("g", second)];
        let mut paid = [Vec::new(), Vec::new()];
        for (gap, is_second, share, act) in visits {
            if !world.pass(gap, &[&gates[usize::from(is_second)], &gates[0], &gates[1]]) { break }
            let gate = &gates[usize::from(is_second)];
            let cost = cost(share, &gate.quota);
            match act {
                0 => drop(world.apply(gate, Act::Record(cost))),
                1 => drop(world.peek(gate)),
                _ => paid[usize::from(is_second)]
                    .extend(world.take(gate, cost).map(|receipt| (receipt.paid_at.as_micros(), cost))),
            }
        }
        check_never_over(&gates[0].quota, &paid[0])?;
        check_never_over(&gates[1].quota, &paid[1])?;
    }

    /// Two policy files of different kinds (another algorithm, window or refill) alternate on one key, also within one
    /// decision: each quota keeps its law, and in no stretch of time is more admitted than the sum of both allows.
    #[test]
    fn quotas_of_different_kinds_on_one_key_keep_the_sum_of_their_laws(
        quotas in quotas_of_two_kinds(),
        start in starts(),
        visits in alternating(120),
    ) {
        let world = World::at(start);
        let gates = quotas.map(|quota| Gate::new("g", quota));
        let mut paid = [Vec::new(), Vec::new()];
        for (gap, is_second, share, act) in visits {
            let (n, other) = (usize::from(is_second), usize::from(!is_second));
            // Time passes by the measure of either quota, whichever of them is asked.
            let measure = &gates[if act % 2 == 0 { n } else { other }];
            if !world.pass(gap, &[measure, &gates[0], &gates[1]]) { break }
            let at = now(&world).as_micros();
            let [here, there] = [n, other].map(|n| cost(share, &gates[n].quota));
            match act {
                0 => drop(world.apply(&gates[n], Act::Record(here))),
                1 => drop(world.peek(&gates[n])),
                2 => {
                    let both = [(&gates[n], "c", take(here)), (&gates[other], "c", take(there))];
                    if world.apply_all(&both).iter().all(|standing| matches!(standing.outcome, Outcome::Charged(_))) {
                        paid[n].push((at, here));
                        paid[other].push((at, there));
                    }
                }
                _ => paid[n].extend(world.take(&gates[n], here).map(|_| (at, here))),
            }
        }
        let laws = gates.each_ref().map(|gate| &gate.quota);
        for (law, paid) in laws.iter().zip(&paid) {
            check_never_over(law, paid)?;
        }
        let mut all = paid.concat();
        all.sort_by_key(|(at, _)| *at);
        check_never_over_together(&laws, &all)?;
    }

    /// A look never changes what a later charge finds: neither under another quota, nor with a clock that was set back.
    #[test]
    fn a_look_changes_nothing(
        (first, second) in algorithms().prop_flat_map(quotas_on_one_key),
        start in starts(),
        visits in prop::collection::vec((gaps(), prop::option::weighted(0.1, gaps()), any::<bool>(), 0u32..600, 0u8..4), 1..60),
    ) {
        let (world, calm) = (World::at(start), World::at(start));
        let gates = [Gate::new("g", first), Gate::new("g", second)];
        for (gap, back, is_second, share, n_looks) in visits {
            if !world.pass(gap, &[&gates[0], &gates[1]]) { break }
            if let Some(back) = back {
                let back = now(&world).as_micros().saturating_sub(back.micros(&gates[0].quota));
                world.clock.set(Timestamp::from_micros(back));
            }
            calm.clock.set(now(&world));
            for n in 0..n_looks {
                let gate = &gates[usize::from(n % 2)];
                world.apply(gate, Act::Look(u32::from(n) * (cost(share, &gate.quota) / 3)));
            }
            let gate = &gates[usize::from(is_second)];
            let cost = cost(share, &gate.quota);
            prop_assert_eq!(world.apply(gate, take(cost)), calm.apply(gate, take(cost)));
        }
    }

    /// A changed rate keeps the share that was spent, rounded against the client: by less than one unit, and by what a
    /// microsecond is worth. A window keeps its count.
    #[test]
    fn a_changed_quota_keeps_the_share_that_was_spent(
        (first, second) in algorithms().prop_flat_map(quotas_on_one_key),
        start in starts(),
        visits in visits(30),
    ) {
        let world = World::at(start);
        let (before, after) = (Gate::new("g", first), Gate::new("g", second));
        for (gap, share) in visits {
            if !world.pass(gap, &[&before, &after]) { return Ok(()) }
            world.take(&before, cost(share, &before.quota));
        }
        let (spent, of) = { let (left, of) = share_left(&world, &before); (of - left, of) };
        let (left_after, of_after) = share_left(&world, &after);
        if before.quota.algorithm().has_burst() {
            let spent_after = of_after - left_after;
            prop_assert!((spent.saturating_sub(1)) * of_after <= spent_after * of, "never less than before");
            // What a microsecond is worth, in units, at both ends of it; steps know no microseconds.
            let is_stepped = before.quota.algorithm() == Algorithm::TokenBucket(Refill::Stepped);
            let worth = |gate: &Gate| 2 * u64::from(gate.quota.units()) / gate.quota.window().as_micros() + 1;
            let grain = |gate: &Gate| if is_stepped { 0 } else { worth(gate) };
            let slack = 1 + grain(&after) + grain(&before) * of_after / of + of_after / of;
            prop_assert!(u128::from(spent_after) * u128::from(of) <= u128::from(spent) * u128::from(of_after) + u128::from(slack) * u128::from(of),
                "{spent} of {of}, then {spent_after} of {of_after}");
        } else if before.quota.algorithm() != Algorithm::SlidingWindowCounter {
            prop_assert_eq!(left_after, of_after.saturating_sub(spent));
        }
        // And from now on it is the new quota's own.
        world.apply(&after, take(1));
        prop_assert!(world.peek(&after).remaining <= u32::try_from(left_after).unwrap());
    }

    /// Within one policy file each quota holds for the requests that it judged, whatever mix of overrides they select.
    #[test]
    fn overrides_do_not_repay_the_policy_nor_each_other(
        own in quotas(), get in quotas(), put in quotas(),
        start in starts(),
        visits in prop::collection::vec((gaps(), 0usize..3, 0u32..600, any::<bool>()), 1..100),
    ) {
        let world = World::at(start);
        let policies = with_overrides(&own, &get, &put);
        let quotas = [own, get, put];
        let mut paid = [const { Vec::new() }; 3];
        for (gap, n, share, looks) in visits {
            let by = Micros::new(gap.micros(&quotas[n]));
            let then = now(&world) + by;
            if !quotas.iter().all(|quota| crate::generate::lasts(quota, then.as_micros())) { break }
            world.clock.advance(by);
            let cost = cost(share, &quotas[n]);
            let ask = if looks { Ask::Look(cost) } else { Ask::Spend(NonZeroU32::new(cost).unwrap()) };
            let client = world.client();
            let attributes = [(AttributeName::Ip, client.as_str()), (AttributeName::Method, ["POST", "GET", "PUT"][n])];
            let attributes = attributes.map(|(name, value)| Attribute { name, value });
            let query = Query { select: Select::Covering(&[]), attributes: &attributes, address: None, ask, patience: Micros::MAX, id: None, entrypoint: Entrypoint::Tower };
            let mut charges = Charges::new();
            policies.select(&query, &mut charges);
            if world.apply_charges(&charges).iter().any(|standing| matches!(standing.outcome, Outcome::Charged(_))) {
                paid[n].push((now(&world).as_micros(), cost));
            }
        }
        for (quota, paid) in quotas.iter().zip(&paid) {
            check_never_over(quota, paid)?;
        }
    }

    /// A reset forgets the states of all quotas that met the key.
    #[test]
    fn a_reset_key_is_new_under_every_quota((first, second) in algorithms().prop_flat_map(quotas_on_one_key), start in starts(), visits in alternating(20)) {
        let world = World::at(start);
        let gates = [Gate::new("g", first), Gate::new("g", second)];
        for (gap, is_second, share, _) in visits {
            if !world.pass(gap, &[&gates[0], &gates[1]]) { break }
            let gate = &gates[usize::from(is_second)];
            world.take(gate, cost(share, &gate.quota));
        }
        world.reset(&gates[0]);
        for gate in &gates {
            prop_assert_eq!(world.peek(gate).remaining, gate.capacity());
        }
    }
}

/// A policy per address, with other quotas for two methods.
fn with_overrides(own: &Quota, get: &Quota, put: &Quota) -> Policies {
    let method = |name: &str| {
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new(name, None).unwrap()])
    };
    let policy = Policy::new("p", own.clone()).unwrap().by(&[AttributeName::Ip]);
    let policy = policy.with_override(None, method("GET"), vec![(None, get.clone())], None);
    Policies::new(vec![policy.with_override(Some("put"), method("PUT"), vec![(None, put.clone())], None)])
        .unwrap()
}

/// The case that was found: ten a minute, and a hundred a second for GET. One GET refilled what ten POSTs had spent.
#[test]
fn a_fast_override_does_not_refill_a_slow_policy() {
    for refill in [Refill::Smooth, Refill::Stepped] {
        let quota = |rate: &str| Quota::new(Algorithm::TokenBucket(refill), rate.parse().unwrap()).unwrap();
        let policies = with_overrides(&quota("10/min"), &quota("100/s"), &quota("1/h"));
        let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
        let client = world.client();
        let mut posts = 0;
        for n in 0..200 {
            let method = if n % 11 == 10 { "GET" } else { "POST" };
            let attributes = [(AttributeName::Ip, client.as_str()), (AttributeName::Method, method)]
                .map(|(name, value)| Attribute { name, value });
            let query = |ask| Query {
                select: Select::Covering(&[]),
                attributes: &attributes,
                address: None,
                ask,
                patience: Micros::ZERO,
                id: None,
                entrypoint: Entrypoint::Tower,
            };
            let mut charges = Charges::new();
            policies.select(&query(Ask::Spend(NonZeroU32::MIN)), &mut charges);
            let standings = world.apply_charges(&charges);
            posts += u32::from(method == "POST" && !standings[0].is_against());
            charges.clear();
            policies.select(&query(Ask::Look(0)), &mut charges);
            world.apply_charges(&charges);
            world.clock.advance(Micros::from_millis(1));
        }
        assert_eq!(posts, 10, "{refill:?}");
    }
}

/// Two files with another algorithm or window: 80 of 80 requests were admitted at a limit of 5.
#[test]
fn two_files_with_different_algorithms_do_not_delete_each_others_state() {
    let quota = |algorithm: Algorithm, rate: &str| Quota::new(algorithm, rate.parse().unwrap()).unwrap();
    let named = |name: &str| Algorithm::named(name).unwrap();
    let pairs = [
        (quota(named("token_bucket"), "5/h"), quota(named("sliding_window"), "5/h")),
        (quota(named("fixed_window"), "5/h"), quota(named("fixed_window"), "5/d")),
        (quota(named("sliding_window"), "5/h"), quota(named("sliding_window"), "5/d")),
        (quota(named("sliding_window_counter"), "5/h"), quota(named("leaky_bucket"), "5/h")),
        (quota(Algorithm::TokenBucket(Refill::Stepped), "5/h"), quota(named("token_bucket"), "5/h")),
    ];
    for (first, second) in pairs {
        let world = World::at(Timestamp::from_micros(1_700_002_800_000_000));
        let gates = [Gate::new("g", first), Gate::new("g", second)];
        let admitted = (0..80).filter(|n| world.take(&gates[n % 2], 1).is_some()).count();
        assert_eq!(admitted, 10, "{:?}", gates.each_ref().map(|gate| gate.quota.kind()));
    }
}

/// One decision that meets a key under two quotas in turn: nothing that one spends is lost. `redis/batch.rs` has several decisions
/// in one call.
#[test]
fn quotas_that_alternate_within_a_decision_keep_what_both_spent() {
    for refill in [Refill::Smooth, Refill::Stepped] {
        let quota = |rate: &str| Quota::new(Algorithm::TokenBucket(refill), rate.parse().unwrap()).unwrap();
        let (first, second) = (Gate::new("g", quota("100/h")), Gate::new("g", quota("50/h")));
        let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
        let client = world.client();
        world.apply_all(&[
            (&first, &client, take(3)),
            (&second, &client, take(3)),
            (&first, &client, take(3)),
        ]);
        let left = world.apply_all(&[(&first, &client, Act::Look(0))])[0].remaining;
        assert_eq!(left, 94, "{refill:?}");
    }
}

/// Many files on one key: what waits longest for its quota is kept, in whatever order they came.
#[test]
fn of_many_quotas_the_one_that_refills_last_is_not_forgotten() {
    for refill in [Refill::Smooth, Refill::Stepped] {
        let quota = |rate: &str| Quota::new(Algorithm::TokenBucket(refill), rate.parse().unwrap()).unwrap();
        let gate = |rate: &str| Gate::new("g", quota(rate));
        let fast: Vec<Gate> = (0..12).map(|n| gate(&format!("{}/min", 1_000 + n))).collect();
        let slow = gate("5/h");
        let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
        // The fast ones first, so that each has a state of its own.
        assert!(fast[..9].iter().all(|gate| world.take(gate, 100).is_some()), "{refill:?}");
        let n_taken = (0..100).take_while(|_| world.take(&slow, 1).is_some()).count();
        assert!(n_taken <= 5, "{refill:?}: {n_taken}");
        world.clock.advance(Micros::from_secs(1));
        for gate in fast.iter().rev() {
            world.take(gate, 1);
        }
        assert!(world.take(&slow, 1).is_none(), "{refill:?}");
    }
}

/// The figures of docs/guides/policy-file.md.
#[test]
fn the_figures_of_the_docs_hold() {
    let page = include_str!("../../../../docs/guides/policy-file.md");
    let smooth =
        |rate: &str| Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate.parse().unwrap()).unwrap();
    for (before, spent, after, left) in
        [("10/min", 5, "100/s", 50), ("1000/h", 500, "20/h", 10), ("5/h", 5, "500/h", 0)]
    {
        let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
        assert!(world.take(&Gate::new("g", smooth(before)), spent).is_some());
        assert_eq!(world.peek(&Gate::new("g", smooth(after))).remaining, left);
        let row = format!("| `{before}` | {spent} | `{after}` | {left} |");
        assert!(page.contains(&row), "docs/guides/policy-file.md lacks {row}");
    }
}
