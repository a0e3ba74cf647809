//! What is left over time, with the requests that took it: the token bucket in both variants, and the three windows.

use ratewright_core::quota::{Algorithm, Refill, WindowStart};
use ratewright_core::{Micros, Quota};

use super::engine::{Engine, Reply, bucket, quota, seconds};
use super::svg::{Figure, Frame};

/// Requests that are sent together: when, and how many.
type Burst = (u64, u64);

/// The requests of both token buckets, in milliseconds.
const BUCKET_TRAFFIC: [Burst; 4] = [(1_000, 6), (4_000, 6), (8_500, 7), (18_000, 9)];

/// The requests of all windows, in milliseconds.
const WINDOW_TRAFFIC: [Burst; 7] =
    [(2_000, 1), (6_000, 2), (9_000, 4), (11_000, 3), (14_000, 2), (18_000, 3), (23_000, 4)];

/// How often the engine is asked what is left.
const SAMPLE: u64 = 10_000;

/// What a bucket or a window held over time, and what became of each request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The requests, in their order.
    pub replies: Vec<Reply>,
    /// Time in seconds, and units left.
    pub level: Vec<(f64, f64)>,
}

/// A token bucket of 1/s with burst 8.
pub fn smooth() -> Run {
    run(&bucket(Algorithm::TokenBucket(Refill::Smooth), "4/4s", 8), &BUCKET_TRAFFIC, 20)
}

/// A token bucket with burst 8 that gets 4 tokens together every 4 seconds.
pub fn stepped() -> Run {
    run(&bucket(Algorithm::TokenBucket(Refill::Stepped), "4/4s", 8), &BUCKET_TRAFFIC, 20)
}

/// A window of 6 in 10 seconds, by one of the three algorithms.
pub fn window(algorithm: Algorithm) -> Run {
    run(&quota(algorithm, "6/10s"), &WINDOW_TRAFFIC, 30)
}

fn run(quota: &Quota, traffic: &[Burst], length: u64) -> Run {
    let engine = Engine::new(std::slice::from_ref(quota));
    let look = |at: Micros| {
        let (remaining, reset_after) = engine.look(at);
        // A smooth bucket has fractions of a token. The time until it is full says them exactly.
        let left = match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) => {
                let unit = quota.time_to_earn(1).ceil();
                f64::from(quota.capacity().get()) - seconds(reset_after) / seconds(unit)
            }
            Algorithm::TokenBucket(Refill::Stepped)
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::FixedWindow(_) => f64::from(remaining),
        };
        (seconds(at), left)
    };
    let (mut replies, mut level) = (Vec::new(), Vec::new());
    for at in
        (0..length * 1_000_000).step_by(usize::try_from(SAMPLE).expect("a small number")).map(Micros::new)
    {
        level.push(look(at));
        let n_requests =
            traffic.iter().find(|(when, _)| Micros::from_millis(*when) == at).map_or(0, |(_, n)| *n);
        replies.extend((0..n_requests).map(|_| engine.send(at)));
        if n_requests > 0 {
            level.push(look(at));
        }
    }
    Run { replies, level }
}

/// A level that jumps, drawn with right angles.
fn steps(level: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in level {
        if let Some(&(_, before)) = points.last().filter(|(_, before)| *before != y) {
            points.push((x, before));
        }
        points.push((x, y));
    }
    points
}

/// The corners of a level that rises evenly.
fn corners(level: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let slope =
        |a: (f64, f64), b: (f64, f64)| if a.0 == b.0 { f64::INFINITY } else { (b.1 - a.1) / (b.0 - a.0) };
    let mut points: Vec<(f64, f64)> = level.first().copied().into_iter().collect();
    for around in level.windows(3) {
        if let [before, here, after] = around
            && (slope(*before, *here) - slope(*here, *after)).abs() > 1e-3
        {
            points.push(*here);
        }
    }
    points.extend(level.last());
    points
}

/// Requests as columns under their time, one mark each.
fn requests(figure: &mut Figure, frame: &Frame, replies: &[Reply]) {
    for (index, reply) in replies.iter().enumerate() {
        let n_before = replies.iter().take(index).filter(|before| before.at == reply.at).count();
        let row = f64::from(u32::try_from(n_before).expect("a small number"));
        let (x, y) = (frame.x(seconds(reply.at)), frame.bottom() + 11.0 + 8.5 * row);
        if reply.is_allowed { figure.dot(x, y) } else { figure.cross(x, y) }
    }
    figure.text(frame.left - 8.0, frame.bottom() + 17.0, "muted small end", "requests");
}

