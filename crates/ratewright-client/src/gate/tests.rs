//! The gate's memory, and calls that are dropped. Calls that end by themselves are tested in `tests/it/calls.rs`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ratewright_lab::is_long_run;

use super::*;
use crate::call::RequestInfo;
use crate::retry_decision::BodyKind;
use crate::timer::TokioTimer;
use crate::{EventKind, Retry, RetryPolicy};

const DEADLINE: Duration = Duration::from_secs(30);

fn headers(rate_limit: &str) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("ratelimit"), rate_limit.parse().unwrap())])
}

#[test]
fn ids_do_not_make_shapes() {
    let gate = Gate::default();
    let shape = |path: &str| {
        let uri = format!("https://api.example.com{path}").parse().unwrap();
        gate.key(&Method::GET, &uri, "").shape
    };
    assert_eq!(shape("/v1/items/17"), shape("/v1/items/18?full=1"));
    assert_eq!(shape("/v1/items/0b5e8a94"), shape("/v1/items/17"));
    assert_ne!(shape("/v1/items"), shape("/v2/items"));
    assert_ne!(shape("/login"), shape("/items"));
}

#[test]
fn origin_partition_and_method_make_lanes_of_their_own() {
    let gate = Gate::default();
    let key =
        |method: &Method, uri: &str, partition| gate.key(method, &uri.parse().unwrap(), partition).shape;
    let one = key(&Method::GET, "https://a.example/x", "");
    assert_ne!(one, key(&Method::POST, "https://a.example/x", ""));
    assert_ne!(one, key(&Method::GET, "http://a.example/x", ""));
    assert_ne!(one, key(&Method::GET, "https://a.example:8443/x", ""));
    assert_ne!(one, key(&Method::GET, "https://a.example/x", "anna"));
    for same in ["HTTPS://a.example/x", "https://A.Example/x", "https://anna:secret@a.example/x"] {
        assert_eq!(one, key(&Method::GET, same, ""), "{same}");
    }
    assert_ne!(one, key(&Method::GET, "https://a.example/X", ""), "paths are case-sensitive");
}

/// The quota of a limit that counts requests caps its lane's pace; one of bytes says nothing about it.
#[test]
fn only_a_quota_of_requests_sets_a_ceiling() {
    for (unit, is_capped) in [
        ("", true),
        (";qu=\"requests\"", true),
        (";qu=\"content-bytes\"", false),
        (";qu=requests", false),
        (";qu=\"Requests\"", false),
    ] {
        let (gate, timer) = (Gate::default(), TokioTimer::default());
        let key = gate.key(&Method::GET, &"https://a.example/x".parse().unwrap(), "");
        let mut headers = headers("\"a\";r=0;t=20");
        let policy = format!("\"b\";q=9;w=9;qu=\"content-bytes\", \"a\";q=1;w=11{unit}");
        headers.insert("ratelimit-policy", policy.parse().unwrap());
        let permit = gate.try_enter(key, timer.now(), DEADLINE).unwrap();
        let times = ThrottleTimes { hint: Duration::from_secs(20), retry_at: Duration::from_secs(20) };
        gate.throttled(permit, &headers, timer.now(), times);
        let expected = if is_capped { 0.1 } else { 1.0 };
        assert_eq!(gate.queue(key, 0.0).0.lane.lock().rate(), Some(expected), "{unit}");
    }
}

/// However many paths are called, limits are named and origins are there, little is remembered.
#[test]
fn what_is_remembered_is_bounded() {
    let (gate, timer) = (Gate::default(), TokioTimer::default());
    for n in 0..5_000 {
        let uri = format!("https://host{n}.example/path{n}/x").parse().unwrap();
        let key = gate.key(&Method::GET, &uri, "");
        gate.budget(key, BudgetSize::default());
        let headers = headers(&format!("\"limit{n}\";r=0;t=5"));
        let permit = gate.try_enter(key, timer.now(), DEADLINE).unwrap();
        let times = ThrottleTimes { hint: Duration::from_secs(5), retry_at: Duration::from_secs(5) };
        gate.throttled(permit, &headers, timer.now(), times);
    }
    let known = gate.known.lock();
    for size in [known.limits.len(), known.lanes.len(), known.budgets.len()] {
        assert!((1..=REMEMBERED_MAX).contains(&size), "{size}");
    }
}

