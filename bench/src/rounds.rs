//! Ours and the peer in turn, so that a noisy neighbour hits both.

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

/// Prints one line.
pub(crate) fn report(name: &str, ours: f64, peer: f64) {
    println!("bench {name} ours={ours:.1} peer={peer:.1} ratio={:.2}", ours / peer);
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