/// Where a level rises by several units at once: by how many.
fn rises(figure: &mut Figure, frame: &Frame, level: &[(f64, f64)]) {
    for pair in level.windows(2) {
        if let [(_, before), (x, after)] = *pair
            && after > before + 1.5
        {
            figure.text(
                frame.x(x) + 5.0,
                frame.y(after) + 14.0,
                "small blue",
                &format!("+{}", after - before),
            );
        }
    }
}

fn frame(top: f64, height: f64, length: f64, most: f64) -> Frame {
    Frame { left: 74.0, top, width: 622.0, height, x: [0.0, length], y: [0.0, most] }
}

fn x_axis(figure: &mut Figure, frame: &Frame, y: f64, [step, last]: [u32; 2]) {
    figure.path("axis thin", &format!("M{} {y}H{}", frame.left, frame.right()));
    let ticks = (0..=last).step_by(usize::try_from(step).expect("a small number"));
    figure.x_axis(frame, y, ticks.map(|tick| (tick, format!("{tick} s"))));
}

/// Lines from the requests to the curve that they move.
fn guides(figure: &mut Figure, frame: &Frame, traffic: &[Burst]) {
    for (at, _) in traffic {
        figure.vertical("grid", frame, seconds(Micros::from_millis(*at)));
    }
}

/// The figure of the token bucket.
pub(super) fn refill() -> String {
    let mut figure = Figure::new(
        476.0,
        "Tokens in a token bucket over time, with smooth and with stepped refill",
        "Two plots of the same requests: bursts of 6, 6, 7 and 9 at 1, 4, 8.5 and 18 seconds. The bucket holds 8 tokens. Above, one \
         token comes back each second, in a straight line. Below, four tokens come back together every 4 seconds after the first \
         request. Requests that find no token are denied and take none.",
    );
    let panels = [
        (
            ["refill: smooth", "rate: 4/4s, burst: 8: one token comes back each second"],
            corners(&smooth().level),
            smooth(),
        ),
        (
            ["refill: stepped", "rate: 4/4s, burst: 8: four tokens come back every 4 s"],
            steps(&stepped().level),
            stepped(),
        ),
    ];
    for (([name, what], points, run), top) in panels.into_iter().zip([58.0, 270.0]) {
        let frame = frame(top, 92.0, 20.0, 8.0);
        figure.heading(24.0, top - 30.0, name, what);
        figure.y_axis(&frame, &[0, 4, 8]);
        figure.text(frame.left, top - 9.0, "muted small", "tokens");
        guides(&mut figure, &frame, &BUCKET_TRAFFIC);
        figure.path("curve", &frame.path(&points));
        rises(&mut figure, &frame, &run.level);
        requests(&mut figure, &frame, &run.replies);
    }
    figure.key(28.0);
    let bottom = frame(270.0, 92.0, 20.0, 8.0);
    x_axis(&mut figure, &bottom, 446.0, [2, 20]);
    figure.finish()
}

/// A small figure of one window.
fn small(algorithm: Algorithm, what: &str, mut figure: Figure) -> String {
    let (run, frame) = (window(algorithm), frame(58.0, 84.0, 30.0, 6.0));
    figure.heading(24.0, 28.0, algorithm.name(), &format!("rate: 6/10s: {what}"));
    figure.key(28.0);
    figure.y_axis(&frame, &[0, 3, 6]);
    figure.text(frame.left, 49.0, "muted small", "units left");
    guides(&mut figure, &frame, &WINDOW_TRAFFIC);
    if algorithm != Algorithm::SlidingWindow {
        for edge in [10.0, 20.0] {
            figure.vertical("axis thin edge", &frame, edge);
            figure.text(frame.x(edge), 49.0, "muted small middle", "a window begins");
        }
    }
    figure.path("curve", &frame.path(&steps(&run.level)));
    requests(&mut figure, &frame, &run.replies);
    x_axis(&mut figure, &frame, 194.0, [5, 30]);
    figure.finish()
}

pub(super) fn sliding_window() -> String {
    let figure = Figure::new(
        226.0,
        "Units left in a sliding window of 6 in 10 seconds",
        "Each allowed request takes one unit, which is free again exactly 10 seconds later.",
    );
    small(Algorithm::SlidingWindow, "each unit is free again after 10 s", figure)
}

pub(super) fn sliding_window_counter() -> String {
    let figure = Figure::new(
        226.0,
        "Units left in a sliding window counter of 6 in 10 seconds",
        "When a window begins, the units of the one before still count. They are free again one after another, evenly over the window.",
    );
    small(Algorithm::SlidingWindowCounter, "old units fade over the next window", figure)
}

pub(super) fn fixed_window() -> String {
    let figure = Figure::new(
        226.0,
        "Units left in a fixed window of 6 in 10 seconds",
        "All units are free again when a window begins, at 10 and at 20 seconds.",
    );
    small(Algorithm::FixedWindow(WindowStart::Epoch), "each window starts with 6", figure)
}
