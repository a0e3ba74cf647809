use super::*;
use crate::testing::{FRESH, FixedStore, NOW, decide, login, quota, spend, spent};
use proptest::prelude::*;
use ratewright_core::Policy;
use ratewright_core::policy::Mode;
use ratewright_core::quota::{Algorithm, Leak, Refill, Share, WindowStart};
use ratewright_core::store::Basis;
use std::num::NonZeroU32;

const BUCKET: Algorithm = Algorithm::TokenBucket(Refill::Smooth);

/// The headers of a decision, one to a line, in the default style.
fn rendered(decision: &Decision) -> String {
    rendered_as(HeaderStyle::default(), decision)
}

fn rendered_as(style: HeaderStyle, decision: &Decision) -> String {
    let mut headers = HeaderMap::new();
    if let Some(rate_limit) = RateLimitHeaders::of(decision, NOW) {
        rate_limit.render(style, &mut headers);
    }
    lines(&headers)
}

fn lines(headers: &HeaderMap) -> String {
    let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    headers.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn ietf(policy: Policy, store: FixedStore, expected: &str) {
    let style = HeaderStyle { x_ratelimit: false, ..HeaderStyle::default() };
    assert_eq!(rendered_as(style, &decide(vec![policy], store, spend(1))).replace('\n', " | "), expected);
}

#[test]
fn a6_an_allowed_response_has_both_families() {
    let expected = "\
x-ratelimit-limit: 10
x-ratelimit-remaining: 3
x-ratelimit-reset: 1700000043
ratelimit-policy: \"login\";q=10;w=60
ratelimit: \"login\";r=3;t=6";
    assert_eq!(rendered(&decide(vec![login()], spent(6), spend(1))), expected);
}

#[test]
fn a7_a_denied_response_says_when_to_retry() {
    let expected = "\
x-ratelimit-limit: 10
x-ratelimit-remaining: 0
x-ratelimit-reset: 1700000061
ratelimit-policy: \"login\";q=10;w=60
ratelimit: \"login\";r=0;t=6
retry-after: 6";
    assert_eq!(rendered(&decide(vec![login()], spent(10), spend(1))), expected);
}

#[test]
fn a6_the_limit_may_be_the_rate_as_written() {
    let style =
        HeaderStyle { ietf: false, retry_after: false, limit: LimitMeaning::Rate, ..HeaderStyle::default() };
    let expected = "x-ratelimit-limit: 1\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1700000061";
    assert_eq!(rendered_as(style, &decide(vec![login()], spent(10), spend(1))), expected);
}

#[test]
fn when_retrying_never_helps_there_is_no_retry_after() {
    let rate_limit = rendered(&decide(vec![login()], FRESH, spend(11)));
    assert!(
        rate_limit.contains("x-ratelimit-remaining: 10") && !rate_limit.contains("retry-after"),
        "{rate_limit}"
    );
}

#[test]
fn enforced_limits_are_shown_in_order_and_shadow_limits_are_not() {
    let minute = quota(Algorithm::SlidingWindow, "10/min", 10);
    let shadow = Policy::new("trial", minute.clone()).unwrap().with_mode(Mode::Shadow);
    let user = Policy::new("per-user", quota(BUCKET, "100/s", 5)).unwrap();
    let decision = decide(vec![shadow, login().and("minute", minute), user], spent(4), spend(1));
    let expected = "\
x-ratelimit-limit: 5
x-ratelimit-remaining: 0
x-ratelimit-reset: 1700000001
ratelimit-policy: \"login\";q=10;w=60, \"login.minute\";q=10;w=60, \"per-user\";q=5;w=1
ratelimit: \"login\";r=5;t=6, \"login.minute\";r=5;t=60, \"per-user\";r=0;t=1";
    assert_eq!(rendered(&decision), expected);
}

#[test]
fn without_an_enforced_limit_no_header_is_sent() {
    assert_eq!(rendered(&decide(vec![], FRESH, spend(1))), "");
    assert_eq!(rendered(&decide(vec![login().with_mode(Mode::Shadow)], spent(10), spend(1))), "");
}

#[test]
fn with_too_many_limits_only_the_tightest_is_shown() {
    let policy = |n: u32| Policy::new(&format!("p{n}"), quota(BUCKET, "1/s", 100 - n)).unwrap();
    let shown = |n: u32| {
        let decision = decide((0..n).map(policy).collect(), FRESH, spend(1));
        let mut headers = HeaderMap::new();
        RateLimitHeaders::of(&decision, NOW).unwrap().render(HeaderStyle::default(), &mut headers);
        RateLimitHeaders::parse(&headers).limits.into_iter().map(|limit| limit.name).collect::<Vec<_>>()
    };
    assert_eq!(shown(16).len(), 16);
    assert_eq!(shown(17), ["p16"]);
}

/// `t` of each algorithm: until more can be spent than `r` says.
#[test]
fn t_lasts_until_the_next_unit_or_the_end_of_the_window() {
    let policy = |algorithm, rate, burst| Policy::new("p", quota(algorithm, rate, burst)).unwrap();
    let ago = |seconds| FixedStore { ago: Micros::from_secs(seconds), ..spent(4) };
    let smooth = policy(BUCKET, "1/10s", 6);
    ietf(smooth.clone(), ago(3), r#"ratelimit-policy: "p";q=6;w=60 | ratelimit: "p";r=1;t=7"#);
    ietf(smooth, spent(6), r#"ratelimit-policy: "p";q=6;w=60 | ratelimit: "p";r=0;t=10 | retry-after: 10"#);
    let stepped = policy(Algorithm::TokenBucket(Refill::Stepped), "2/10s", 6);
    ietf(stepped, ago(3), r#"ratelimit-policy: "p";q=6;w=30 | ratelimit: "p";r=1;t=7"#);
    let queue = policy(Algorithm::LeakyBucket(Leak::Queue), "1/10s", 6);
    ietf(queue, ago(3), r#"ratelimit-policy: "p";q=6;w=60 | ratelimit: "p";r=2;t=7 | retry-after: 37"#);
    let log = policy(Algorithm::SlidingWindow, "6/min", 6);
    ietf(log, ago(3), r#"ratelimit-policy: "p";q=6;w=60 | ratelimit: "p";r=1;t=57"#);
    let fixed = policy(Algorithm::FixedWindow(WindowStart::FirstHit), "6/min", 6);
    ietf(fixed, ago(3), r#"ratelimit-policy: "p";q=6;w=60 | ratelimit: "p";r=1;t=57"#);
}

/// The previous window fades, so that the next unit comes before the window's end; only the wait is known.
#[test]
fn a_counter_that_denies_shows_the_wait_not_the_end_of_its_window() {
    let counter = Policy::new("p", quota(Algorithm::SlidingWindowCounter, "60/min", 0)).unwrap();
    let store = FixedStore { ago: Micros::from_secs(30), ..spent(60) };
    let decision = decide(vec![counter], store, spend(40));
    let rate_limit = RateLimitHeaders::of(&decision, NOW).unwrap();
    assert_eq!(rate_limit.tightest().more_after, rate_limit.retry_after());
}

/// Without the shared store an instance grants a share, and shows the limit that it applies.
#[test]
fn a8_of_a_share_the_headers_show_the_share() {
    let hourly = Policy::new("hourly", quota(BUCKET, "20/h", 20)).unwrap();
    let half = FixedStore { basis: Basis::Local, share: Some(share(1, 2)), ..spent(9) };
    let allowed = "\
x-ratelimit-limit: 10
x-ratelimit-remaining: 0
x-ratelimit-reset: 1700003601
ratelimit-policy: \"hourly\";q=10;w=3600
ratelimit: \"hourly\";r=0;t=360";
    assert_eq!(rendered(&decide(vec![hourly.clone()], half, spend(1))), allowed);
    let denied =
        r#"ratelimit-policy: "hourly";q=10;w=3600 | ratelimit: "hourly";r=0;t=360 | retry-after: 360"#;
    ietf(hourly, FixedStore { spent: 10, ..half }, denied);
}

/// While shares are in force, the tightest limit has the smallest fraction of its share left.
#[test]
fn a8_the_tightest_of_shares_is_the_one_with_the_smallest_part_left() {
    let policy = |name, rate| Policy::new(name, quota(Algorithm::SlidingWindow, rate, 0)).unwrap();
    let third = FixedStore { basis: Basis::Local, share: Some(share(1, 3)), ..spent(0) };
    // 3 of a share of 4 are left, and 2 of a share of 3: 3 of 14 would be less than 2 of 9.
    let decision = decide(vec![policy("fourteen", "14/min"), policy("nine", "9/min")], third, spend(1));
    assert_eq!(RateLimitHeaders::of(&decision, NOW).unwrap().tightest().policy, "nine");
}

#[test]
fn a_limit_that_cannot_be_checked_has_no_window() {
    let closed = FixedStore { basis: Basis::FailClosed, ..FRESH };
    ietf(login(), closed, r#"ratelimit-policy: "login";q=10;w=60 | ratelimit: "login";r=0 | retry-after: 1"#);
}

#[test]
fn an_upstreams_own_limits_stay_beside_ours() {
    let mut headers = HeaderMap::new();
    headers.insert(LIMIT, HeaderValue::from_static(r#""upstream";r=1;t=2"#));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("ETag"));
    let decision = decide(vec![login()], FRESH, spend(1));
    RateLimitHeaders::of(&decision, NOW).unwrap().render(HeaderStyle::default(), &mut headers);
    RateLimitHeaders::expose(&mut headers);
    let names: Vec<_> =
        RateLimitHeaders::parse(&headers).limits.into_iter().map(|limit| limit.name).collect();
    assert_eq!(names, ["upstream", "login"]);
    let exposed: Vec<_> = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS).iter().collect();
    assert_eq!(exposed, [&HeaderValue::from_static("ETag"), &EXPOSED]);
    for name in [X_LIMIT, X_REMAINING, X_RESET, POLICY, LIMIT, header::RETRY_AFTER] {
        let listed =
            EXPOSED.to_str().unwrap().split(", ").any(|exposed| exposed.eq_ignore_ascii_case(name.as_str()));
        assert!(listed, "{name}");
    }
}

/// The result must not depend on which headers the response has already.
#[test]
fn a_plain_response_keeps_its_headers_and_gets_all_of_ours() {
    let responses: [&[(HeaderName, &'static str)]; 7] = [
        &[],
        &[(header::CONTENT_TYPE, "text/plain")],
        &[(header::CONTENT_LENGTH, "5")],
        &[(header::CONTENT_TYPE, "text/plain"), (header::CONTENT_LENGTH, "5")],
        &[(header::CONTENT_TYPE, "text/plain"), (header::CONTENT_TYPE, "text/html")],
        &[(header::CONTENT_LENGTH, "5"), (X_REMAINING, "1")],
        &[(header::ETAG, "a"), (POLICY, "\"upstream\";q=1")],
    ];
    for (lines, spent_units) in responses.into_iter().flat_map(|lines| [(lines, 6), (lines, 10)]) {
        let lines = lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        // One header more, so that it is not plain.
        let mut other = headers.clone();
        other.insert(header::VARY, HeaderValue::from_static("origin"));
        let decision = decide(vec![login()], spent(spent_units), spend(1));
        let rate_limit = RateLimitHeaders::of(&decision, NOW).unwrap();
        for headers in [&mut headers, &mut other] {
            rate_limit.render(HeaderStyle::default(), headers);
        }
        other.remove(header::VARY);
        assert_eq!(headers, other);
        assert!(
            headers.contains_key(LIMIT) && headers.values().all(|value| !value.is_empty()),
            "{headers:?}"
        );
    }
}

/// Of two `X-RateLimit-` families the tighter stays, and a family that cannot be compared may be the tighter.
#[test]
fn a_response_that_may_have_less_left_keeps_its_family() {
    let decision = decide(vec![login()], spent(6), spend(1));
    let left = |said: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in said {
            headers.append(X_REMAINING, HeaderValue::from_static(value));
        }
        RateLimitHeaders::of(&decision, NOW).unwrap().render(HeaderStyle::default(), &mut headers);
        headers
            .get_all(X_REMAINING)
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for said in [&["2"][..], &["-1"], &["+9"], &[""], &["2, 2;w=60"], &["unlimited"], &["9", "2"]] {
        assert_eq!(left(said), said);
    }
    for said in [&["9"][..], &[" 9 "], &["9", "8"], &["99999999999999999999"], &[]] {
        assert_eq!(left(said), ["3"], "{said:?}");
    }
}

/// What is parsed from these two headers.
fn read(policy: &str, limit: &str) -> (Vec<QuotaPolicy>, Vec<ServiceLimit>) {
    let mut headers = HeaderMap::new();
    headers.insert(POLICY, HeaderValue::from_str(policy).unwrap());
    headers.insert(LIMIT, HeaderValue::from_str(limit).unwrap());
    let received = RateLimitHeaders::parse(&headers);
    (received.policies, received.limits)
}

#[test]
fn headers_of_other_servers_are_parsed() {
    let (policies, limits) =
        read(r#""a";q=100;pk=:cHsdsRa894==:, "b";qu="content-bytes";q=0;w=1"#, r#""b";c=1;a=0;w=9"#);
    let policy = |name: &str, quota, window| QuotaPolicy { name: name.to_owned(), quota, window };
    assert_eq!(policies, [policy("a", 100, None), policy("b", 0, Some(1))]);
    assert_eq!(limits, [ServiceLimit { name: "b".to_owned(), available: 0, window: Some(9) }]);
}

#[test]
fn the_dictionary_of_older_drafts_is_a_limit_without_a_name() {
    let limit = |available, window| vec![ServiceLimit { name: String::new(), available, window }];
    assert_eq!(read("", "limit=100, remaining=50, reset=5").1, limit(50, Some(5)));
    assert_eq!(read("", "limit=100;w=60, remaining=0").1, limit(0, None));
    assert_eq!(read("", "limit=100, reset=5").1, []);
}

#[test]
fn a_malformed_header_is_ignored_as_a_whole() {
    for bad in [
        r#""ok";q=1;r=1, "#,
        r#""ok";q=1;r=1, ("x");q=1;r=1"#,
        r#""ok";q=1;r=1, token;q=1;r=1"#,
        r#""ok";q=1;r=1, "x";w=1;t=1"#,
        r#""ok";q=1;r=1, "x";q=-1;r=-1"#,
        r#""ok";q=1;r=1, "x";q="1";r="1""#,
        r#""ok";q=1;r=1, "x";q=1;r=1;w=1.5;t=1.5"#,
        r#""ok";q=1;r=1, "x";q=1234567890123456;r=1234567890123456"#,
        r#"limit=100, remaining=-50, reset=5"#,
        r#"limit=100, remaining=50, reset=(5)"#,
    ] {
        assert_eq!(read(bad, bad), (vec![], vec![]), "{bad}");
    }
    assert_eq!(read(r#""x";q=1;w=0"#, "").0, []);
    let long = r#""ok";q=1;r=1, "#.repeat(1_000) + r#""ok";q=1;r=1"#;
    assert_eq!(read(&long, &long), (vec![], vec![]), "it has a limit too");
}

#[test]
fn an_invalid_number_is_ignored() {
    for bad in ["", "soon", "-1", "+1", "1.5", "1, 2", "99999999999999999999"] {
        let mut headers = HeaderMap::new();
        for name in [X_LIMIT, X_REMAINING, X_RESET, header::RETRY_AFTER] {
            headers.insert(name, HeaderValue::from_str(bad).unwrap());
        }
        assert_eq!(RateLimitHeaders::parse(&headers), ReceivedHeaders::default(), "{bad}");
    }
}

prop_compose! {
    fn shown_limits()(
        policy in "[a-z0-9._-]{1,64}",
        quota in prop::option::of("[a-z0-9._-]{1,64}"),
        numbers: (u32, u32, u32),
        refill_within in 1u64..10_000_000_000,
        more_after in prop::option::of(1u64..10_000_000_000),
    ) -> (String, Option<String>, (u32, u32, u32), u64, Option<u64>) {
        (policy, quota, numbers, refill_within, more_after)
    }
}

fn share(part: u32, of: u32) -> Share {
    Share { part, of: NonZeroU32::new(of).unwrap() }
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(vec![
        BUCKET,
        Algorithm::TokenBucket(Refill::Stepped),
        Algorithm::LeakyBucket(Leak::Meter),
        Algorithm::LeakyBucket(Leak::Queue),
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::FixedWindow(WindowStart::Epoch),
        Algorithm::FixedWindow(WindowStart::FirstHit),
    ])
}

proptest! {
    #[test]
    fn rendered_headers_parse_back(
        limits in prop::collection::vec(shown_limits(), 1..=RateLimitHeaders::LIMITS_MAX),
        reset_at: u64,
        retry_after in prop::option::of(1u64..),
    ) {
        let shown: SmallVec<[ShownLimit<'_>; 2]> = limits.iter().map(|(policy, quota, numbers, refill_within, more_after)| {
            let &(capacity, units, remaining) = numbers;
            let (refill_within, more_after) = (*refill_within, *more_after);
            ShownLimit { policy, quota: quota.as_deref(), capacity, units, refill_within, remaining, more_after }
        }).collect();
        let rate_limit = RateLimitHeaders { tightest: shown[0], reset_after: 0, reset_at, retry_after, shown };
        let mut headers = HeaderMap::new();
        rate_limit.render(HeaderStyle::default(), &mut headers);
        let policy = |shown: &ShownLimit<'_>| {
            let (quota, window) = (shown.capacity.into(), Some(shown.refill_within));
            QuotaPolicy { name: shown.to_string(), quota, window }
        };
        let limit = |shown: &ShownLimit<'_>| {
            let (available, window) = (shown.remaining.into(), shown.more_after);
            ServiceLimit { name: shown.to_string(), available, window }
        };
        let expected = ReceivedHeaders {
            limit: Some(rate_limit.tightest.capacity.into()),
            remaining: Some(rate_limit.tightest.remaining.into()),
            reset: Some(reset_at),
            retry_after,
            policies: rate_limit.shown.iter().map(policy).collect(),
            limits: rate_limit.shown.iter().map(limit).collect(),
        };
        prop_assert_eq!(RateLimitHeaders::parse(&headers), expected);
    }

    /// A thread keeps values that it wrote for other limits: few names and numbers, so that their places collide.
    #[test]
    fn values_that_a_thread_keeps_belong_to_the_limit(
        responses in prop::collection::vec(
            prop::collection::vec((0usize..3, 0usize..2, 1u32..3, 1u32..3, 1u64..3), 1..4),
            1..100,
        ),
        by_rate: bool,
    ) {
        let (policies, quotas) = (["a", "aa", "ba"], [None, Some("x")]);
        for limits in responses {
            let shown: SmallVec<[ShownLimit<'_>; 2]> = limits
                .into_iter()
                .map(|(policy, quota, capacity, units, refill_within)| ShownLimit {
                    policy: policies[policy],
                    quota: quotas[quota],
                    capacity: capacity * 16,
                    units,
                    refill_within,
                    remaining: 0,
                    more_after: None,
                })
                .collect();
            let meaning = if by_rate { LimitMeaning::Rate } else { LimitMeaning::Capacity };
            let limit = if by_rate { shown[0].units } else { shown[0].capacity };
            let items = shown.iter().map(|shown| format!("\"{shown}\";q={};w={}", shown.capacity, shown.refill_within));
            let policy = items.collect::<Vec<_>>().join(", ");
            let rate_limit = RateLimitHeaders { tightest: shown[0], reset_after: 0, reset_at: 1, retry_after: None, shown };
            let mut headers = HeaderMap::new();
            rate_limit.render(HeaderStyle::default().limit(meaning), &mut headers);
            prop_assert_eq!(headers[X_LIMIT].to_str().unwrap(), limit.to_string());
            prop_assert_eq!(headers[POLICY].to_str().unwrap(), policy);
        }
    }

    /// The draft: `Retry-After` is not earlier than the end of the window in `RateLimit`.
    #[test]
    fn retry_after_is_never_earlier_than_t_and_never_zero(
        algorithm in algorithms(),
        (units, window, burst) in (1u32..50, 1u64..100_000_000, 1u32..50),
        (spent, ago, cost) in (0u32..200, 0u64..100_000_000, 1u32..50),
        share in prop::option::of((1u32..4, 1u32..8).prop_map(|(part, of)| share(part.min(of), of))),
    ) {
        let policy = Policy::new("p", quota(algorithm, &format!("{units}/{window}us"), burst)).unwrap();
        let store = FixedStore { spent, ago: Micros::new(ago), basis: Basis::Shared, share };
        let decision = decide(vec![policy], store, spend(cost));
        let rate_limit = RateLimitHeaders::of(&decision, NOW).unwrap();
        let shown = rate_limit.tightest();
        prop_assert!(shown.remaining <= shown.capacity);
        prop_assert_eq!(shown.more_after.is_none(), shown.remaining == shown.capacity);
        if let Some(t) = shown.more_after {
            prop_assert!((1..=rate_limit.reset_after()).contains(&t));
        }
        if let Some(retry_after) = rate_limit.retry_after() {
            prop_assert!(retry_after >= shown.more_after.unwrap_or(1));
        }
        prop_assert_eq!(rate_limit.retry_after().is_some(), decision.verdict() == Verdict::Deny && decision.retry_after().is_some());
    }

    #[test]
    fn no_bytes_confuse_the_parser(values in prop::collection::vec((0usize..6, prop::collection::vec(any::<u8>(), 0..100)), 0..8)) {
        let names = [X_LIMIT, X_REMAINING, X_RESET, POLICY, LIMIT, header::RETRY_AFTER];
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(&names[name], value);
            }
        }
        RateLimitHeaders::parse(&headers);
    }

    #[test]
    fn no_list_confuses_the_parser(list in r#"("[a-z]{0,3}"|[a-z(]{1,2})?(;[a-z]{1,2}=?-?[0-9.":]{0,17}){0,4}[, )]{0,3}"#) {
        let (policies, limits) = read(&list, &list);
        prop_assert!(policies.len() <= 1 && limits.len() <= 1);
    }
}
