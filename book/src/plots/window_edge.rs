//! The same requests around the edge of a minute, under four algorithms.

use ratewright_core::Micros;
use ratewright_core::quota::{Algorithm, Refill, WindowStart};

use super::engine::{Reply, most_allowed_within, play, quota, seconds, spaced};
use super::svg::{Figure, Frame};

/// Requests that each algorithm allows in a minute.
pub const LIMIT: u32 = 100;

/// The period that the limit is about.
pub const MINUTE: Micros = Micros::from_secs(60);

/// The algorithms, in the order of the figure.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::FixedWindow(WindowStart::Epoch),
    Algorithm::SlidingWindowCounter,
    Algorithm::TokenBucket(Refill::Smooth),
    Algorithm::SlidingWindow,
];

/// What a client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// The whole limit in the last two seconds of a minute, and once more in the first two of the next.
    TwoBursts,
    /// The whole limit in the last two seconds of a minute, and then ten requests a second.
    KeepsTrying,
}

/// The requests of one client under one algorithm.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// What the client sent.
    pub traffic: Traffic,
    /// What became of it.
    pub replies: Vec<Reply>,
}

impl Run {
    /// The most requests that were allowed within a minute.
    pub fn most_in_a_minute(&self) -> usize {
        most_allowed_within(&self.replies, MINUTE)
    }

    /// How many requests were allowed within the minute before each time, twice a second.
    fn last_minute(&self) -> Vec<(f64, f64)> {
        let allowed: Vec<_> =
            self.replies.iter().filter(|reply| reply.is_allowed).map(|reply| reply.at).collect();
        let times = (FROM * 2..=TO * 2).map(|half| Micros::from_millis(u64::from(half) * 500));
        times
            .map(|now| {
                let count = allowed.iter().filter(|at| **at <= now && now < **at + MINUTE).count();
                (seconds(now), f64::from(u32::try_from(count).expect("a small number")))
            })
            .collect()
    }
}

impl Traffic {
    /// When the requests are sent.
    fn requests(self) -> Vec<Micros> {
        let before = spaced(Micros::from_secs(58), Micros::from_millis(20), 100);
        match self {
            Self::TwoBursts => before.chain(spaced(MINUTE, Micros::from_millis(20), 100)).collect(),
            Self::KeepsTrying => before.chain(spaced(MINUTE, Micros::from_millis(100), 1_200)).collect(),
        }
    }
}

/// All algorithms under both kinds of traffic.
pub fn runs() -> Vec<Run> {
    let of = |traffic: Traffic| {
        let requests = traffic.requests();
        ALGORITHMS.map(|algorithm| Run {
            algorithm,
            traffic,
            replies: play(&[quota(algorithm, "100/min")], &requests),
        })
    };
    [Traffic::TwoBursts, Traffic::KeepsTrying].into_iter().flat_map(of).collect()
}

/// The seconds that the figure shows.
const FROM: u32 = 30;
const TO: u32 = 180;

pub(super) fn figure() -> String {
    let mut figure = Figure::new(
        584.0,
        "Requests allowed within the last minute, for four algorithms with a limit of 100 per minute",
        "Left: a client sends 100 requests just before the edge of a minute and 100 just after it. The fixed window allows 200 within \
         four seconds; the others about 100. Right: the client sends 100 just before the edge and then keeps trying. The fixed window, \
         the sliding window counter and the token bucket allow about 200 within a minute, the sliding window never more than 100.",
    );
    let columns = [
        (62.0, ["100 requests just before the edge", "of a minute, 100 just after it"]),
        (406.0, ["100 requests just before the edge,", "then 10 a second without a pause"]),
    ];
    for (left, [first, second]) in columns {
        figure.text(left, 28.0, "", first);
        figure.text(left, 45.0, "", second);
    }
    for (index, run) in runs().iter().enumerate() {
        let (column, row) = (index / ALGORITHMS.len(), index % ALGORITHMS.len());
        let top = 90.0 + 114.0 * f64::from(u32::try_from(row).expect("a small number"));
        let left = columns.get(column).map_or(0.0, |column| column.0);
        let frame =
            Frame { left, top, width: 286.0, height: 84.0, x: [FROM, TO].map(f64::from), y: [0.0, 200.0] };
        panel(&mut figure, run, &frame);
        if row == 0 {
            figure.text(frame.x(60.0) - 5.0, top + 13.0, "muted small end", "edge");
            figure.text(frame.right(), frame.y(100.0) - 5.0, "small end", "limit");
        }
        if row + 1 == ALGORITHMS.len() {
            let ticks = [30, 60, 90, 120, 150, 180].map(|tick| (tick, format!("{tick} s")));
            figure.x_axis(&frame, frame.bottom(), ticks);
        }
    }
    figure.text(
        62.0,
        566.0,
        "muted small",
        "The curves count the requests that were allowed within the last 60 s.",
    );
    figure.finish()
}

fn panel(figure: &mut Figure, run: &Run, frame: &Frame) {
    let (most, limit) = (run.most_in_a_minute(), f64::from(LIMIT));
    figure.y_axis(frame, &[0, 100, 200]);
    figure.vertical("axis thin edge", frame, 60.0);
    figure.horizontal("limit", frame, limit);
    let points = run.last_minute();
    let over: Vec<_> = points.iter().map(|(x, count)| (*x, count.max(limit))).collect();
    figure.path("over", &frame.path(&over));
    figure.path("curve", &frame.path(&points));
    figure.text(frame.left, frame.top - 9.0, "strong", run.algorithm.name());
    let colour = if most > 110 { "red" } else { "blue" };
    figure.text(frame.right(), frame.top - 9.0, &format!("{colour} end"), &format!("at most {most}"));
}
