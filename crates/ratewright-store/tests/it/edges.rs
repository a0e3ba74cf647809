//! Examples at the edges of the laws: each a case that was once wrong, or could be read two ways.

use ratewright_core::quantity::TIME_MAX;
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Act, Outcome, Standing};
use ratewright_core::{Micros, Quota, Timestamp, Verdict};

use super::World;
use crate::bounds::check_never_over;
use crate::world::{Gate, take, trial};

#[test]
fn a_try_counts_if_nobody_vetoes_and_never_vetoes_itself() {
    let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
    let quota = |rate: &str| Quota::new(Algorithm::SlidingWindow, rate.parse().unwrap()).unwrap();
    let (shadow, enforced) = (Gate::new("shadow", quota("2/s")), Gate::new("enforced", quota("3/s")));
    let verdicts: Vec<_> = (0..4)
        .map(|_| {
            let standings = world.apply_all(&[(&shadow, "c", trial(1)), (&enforced, "c", take(1))]);
            (standings[0].remaining, matches!(standings[1].outcome, Outcome::Charged(_)))
        })
        .collect();
    assert_eq!(verdicts, [(1, true), (0, true), (0, true), (0, false)]);
    assert_eq!(Verdict::judge(&[], &[]), Verdict::Allow);
}

/// A window that was pulled back to an odd time must not overlap the next: 299 in 31 s once, at most 200.
#[test]
fn a_window_pulled_back_does_not_overlap_the_next() {
    for algorithm in [Algorithm::FixedWindow(WindowStart::Epoch), Algorithm::SlidingWindowCounter] {
        let minute = 1_700_000_040_000_000;
        let world = World::at(Timestamp::from_micros(minute + 3_600_000_000));
        let gate = Gate::new("g", Quota::new(algorithm, "100/60s".parse().unwrap()).unwrap());
        assert!(world.take(&gate, 1).is_some());
        let mut paid = Vec::new();
        for after in
            [0, 59_000_000, 60_000_000, 89_999_999, 90_000_000, 119_000_000, 120_000_000, 150_000_000]
        {
            world.clock.set(Timestamp::from_micros(minute + 30_000_000 + after));
            paid.extend((0..1_000).take_while(|_| world.take(&gate, 1).is_some()).map(|_| (after, 1)));
        }
        check_never_over(&gate.quota, &paid).unwrap();
        assert!(paid.len() > 200, "{algorithm:?}: some pass");
    }
}

/// Entries that lie too far ahead are pulled back to now, and no elder one stays ahead of them.
#[test]
fn a_log_from_the_future_is_forgotten_a_window_after_it_was_met() {
    let at = |seconds: u64| Timestamp::from_micros((1_700_000_000 + seconds) * 1_000_000);
    let world = World::at(at(100));
    let gate = Gate::new("g", Quota::new(Algorithm::SlidingWindow, "4/60s".parse().unwrap()).unwrap());
    assert!(world.take(&gate, 2).is_some());
    world.clock.set(at(130));
    assert!(world.take(&gate, 2).is_some());
    world.clock.set(at(60));
    assert!(world.take(&gate, 1).is_none(), "130 is more than a window ahead: both are pulled back to 60");
    world.clock.set(Timestamp::from_micros(at(120).as_micros() - 1));
    assert_eq!(world.peek(&gate).remaining, 0);
    world.clock.set(at(120));
    assert_eq!(world.peek(&gate).remaining, 4);
}

/// What has left the window has left for good once a charge was judged; a look lets nothing go.
#[test]
fn a_look_lets_nothing_go_that_a_clock_set_back_would_find() {
    let at = |seconds: u64| Timestamp::from_micros((1_700_000_000 + seconds) * 1_000_000);
    let world = World::at(at(100));
    let gate = Gate::new("g", Quota::new(Algorithm::SlidingWindow, "4/60s".parse().unwrap()).unwrap());
    assert!(world.take(&gate, 3).is_some());
    world.clock.set(at(170));
    assert_eq!(world.peek(&gate).remaining, 4);
    world.clock.set(at(150));
    assert_eq!(world.peek(&gate).remaining, 1, "the look at 170 changed nothing");
    assert!(world.take(&gate, 2).is_none());
}

/// Less than a window behind, time stands still: nothing is pulled back.
#[test]
fn a_clock_a_little_behind_finds_a_log_as_it_is() {
    let at = |seconds: u64| Timestamp::from_micros((1_700_000_000 + seconds) * 1_000_000);
    let world = World::at(at(100));
    let gate = Gate::new("g", Quota::new(Algorithm::SlidingWindow, "4/60s".parse().unwrap()).unwrap());
    assert!(world.take(&gate, 3).is_some());
    world.clock.set(at(70));
    assert!(world.take(&gate, 1).is_some());
    world.clock.set(at(159));
    assert_eq!(world.peek(&gate).remaining, 0, "what was spent at 70 was filed with what was spent at 100");
    world.clock.set(at(160));
    assert_eq!(world.peek(&gate).remaining, 4);
}

