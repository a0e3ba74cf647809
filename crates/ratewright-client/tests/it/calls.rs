//! Calls on a stopped clock: each row of what goes wrong with retries in practice is a test here, or in `herd.rs`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method};
use ratewright_client::call::{Partition, RequestInfo};
use ratewright_client::retry_decision::{BodyKind, Cause, Repeat, WaitSource};
use ratewright_client::{BudgetSize, EventKind, Retry, RetryPolicy, RetrySummary, Why};
use tokio::time::Instant;

use crate::script::{Reply, call, get, play, recorded, request, respond, secs, settle, status, with};

const URI: &str = "https://api.example.com/items";

fn why(done: &crate::script::Done) -> (u16, u32, Why) {
    let (status, summary) = done.result.as_ref().unwrap();
    (status.as_u16(), summary.attempts, summary.why)
}

/// E3: Retry-After first. The wait is the server's, and the spread comes on top.
#[tokio::test(start_paused = true)]
async fn e3_a_throttled_call_waits_as_long_as_the_server_says_and_succeeds() {
    let done = play(Retry::builder(), get(URI), &[with(429, &[("retry-after", "2")]), status(200)]).await;
    assert_eq!((done.sent_at.as_slice(), why(&done)), ([0, 2_500].as_slice(), (200, 2, Why::Done)));
}

/// E3: exponential backoff with jitter after 5xx.
#[tokio::test(start_paused = true)]
async fn e3_server_errors_are_retried_with_growing_backoff() {
    let done = play(Retry::builder(), get(URI), &[status(500), status(502), status(504), status(500)]).await;
    assert_eq!(
        (done.sent_at.as_slice(), why(&done)),
        ([0, 50, 150, 350].as_slice(), (500, 4, Why::Attempts))
    );
}

/// Huge waits: a longer wait than the caller accepts gives the response back at once, and says when to come again.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_gives_the_response_back_at_once() {
    for (wait, expected) in [
        ("61", Why::ServerWait),
        ("31", Why::Deadline),
        ("9999999999", Why::ServerWait),
        ("198300", Why::ServerWait),
    ] {
        let start = Instant::now();
        let done = play(Retry::builder(), get(URI), &[with(429, &[("retry-after", wait)])]).await;
        let (_, summary) = done.result.as_ref().unwrap();
        assert_eq!((why(&done), start.elapsed()), ((429, 1, expected), Duration::ZERO), "{wait}");
        assert!(summary.retry_at.is_some());
    }
}

/// Negative and past waits are neither an error nor a reason to come at once.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_still_backs_off() {
    for wait in ["-1", "0", "Sun, 06 Nov 1994 08:49:37 GMT", "soon"] {
        let done =
            play(Retry::builder(), get(URI), &[with(429, &[("retry-after", wait)]), status(200)]).await;
        assert_eq!(done.sent_at, [0, 550], "{wait}");
    }
}

/// A hidden or missing header: one second as the base, not some milliseconds.
#[tokio::test(start_paused = true)]
async fn a_429_without_a_wait_backs_off_from_one_second() {
    let policy = RetryPolicy::default();
    for chance in [0.0, 0.999_999] {
        let retry = Retry::builder().policy(policy.clone()).random(move || chance).build();
        let done = call(&retry, get(URI), &[status(429)]).await;
        let waits: Vec<_> = done.sent_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let expected = if chance == 0.0 { [100, 200, 400] } else { [999, 1_999, 3_999] };
        assert_eq!((waits.as_slice(), why(&done)), (expected.as_slice(), (429, 4, Why::Attempts)));
    }
}

