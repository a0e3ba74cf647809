//! Ours and the peer in turn, so that a noisy neighbour hits both.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Rounds of each side. The median of an odd number is one of them.
const ROUNDS: usize = 9;

/// CPU time of this thread, in nanoseconds.
pub(crate) fn thread_cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Plays each side in turn, and prints the median CPU time of one operation in nanoseconds.
pub(crate) fn compare(name: &str, ours: impl Fn() -> f64, peer: impl Fn() -> f64) {
    ours();
    peer();
    let (ours, peer) = (0..ROUNDS).map(|_| (ours(), peer())).unzip();
    report(name, median(ours), median(peer));
}

/// Measures each side once to warm it up, then all in turn, so many rounds: the medians of each side's figures.
pub(crate) fn in_turn<S, const N: usize>(
    sides: &[S],
    rounds: usize,
    measure: impl Fn(&S) -> [f64; N],
) -> Vec<[f64; N]> {
    for side in sides {
        measure(side);
    }
    let rounds: Vec<Vec<_>> = (0..rounds).map(|_| sides.iter().map(&measure).collect()).collect();
    let figure = |side: usize, n: usize| median(rounds.iter().map(|round| round[side][n]).collect());
    (0..sides.len()).map(|side| std::array::from_fn(|n| figure(side, n))).collect()
}

/// Prints one line.
pub(crate) fn report(name: &str, ours: f64, peer: f64) {
    println!("bench {name} ours={ours:.1} peer={peer:.1} ratio={:.2}", ours / peer);
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
