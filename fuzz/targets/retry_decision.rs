//! The decision of a retrying client: whatever stands in the headers of a response, a retry is within the attempts and the
//! deadline, never before a plain `Retry-After`, and the same response gives the same decision again.
#![no_main]

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use libfuzzer_sys::{Corpus, fuzz_target};
use ratewright_client::RetryPolicy;
use ratewright_client::retry_decision::{
    BodyKind, CallState, NextStep, Now, Repeat, RequestKind, Seen, decide,
};

const NAMES: [&str; 8] = [
    "retry-after",
    "ratelimit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "date",
    "age",
];
const STATUSES: [u16; 5] = [429, 503, 500, 408, 200];

// A byte chooses status and attempts, one the chance; then a line for each header: a byte that chooses its name, its value.
fuzz_target!(|data: &[u8]| -> Corpus {
    let [choice, chance, lines @ ..] = data else { return Corpus::Reject };
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').take(16) {
        let [name, value @ ..] = line else { continue };
        let name = HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]);
        let Ok(value) = HeaderValue::from_bytes(value) else { return Corpus::Reject };
        headers.append(name, value);
    }
    let request = RequestKind {
        method: Method::GET,
        has_idempotency_key: false,
        body: BodyKind::None,
        repeat: Repeat::Auto,
    };
    let policy = RetryPolicy::default();
    let attempts = 1 + u32::from(choice / 5) % 5;
    let state = CallState { request: &request, attempts, budget: 1_000 };
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_744_000);
    let now = Now { elapsed: Duration::from_micros(1_500_300), wall };
    let status = StatusCode::from_u16(STATUSES[usize::from(choice % 5)]).expect("a status");
    let random = f64::from(*chance) / 256.0;
    let step = decide(&policy, state, Seen::Response(status, &headers), now, random);
    assert_eq!(step, decide(&policy, state, Seen::Response(status, &headers), now, random));
    if let NextStep::Retry { at, .. } = step {
        assert!(at >= now.elapsed && at <= policy.deadline && attempts < policy.attempts);
        let plain = headers.get_all("retry-after").iter().next_back().and_then(|value| {
            value.to_str().ok().filter(|text| text.len() < 6 && !text.starts_with("+"))?.parse::<u64>().ok()
        });
        if let Some(seconds) = plain.filter(|_| headers.get_all("retry-after").iter().count() == 1) {
            assert!(at >= now.elapsed + Duration::from_secs(seconds), "{headers:?} {at:?}");
        }
    }
    Corpus::Keep
});