/// A POST is sent twice only if it was certainly not processed, or if a key makes it safe.
#[tokio::test(start_paused = true)]
async fn what_must_not_be_processed_twice_is_sent_once() {
    let post = || request(Method::POST, URI, BodyKind::Bytes(10));
    let with_key = || {
        let key =
            HeaderMap::from_iter([("idempotency-key".parse().unwrap(), HeaderValue::from_static("k1"))]);
        RequestInfo::new(&Method::POST, &URI.parse().unwrap(), &key, BodyKind::Bytes(10))
    };
    let limited = with(429, &[("retry-after", "1")]);
    for (name, request, reply, n_sends) in [
        ("POST 500", post(), status(500), 1),
        ("POST bare 429", post(), status(429), 1),
        ("POST limited", post(), limited.clone(), 2),
        ("POST refused", post(), Reply::Error(ErrorKind::ConnectionRefused), 2),
        ("POST reset", post(), Reply::Error(ErrorKind::ConnectionReset), 1),
        ("GET reset", get(URI), Reply::Error(ErrorKind::ConnectionReset), 2),
        ("POST with key 500", with_key(), status(500), 2),
        ("POST with key reset", with_key(), Reply::Error(ErrorKind::ConnectionReset), 2),
        ("streamed PUT", request(Method::PUT, URI, BodyKind::Stream), limited, 1),
        ("PUT of 64 KiB", request(Method::PUT, URI, BodyKind::Bytes(65_536)), status(503), 2),
        ("PUT of one byte more", request(Method::PUT, URI, BodyKind::Bytes(65_537)), status(503), 1),
    ] {
        let done = play(Retry::builder(), request, &[reply, status(200)]).await;
        assert_eq!(done.sent_at.len(), n_sends, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_caller_may_say_what_may_be_repeated() {
    let with_repeat = |method, repeat| {
        let mut extensions = http::Extensions::new();
        extensions.insert(repeat);
        request(method, URI, BodyKind::None).with_extensions(&extensions)
    };
    for (request, n_sends) in [
        (with_repeat(Method::POST, Repeat::Safe), 2),
        (with_repeat(Method::GET, Repeat::Never), 1),
        (with_repeat(Method::GET, Repeat::OnlyIfUnprocessed), 1),
        (with_repeat(Method::GET, Repeat::Auto), 2),
    ] {
        let done = play(Retry::builder(), request, &[status(500), status(200)]).await;
        assert_eq!(done.sent_at.len(), n_sends);
    }
}

/// Retry storms: while everything fails, the budget keeps retries to a few per cent of the load.
#[tokio::test(start_paused = true)]
async fn e3_a_failing_server_gets_at_most_a_tenth_more_load() {
    for (reply, name) in [
        (status(500), "500"),
        (with(503, &[("retry-after", "1")]), "503 with a wait"),
        (Reply::Error(ErrorKind::ConnectionReset), "no response"),
    ] {
        let retry = Retry::new();
        let mut n_sends = 0;
        for _ in 0..1_000 {
            n_sends += call(&retry, get(URI), std::slice::from_ref(&reply)).await.sent_at.len();
        }
        assert!((1_000..=1_050).contains(&n_sends), "{name}: {n_sends} sends for 1,000 calls");
    }
}

/// Successes fill the budget again: one failure in twenty is always retried.
#[tokio::test(start_paused = true)]
async fn occasional_failures_are_always_retried() {
    let retry = Retry::new();
    for n in 0..2_000 {
        let reply = if n % 20 == 0 { status(502) } else { status(200) };
        let done = call(&retry, get(URI), &[reply, status(200)]).await;
        assert_eq!(why(&done).0, 200, "call {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_origin_does_not_use_up_the_budget_of_another() {
    let retry = Retry::builder().budget(BudgetSize { retries_max: 3, per_success: 0.0 }).build();
    assert_eq!(call(&retry, get(URI), &[status(500)]).await.sent_at.len(), 4);
    assert_eq!(why(&call(&retry, get(URI), &[status(500)]).await), (500, 1, Why::Budget));
    assert_eq!(call(&retry, get("https://other.example.com/items"), &[status(500)]).await.sent_at.len(), 4);
    let retry = Retry::builder().without_budget().build();
    for _ in 0..100 {
        assert_eq!(call(&retry, get(URI), &[status(500)]).await.sent_at.len(), 4);
    }
}

/// No send starts after the deadline, whatever the backoff is.
#[tokio::test(start_paused = true)]
async fn the_deadline_holds_for_waits() {
    let policy = RetryPolicy::default().attempts(1_000).deadline(secs(10));
    let done = play(Retry::builder().policy(policy), get(URI), &[status(503)]).await;
    assert!(done.sent_at.len() > 3 && done.sent_at.iter().all(|at| *at <= 10_000), "{:?}", done.sent_at);
    assert_eq!(why(&done).2, Why::Deadline);
}

/// A clock that starts at the epoch, and whose sleeps end late.
#[derive(Debug)]
struct LateTimer {
    start: Instant,
    late_by: Duration,
}

impl LateTimer {
    /// Late by a minute, as in a laptop that was shut or a tab in the background.
    fn by_a_minute() -> Self {
        Self { start: Instant::now(), late_by: secs(60) }
    }

    fn punctual() -> Self {
        Self { start: Instant::now(), late_by: Duration::ZERO }
    }
}

impl ratewright_client::call::Timer for LateTimer {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now()
    }

    fn sleep_until(&self, at: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep_until(self.start + at + self.late_by))
    }
}

/// Timers that fire late: nothing is sent after the deadline, with a gate or without.
#[tokio::test(start_paused = true)]
async fn a_late_timer_sends_nothing_after_the_deadline() {
    for builder in [Retry::builder(), Retry::builder().without_gate()] {
        let builder = builder.timer(LateTimer::by_a_minute());
        let done = play(builder, get(URI), &[with(429, &[("retry-after", "1")]), status(200)]).await;
        assert_eq!(done.sent_at, [0]);
        assert!(done.result.unwrap_err().to_string().starts_with("deadline of 30s passed"));
    }
}

/// A budget belongs to an origin: partitions do not multiply the retries that a failing server gets.
#[tokio::test(start_paused = true)]
async fn partitions_share_the_budget_of_their_origin() {
    let retry = Retry::new();
    let mut n_sends = 0;
    for n in 0..500 {
        let mut extensions = http::Extensions::new();
        extensions.insert(Partition(format!("user {n}")));
        n_sends += call(&retry, get(URI).with_extensions(&extensions), &[status(500)]).await.sent_at.len();
    }
    assert!(n_sends <= 550, "{n_sends} sends for 500 calls");
}

/// A success that comes late does not take requests out of a lane that a throttle has closed.
#[tokio::test(start_paused = true)]
async fn a_late_success_does_not_open_a_closed_lane() {
    let retry = Retry::builder().random(|| 0.5).build();
    let slow = tokio::spawn({
        let retry = retry.clone();
        async move {
            let late = |_| async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                respond(&with(200, &[("ratelimit", "\"other\";r=1;t=1")]))
            };
            retry.send(get(URI), late).await.unwrap()
        }
    });
    settle().await;
    let throttled = with(429, &[("retry-after", "5"), ("ratelimit", "\"tight\";r=0;t=5")]);
    let waiting = tokio::spawn({
        let retry = retry.clone();
        async move { call(&retry, get(URI), &[throttled, status(200)]).await }
    });
    slow.await.unwrap();
    let start = Instant::now();
    call(&retry, get(URI), &[status(200)]).await;
    assert!(start.elapsed() >= secs(4), "sent {:?} after the throttle", start.elapsed());
    waiting.await.unwrap();
}

/// Requests that are sent into a closed lane, because they cannot wait, do not slow it down for those that come later.
#[tokio::test(start_paused = true)]
async fn sends_into_a_closed_lane_do_not_ruin_its_pace() {
    let retry = Retry::new();
    for _ in 0..100 {
        call(&retry, get(URI), &[status(200)]).await;
    }
    for _ in 0..50 {
        call(&retry, get(URI), &[with(429, &[("retry-after", "40")])]).await;
    }
    tokio::time::sleep(secs(41)).await;
    let start = Instant::now();
    let replies = [status(200)];
    let calls = (0..40).map(|_| call(&retry, get(URI), &replies));
    futures_util::future::join_all(calls).await;
    assert!(start.elapsed() < secs(2), "40 calls took {:?}", start.elapsed());
}

/// One stream of events tells the whole story of a call.
#[tokio::test(start_paused = true)]
async fn events_tell_what_happened() {
    let (builder, events) = recorded(Retry::builder());
    play(builder, get(URI), &[with(429, &[("ratelimit", "\"a\";r=0;t=1")]), status(200)]).await;
    let wait = Duration::from_millis(1_500);
    let cause = Cause::Server(WaitSource::RateLimit);
    let expected = [
        EventKind::Sending,
        EventKind::Waiting { wait, cause, status: Some(http::StatusCode::TOO_MANY_REQUESTS) },
        EventKind::Sending,
        EventKind::Returned { why: Why::Done, status: http::StatusCode::OK },
    ];
    assert_eq!(*events.lock().unwrap(), expected);
}

/// A call without a response ends with `Failed`, one with a response with `Returned`.
#[tokio::test(start_paused = true)]
async fn a_call_that_ends_with_an_error_emits_failed() {
    let (builder, events) = recorded(Retry::builder());
    let lost = Reply::Error(ErrorKind::ConnectionReset);
    play(builder, request(Method::POST, URI, BodyKind::None), &[lost]).await;
    assert_eq!(*events.lock().unwrap(), [EventKind::Sending, EventKind::Failed { why: Why::Unsafe }]);
    let (builder, events) = recorded(Retry::builder().timer(LateTimer::by_a_minute()));
    play(builder, get(URI), &[with(429, &[("retry-after", "1")])]).await;
    assert_eq!(events.lock().unwrap().last(), Some(&EventKind::Failed { why: Why::Deadline }));
}

/// Only a request that waits for its turn emits `Queued`: one that is sent into a closed lane does not.
#[tokio::test(start_paused = true)]
async fn only_a_request_that_waits_is_queued() {
    for (wait, expected) in [("3600", false), ("5", true)] {
        let (builder, events) = recorded(Retry::builder());
        let retry = builder.random(|| 0.5).build();
        let throttled = with(429, &[("retry-after", wait)]);
        let (first, second) = ([throttled, status(200)], [status(200)]);
        futures_util::future::join(call(&retry, get(URI), &first), call(&retry, get(URI), &second)).await;
        assert_eq!(events.lock().unwrap().contains(&EventKind::Queued), expected, "Retry-After: {wait}");
    }
}

/// A server with a burst, which then denies for one second; counts what it gets.
#[derive(Clone)]
struct Burst {
    left: Arc<AtomicU32>,
    seen: Arc<AtomicU32>,
}

impl Burst {
    fn new(size: u32) -> Self {
        Self { left: Arc::new(AtomicU32::new(size)), seen: Arc::default() }
    }

    fn reply(&self) -> Reply {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let take = |left: u32| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => status(200),
            Err(_) => with(429, &[("retry-after", "1")]),
        }
    }
}

fn patient() -> RetryPolicy {
    RetryPolicy::default().deadline(secs(3_600)).attempts(50)
}

/// Others keep firing during a cool-down: the gate holds back calls that were never denied themselves.
#[tokio::test(start_paused = true)]
async fn e3_after_a_throttle_new_calls_wait_too() {
    let retry = Retry::builder().random(|| 0.5).build();
    let first = tokio::spawn({
        let retry = retry.clone();
        async move { call(&retry, get(URI), &[with(429, &[("retry-after", "2")]), status(200)]).await }
    });
    settle().await;
    let start = Instant::now();
    let second = call(&retry, get(URI), &[status(200)]).await;
    assert_eq!(second.sent_at.len(), 1);
    assert!(start.elapsed() >= secs(2), "sent {:?} after the throttle", start.elapsed());
    assert_eq!(why(&first.await.unwrap()).0, 200);
}

/// A gate that releases all waiting calls at once is worse than none: they go one after another.
#[tokio::test(start_paused = true)]
async fn e3_waiting_calls_are_never_released_together() {
    let server = Burst::new(10);
    let retry = Retry::builder().policy(patient()).build();
    let calls: Vec<_> = (0..1_000)
        .map(|_| {
            let (retry, server) = (retry.clone(), server.clone());
            tokio::spawn(async move {
                retry.send(get(URI), |_| std::future::ready(respond(&server.reply()))).await
            })
        })
        .collect();
    settle().await;
    assert_eq!(server.seen.load(Ordering::Relaxed), 11, "the first denial closes the lane for all others");
    server.left.store(u32::MAX, Ordering::Relaxed);
    let (mut before, mut most) = (11, 0);
    while calls.iter().any(|call| !call.is_finished()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let seen = server.seen.load(Ordering::Relaxed);
        most = most.max(seen - before);
        before = seen;
    }
    assert!(most <= 25, "{most} of them within 10 ms");
    assert_eq!(before, 1_001);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
}

/// Mixed limits on one client: neither another origin, nor another partition, nor another limit has to wait.
#[tokio::test(start_paused = true)]
async fn other_limits_do_not_wait() {
    let retry = Retry::builder().random(|| 0.5).build();
    let throttled = with(429, &[("retry-after", "20"), ("ratelimit", "\"login\";r=0;t=20")]);
    let login = request(Method::GET, "https://api.example.com/login", BodyKind::None);
    let waiting = tokio::spawn({
        let (retry, login) = (retry.clone(), login.clone());
        async move { call(&retry, login, &[throttled, status(200)]).await }
    });
    settle().await;
    let for_anna = {
        let mut extensions = http::Extensions::new();
        extensions.insert(Partition("anna".to_owned()));
        login.clone().with_extensions(&extensions)
    };
    for other in [get("https://api.example.com/items/17"), get("https://other.example.com/login"), for_anna] {
        let start = Instant::now();
        call(&retry, other, &[status(200)]).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    let start = Instant::now();
    call(&retry, login, &[status(200)]).await;
    assert!(start.elapsed() >= secs(20));
    waiting.await.unwrap();
}

/// A limit that servers name is one lane, whichever requests fall under it.
#[tokio::test(start_paused = true)]
async fn requests_under_one_named_limit_wait_for_each_other() {
    let retry = Retry::builder().random(|| 0.5).build();
    let named = |left: u32| with(200, &[("ratelimit", &format!("\"per-user\";r={left};t=5"))]);
    let (one, other) = (get("https://api.example.com/one"), get("https://api.example.com/other"));
    call(&retry, one.clone(), &[named(2)]).await;
    call(&retry, other.clone(), &[named(1)]).await;
    let denied = with(429, &[("retry-after", "5"), ("ratelimit", "\"per-user\";r=0;t=5")]);
    let waiting = tokio::spawn({
        let retry = retry.clone();
        async move { call(&retry, one, &[denied, named(1)]).await }
    });
    settle().await;
    let start = Instant::now();
    call(&retry, other, &[named(1)]).await;
    assert!(start.elapsed() >= secs(5));
    waiting.await.unwrap();
}

/// Stop signals: a call can be dropped in the gate, in its wait and while it is sent; its place is free at once.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_nothing_behind() {
    let retry = Retry::builder().random(|| 0.5).build();
    let throttled = with(429, &[("retry-after", "2")]);
    let spawn = |replies: Vec<Reply>| {
        let retry = retry.clone();
        tokio::spawn(async move { call(&retry, get(URI), &replies).await })
    };
    let in_wait = spawn(vec![throttled.clone(), status(200)]);
    settle().await;
    let in_line: Vec<_> = (0..20).map(|_| spawn(vec![status(200)])).collect();
    settle().await;
    let in_flight = {
        let retry = retry.clone();
        tokio::spawn(async move {
            let forever = |_| std::future::pending::<Result<http::Response<String>, std::io::Error>>();
            retry.send(get(URI), forever).await
        })
    };
    let last = spawn(vec![status(200)]);
    settle().await;
    in_wait.abort();
    in_line.iter().for_each(tokio::task::JoinHandle::abort);
    let start = Instant::now();
    assert_eq!(why(&last.await.unwrap()).0, 200);
    assert!(start.elapsed() < secs(6), "it waited {:?} for calls that are gone", start.elapsed());
    in_flight.abort();
    settle().await;
    tokio::time::sleep(secs(15)).await;
    for _ in 0..100 {
        let start = Instant::now();
        call(&retry, get(URI), &[status(200)]).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "all places are free again");
    }
}