#[test]
fn charges_of_one_call_queue_behind_each_other() {
    let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
    let quota = Quota::new(Algorithm::LeakyBucket(Leak::Queue), "2/s".parse().unwrap()).unwrap();
    let gate = Gate::new("g", quota.with_burst(3.try_into().unwrap()).unwrap());
    let standings = world.apply_all(&[(&gate, "c", take(1)), (&gate, "c", take(1)), (&gate, "c", take(1))]);
    let waits: Vec<_> = standings.iter().map(|standing| standing.wait).collect();
    assert_eq!(waits, [0, 500, 1_000].map(Micros::from_millis));
}

/// Sums of a time and a refill once passed 2^53, where the script's doubles are rounded: it denied what its own
/// state allowed. And a state was cut off at 2^53, so that what it owed beyond that could be spent again and again.
#[test]
fn no_bucket_is_charged_past_the_end_of_time() {
    for algorithm in [Algorithm::TokenBucket(Refill::Smooth), Algorithm::LeakyBucket(Leak::Queue)] {
        let gate = Gate::new("g", Quota::new(algorithm, "7/100year".parse().unwrap()).unwrap());
        let unit = gate.quota.time_to_earn(1).ceil().as_micros();
        let refill = gate.quota.time_to_fill().ceil().as_micros();
        for left in (4 * unit..4 * unit + 4).chain([unit, unit - 1, 1]) {
            let world = World::at(Timestamp::from_micros(TIME_MAX - left));
            let mut spent = 0;
            for after in [0, 1, unit - 1, 1, unit, 3] {
                let now = ratewright_core::Clock::now(&world.clock) + Micros::new(after);
                world.clock.set(now.min(Timestamp::from_micros(TIME_MAX - 1)));
                world.apply(&gate, Act::Look(7));
                while world.take(&gate, 1).is_some() {
                    spent += 1;
                    assert!(spent <= left * 7 / refill, "{spent} units do not come back within {left} us");
                }
                assert_eq!(world.peek(&gate).remaining, 0);
            }
        }
    }
}

/// A wait is a span, and no span ends because time does: one store once said the end of time, the other the wait.
#[test]
fn a_log_tells_waits_that_last_beyond_the_end_of_time() {
    let world = World::at(Timestamp::from_micros(TIME_MAX - 3));
    let gate = Gate::new("g", Quota::new(Algorithm::SlidingWindow, "2/100year".parse().unwrap()).unwrap());
    assert!(world.take(&gate, 2).is_some());
    world.clock.advance(Micros::new(1));
    let retry_after = Micros::new(gate.quota.window().as_micros() - 1);
    let standing = world.apply(&gate, take(1));
    assert_eq!((standing.outcome, standing.reset_after), (Outcome::Denied { retry_after }, retry_after));
}

/// The longest refill there is: all is exact until two refills before the end.
#[test]
fn waits_are_exact_until_two_refills_before_the_end_of_time() {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "7/100year".parse().unwrap()).unwrap();
    let gate = Gate::new("g", quota);
    let refill = gate.quota.time_to_fill().ceil();
    let last = TIME_MAX - 2 * refill.as_micros();
    let fits_in_time = |start: u64, cost: u32| {
        let world = World::at(Timestamp::from_micros(start));
        assert!(world.take(&gate, 7).is_some());
        let Outcome::Denied { retry_after } = world.apply(&gate, take(cost)).outcome else {
            panic!("all is spent")
        };
        world.clock.advance(Micros::new(retry_after.as_micros() - 1));
        assert!(!world.would_fit(&gate, cost), "{cost} at {start}");
        world.clock.advance(Micros::new(1));
        world.would_fit(&gate, cost)
    };
    for cost in 1..=7 {
        assert!((last - 4..=last).all(|start| fits_in_time(start, cost)), "{cost}");
    }
    assert!(!fits_in_time(last + 1, 7), "it would be full again after the end");
}

/// Every algorithm and variant.
fn all() -> impl Iterator<Item = Gate> {
    let variants = [Algorithm::TokenBucket(Refill::Stepped), Algorithm::FixedWindow(WindowStart::FirstHit)];
    let named = Algorithm::NAMES.into_iter().filter_map(Algorithm::named);
    named
        .chain(variants)
        .map(|algorithm| Gate::new("g", Quota::new(algorithm, "10/h".parse().unwrap()).unwrap()))
}

/// Units beyond two capacities were not counted, so they must not come back in the guise of others.
#[test]
fn what_was_recorded_past_the_limit_is_not_given_back() {
    for gate in all() {
        let world = World::at(Timestamp::from_micros(1_700_002_800_000_000)); // a whole hour
        let record = |cost| {
            let Outcome::Charged(receipt) = world.apply(&gate, Act::Record(cost)).outcome else {
                panic!("recording never fails")
            };
            receipt
        };
        let receipts = [record(10), record(20), record(20)];
        for receipt in receipts {
            world.refund(&gate, receipt);
        }
        assert_eq!(world.peek(&gate).remaining, 0, "{:?}", gate.quota.algorithm());
    }
}

