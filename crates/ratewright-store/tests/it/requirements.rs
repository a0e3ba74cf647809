//! The user's own figures, by requirement id, and one readable example of each algorithm.

use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Outcome, Standing};
use ratewright_core::{Micros, Quota, Timestamp};

use super::World;
use crate::world::{Gate, take};

const SMOOTH: Algorithm = Algorithm::TokenBucket(Refill::Smooth);
const STEPPED: Algorithm = Algorithm::TokenBucket(Refill::Stepped);

/// Plays visits against a fresh bucket: `500ms` is one unit then, `500ms*3` three visits, `500ms=3` one of
/// cost 3. Each answer is `paid` or `short` with what remains or how long to wait.
#[track_caller]
fn check(algorithm: Algorithm, rate: &str, burst: Option<u32>, visits: &str, expected: Expect) {
    let quota = Quota::new(algorithm, rate.parse().unwrap()).unwrap();
    let quota = match burst.and_then(NonZeroU32::new) {
        Some(burst) => quota.with_burst(burst).unwrap(),
        None => quota,
    };
    let start = Timestamp::from_micros(1_700_000_040_000_000); // a whole minute
    let (world, gate) = (World::at(start), Gate::new("g", quota));
    let mut answers = Vec::new();
    for visit in visits.split_whitespace() {
        let (visit, times) = visit.split_once('*').unwrap_or((visit, "1"));
        let (at, cost) = visit.split_once('=').unwrap_or((visit, "1"));
        world.clock.set(start + Micros::from_millis(at.strip_suffix("ms").unwrap().parse().unwrap()));
        for _ in 0..times.parse::<u32>().unwrap() {
            answers.push(shown(&world.apply(&gate, take(cost.parse().unwrap()))));
        }
    }
    answers.dedup_by(|b, a| {
        // `paid(3) paid(2) paid(1)` reads as `paid(3..1)`.
        let number = |text: &str| text.trim_end_matches(')').parse::<u32>().ok();
        let (Some(run), Some(next)) = (a.strip_prefix("paid("), b.strip_prefix("paid(").and_then(number))
        else {
            return false;
        };
        let (first, last) = run.split_once("..").unwrap_or((run, run));
        let goes_on = number(last) == Some(next + 1);
        if goes_on {
            *a = format!("paid({}..{next})", first.trim_end_matches(')'));
        }
        goes_on
    });
    expected.assert_eq(&answers.join(" "));
}

fn shown(standing: &Standing) -> String {
    match standing.outcome {
        Outcome::Charged(_) if !standing.wait.is_zero() => {
            format!("wait {:?}({})", standing.wait, standing.remaining)
        }
        Outcome::Charged(_) => format!("paid({})", standing.remaining),
        Outcome::Denied { retry_after } => format!("short({retry_after:?})"),
        Outcome::WouldPass => "fits".to_owned(),
        Outcome::Never => "never".to_owned(),
        Outcome::Unknown => "unknown".to_owned(),
    }
}

/// A1
#[test]
fn a1_a_new_client_starts_with_a_full_bucket() {
    check(SMOOTH, "10/s", Some(15), "0ms", expect!["paid(14)"]);
}

/// A1
#[test]
fn a1_a_burst_at_once_then_the_rate_and_full_again_after_five_idle_seconds() {
    check(
        SMOOTH,
        "10/s",
        Some(50),
        "0ms*51 100ms*2 200ms*2 1200ms*11 6200ms*51",
        expect![
            "paid(49..0) short(100ms) paid(0) short(100ms) paid(0) short(100ms) paid(9..0) short(100ms) paid(49..0) short(100ms)"
        ],
    );
}

/// A1
#[test]
fn a1_the_fourth_of_a_burst_of_three_is_denied_and_passes_after_550_ms() {
    check(SMOOTH, "10/s", Some(3), "0ms*4 550ms", expect!["paid(2..0) short(100ms) paid(2)"]);
}

/// A2
#[test]
fn a2_a_unit_a_second_polled_each_half_second_is_earned_each_second() {
    check(
        SMOOTH,
        "1/s",
        Some(1),
        "0ms 500ms 1000ms 1500ms 2000ms 2500ms 3000ms",
        expect!["paid(0) short(500ms) paid(0) short(500ms) paid(0) short(500ms) paid(0)"],
    );
}

/// B2: login 10, 1/6 s.
#[test]
fn b2_login_refills_one_every_six_seconds() {
    let visits = "0ms*11 5999ms 6000ms 6000ms 60000ms*10";
    for algorithm in [SMOOTH, STEPPED] {
        let expected = expect!["paid(9..0) short(6s) short(1ms) paid(0) short(6s) paid(8..0) short(6s)"];
        check(algorithm, "1/6s", Some(10), visits, expected);
    }
}

