//! One limit's lane through the gate: when the next request may be sent.
//!
//! ```text
//!   sends a second
//!        │        limit ─ ─ ─ ─ ─ ─ ─╱╲─ ─ ╱╲─ ─   a throttle cuts the pace to 0.7, and closes the lane
//!        │                         ╱  ╲╱╱   ╲╱     for as long as the server says
//!        │ burst, 429            ╱
//!        │ │                  ╱      the pace starts at what was accepted, and doubles each second
//!        │ │closed        _╱         until it meets the limit
//!        └─┴────────────┴──────────────────────► time
//! ```
//!
//! Before the first throttle a lane does nothing but count. Pure: times are arguments, in milliseconds on a clock that
//! nobody sets. `clients/vectors/gate.json` holds the TypeScript client to the same steps.
//!
//! # Laws
//! - Between a throttle and the end of the server's wait nobody gets a turn.
//! - However late a timer fires, at most 20 ms worth of sends catch up.
//! - A throttle of a request that was sent before the last throttle changes no pace: one burst counts as one throttle.

/// A lane that has been open for so long without a throttle is not paced any more; or for its limit's window, if that is longer.
const QUIET: f64 = 10_000.0;
/// What the pace is multiplied by at a throttle.
const CUT: f64 = 0.7;
/// What the pace grows by in a second, as a share of the pace that met the limit.
const STEP: f64 = 0.05;
/// How many requests may be in flight after a throttle; one more for each that is accepted. If so many hang, the lane is full:
/// other calls wait until one of them ends, or until their own deadline.
const IN_FLIGHT: u32 = 10;
/// How much of the pace may be caught up on after a timer was late.
const CATCH_UP: f64 = 20.0;

/// The state of a lane.
///
/// ```
/// use ratewright_client::lane::{Lane, Turn};
///
/// let mut lane = Lane::default();
/// assert_eq!(lane.enter(0.0, true), Turn::Go); // nothing was throttled yet
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lane {
    in_flight: u32,
    accepted: AcceptedCounts,
    ceiling: Option<f64>,
    window: f64,
    pace: Option<Pace>,
}

/// What a request finds at a lane.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Turn {
    /// It may be sent now, and is in flight.
    Go,
    /// Not before this time.
    Until(f64),
    /// Not before a request that is in flight ends.
    Full,
}

/// A throttle: 429, or 503 with a wait.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// When the request was sent.
    pub sent_at: f64,
    /// How long the server asks to wait, or 0.
    pub hint: f64,
    /// When the request itself will be sent again, or would be.
    pub retry_at: f64,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Sends a second.
    rate: f64,
    /// The pace that met the limit; none while the pace doubles.
    rate_at_limit: Option<f64>,
    grown_at: f64,
    open_at: f64,
    next_at: f64,
    in_flight_max: u32,
    /// Requests that were sent before this say nothing new.
    epoch_at: f64,
}

/// Requests accepted in this second of the clock, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct AcceptedCounts {
    second: f64,
    now: u32,
    before: u32,
}

impl Lane {
    /// Learns what the lane's limit allows: `quota` units in so many seconds, rounded up.
    pub fn learn(&mut self, quota: u64, seconds: u64) {
        if quota == 0 || seconds == 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a pace need not be exact")]
        let (quota, seconds) = (quota as f64, seconds as f64);
        self.ceiling = (seconds > 1.0).then(|| quota / (seconds - 1.0));
        self.window = 1_000.0 * seconds;
    }

    /// Asks for a turn. `is_alone`: no other call waits for one.
    pub fn enter(&mut self, now: f64, is_alone: bool) -> Turn {
        if is_alone && self.in_flight == 0 && self.is_quiet(now) {
            self.pace = None;
        }
        let Some(pace) = &mut self.pace else {
            self.in_flight += 1;
            return Turn::Go;
        };
        if now - pace.open_at >= self.window.max(QUIET) {
            pace.rate_at_limit = None; // the limit may have grown
        }
        pace.grow(now, self.ceiling);
        let opens = pace.opens_at();
        if now < opens {
            return Turn::Until(opens);
        }
        if self.in_flight >= pace.in_flight_max {
            return Turn::Full;
        }
        self.in_flight += 1;
        pace.next_at = pace.next_at.max(now - CATCH_UP) + 1_000.0 / pace.rate;
        Turn::Go
    }