/// From a time that lies ahead nobody knows what has been repaid since.
#[test]
fn a_refund_from_the_future_gives_nothing_back() {
    for gate in all() {
        let world = World::at(Timestamp::from_micros(1_700_002_860_000_000));
        let receipt = world.take(&gate, 4).unwrap();
        world.clock.set(Timestamp::from_micros(1_700_002_859_999_999));
        world.refund(&gate, receipt);
        assert!(world.peek(&gate).remaining <= 6, "{:?}", gate.quota.algorithm());
    }
}

#[test]
fn a_first_hit_that_is_given_back_whole_opens_no_window() {
    let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
    let algorithm = Algorithm::FixedWindow(WindowStart::FirstHit);
    let gate = Gate::new("g", Quota::new(algorithm, "3/min".parse().unwrap()).unwrap());
    let receipt = world.take(&gate, 3).unwrap();
    world.clock.advance(Micros::from_secs(20));
    world.refund(&gate, receipt);
    assert!(world.take(&gate, 3).is_some());
    assert_eq!(world.peek(&gate).reset_after, Micros::from_secs(60), "the window begins with the second hit");
}

#[test]
fn two_charges_on_one_key_that_never_fit_together_are_told_so() {
    let world = World::at(Timestamp::from_micros(1_700_000_000_000_000));
    let gate = Gate::new("g", Quota::new(Algorithm::SlidingWindow, "3/s".parse().unwrap()).unwrap());
    let standings = world.apply_all(&[(&gate, "c", take(2)), (&gate, "c", take(2))]);
    assert_eq!((&standings[0].outcome, &standings[1].outcome), (&Outcome::WouldPass, &Outcome::Never));
}

/// The clock is set back by a minute after a charge, and passes the charge's time again. A minute more has passed than it
/// shows, and has repaid all: a refund returns nothing.
#[test]
fn a_receipt_from_before_a_step_back_returns_nothing() {
    let at = |seconds: u64| Timestamp::from_micros((1_700_000_000 + seconds) * 1_000_000);
    for algorithm in [
        Algorithm::TokenBucket(Refill::Smooth),
        Algorithm::TokenBucket(Refill::Stepped),
        Algorithm::FixedWindow(WindowStart::Epoch),
        Algorithm::SlidingWindow,
    ] {
        let world = World::at(at(100));
        let quota = Quota::new(algorithm, "100/100s".parse().unwrap()).unwrap();
        let (gate, other) = (Gate::new("g", quota.clone()), Gate::new("other", quota));
        let receipt = world.take(&gate, 60).unwrap();
        world.clock.set(at(40));
        world.peek(&other);
        world.clock.set(at(101));
        let before = world.peek(&gate);
        world.refund(&gate, receipt);
        let after = world.peek(&gate);
        let told = |standing: &Standing| (standing.remaining, standing.reset_after);
        assert_eq!(told(&before), told(&after), "{algorithm:?}");
        // What is paid after the clock has passed that time is given back as ever.
        world.clock.set(at(102));
        let before = world.peek(&gate);
        let receipt = world.take(&gate, 1).unwrap();
        world.refund(&gate, receipt);
        assert_eq!(told(&before), told(&world.peek(&gate)), "{algorithm:?}");
    }
}

/// The same if the refund itself is the first to see the clock set back.
#[test]
fn a_refund_that_finds_the_clock_set_back_returns_nothing() {
    let at = |seconds: u64| Timestamp::from_micros((1_700_000_000 + seconds) * 1_000_000);
    let world = World::at(at(100));
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "100/100s".parse().unwrap()).unwrap();
    let (gate, other) = (Gate::new("g", quota.clone()), Gate::new("other", quota));
    let receipt = world.take(&gate, 60).unwrap();
    world.clock.set(at(3_000));
    world.peek(&other);
    world.clock.set(at(101));
    world.refund(&gate, receipt);
    assert_eq!(world.peek(&gate).remaining, 41, "one second has repaid one unit");
}

/// Replies may be read in another order than they were given: a little earlier does not count as a step back.
#[test]
fn a_time_a_little_earlier_is_no_step_back() {
    let start = 1_700_000_000_000_000;
    let world = World::at(Timestamp::from_micros(start));
    let gate = Gate::new("g", Quota::new(Algorithm::SlidingWindow, "10/60s".parse().unwrap()).unwrap());
    let receipt = world.take(&gate, 4).unwrap();
    world.clock.set(Timestamp::from_micros(start + 50_000));
    world.peek(&gate);
    world.clock.set(Timestamp::from_micros(start));
    world.peek(&gate);
    world.refund(&gate, receipt);
    assert_eq!(world.peek(&gate).remaining, 10);
}
