//! Laws over made-up responses and clocks.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use ratewright_client::lane::{Lane, Throttle, Turn};
use ratewright_client::retry_decision::{
    BodyKind, CallState, Cause, Failure, NextStep, Now, Repeat, RequestKind, Seen, WaitSource, decide,
};
use ratewright_client::{Backoff, RetryPolicy};
use ratewright_lab::is_long_run;

prop_compose! {
    fn policies()(
        attempts in 1..10_u32,
        deadline in 0..200_000_u64,
        wait_max in 0..200_000_u64,
        first in 0..3_000_u64,
        max in 0..20_000_u64,
    ) -> RetryPolicy {
        let ms = Duration::from_millis;
        let backoff = Backoff { first: ms(first), max: ms(max) };
        RetryPolicy::default().attempts(attempts).deadline(ms(deadline)).server_wait_max(ms(wait_max)).failure_backoff(backoff).throttle_backoff(backoff).spread(backoff)
    }
}

fn get() -> RequestKind {
    RequestKind {
        method: Method::GET,
        has_idempotency_key: false,
        body: BodyKind::None,
        repeat: Repeat::Auto,
    }
}

fn wall(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + millis)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_long_run() { 20_000 } else { 2_000 }))]

    /// E3: a retry is never earlier than the server's wait and never later than the deadline; an attempt too many is never made.
    #[test]
    fn e3_no_retry_is_early_late_or_one_too_many(
        policy in policies(),
        status in prop::sample::select(vec![408_u16, 429, 500, 502, 503, 504]),
        wait in 0..300_u64,
        as_date in any::<bool>(),
        attempts in 1..12_u32,
        elapsed in 0..250_000_000_u64,
        wall_ms in 0..86_400_000_u64,
        random in 0.0..1.0_f64,
    ) {
        let mut headers = HeaderMap::new();
        let date = wall(wall_ms) + Duration::from_secs(wait);
        let value = if as_date { httpdate::fmt_http_date(date) } else { wait.to_string() };
        headers.insert("retry-after", HeaderValue::from_str(&value).unwrap());
        let server = if as_date {
            let whole = httpdate::parse_http_date(&value).unwrap();
            whole.duration_since(wall(wall_ms)).unwrap_or_default()
        } else {
            Duration::from_secs(wait)
        };
        let elapsed = Duration::from_micros(elapsed);
        let request = get();
        let state = CallState { request: &request, attempts, budget: 1_000 };
        let now = Now { elapsed, wall: wall(wall_ms) };
        let seen = Seen::Response(StatusCode::from_u16(status).unwrap(), &headers);
        match decide(&policy, state, seen, now, random) {
            NextStep::Retry { at, cause, .. } => {
                prop_assert!(at >= elapsed + server, "{at:?} is earlier than {server:?} after {elapsed:?}");
                prop_assert!(at <= policy.deadline);
                prop_assert!(attempts < policy.attempts);
                prop_assert!(server <= policy.server_wait_max);
                let spread = policy.spread.max.max(policy.throttle_backoff.max);
                prop_assert!(at <= elapsed + server + spread + Duration::from_millis(1));
                prop_assert_eq!(cause == Cause::Server(WaitSource::RetryAfter), !server.is_zero());
            }
            NextStep::Return { retry_at, .. } => {
                prop_assert_eq!(retry_at, (!server.is_zero()).then(|| wall(wall_ms) + server));
            }
        }
    }

    /// No header makes the decision fail, or a retry that was not asked for early.
    #[test]
    fn any_header_is_read_without_harm(
        lines in prop::collection::vec(("retry-after|ratelimit|ratelimit-reset|x-ratelimit-reset|x-ratelimit-remaining|date|age",
            "[ -~]{0,40}|[0-9]{1,25}|\"[a-z]\";r=0;t=[0-9]{1,16}|(Sun|Mon), [0-9]{2} Nov 20[0-9]{2} [0-9]{2}:00:00 GMT"), 0..5),
        random in 0.0..1.0_f64,
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in &lines {
            headers.append(name.parse::<http::HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let request = get();
        let state = CallState { request: &request, attempts: 1, budget: 1_000 };
        let now = Now { elapsed: Duration::ZERO, wall: wall(0) };
        let seen = Seen::Response(StatusCode::TOO_MANY_REQUESTS, &headers);
        if let NextStep::Retry { at, .. } = decide(&RetryPolicy::default(), state, seen, now, random) {
            prop_assert!(at >= Duration::from_millis(100));
        }
        let lost = Seen::Failure(Failure::Unknown);
        let is_retried = matches!(decide(&RetryPolicy::default(), state, lost, now, random), NextStep::Retry { .. });
        prop_assert!(is_retried);
    }

    /// A closed lane lets nobody through before the server's wait is over, and never more in flight than it says.
    #[test]
    fn a_closed_lane_stays_closed(
        steps in prop::collection::vec((0..400_u32, 0..5_u8, 0..3_000_u32), 1..200),
        window in 1..20_u64,
    ) {
        let mut lane = Lane::default();
        lane.learn(10, window);
        let (mut now, mut closed_until) = (0.0, 0.0_f64);
        let mut in_flight: Vec<f64> = Vec::new();
        for (dt, action, hint) in steps {
            now += f64::from(dt);
            match (action, in_flight.is_empty()) {
                (0 | 1, _) | (_, true) => match lane.enter(now, true) {
                    Turn::Go => {
                        prop_assert!(now >= closed_until, "sent at {now}, closed until {closed_until}");
                        in_flight.push(now);
                    }
                    Turn::Until(at) => prop_assert!(at > now),
                    Turn::Full => prop_assert!(in_flight.len() >= 10),
                },
                (2, false) => {
                    in_flight.remove(0);
                    lane.accepted(now);
                }
                (3, false) => {
                    in_flight.remove(0);
                    lane.failed();
                }
                (_, false) => {
                    let sent_at = in_flight.remove(0);
                    let hint = f64::from(hint);
                    lane.throttled(now, Throttle { sent_at, hint, retry_at: now + hint });
                    closed_until = closed_until.max(now + hint);
                }
            }
        }
    }
}
