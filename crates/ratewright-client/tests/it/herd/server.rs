//! A server with one limit, 10 ms away, which tells clients how long to wait as Ratewright does.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use http::Response;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// A token bucket, so many units a second.
    Bucket { rate: u64, burst: u64 },
    /// A fixed window.
    Window { units: u64, seconds: u64 },
}

pub(crate) struct Server {
    limit: Limit,
    start: Instant,
    random: RefCell<fastrand::Rng>,
    /// The bucket will be full at this time, in microseconds.
    full_at: Cell<u64>,
    /// The window's number, and what was spent in it.
    window: Cell<(u64, u64)>,
    /// Calls in each tenth of a second.
    tenths: RefCell<Vec<usize>>,
}

impl Server {
    pub(crate) fn new(limit: Limit, seed: u64) -> Self {
        Self {
            limit,
            start: Instant::now(),
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            full_at: Cell::new(0),
            window: Cell::new((0, 0)),
            tenths: RefCell::new(Vec::new()),
        }
    }

    pub(crate) fn calls_by_tenth(&self) -> Vec<usize> {
        self.tenths.borrow().clone()
    }

    pub(crate) async fn call(&self) -> Response<String> {
        self.travel().await;
        let response = self.respond();
        self.travel().await;
        response
    }

    /// 3 to 7 ms each way.
    async fn travel(&self) {
        let micros = self.random.borrow_mut().u64(3_000..7_000);
        sleep(Duration::from_micros(micros)).await;
    }

    fn respond(&self) -> Response<String> {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap();
        let tenth = usize::try_from(now / 100_000).unwrap();
        let mut tenths = self.tenths.borrow_mut();
        if tenths.len() <= tenth {
            tenths.resize(tenth + 1, 0);
        }
        tenths[tenth] += 1;
        let (wait, policy) = match self.limit {
            Limit::Bucket { rate, burst } => {
                let unit = 1_000_000 / rate;
                let full_at = self.full_at.get().max(now) + unit;
                let wait = full_at.saturating_sub(now + burst * unit);
                if wait == 0 {
                    self.full_at.set(full_at);
                }
                (wait, format!("\"herd\";q={burst};w={}", (burst * unit).div_ceil(1_000_000)))
            }
            Limit::Window { units, seconds } => {
                let length = seconds * 1_000_000;
                let (number, spent) = self.window.get();
                let spent = if number == now / length { spent } else { 0 };
                let is_free = spent < units;
                self.window.set((now / length, spent + u64::from(is_free)));
                (if is_free { 0 } else { length - now % length }, format!("\"herd\";q={units};w={seconds}"))
            }
        };
        let seconds = wait.div_ceil(1_000_000).to_string();
        let response = Response::builder().header("ratelimit-policy", policy);
        let response = if wait == 0 {
            response.header("ratelimit", "\"herd\";r=1;t=1")
        } else {
            let limit = format!("\"herd\";r=0;t={seconds}");
            response.status(429).header("ratelimit", limit).header("retry-after", seconds)
        };
        response.body(String::new()).unwrap()
    }
}
