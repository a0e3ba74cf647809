//! Rate limit fields: no bytes confuse the parser, and what it made of them it makes of its own words again. What we render
//! ourselves it reads as we meant it.
#![no_main]

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::{Corpus, fuzz_target};
use ratewright_core::query::{Ask, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::{
    Decision, Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Timestamp, Verdict,
};
use ratewright_http::headers::{QuotaPolicy, ReceivedHeaders, ServiceLimit, ShownLimit};
use ratewright_http::{HeaderStyle, RateLimitHeaders};
use ratewright_store::MemoryStore;

const NAMES: [&str; 6] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "retry-after",
    "ratelimit-policy",
    "ratelimit",
];
const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_250_000);

/// A limit, and what was spent of it.
#[derive(Arbitrary, Debug)]
struct Limited {
    algorithm: u8,
    units: u16,
    window: u32,
    burst: u16,
    spent: u16,
}

fuzz_target!(|data: &[u8]| -> Corpus {
    // Lines whose first byte chooses the field; after a line that is empty, limits to decide by.
    let (lines, limits) = match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&data[..end], &data[end + 2..]),
        None => (data, &data[..0]),
    };
    check_any(lines);
    if !limits.is_empty() {
        return check_ours(limits).map_or(Corpus::Reject, |()| Corpus::Keep);
    }
    Corpus::Keep
});

fn check_any(lines: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n').take(16) {
        if let [which, value @ ..] = line
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.append(NAMES[usize::from(*which) % NAMES.len()], value);
        }
    }
    let received = RateLimitHeaders::parse(&headers);
    assert_eq!(RateLimitHeaders::parse(&written(&received)), received);
}

/// What was received, in the parser's own words.
fn written(received: &ReceivedHeaders) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let numbers = [received.limit, received.remaining, received.reset, received.retry_after];
    for (name, number) in NAMES.into_iter().zip(numbers) {
        headers.extend(number.map(|number| (HeaderName::from_static(name), HeaderValue::from(number))));
    }
    let item = |list: &mut String, name: &str, count: (&str, u64), window: (&str, Option<u64>)| {
        let comma = if list.is_empty() { "" } else { "," };
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(list, "{comma}\"{name}\";{}={}", count.0, count.1);
        let _ = window.1.map(|seconds| write!(list, ";{}={seconds}", window.0));
    };
    let (mut policies, mut limits) = (String::new(), String::new());
    for QuotaPolicy { name, quota, window, .. } in &received.policies {
        item(&mut policies, name, ("q", *quota), ("w", *window));
    }
    for ServiceLimit { name, available, window, .. } in &received.limits {
        item(&mut limits, name, ("r", *available), ("t", *window));
    }
    for (name, list) in [(NAMES[4], policies), (NAMES[5], limits)] {
        headers.insert(name, list.parse().expect("a line"));
    }
    headers
}

/// Decides by up to four limits, and reads the answer's fields.
fn check_ours(data: &[u8]) -> Option<()> {
    let mut unstructured = arbitrary::Unstructured::new(data);
    let cost: u8 = unstructured.arbitrary().ok()?;
    let limits: [Limited; 4] = unstructured.arbitrary().ok()?;
    let policies = limits.iter().enumerate().filter_map(|(n, limited)| limited.policy(n)).collect();
    let (policies, clock) = (Policies::new(policies).ok()?, ManualClock::at(NOW));
    let limiter = Limiter::new(policies, MemoryStore::new(clock, 100));
    for (n, limited) in limits.iter().enumerate() {
        let name = format!("p{n}");
        decide(&limiter, Select::Named(&[&name]), Ask::Record(limited.spent.into()));
    }
    let ask = NonZeroU32::new(cost.into()).map_or(Ask::Look(0), Ask::Spend);
    let decision = decide(&limiter, Select::Covering(&[]), ask);
    let fields = RateLimitHeaders::of(&decision, NOW)?;
    let mut headers = HeaderMap::new();
    fields.render(HeaderStyle::default(), &mut headers);
    let received = RateLimitHeaders::parse(&headers);

    let ShownLimit { capacity, remaining, .. } = *fields.tightest();
    assert_eq!((received.limit, received.remaining), (Some(capacity.into()), Some(remaining.into())));
    assert_eq!(received.retry_after, fields.retry_after());
    let reset = 1_700_000_000 + fields.reset_after();
    assert!(received.reset.is_some_and(|at| (reset..=reset + 1).contains(&at)), "{received:?}");
    assert_eq!(received.policies.len(), decision.enforced().count());
    assert_eq!(received.limits.len(), received.policies.len());
    for (policy, limit) in received.policies.iter().zip(&received.limits) {
        assert_eq!(policy.name, limit.name);
        assert!(limit.available <= policy.quota && policy.window.is_some_and(|window| window > 0));
    }
    if decision.verdict() == Verdict::Deny && decision.retry_after().is_some() {
        assert!(received.retry_after.is_some_and(|seconds| seconds > 0), "{received:?}");
    }
    Some(())
}

fn decide(limiter: &Limiter<MemoryStore<ManualClock>>, select: Select<'_>, ask: Ask) -> Decision {
    let query = Query {
        select,
        attributes: &[],
        address: None,
        ask,
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    let mut deciding = pin!(limiter.decide(&query));
    match deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => panic!("memory waits for nobody"),
    }
}

impl Limited {
    fn policy(&self, n: usize) -> Option<Policy> {
        let algorithms = [
            Algorithm::TokenBucket(Refill::Smooth),
            Algorithm::TokenBucket(Refill::Stepped),
            Algorithm::LeakyBucket(Leak::Meter),
            Algorithm::LeakyBucket(Leak::Queue),
            Algorithm::SlidingWindow,
            Algorithm::SlidingWindowCounter,
            Algorithm::FixedWindow(WindowStart::Epoch),
            Algorithm::FixedWindow(WindowStart::FirstHit),
        ];
        let algorithm = algorithms[usize::from(self.algorithm) % algorithms.len()];
        let rate = format!("{}/{}us", self.units, self.window).parse().ok()?;
        let quota = Quota::new(algorithm, rate).ok()?;
        let quota = match NonZeroU32::new(self.burst.into()) {
            Some(burst) if algorithm.has_burst() => quota.with_burst(burst).ok()?,
            _ => quota,
        };
        Policy::new(&format!("p{n}"), quota).ok()
    }
}
