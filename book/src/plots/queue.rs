//! A leaky bucket as a queue: requests arrive in a burst, and leave evenly spaced.

use ratewright_core::Micros;
use ratewright_core::quota::{Algorithm, Leak};

use super::engine::{Reply, bucket, play, seconds, spaced};
use super::svg::{Figure, Frame, number};

/// The time between two requests that leave the queue.
pub const SPACING: Micros = Micros::from_millis(500);

/// Nine requests in a burst, one alone, and three more.
fn requests() -> Vec<Micros> {
    let burst = |from: u64, n: u64| spaced(Micros::from_millis(from), Micros::from_millis(120), n);
    burst(500, 9).chain(burst(5_000, 1)).chain(burst(6_000, 3)).collect()
}

/// What became of the requests under a leaky bucket of 2/s with burst 5.
pub fn replies(leak: Leak) -> Vec<Reply> {
    play(&[bucket(Algorithm::LeakyBucket(leak), "2/s", 5)], &requests())
}

pub(super) fn figure() -> String {
    let mut figure = Figure::new(
        292.0,
        "Requests that arrive in a burst leave a queue evenly spaced",
        "A leaky bucket of 2 a second with burst 5. Of nine requests that arrive within about a second, those that fit leave at once or \
         wait for their turn; each leaves half a second after the one before it. With leak: meter the same requests leave as they \
         arrive.",
    );
    let frame = Frame { left: 128.0, top: 60.0, width: 560.0, height: 166.0, x: [0.0, 8.0], y: [0.0, 1.0] };
    let (arrive, queue, meter) = (72.0, 148.0, 214.0);
    figure.heading(24.0, 28.0, "leaky_bucket", "rate: 2/s, burst: 5");
    figure.key(28.0);
    for (y, name, what) in
        [(arrive, "arrive", ""), (queue, "leak: queue", "leave"), (meter, "leak: meter", "leave")]
    {
        figure.path("grid", &format!("M{} {y}H{}", frame.left, frame.right()));
        let shift = if what.is_empty() { 4.0 } else { -3.0 };
        figure.text(24.0, y + shift, "", name);
        figure.text(24.0, y + 13.0, "muted small", what);
    }
    let queued = replies(Leak::Queue);
    for reply in &queued {
        let from = frame.x(seconds(reply.at));
        if reply.is_allowed {
            let to = frame.x(seconds(reply.left_at()));
            figure.path("curve thin", &format!("M{} {arrive}L{} {queue}", number(from), number(to)));
            figure.dot(to, queue);
            figure.dot(from, arrive);
        } else {
            figure.cross(from, arrive);
        }
    }
    for reply in replies(Leak::Meter).iter().filter(|reply| reply.is_allowed) {
        figure.dot(frame.x(seconds(reply.left_at())), meter);
    }
    notes(&mut figure, &frame, &queued, queue);
    let axis = 244.0;
    figure.path("axis thin", &format!("M{} {axis}H{}", frame.left, frame.right()));
    figure.x_axis(&frame, axis, (0..=8).map(|tick| (tick, format!("{tick} s"))));
    figure.finish()
}

/// The space between two requests, and the longest wait.
fn notes(figure: &mut Figure, frame: &Frame, replies: &[Reply], lane: f64) {
    if let [first, second, ..] = replies {
        let (from, to) = (frame.x(seconds(first.left_at())), frame.x(seconds(second.left_at())));
        figure.path("axis thin", &format!("M{} {}v6H{}v-6", number(from), lane + 8.0, number(to)));
        let label = format!("{} s", seconds(SPACING));
        figure.text((from + to) / 2.0, lane + 28.0, "muted small middle", &label);
    }
    if let Some(last) = replies.iter().max_by_key(|reply| reply.wait) {
        let label = format!("held for {} s", seconds(last.wait));
        figure.text(frame.x(seconds(last.left_at())) + 8.0, lane - 10.0, "muted small", &label);
    }
}
