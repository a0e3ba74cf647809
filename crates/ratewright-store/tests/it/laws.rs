//! The laws that every store keeps, for every algorithm, over random quotas and histories.

use proptest::prelude::*;
use ratewright_core::quota::{Algorithm, Refill, WindowStart};
use ratewright_core::store::{Outcome, Receipt, Standing};
use ratewright_core::{Micros, Quota, Timestamp};

use super::{World, config};
use crate::bounds::check_never_over;
use crate::generate::{Visit, algorithms, cost, gaps, quotas, quotas_of, quotas_on_one_key, starts, visits};
use crate::world::{Gate, join, take, trial};
use ratewright_core::store::Act;

/// A paid charge: when, and how many units.
type Paid = (Timestamp, u32);

/// Plays visits, and tells which were paid.
fn play(world: &World, gate: &Gate, visits: &[Visit]) -> Vec<Paid> {
    let mut paid = Vec::new();
    for &(gap, share) in visits {
        if !world.pass(gap, &[gate]) {
            break;
        }
        let cost = cost(share, &gate.quota);
        if let Some(receipt) = world.take(gate, cost) {
            assert_eq!(receipt.cost, cost);
            paid.push((receipt.paid_at, cost));
        }
    }
    paid
}

fn remaining(world: &World, gate: &Gate) -> u32 {
    world.peek(gate).remaining
}

