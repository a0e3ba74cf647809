//! The figures in docs/concepts are what the engine draws now, and show what their pages say.

use std::path::Path;

use ratewright_book::plots::first_hour::HOUR;
use ratewright_book::plots::window_edge::{LIMIT, MINUTE, Traffic};
use ratewright_book::plots::{
    Reply, draw, first_hour, levels, most_allowed_within, path, queue, window_edge,
};
use ratewright_core::Micros;
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};

const FIXED: Algorithm = Algorithm::FixedWindow(WindowStart::Epoch);

/// How many of the requests sent at each time were allowed, and how many were denied.
fn bursts(replies: &[Reply]) -> Vec<(usize, usize)> {
    let of = |burst: &[Reply]| {
        let n_allowed = burst.iter().filter(|reply| reply.is_allowed).count();
        (n_allowed, burst.len() - n_allowed)
    };
    replies.chunk_by(|a, b| a.at == b.at).map(of).collect()
}

#[test]
fn the_figures_are_what_the_engine_draws() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (name, drawn) in draw() {
        let file = std::fs::read_to_string(path(root, name)).unwrap_or_default();
        assert!(file == drawn, "docs/concepts/{name} is not what the engine draws now: run make plots");
        assert!(drawn.len() < 40_000, "{name} has {} bytes", drawn.len());
    }
}

#[test]
fn a_smooth_bucket_rises_evenly_and_a_stepped_one_by_four() {
    let (smooth, stepped) = (levels::smooth(), levels::stepped());
    assert_eq!(bursts(&smooth.replies), [(6, 0), (5, 1), (4, 3), (8, 1)]);
    assert_eq!(bursts(&stepped.replies), [(6, 0), (2, 4), (4, 3), (8, 1)]);
    for pair in smooth.level.windows(2) {
        let (passed, earned) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        assert!(earned <= passed + 1e-9, "more than one token a second: {pair:?}");
    }
    let rises = stepped.level.windows(2).filter(|pair| pair[0].1 < pair[1].1);
    let rises: Vec<_> = rises.map(|pair| (pair[1].0, pair[1].1 - pair[0].1)).collect();
    assert_eq!(rises, [(5.0, 4.0), (9.0, 4.0), (13.0, 4.0)], "every four seconds after the first request");
}

#[test]
fn of_the_windows_only_the_sliding_one_holds_in_any_ten_seconds() {
    let most = |algorithm| most_allowed_within(&levels::window(algorithm).replies, Micros::from_secs(10));
    assert_eq!(most(Algorithm::SlidingWindow), 6);
    assert_eq!(most(Algorithm::SlidingWindowCounter), 7);
    assert_eq!(most(FIXED), 10);
}

#[test]
fn a_unit_of_a_sliding_window_is_free_after_ten_seconds() {
    let run = levels::window(Algorithm::SlidingWindow);
    let rises = run.level.windows(2).filter(|pair| pair[0].1 < pair[1].1);
    let rises: Vec<_> = rises.map(|pair| (pair[1].0, pair[1].1 - pair[0].1)).collect();
    assert_eq!(rises, [(12.0, 1.0), (16.0, 2.0), (19.0, 3.0), (24.0, 1.0), (28.0, 2.0)]);
}

#[test]
fn a_fixed_window_starts_full() {
    let run = levels::window(FIXED);
    for edge in [10.0, 20.0] {
        let (_, left) = run.level.iter().find(|(at, _)| *at == edge).unwrap();
        assert_eq!(*left, 6.0, "at {edge} s");
    }
}

#[test]
fn at_the_edge_of_a_minute_a_fixed_window_allows_twice_its_limit() {
    let limit = usize::try_from(LIMIT).unwrap();
    let most = |algorithm: Algorithm, traffic: Traffic| {
        let runs = window_edge::runs();
        let run = runs.iter().find(|run| run.algorithm == algorithm && run.traffic == traffic).unwrap();
        run.most_in_a_minute()
    };
    let table = [
        (FIXED, 200, 200),
        (Algorithm::SlidingWindowCounter, 103, 196),
        (Algorithm::TokenBucket(Refill::Smooth), 106, 199),
        (Algorithm::SlidingWindow, 100, 100),
    ];
    for (algorithm, bursts, keeps_trying) in table {
        let found = [most(algorithm, Traffic::TwoBursts), most(algorithm, Traffic::KeepsTrying)];
        assert_eq!(found, [bursts, keeps_trying], "{algorithm:?}");
        assert!(found.into_iter().max() <= Some(2 * limit));
    }
    let within_four_seconds =
        |run: &window_edge::Run| most_allowed_within(&run.replies, Micros::from_secs(4));
    let runs = window_edge::runs();
    let fixed = runs.iter().find(|run| run.algorithm == FIXED && run.traffic == Traffic::TwoBursts).unwrap();
    assert_eq!(within_four_seconds(fixed), 2 * limit, "all of it within four seconds");
    assert_eq!(MINUTE, Micros::from_secs(60));
}

#[test]
fn requests_leave_a_queue_evenly_spaced() {
    let queued = queue::replies(Leak::Queue);
    let left: Vec<_> = queued.iter().filter(|reply| reply.is_allowed).map(Reply::left_at).collect();
    assert!(left.windows(2).all(|pair| pair[0] + queue::SPACING <= pair[1]), "{left:?}");
    let first_burst: Vec<_> = left.iter().filter(|at| **at < Micros::from_secs(5)).collect();
    assert!(first_burst.windows(2).all(|pair| *pair[0] + queue::SPACING == *pair[1]), "{left:?}");
    assert_eq!((first_burst.len(), left.len()), (6, 10));
    let (queued, metered): (Vec<_>, Vec<_>) =
        queued.iter().zip(&queue::replies(Leak::Meter)).map(|(a, b)| (a.is_allowed, b.is_allowed)).unzip();
    assert_eq!(queued, metered, "both allow the same requests");
}

#[test]
fn a_bucket_of_100_an_hour_admits_200_in_its_first_hour_and_a_window_100() {
    let [bucket, small, window, both] = first_hour::runs();
    let in_first_hour = |run: &first_hour::Run| run.n_allowed_before(HOUR);
    assert_eq!([&bucket, &small, &window, &both].map(in_first_hour), [199, 119, 100, 100]);
    let moment = Micros::new(1);
    assert_eq!(
        bucket.n_allowed_before(HOUR + moment),
        200,
        "the 200th passes exactly one hour after the first"
    );
    let at_once = |run: &first_hour::Run| run.n_allowed_before(moment);
    assert_eq!([&bucket, &small, &window, &both].map(at_once), [100, 20, 100, 20]);
    for run in [&window, &both] {
        assert_eq!(most_allowed_within(&run.replies, HOUR), 100, "{}", run.name);
    }
}
