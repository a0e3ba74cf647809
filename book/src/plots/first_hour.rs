//! What `100/h` admits in its first hour, by algorithm.

use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Micros, Quota};

use super::engine::{Reply, bucket, play, quota, seconds, spaced};
use super::svg::{Figure, Frame};

/// The hour that the figure shows.
pub const HOUR: Micros = Micros::from_secs(3_600);

/// One way to write the limit.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// How a policy file writes it.
    pub name: &'static str,
    /// What became of each request.
    pub replies: Vec<Reply>,
}

impl Run {
    /// Requests that were allowed before this time.
    pub fn n_allowed_before(&self, end: Micros) -> usize {
        self.replies.iter().filter(|reply| reply.is_allowed && reply.at < end).count()
    }
}

/// 150 requests at once, and then one each second, for 61 minutes.
fn requests() -> Vec<Micros> {
    let burst = spaced(Micros::ZERO, Micros::ZERO, 150);
    burst.chain(spaced(Micros::from_secs(1), Micros::from_secs(1), 3_660)).collect()
}

/// The limit as a token bucket, as one with a small burst, as a window, and as both.
pub fn runs() -> [Run; 4] {
    let tokens = |burst: u32| bucket(Algorithm::TokenBucket(Refill::Smooth), "100/h", burst);
    let window = || quota(Algorithm::SlidingWindow, "100/h");
    let run = |name: &'static str, quotas: &[Quota]| Run { name, replies: play(quotas, &requests()) };
    [
        run("{ rate: 100/h }", &[tokens(100)]),
        run("{ rate: 100/h, burst: 20 }", &[tokens(20)]),
        run("{ algorithm: sliding_window, rate: 100/h }", &[window()]),
        run("both of these", &[tokens(20), window()]),
    ]
}

pub(super) fn figure() -> String {
    let mut figure = Figure::new(
        352.0,
        "Requests that a limit of 100 per hour admits in its first hour",
        "A client that never stops asking. A token bucket of 100/h admits 100 at once and one more every 36 seconds: 199 within the \
         hour. A sliding window of 100/h admits 100 at once and then nothing. A bucket with burst 20 and the same window together \
         admit 20 at once, then one every 36 seconds until 100 have passed.",
    );
    let frame = Frame { left: 62.0, top: 60.0, width: 604.0, height: 250.0, x: [0.0, 60.0], y: [0.0, 200.0] };
    figure.heading(
        24.0,
        28.0,
        "100 per hour",
        "requests allowed since the first one, from a client that never stops asking",
    );
    figure.y_axis(&frame, &[0, 50, 100, 150, 200]);
    figure.x_axis(&frame, frame.bottom(), (0..=6).map(|tick| (tick * 10, format!("{} min", tick * 10))));
    let [bucket, _, window, both] = runs();
    let label = |figure: &mut Figure, [minute, count]: [f64; 2], text: &str| {
        figure.text(frame.x(minute), frame.y(count), "small blue", text);
    };
    for (run, class) in [(&bucket, "curve"), (&window, "curve dashed"), (&both, "curve thin")] {
        figure.path(class, &frame.path(&points(run)));
    }
    for run in [&bucket, &window] {
        let (_, last) = points(run).pop().unwrap_or_default();
        figure.text(frame.right() + 8.0, frame.y(last) + 4.0, "strong", &last.to_string());
    }
    label(&mut figure, [4.0, 153.0], "token_bucket, rate: 100/h");
    label(&mut figure, [27.0, 105.0], "sliding_window, rate: 100/h");
    label(&mut figure, [19.0, 35.0], "both: token_bucket with burst: 20, and the sliding_window");
    figure.finish()
}

/// Minutes, and requests that were allowed until then.
fn points(run: &Run) -> Vec<(f64, f64)> {
    let (mut points, mut count) = (vec![(0.0, 0.0)], 0.0);
    for reply in run.replies.iter().filter(|reply| reply.is_allowed && reply.at < HOUR) {
        let minute = seconds(reply.at) / 60.0;
        points.push((minute, count));
        count += 1.0;
        points.push((minute, count));
    }
    points.push((60.0, count));
    points
}