/// Idle lanes and full budgets make room for new ones; closed lanes, spent budgets and all that is in use stay.
#[test]
fn what_matters_is_not_forgotten() {
    let (gate, timer) = (Gate::default(), TokioTimer::default());
    let size = BudgetSize::default();
    let key = |n: usize, path: &str| {
        let uri = format!("https://host{n}.example/{path}").parse().unwrap();
        gate.key(&Method::GET, &uri, "")
    };
    let times = ThrottleTimes { hint: Duration::from_secs(20), retry_at: Duration::from_secs(20) };
    for n in 0..100 {
        for (path, rate_limit) in [("named", Some("\"login\";r=0;t=20")), ("unnamed", None)] {
            let permit = gate.try_enter(key(n, path), timer.now(), DEADLINE).unwrap();
            let headers = rate_limit.map(headers).unwrap_or_default();
            gate.throttled(permit, &headers, timer.now(), times);
        }
        assert!(gate.budget(key(n, ""), size).take(1_000));
    }
    let in_use = (gate.sleeper(key(0, "slow"), timer.now()), gate.budget(key(100, ""), size));

    for n in 1_000..6_000 {
        gate.budget(key(n, "items"), size);
        let permit = gate.try_enter(key(n, "items"), timer.now(), DEADLINE).unwrap();
        gate.accepted(permit, &headers("\"per-user\";r=1;t=5"), timer.now());
    }

    for n in 0..100 {
        for path in ["named", "unnamed"] {
            assert!(gate.try_enter(key(n, path), timer.now(), DEADLINE).is_none(), "host{n}/{path} is open");
        }
        assert_eq!(gate.budget(key(n, ""), size).left(), 49_000, "host{n}");
    }
    assert!(Arc::ptr_eq(&in_use.0.0, &gate.queue(key(0, "slow"), 0.0).0));
    assert!(Arc::ptr_eq(&in_use.1, &gate.budget(key(100, ""), size)));
}

/// The server names one limit for the last two of these.
const PATHS: [&str; 3] = ["/unnamed", "/named/a", "/named/b"];

/// What a server does with an attempt: after `latency`, or never, it sends a status and a body, or fails.
#[derive(Clone, Debug)]
struct Reply {
    latency: Option<u64>,
    status: Option<u16>,
    retry_after: u64,
    is_body_endless: bool,
}

/// A call that is dropped at some time, if it has not ended by then. Times are in milliseconds, on a coarse grid, so that
/// much happens at once.
#[derive(Clone, Debug)]
struct DroppedCall {
    start: u64,
    drop_after: u64,
    path: &'static str,
    replies: Vec<Reply>,
}

fn replies() -> impl Strategy<Value = Reply> {
    let latency = prop_oneof![(1..6_u64).prop_map(|n| Some(50 * n)), Just(None)];
    let status =
        prop_oneof![1 => Just(Some(200)), 4 => Just(Some(429)), 1 => Just(Some(503)), 1 => Just(None)];
    (latency, status, 0..3_u64, any::<bool>()).prop_map(|(latency, status, retry_after, is_body_endless)| {
        Reply { latency, status, retry_after, is_body_endless }
    })
}

fn dropped_calls() -> impl Strategy<Value = Vec<DroppedCall>> {
    let path = prop_oneof![3 => Just(PATHS[0]), 1 => Just(PATHS[1]), 1 => Just(PATHS[2])];
    let start = prop_oneof![Just(0), 0..40_u64];
    let call = (start, 0..200_u64, path, prop::collection::vec(replies(), 4)).prop_map(
        |(start, drop_after, path, replies)| DroppedCall {
            start: 50 * start,
            drop_after: 50 * drop_after,
            path,
            replies,
        },
    );
    prop::collection::vec(call, 1..100)
}

/// A body that ends at once, or never.
struct Body {
    is_endless: bool,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_endless { Poll::Pending } else { Poll::Ready(None) }
    }
}

async fn respond(path: &str, reply: &Reply) -> Result<Response<Body>, std::io::Error> {
    match reply.latency {
        Some(latency) => tokio::time::sleep(Duration::from_millis(latency)).await,
        None => std::future::pending().await,
    }
    let Some(status) = reply.status else { return Err(std::io::ErrorKind::ConnectionReset.into()) };
    let response = Response::builder().status(status).header("retry-after", reply.retry_after);
    let mut response = response.body(Body { is_endless: reply.is_body_endless }).unwrap();
    if path != PATHS[0] {
        response.headers_mut().extend(headers("\"per-user\";r=0;t=1"));
    }
    Ok(response)
}