/// A lane that stays closed beyond the deadline holds nobody: the server's own response tells more than an error of ours.
#[tokio::test(start_paused = true)]
async fn a_lane_that_is_closed_for_too_long_lets_calls_through() {
    let retry = Retry::new();
    let throttled = with(429, &[("retry-after", "3600")]);
    for _ in 0..3 {
        let start = Instant::now();
        let done = call(&retry, get(URI), std::slice::from_ref(&throttled)).await;
        assert_eq!((why(&done), start.elapsed()), ((429, 1, Why::ServerWait), Duration::ZERO));
    }
}

/// Retries that have no chance to be sent in time give their response back at once, instead of an error at the deadline.
#[tokio::test(start_paused = true)]
async fn a_retry_without_a_chance_gives_its_response_back() {
    let policy = RetryPolicy::default().deadline(secs(3));
    let retry = Retry::builder().policy(policy).build();
    let throttled = with(429, &[("retry-after", "1")]);
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let (retry, throttled) = (retry.clone(), throttled.clone());
            tokio::spawn(async move {
                let slow = |_| async {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    respond(&throttled)
                };
                retry.send(get(URI), slow).await
            })
        })
        .collect();
    let mut n_errors = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(response) => assert_eq!(response.status(), 429),
            Err(_) => n_errors += 1,
        }
    }
    assert!(n_errors <= 10, "{n_errors} of 100 calls lost the response that they had");
}

