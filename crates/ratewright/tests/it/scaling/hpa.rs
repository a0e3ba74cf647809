//! A model of Kubernetes' horizontal pod autoscaler, by its published formula.
//!
//! ```text
//!   every 15 s:  desired = ceil(replicas × metric / target), or replicas if metric / target is within the tolerance of 1
//!   scale up:    to the lowest desired of the last 120 s (stabilizationWindowSeconds)
//!   scale down:  to the highest desired of the last 300 s, the default
//! ```
//!
//! How many replicas may be added at once (by default 4 or 100 % in 15 s) is left out: it does not delay the third.

use std::collections::VecDeque;

/// What the autoscaler of `deploy/kubernetes` is set to, but for the tolerance, and how it is run by default.
#[derive(Clone, Copy)]
pub(super) struct Hpa {
    pub(super) target: f64,
    pub(super) tolerance: f64,
    pub(super) replicas_min: u32,
    pub(super) replicas_max: u32,
    /// In seconds, as all times here.
    pub(super) sync_period: u32,
    pub(super) scale_up_window: u32,
    pub(super) scale_down_window: u32,
}

/// E2: CPU 70 % for 2 minutes, 2 to 10 replicas.
pub(super) const E2: Hpa = Hpa {
    target: 0.70,
    tolerance: 0.1,
    replicas_min: 2,
    replicas_max: 10,
    sync_period: 15,
    scale_up_window: 120,
    scale_down_window: 300,
};

/// A change of the number of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scaled {
    pub(super) at: u32,
    pub(super) replicas: u32,
}

impl Hpa {
    /// Plays a load for so many seconds. `load` is the CPU that is needed at a time, in replicas: 1.5 keeps two replicas at 75 %. It has been what it
    /// is at 0 for a long time before.
    pub(super) fn play(self, seconds: u32, load: impl Fn(u32) -> f64) -> Vec<Scaled> {
        let mut replicas = self.replicas_min;
        let mut desired_before: VecDeque<(u32, u32)> = VecDeque::new();
        let mut scaled = Vec::new();
        for at in (0..=seconds).step_by(self.sync_period as usize) {
            let desired = self.desired(replicas, load(at) / f64::from(replicas));
            if desired_before.is_empty() {
                desired_before.push_back((0, replicas));
            }
            let since = |window: u32| {
                let recent = desired_before.iter().filter(move |(then, _)| then + window > at);
                recent.map(|(_, desired)| *desired)
            };
            let up = since(self.scale_up_window).chain([desired]).min().unwrap_or(desired);
            let down = since(self.scale_down_window).chain([desired]).max().unwrap_or(desired);
            let next = replicas.max(up).min(down.max(up));
            desired_before.push_back((at, desired));
            if next != replicas {
                replicas = next;
                scaled.push(Scaled { at, replicas });
            }
        }
        scaled
    }

    /// What one look comes to. `metric` is the part of its CPU that the average replica uses.
    fn desired(self, replicas: u32, metric: f64) -> u32 {
        let ratio = metric / self.target;
        if (ratio - 1.0).abs() <= self.tolerance {
            return replicas;
        }
        // Rounded, so that 2 × 1.5 is not a little more than 3.
        let exact = (f64::from(replicas) * ratio * 1e9).round() / 1e9;
        let desired = (1..=self.replicas_max).find(|n| f64::from(*n) >= exact).unwrap_or(self.replicas_max);
        desired.clamp(self.replicas_min, self.replicas_max)
    }
}

/// CPU of two replicas that rises at a time, and stays.
fn rises_to(part: f64, at: u32) -> impl Fn(u32) -> f64 {
    move |now| if now < at { 1.0 } else { 2.0 * part }
}

#[test]
fn e2_at_75_percent_the_default_tolerance_never_starts_the_third_replica() {
    assert_eq!(E2.play(3_600, rises_to(0.75, 60)), []);
}

#[test]
fn e2_at_75_percent_a_tolerance_of_5_percent_starts_the_third_replica_after_2_minutes() {
    let scaled = Hpa { tolerance: 0.05, ..E2 }.play(3_600, rises_to(0.75, 60));
    // The last look before the rise was at 45 s, and counts for 120 s.
    assert_eq!(scaled, [Scaled { at: 165, replicas: 3 }]);
}

#[test]
fn e2_a_peak_of_less_than_2_minutes_starts_nothing() {
    let peak = |now: u32| if (60..150).contains(&now) { 4.0 } else { 1.0 };
    assert_eq!(Hpa { tolerance: 0.05, ..E2 }.play(3_600, peak), []);
}

#[test]
fn e2_replicas_stay_between_2_and_10_and_go_after_5_quiet_minutes() {
    let storm = |now: u32| if (60..1_200).contains(&now) { 100.0 } else { 0.1 };
    let scaled = E2.play(3_600, storm);
    assert_eq!(scaled, [Scaled { at: 165, replicas: 10 }, Scaled { at: 1_485, replicas: 2 }]);
}
