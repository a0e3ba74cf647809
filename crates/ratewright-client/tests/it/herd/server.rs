//! A server with one limit of the engine's, 10 ms away, which sends the headers that Ratewright sends.

use std::cell::RefCell;
use std::time::Duration;

use http::Response;
use ratewright_core::quota::{Algorithm, WindowStart};
use ratewright_core::{ManualClock, Quota, Timestamp};
use ratewright_store::KeyedLimiter;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// A token bucket, so many units a second.
    Bucket { rate: u32, burst: u32 },
    /// A fixed window.
    Window { units: u32, seconds: u32 },
}

pub(crate) struct Server {
    limiter: KeyedLimiter<ManualClock>,
    clock: ManualClock,
    /// The header that describes the limit.
    policy: String,
    start: Instant,
    random: RefCell<fastrand::Rng>,
    /// Calls in each tenth of a second.
    tenths: RefCell<Vec<usize>>,
}

impl Limit {
    fn quota(self) -> Quota {
        match self {
            Self::Bucket { rate, burst } => Quota::per_second(rate).burst(burst),
            Self::Window { units, seconds } => {
                let rate = format!("{units}/{seconds}s").parse().unwrap();
                Quota::new(Algorithm::FixedWindow(WindowStart::Epoch), rate).unwrap()
            }
        }
    }

    /// Its `RateLimit-Policy`.
    fn policy(self) -> String {
        match self {
            Self::Bucket { rate, burst } => format!("\"herd\";q={burst};w={}", burst.div_ceil(rate)),
            Self::Window { units, seconds } => format!("\"herd\";q={units};w={seconds}"),
        }
    }
}

impl Server {
    pub(crate) fn new(limit: Limit, seed: u64) -> Self {
        let clock = ManualClock::default();
        Self {
            limiter: KeyedLimiter::new(limit.quota(), clock.clone(), 1),
            clock,
            policy: limit.policy(),
            start: Instant::now(),
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
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
        self.clock.set(Timestamp::from_micros(now));
        let response = Response::builder().header("ratelimit-policy", &self.policy);
        let response = match self.limiter.check("herd") {
            Ok(_) => response.header("ratelimit", "\"herd\";r=1;t=1"),
            Err(denied) => {
                let wait = denied.retry_after.unwrap();
                let seconds = wait.as_micros().div_ceil(1_000_000).to_string();
                let limit = format!("\"herd\";r=0;t={seconds}");
                response.status(429).header("ratelimit", limit).header("retry-after", seconds)
            }
        };
        response.body(String::new()).unwrap()
    }
}