/// After a throttle, ten sends that hang fill the lane: another call waits until one of them ends, or its deadline comes.
#[tokio::test(start_paused = true)]
async fn ten_sends_that_hang_fill_a_throttled_lane() {
    let retry = Retry::builder().random(|| 0.5).build();
    let hanging: Vec<_> = (0..10)
        .map(|_| {
            let retry = retry.clone();
            tokio::spawn(async move {
                let forever = |_| std::future::pending::<Result<http::Response<String>, std::io::Error>>();
                retry.send(get(URI), forever).await
            })
        })
        .collect();
    settle().await;
    let start = Instant::now();
    let throttled = call(&retry, get(URI), &[with(429, &[("retry-after", "1")]), status(200)]).await;
    assert!(throttled.result.is_err() && start.elapsed() == secs(30), "the lane is full");
    let waiting = tokio::spawn({
        let retry = retry.clone();
        async move { call(&retry, get(URI), &[status(200)]).await }
    });
    settle().await;
    assert!(!waiting.is_finished());
    hanging[0].abort();
    let start = Instant::now();
    assert_eq!((why(&waiting.await.unwrap()).0, start.elapsed()), (200, Duration::ZERO));
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Calls that wait in line longer than their deadline fail by name, and were not sent.
#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_never_comes_fails_at_its_deadline() {
    let policy = RetryPolicy::default().deadline(secs(3));
    let retry = Retry::builder().policy(policy).random(|| 0.5).build();
    let throttled = with(429, &[("retry-after", "2")]);
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let (retry, throttled) = (retry.clone(), throttled.clone());
            tokio::spawn(async move {
                if n > 0 {
                    settle().await;
                }
                let start = Instant::now();
                let done =
                    call(&retry, get(URI), &[if n == 0 { throttled } else { status(200) }, status(200)])
                        .await;
                (done, start.elapsed())
            })
        })
        .collect();
    let mut n_expired = 0;
    for call in calls {
        let (done, elapsed) = call.await.unwrap();
        assert!(elapsed <= secs(3));
        if let Err(error) = done.result {
            assert!(
                error.to_string().starts_with("deadline of 3s passed in the queue behind a rate limit"),
                "{error}"
            );
            assert!(done.sent_at.len() <= 1, "only the throttled one was sent before");
            n_expired += 1;
        }
    }
    assert!(n_expired > 50, "{n_expired}");
}