fn get(path: &str, id: usize) -> RequestInfo {
    let uri = format!("https://api.example.com{path}?{id}").parse().unwrap();
    RequestInfo::new(&Method::GET, &uri, &HeaderMap::new(), BodyKind::None)
}

/// Every wait is cancellable: a call that is dropped in the gate, while its request is sent, while it drains a response or
/// waits for its retry, leaves no waiter, no request in flight and no sleeper. Calls behind it still get their turn.
#[test]
fn a_call_can_be_dropped_at_any_point() {
    let seen = RefCell::new(BTreeMap::new());
    let cases = if is_long_run() { 1_000 } else { 250 };
    let config = ProptestConfig { cases, source_file: Some(file!()), ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&(dropped_calls(), 0..200_u64), |(calls, probe_start)| {
        for state in drop_all(&calls, 50 * probe_start)? {
            *seen.borrow_mut().entry(state).or_insert(0) += 1;
        }
        Ok(())
    });
    result.unwrap();
    for state in ["queued", "sending", "waiting", "draining"] {
        let n = seen.borrow().get(state).copied().unwrap_or(0);
        assert!(n > 100, "{n} calls were dropped while {state}");
    }
}

/// Runs the calls, drops each at its time, and checks what is left. What each was doing when it was dropped.
fn drop_all(calls: &[DroppedCall], probe_start: u64) -> Result<Vec<&'static str>, TestCaseError> {
    let ms = Duration::from_millis;
    let last: Arc<Mutex<HashMap<usize, (u32, EventKind)>>> = Arc::default();
    let to = last.clone();
    let retry = Retry::builder()
        .policy(RetryPolicy { deadline: ms(600_000), ..RetryPolicy::default() })
        .random(|| 0.5)
        .on_event(move |event| {
            let id = event.uri.query().unwrap().parse().unwrap();
            to.lock().insert(id, (event.attempts, event.kind));
        })
        .build();
    let run = async |id: usize, call: &DroppedCall| {
        tokio::time::sleep(ms(call.start)).await;
        let sending =
            retry.send(get(call.path, id), |attempt| respond(call.path, &call.replies[attempt as usize - 1]));
        if tokio::time::timeout(ms(call.drop_after), sending).await.is_ok() {
            return None;
        }
        let (attempts, kind) = *last.lock().get(&id)?;
        match kind {
            EventKind::Queued => Some("queued"),
            EventKind::Sending => Some("sending"),
            EventKind::Waiting { status: Some(_), .. }
                if call.replies[attempts as usize - 1].is_body_endless =>
            {
                Some("draining")
            }
            EventKind::Waiting { .. } => Some("waiting"),
            EventKind::Returned { .. } | EventKind::Failed { .. } => None,
        }
    };
    let probe = async |path, start| {
        tokio::time::sleep(ms(start)).await;
        let ok = |_| std::future::ready(Ok::<_, Infallible>(Response::new(Body { is_endless: false })));
        retry.send(get(path, usize::MAX), ok).await.is_ok()
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (dropped, probes) = runtime.block_on(async {
        let running = calls.iter().enumerate().map(|(id, call)| run(id, call));
        let probes = PATHS.map(|path| probe(path, probe_start));
        let all = futures_util::future::join(
            futures_util::future::join_all(running),
            futures_util::future::join_all(probes),
        );
        tokio::time::timeout(ms(300_000), all).await.unwrap_or_default()
    });
    prop_assert_eq!(probes, [true; 3], "a call that was not dropped got no turn");
    for queue in retry.shared.gate.known.lock().lanes.values() {
        prop_assert_eq!(queue.n_waiting.load(Ordering::Relaxed), 0, "waiters");
        prop_assert_eq!(queue.n_asleep.load(Ordering::Relaxed), 0, "sleepers");
        prop_assert!(queue.lane.lock().is_idle(f64::INFINITY), "requests in flight: {:?}", queue.lane.lock());
        prop_assert_eq!(Arc::strong_count(queue), 1);
    }
    Ok(dropped.into_iter().flatten().collect())
}