/// B2: payment 30, 5 per 2 s: smooth gives one every 400 ms, in steps five come together.
#[test]
fn b2_payment_refills_smoothly_or_in_steps() {
    let visits = "0ms*31 400ms 1999ms*4 2000ms*6";
    check(
        SMOOTH,
        "5/2s",
        Some(30),
        visits,
        expect![
            "paid(29..0) short(400ms) paid(0) paid(2..0) short(1ms) paid(0) short(400ms) short(400ms) short(400ms) short(400ms) short(400ms)"
        ],
    );
    check(
        STEPPED,
        "5/2s",
        Some(30),
        visits,
        expect![
            "paid(29..0) short(2s) short(1.6s) short(1ms) short(1ms) short(1ms) short(1ms) paid(4..0) short(2s)"
        ],
    );
}

/// B2: recovery 5, 1/60 s; default 100, 10/s; production login 5, 1/12 s; recovery 3, 1/180 s; default 60, 10/s.
#[test]
fn b2_the_other_named_limits() {
    check(SMOOTH, "1/60s", Some(5), "0ms*6 60000ms*2", expect!["paid(4..0) short(60s) paid(0) short(60s)"]);
    check(
        SMOOTH,
        "10/s",
        Some(100),
        "0ms*101 1000ms*11",
        expect!["paid(99..0) short(100ms) paid(9..0) short(100ms)"],
    );
    check(SMOOTH, "1/12s", Some(5), "0ms*6 12000ms*2", expect!["paid(4..0) short(12s) paid(0) short(12s)"]);
    check(
        SMOOTH,
        "1/180s",
        Some(3),
        "0ms*4 180000ms*2",
        expect!["paid(2..0) short(180s) paid(0) short(180s)"],
    );
    check(SMOOTH, "10/s", Some(60), "0ms*61", expect!["paid(59..0) short(100ms)"]);
}

/// B2: the window is a second quota; what either denies costs neither.
#[test]
fn b2_a_window_beside_a_bucket_is_all_or_nothing() {
    let world = World::at(Timestamp::from_micros(1_700_000_040_000_000));
    let quota = |algorithm, rate: &str| Quota::new(algorithm, rate.parse().unwrap()).unwrap();
    let bucket = quota(SMOOTH, "1/6s").with_burst(NonZeroU32::new(10).unwrap()).unwrap();
    let bucket = Gate::new("bucket", bucket);
    let window = Gate::new("window", quota(Algorithm::SlidingWindow, "10/60s"));
    let logins = (0..15).map(|_| {
        let standings = world.apply_all(&[(&bucket, "c", take(1)), (&window, "c", take(1))]);
        world.clock.advance(Micros::from_secs(1));
        standings.iter().all(|standing| matches!(standing.outcome, Outcome::Charged(_)))
    });
    assert_eq!(logins.filter(|paid| *paid).count(), 10, "one a second: ten pass, five do not");
    assert_eq!(world.peek(&bucket).remaining, 2, "the bucket alone would have let twelve through");
}

#[test]
fn a_leaky_meter_measures_and_a_leaky_queue_makes_wait() {
    let visits = "0ms*4 500ms";
    check(
        Algorithm::LeakyBucket(Leak::Meter),
        "2/s",
        Some(3),
        visits,
        expect!["paid(2..0) short(500ms) paid(0)"],
    );
    check(
        Algorithm::LeakyBucket(Leak::Queue),
        "2/s",
        Some(3),
        visits,
        expect!["paid(2) wait 500ms(1) wait 1s(0) short(500ms) wait 1s(0)"],
    );
}

#[test]
fn a_sliding_log_frees_each_charge_a_window_after_it_was_made() {
    check(
        Algorithm::SlidingWindow,
        "4/60s",
        None,
        "0ms=3 10000ms 20000ms 59999ms 60000ms=3 69999ms 70000ms",
        expect!["paid(1..0) short(40s) short(1ms) paid(0) short(1ms) paid(0)"],
    );
}

#[test]
fn a_sliding_counter_lets_the_last_window_fade() {
    check(
        Algorithm::SlidingWindowCounter,
        "10/60s",
        None,
        "0ms=10 1000ms 60000ms 65999ms 66000ms 66000ms 120000ms=9",
        expect!["paid(0) short(65s) short(6s) short(1ms) paid(0) short(6s) paid(0)"],
    );
}

#[test]
fn a_fixed_window_begins_with_the_minute_or_with_the_first_hit() {
    let visits = "30000ms*4 59999ms 60000ms 89999ms 90000ms";
    check(
        Algorithm::FixedWindow(WindowStart::Epoch),
        "3/60s",
        None,
        visits,
        expect!["paid(2..0) short(30s) short(1ms) paid(2..0)"],
    );
    check(
        Algorithm::FixedWindow(WindowStart::FirstHit),
        "3/60s",
        None,
        visits,
        expect!["paid(2..0) short(60s) short(30.001s) short(30s) short(1ms) paid(2)"],
    );
}

#[test]
fn what_can_never_fit_is_said_at_once() {
    for algorithm in Algorithm::NAMES {
        check(Algorithm::named(algorithm).unwrap(), "3/s", None, "0ms=4 0ms=3", expect!["never paid(0)"]);
    }
}