/// A call that waits behind the throttle of another until its deadline says when its lane opens, though it was never sent.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_sent_says_when_its_lane_opens() {
    let policy = RetryPolicy::default().deadline(secs(3));
    let retry = Retry::builder().policy(policy).timer(LateTimer::punctual()).random(|| 0.5).build();
    let first = tokio::spawn({
        let retry = retry.clone();
        async move { call(&retry, get(URI), &[with(429, &[("retry-after", "2")]), status(200)]).await }
    });
    settle().await;
    let replies = [status(200)];
    let (served, unsent) =
        futures_util::future::join(call(&retry, get(URI), &replies), call(&retry, get(URI), &replies)).await;
    assert_eq!(served.sent_at, [2_500], "the wait of the server, and the spread");
    let retry_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(3_500)); // the pace is one a second
    let summary = RetrySummary::of(&unsent.result.unwrap_err()).unwrap();
    assert_eq!((summary.attempts, summary.why, summary.retry_at), (0, Why::Deadline, retry_at));
    first.await.unwrap();
}

/// A retry that is not made because its lane is full says when the lane opens, if the server named no wait.
#[tokio::test(start_paused = true)]
async fn a_retry_without_a_chance_says_when_its_lane_opens() {
    let policy = RetryPolicy::default().deadline(secs(2));
    let retry = Retry::builder().policy(policy).timer(LateTimer::punctual()).random(|| 0.5).build();
    let send = |_| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        respond(&status(429))
    };
    let calls = futures_util::future::join_all((0..20).map(|_| retry.send(get(URI), send))).await;
    let refused: Vec<_> = calls.iter().filter_map(RetrySummary::of).filter(|end| end.attempts == 1).collect();
    assert!(refused.len() > 10, "{}", refused.len());
    for summary in refused {
        assert_eq!(summary.why, Why::Deadline);
        assert!(summary.retry_at > Some(SystemTime::UNIX_EPOCH + Duration::from_millis(500)), "{summary:?}");
    }
}