    /// Sends without a turn: the lane stays closed for longer than the caller can wait.
    pub fn force(&mut self) {
        self.in_flight += 1;
    }

    /// Ends a request whose response was not a throttle.
    pub fn accepted(&mut self, now: f64) {
        self.failed();
        self.accepted.turn(now);
        self.accepted.now = self.accepted.now.saturating_add(1);
        if let Some(pace) = &mut self.pace {
            pace.in_flight_max = pace.in_flight_max.saturating_add(1);
        }
    }

    /// Ends a request that has no response, or was cancelled.
    pub fn failed(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Ends a request that was throttled.
    pub fn throttled(&mut self, now: f64, throttle: Throttle) {
        self.failed();
        let told = now + throttle.hint;
        if let Some(pace) = &mut self.pace
            && throttle.sent_at < pace.epoch_at
        {
            pace.open_at = pace.open_at.max(told);
            return;
        }
        self.accepted.turn(now);
        let rate = self.pace.map_or(f64::from(self.accepted.now.max(self.accepted.before)), |pace| pace.rate);
        let open_at = self.pace.map_or(0.0, |pace| pace.open_at).max(told).max(throttle.retry_at);
        self.pace = Some(Pace {
            rate: capped((CUT * rate).max(1.0), self.ceiling),
            rate_at_limit: self.pace.map(|pace| pace.rate),
            grown_at: open_at,
            open_at,
            next_at: open_at,
            in_flight_max: IN_FLIGHT,
            epoch_at: now,
        });
    }

    /// When the next request can be sent, as far as is known now.
    pub fn opens_at(&self) -> f64 {
        self.pace.map_or(0.0, |pace| pace.opens_at())
    }

    /// True while a server's wait lasts.
    pub(crate) fn is_closed(&self, now: f64) -> bool {
        self.pace.is_some_and(|pace| now < pace.open_at)
    }

    /// The most requests that can be sent from now until `end`, if nothing is throttled: an upper bound, at the pace that
    /// the lane will have by then.
    pub fn capacity_until(&self, end: f64) -> f64 {
        let Some(pace) = &self.pace else { return f64::INFINITY };
        let seconds = (end - pace.opens_at()) / 1_000.0;
        if seconds < 0.0 { 0.0 } else { 1.0 + seconds * pace.grown(seconds, self.ceiling) }
    }

    /// True if the lane holds nothing that would be missed.
    pub fn is_idle(&self, now: f64) -> bool {
        self.in_flight == 0 && (self.pace.is_none() || self.is_quiet(now))
    }

    /// Sends a second; nothing if the lane is not paced.
    pub fn rate(&self) -> Option<f64> {
        self.pace.map(|pace| pace.rate)
    }

    fn is_quiet(&self, now: f64) -> bool {
        self.pace.is_some_and(|pace| now - pace.open_at >= self.window.max(QUIET))
    }
}

impl Pace {
    fn opens_at(&self) -> f64 {
        self.open_at.max(self.next_at)
    }

    fn grow(&mut self, now: f64, ceiling: Option<f64>) {
        if now <= self.grown_at {
            return;
        }
        let seconds = (now - self.grown_at).min(1_000.0) / 1_000.0; // time without requests proves nothing
        self.rate = self.grown(seconds, ceiling);
        self.grown_at = now;
    }

    /// The pace after so many seconds without a throttle.
    fn grown(&self, seconds: f64, ceiling: Option<f64>) -> f64 {
        let grown = match self.rate_at_limit {
            None => self.rate * seconds.exp2(),
            Some(met) => self.rate + STEP * met * seconds,
        };
        capped(grown, ceiling)
    }
}

impl AcceptedCounts {
    fn turn(&mut self, now: f64) {
        let second = (now / 1_000.0).floor();
        #[expect(clippy::float_cmp, reason = "whole numbers")]
        if second != self.second {
            let before = if second == self.second + 1.0 { self.now } else { 0 };
            *self = Self { second, now: 0, before };
        }
    }
}

fn capped(rate: f64, ceiling: Option<f64>) -> f64 {
    ceiling.map_or(rate, |ceiling| rate.min(ceiling))
}
