//! Ours and the peer in turn, so that a noisy neighbour hits both.

use rustix::time::{ClockId, clock_gettime};

/// Rounds of each side. The median of an odd number is one of them.
const ROUNDS: usize = 9;

/// CPU time of this process, all threads, in nanoseconds.
pub(crate) fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Plays `n` operations a round on each side, in turn, and prints nanoseconds of CPU per operation.
pub(crate) fn compare(name: &str, n: u64, mut ours: impl FnMut(), mut peer: impl FnMut()) {
    let mut rounds = (Vec::new(), Vec::new());
    let timed = |play: &mut dyn FnMut()| {
        let before = cpu_nanos();
        play();
        (cpu_nanos() - before) / n as f64
    };
    (ours(), peer());
    for _ in 0..ROUNDS {
        rounds.0.push(timed(&mut ours));
        rounds.1.push(timed(&mut peer));
    }
    report(name, median(rounds.0), median(rounds.1));
}

/// Prints one line.
pub(crate) fn report(name: &str, ours: f64, peer: f64) {
    println!("bench {name} ours={ours:.1} peer={peer:.1} ratio={:.2}", ours / peer);
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