proptest! {
    #![proptest_config(config())]

    /// The law the product is sold on: nobody spends more than a burst plus the refill.
    #[test]
    fn no_stretch_of_time_is_overspent(quota in quotas(), start in starts(), visits in visits(120)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        let paid: Vec<_> = play(&world, &gate, &visits).iter().map(|(at, cost)| (at.as_micros(), *cost)).collect();
        check_never_over(&gate.quota, &paid)?;
    }

    /// Each epoch-aligned window spends at most its units.
    #[test]
    fn no_fixed_window_is_overspent(
        quota in quotas_of(Algorithm::FixedWindow(WindowStart::Epoch)),
        start in starts(),
        visits in visits(120),
    ) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        let window = gate.quota.window().as_micros();
        let paid = play(&world, &gate, &visits);
        for (at, _) in &paid {
            let of_window = |(other, _): &&Paid| other.as_micros() / window == at.as_micros() / window;
            let spent: u64 = paid.iter().filter(of_window).map(|(_, cost)| u64::from(*cost)).sum();
            prop_assert!(spent <= u64::from(gate.quota.units()));
        }
    }

    /// What a key may not do now, it may at `retry_after`, and not one microsecond earlier.
    #[test]
    fn retry_after_is_exact(quota in quotas(), start in starts(), visits in visits(60)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        for (gap, share) in visits {
            if !world.pass(gap, &[&gate]) { break }
            let cost = cost(share, &gate.quota);
            let now = clock_now(&world);
            match world.apply(&gate, take(cost)).outcome {
                Outcome::Denied { retry_after } => {
                    prop_assert!(!retry_after.is_zero());
                    world.clock.set(Timestamp::from_micros(now.as_micros() + retry_after.as_micros() - 1));
                    prop_assert!(!world.would_fit(&gate, cost), "fits early: {retry_after:?}");
                    world.clock.set(now + retry_after);
                    prop_assert!(world.would_fit(&gate, cost), "does not fit: {retry_after:?}");
                }
                Outcome::Never => prop_assert!(cost > gate.capacity()),
                Outcome::Charged(_) => prop_assert!(cost <= gate.capacity()),
                Outcome::WouldPass | Outcome::Unknown => prop_assert!(false, "a take is paid or not"),
            }
        }
    }

    /// A policy in shadow mode spends as it would if it were enforced: under all of its quotas, or under none.
    #[test]
    fn joined_charges_spend_as_taken_ones_do(one in quotas(), other in quotas(), start in starts(), visits in visits(60)) {
        let (shadow, enforced) = (World::at(start), World::at(start));
        let (one, other) = (Gate::new("a", one), Gate::new("b", other));
        for (gap, share) in visits {
            if !shadow.pass(gap, &[&one, &other]) { break }
            enforced.clock.set(clock_now(&shadow));
            let cost = cost(share, &one.quota);
            let tried = shadow.apply_all(&[(&one, "c", trial(cost)), (&other, "c", join(cost))]);
            let taken = enforced.apply_all(&[(&one, "c", take(cost)), (&other, "c", take(cost))]);
            prop_assert_eq!(tried, taken);
        }
    }

    /// Also after the clock was set back: who waits as told is let in.
    #[test]
    fn retry_after_is_exact_after_a_step_back(quota in quotas(), start in starts(), visits in visits(20), back in gaps(), shares in prop::collection::vec(0u32..1_000, 1..20)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        play(&world, &gate, &visits);
        world.clock.set(Timestamp::from_micros(clock_now(&world).as_micros().saturating_sub(back.micros(&gate.quota))));
        for share in shares {
            let cost = cost(share, &gate.quota);
            if let Outcome::Denied { retry_after } = world.apply(&gate, take(cost)).outcome {
                if !world.lasts_after(retry_after, &[&gate]) { break }
                world.clock.advance(Micros::new(retry_after.as_micros() - 1));
                prop_assert!(!world.would_fit(&gate, cost), "fits early: {retry_after:?}");
                world.clock.advance(Micros::new(1));
                prop_assert!(world.would_fit(&gate, cost), "does not fit: {retry_after:?}");
            }
        }
    }

    /// A short charge leaves the bucket as it was, now and for all time.
    #[test]
    fn a_denied_charge_changes_nothing(quota in quotas(), start in starts(), visits in visits(60)) {
        let (world, calm) = (World::at(start), World::at(start));
        let gate = Gate::new("g", quota);
        for (gap, share) in visits {
            if !world.pass(gap, &[&gate]) { break }
            let cost = cost(share, &gate.quota);
            let standing = world.apply(&gate, take(cost));
            calm.clock.set(clock_now(&world));
            if matches!(standing.outcome, Outcome::Charged(_)) {
                prop_assert_eq!(standing, calm.apply(&gate, take(cost)));
            } else {
                prop_assert_eq!(world.peek(&gate), calm.peek(&gate));
            }
        }
    }

    /// What is said to remain can be spent, and one more cannot. What is said to come back comes back.
    #[test]
    fn remaining_and_reset_after_agree_with_the_future(quota in quotas(), start in starts(), visits in visits(40)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        for visit in visits {
            play(&world, &gate, &[visit]);
            let now = clock_now(&world);
            let Standing { remaining: left, reset_after, .. } = world.peek(&gate);
            prop_assert!(left == 0 || world.would_fit(&gate, left));
            prop_assert!(left.checked_add(1).is_none_or(|more| !world.would_fit(&gate, more)));
            prop_assert_eq!(left == gate.capacity(), reset_after.is_zero(), "only what is spent comes back");
            if reset_after.is_zero() {
                continue;
            }
            world.clock.set(Timestamp::from_micros(now.as_micros() + reset_after.as_micros() - 1));
            let before = remaining(&world, &gate);
            world.clock.set(now + reset_after);
            let after = remaining(&world, &gate);
            match gate.quota.algorithm() {
                Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) | Algorithm::FixedWindow(_) => {
                    prop_assert!(before < gate.capacity());
                    prop_assert_eq!(after, gate.capacity());
                }
                Algorithm::SlidingWindow => prop_assert!(before == left && left < after),
                Algorithm::SlidingWindowCounter => {
                    world.clock.set(now + reset_after + gate.quota.window());
                    prop_assert_eq!(remaining(&world, &gate), gate.capacity());
                }
            }
            world.clock.set(now);
        }
    }

    /// Several charges are spent all or none, and stand as if they had been made one by one, also with
    /// equal keys among them.
    #[test]
    fn several_charges_are_all_or_nothing(
        quotas in [quotas(), quotas(), quotas()],
        start in starts(),
        calls in prop::collection::vec((gaps(), prop::collection::vec((0..3usize, 0..4u8, 0u32..600), 1..7)), 1..25),
    ) {
        let (world, single) = (World::at(start), World::at(start));
        let [a, b, c] = quotas;
        let gates = [Gate::new("a", a), Gate::new("b", b), Gate::new("c", c)];
        for (gap, charges) in calls {
            if !world.pass(gap, &gates.each_ref()) { break }
            single.clock.set(clock_now(&world));
            let charges: Vec<_> = charges.into_iter().map(|(gate, act, share)| {
                let cost = cost(share, &gates[gate].quota);
                let act = [take(cost), trial(cost), Act::Record(cost), Act::Look(cost)][usize::from(act)];
                (&gates[gate], "c", act)
            }).collect();
            let before: Vec<_> = gates.iter().map(|gate| world.peek(gate)).collect();
            let together = world.apply_all(&charges);
            let vetoed = charges.iter().zip(&together).any(|((_, _, act), standing)| {
                act.vetoes() && matches!(standing.outcome, Outcome::Denied { .. } | Outcome::Never)
            });
            if vetoed {
                let after: Vec<_> = gates.iter().map(|gate| world.peek(gate)).collect();
                prop_assert_eq!(&before, &after, "a veto moves nothing");
                prop_assert!(together.iter().all(|standing| !matches!(standing.outcome, Outcome::Charged(_))));
                continue;
            }
            for (&(gate, _, act), together) in charges.iter().zip(together) {
                let alone = single.apply(gate, act);
                // A charge that can never fit beside those before it may fit later on its own.
                let same = match (&together.outcome, &alone.outcome) {
                    (Outcome::Never, Outcome::Denied { .. }) => true,
                    // Together it waits for room for all of them; alone, those before it have spent theirs.
                    (Outcome::Denied { .. }, Outcome::Denied { .. }) => true,
                    (a, b) => a == b,
                };
                prop_assert!(same, "{together:?} {alone:?}");
                prop_assert_eq!((together.remaining, together.reset_after), (alone.remaining, alone.reset_after));
            }
        }
    }

    /// What a query of several charges may not do now, it may at `retry_after`, not a microsecond earlier.
    #[test]
    fn retry_after_is_exact_for_several_charges(
        quotas in [quotas(), quotas()],
        start in starts(),
        calls in prop::collection::vec((gaps(), prop::collection::vec((0..2usize, any::<bool>(), 0u32..400), 1..5)), 1..25),
    ) {
        let world = World::at(start);
        let [a, b] = quotas;
        let gates = [Gate::new("a", a), Gate::new("b", b)];
        for (gap, charges) in calls {
            if !world.pass(gap, &gates.each_ref()) { break }
            let charges: Vec<_> = charges.into_iter().map(|(gate, looks, share)| {
                let cost = cost(share, &gates[gate].quota);
                (&gates[gate], "c", if looks { Act::Look(cost) } else { take(cost) })
            }).collect();
            let waits = world.apply_all(&charges).iter().map(Standing::retry_after).collect::<Option<Vec<_>>>();
            let Some(wait) = waits.and_then(|waits| waits.into_iter().max()).filter(|wait| !wait.is_zero()) else { continue };
            let vetoed = || world.apply_all(&charges).iter().any(|standing| standing.retry_after() != Some(Micros::ZERO));
            world.clock.advance(Micros::new(wait.as_micros() - 1));
            prop_assert!(vetoed(), "admitted early: {wait:?}");
            world.clock.advance(Micros::new(1));
            prop_assert!(!vetoed(), "not admitted after {wait:?}");
        }
    }

    /// A refund, however late, leaves at most what would be left had nothing been charged.
    #[test]
    fn a_refund_never_lets_more_through(
        quota in quotas().prop_filter("a charge sets no time", sets_no_time),
        start in starts(),
        before in visits(10),
        share in 0u32..1_000,
        between in visits(10),
        gap in gaps(),
        after in visits(10),
    ) {
        let (charged, uncharged) = (World::at(start), World::at(start));
        let gate = Gate::new("g", quota);
        play(&charged, &gate, &before);
        play(&uncharged, &gate, &before);
        let Some(receipt) = charged.take(&gate, cost(share, &gate.quota)) else { return Ok(()) };
        follow(&charged, &uncharged, &gate, &between)?;
        if !charged.pass(gap, &[&gate]) { return Ok(()) }
        uncharged.clock.set(clock_now(&charged));
        charged.refund(&gate, receipt);
        prop_assert!(remaining(&charged, &gate) <= remaining(&uncharged, &gate));
        for visit in after {
            follow(&charged, &uncharged, &gate, &[visit])?;
            prop_assert!(remaining(&charged, &gate) <= remaining(&uncharged, &gate));
        }
    }

    /// A refund at once leaves the key as it was.
    #[test]
    fn a_refund_at_once_undoes_the_charge(quota in quotas(), start in starts(), visits in visits(20), share in 0u32..1_000) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        play(&world, &gate, &visits);
        let before = world.peek(&gate);
        if let Some(receipt) = world.take(&gate, cost(share, &gate.quota)) {
            world.refund(&gate, receipt);
            let after = world.peek(&gate);
            prop_assert_eq!((before.remaining, before.reset_after), (after.remaining, after.reset_after));
        }
    }

    /// What is paid and not given back stays within the bound, whatever is refunded when.
    #[test]
    fn refunds_do_not_break_never_over(
        quota in quotas(),
        start in starts(),
        visits in prop::collection::vec((gaps(), 0u32..600, any::<bool>()), 1..80),
    ) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        let mut kept = Vec::new();
        let mut refundable: Option<Receipt> = None;
        for (gap, share, refunds) in visits {
            if !world.pass(gap, &[&gate]) { break }
            if let Some(receipt) = refundable.take() {
                world.refund(&gate, receipt);
            }
            let Some(receipt) = world.take(&gate, cost(share, &gate.quota)) else { continue };
            if refunds {
                refundable = Some(receipt);
            } else {
                kept.push((receipt.paid_at.as_micros(), receipt.cost));
            }
        }
        check_never_over(&gate.quota, &kept)?;
    }

    /// A clock that steps back or leaps ahead makes nobody spend more than the time it showed passing.
    #[test]
    fn a_stepping_clock_never_makes_us_generous(
        quota in quotas(),
        start in starts(),
        visits in prop::collection::vec((gaps(), prop::option::of(gaps()), 0u32..600), 1..100),
    ) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        let mut passed = 0;
        let mut paid = Vec::new();
        for (ahead, back, share) in visits {
            if !world.pass(ahead, &[&gate]) { break }
            passed += ahead.micros(&gate.quota);
            if let Some(back) = back {
                let now = clock_now(&world).as_micros();
                world.clock.set(Timestamp::from_micros(now.saturating_sub(back.micros(&gate.quota))));
            }
            let cost = cost(share, &gate.quota);
            if world.take(&gate, cost).is_some() {
                paid.push((passed, cost));
            }
        }
        check_never_over(&gate.quota, &paid)?;
    }

    /// After a step back a key waits, but not for ever: two refills of a bucket or two windows at most.
    #[test]
    fn a_clock_that_stepped_back_is_forgiven(quota in quotas(), start in starts(), visits in visits(20), back in gaps()) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        play(&world, &gate, &visits);
        let now = clock_now(&world).as_micros().saturating_sub(back.micros(&gate.quota));
        world.clock.set(Timestamp::from_micros(now));
        world.apply(&gate, take(1)); // which is denied, and yet mends
        let refill = match gate.quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => gate.quota.time_to_fill().ceil(),
            Algorithm::TokenBucket(Refill::Stepped) => {
                let steps = u64::from(gate.capacity()).div_ceil(u64::from(gate.quota.units())) + 1;
                Micros::new(steps * gate.quota.window().as_micros())
            }
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter | Algorithm::FixedWindow(_) => gate.quota.window(),
        };
        let forgiven_after = refill + refill + gate.quota.window();
        if !world.lasts_after(forgiven_after, &[&gate]) { return Ok(()) }
        world.clock.advance(forgiven_after);
        prop_assert_eq!(remaining(&world, &gate), gate.capacity());
    }

    /// Counts survive a changed limit: under each quota, from its first charge on, its own bound holds.
    #[test]
    fn a_changed_quota_keeps_its_own_bound(
        (first, second) in algorithms().prop_flat_map(quotas_on_one_key),
        start in starts(),
        before in visits(40),
        after in visits(80),
    ) {
        let world = World::at(start);
        play(&world, &Gate::new("g", first), &before);
        let gate = Gate::new("g", second);
        let paid: Vec<_> = play(&world, &gate, &after).iter().map(|(at, cost)| (at.as_micros(), *cost)).collect();
        check_never_over(&gate.quota, &paid)?;
    }

    /// Recording never fails, counts past the limit, and is paid back by time: two capacities deep at most.
    #[test]
    fn what_is_recorded_counts_even_past_the_limit(quota in quotas(), start in starts(), n in 1u32..6, share in 0u32..3_000) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        let cost = cost(share, &gate.quota);
        for _ in 0..n {
            let paid = matches!(world.apply(&gate, Act::Record(cost)).outcome, Outcome::Charged(_));
            prop_assert!(paid);
        }
        let recorded = u64::from(cost) * u64::from(n);
        let left = u64::from(gate.capacity()).saturating_sub(recorded);
        prop_assert_eq!(u64::from(remaining(&world, &gate)), left);
    }

    /// Recording nothing tells whether the key is past its limit, as the record before it did. Looking is never denied.
    #[test]
    fn recording_nothing_tells_whether_the_limit_is_passed(quota in countable(), start in starts(), records in visits(20)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        for (gap, share) in records {
            if !world.pass(gap, &[&gate]) { break }
            let before = world.apply(&gate, Act::Record(0));
            prop_assert!(!before.is_past() || before.remaining == 0);
            let past = world.apply(&gate, Act::Record(cost(share, &gate.quota))).is_past();
            let after = world.apply(&gate, Act::Record(0));
            prop_assert_eq!(after.is_past(), past);
            prop_assert_eq!(world.peek(&gate).outcome, Outcome::WouldPass);
        }
    }

    /// A reset key stands as if never seen.
    #[test]
    fn a_reset_key_stands_as_if_never_seen(quota in quotas(), start in starts(), visits in visits(20)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        play(&world, &gate, &visits);
        world.reset(&gate);
        let fresh = World::at(clock_now(&world));
        prop_assert_eq!(world.peek(&gate), fresh.peek(&gate));
        prop_assert_eq!(remaining(&world, &gate), gate.capacity());
    }
}

/// Quotas of which a count has room for what is past the limit.
fn countable() -> impl Strategy<Value = Quota> {
    quotas().prop_filter("half of what can be counted", |quota| quota.capacity().get() < u32::MAX / 2)
}

/// Plays visits in the first world, and those that were paid there in the second, which has more room.
fn follow(first: &World, second: &World, gate: &Gate, visits: &[Visit]) -> Result<(), TestCaseError> {
    for (at, cost) in play(first, gate, visits) {
        second.clock.set(at);
        prop_assert!(second.take(gate, cost).is_some(), "the uncharged key has more room");
    }
    second.clock.set(clock_now(first));
    Ok(())
}

/// Where the first charge says when the next window or step begins, it does so also if it is given back;
/// then the same later charges fall into other windows, and the two worlds cannot be compared. For those,
/// `refunds_do_not_break_never_over` must do.
fn sets_no_time(quota: &Quota) -> bool {
    let begins = [Algorithm::FixedWindow(WindowStart::FirstHit), Algorithm::TokenBucket(Refill::Stepped)];
    !begins.contains(&quota.algorithm())
}

fn clock_now(world: &World) -> Timestamp {
    ratewright_core::Clock::now(&world.clock)
}
