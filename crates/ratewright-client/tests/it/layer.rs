//! The layer around services that are not always ready, on a stopped clock.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ratewright_client::call::ReplayBody;
use ratewright_client::{Backoff, EventKind, Retry, RetryLayer, RetryPolicy, RetrySummary, Why};
use tokio::time::Instant;
use tower::limit::ConcurrencyLimit;
use tower::{Service, ServiceExt};
use tower_layer::Layer;

use crate::script::{Reply, recorded, respond, secs, settle, status, with};

/// A service that gives the same reply to all requests, while it is ready.
#[derive(Clone)]
struct Stub {
    reply: Reply,
    readiness: Arc<Readiness>,
}

#[derive(Default)]
struct Readiness {
    is_busy: AtomicBool,
    is_broken: AtomicBool,
}

impl Stub {
    fn new(reply: Reply) -> Self {
        Self { reply, readiness: Arc::default() }
    }
}

impl Service<Request<ReplayBody<Full<Bytes>>>> for Stub {
    type Response = Response<String>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Response<String>>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.readiness.is_broken.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.readiness.is_busy.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, _request: Request<ReplayBody<Full<Bytes>>>) -> Self::Future {
        std::future::ready(respond(&self.reply))
    }
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://a.example{path}")).body(Full::default()).unwrap()
}

/// A policy whose failures are retried after one second, with chance 0.5.
fn slow() -> RetryPolicy {
    let failure_backoff = Backoff { first: secs(2), max: secs(2) };
    RetryPolicy::default().deadline(secs(20)).failure_backoff(failure_backoff)
}

/// A request that waits in the gate holds nothing of the client below: others may use it.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_readiness() {
    let stub = tower::service_fn(|request: Request<ReplayBody<Full<Bytes>>>| {
        let is_login = request.uri().path() == "/login";
        let response =
            Response::builder().status(if is_login { 429 } else { 200 }).header("retry-after", "20");
        std::future::ready(Ok::<_, Infallible>(response.body(Full::new(Bytes::new())).unwrap()))
    });
    let one_at_a_time = tower::limit::ConcurrencyLimit::new(stub, 1);
    let service = RetryLayer::new(Retry::new()).layer(one_at_a_time);
    let get = |path: &str| {
        let request = Request::get(format!("http://a.example{path}")).body(Full::new(Bytes::new())).unwrap();
        service.clone().oneshot(request)
    };
    let logins: Vec<_> = (0..3).map(|_| tokio::spawn(get("/login"))).collect();
    settle().await;
    let start = Instant::now();
    assert_eq!(get("/items").await.unwrap().status(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    logins.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A service that is not ready by the deadline gets nothing after it, and the call fails at its deadline.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_gets_nothing_after_the_deadline() {
    let stub = Stub::new(status(500));
    let (builder, events) = recorded(Retry::builder().policy(slow()).random(|| 0.5));
    let service = RetryLayer::new(builder.build()).layer(stub.clone());
    let start = Instant::now();
    let call = tokio::spawn(service.oneshot(get("/items")));
    settle().await;
    stub.readiness.is_busy.store(true, Ordering::Relaxed);
    let error = tokio::time::timeout(secs(60), call).await.unwrap().unwrap().unwrap_err();
    assert_eq!(start.elapsed(), secs(20));
    assert_eq!(
        error.to_string(),
        "deadline of 20s passed before the inner service was ready (attempts: 1); raise it, or send less"
    );
    assert_eq!(RetrySummary::of(&error).map(|end| (end.attempts, end.why)), Some((1, Why::Deadline)));
    let events = events.lock().unwrap();
    assert_eq!(events.iter().filter(|event| **event == EventKind::Sending).count(), 1);
    assert_eq!(events.last(), Some(&EventKind::Failed { why: Why::Deadline }));
}

/// Retries that wait for readiness do not fill their lane, which has room for ten requests in flight after a throttle.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_readiness_does_not_fill_its_lane() {
    let failing = Stub::new(Reply::Error(io::ErrorKind::ConnectionReset));
    let retry = Retry::builder().policy(slow()).random(|| 0.5).build();
    let send = |stub: &Stub| RetryLayer::new(retry.clone()).layer(stub.clone()).oneshot(get("/items"));
    let throttled = send(&Stub::new(with(429, &[("retry-after", "1")])));
    tokio::time::timeout(secs(1), throttled).await.unwrap_err();
    let calls: Vec<_> = (0..12).map(|_| tokio::spawn(send(&failing))).collect();
    tokio::time::sleep(secs(4)).await; // the lane opens, and lets them through
    failing.readiness.is_busy.store(true, Ordering::Relaxed);
    tokio::time::sleep(secs(2)).await;
    assert!(calls.iter().all(|call| !call.is_finished()));
    let start = Instant::now();
    assert_eq!(send(&Stub::new(status(200))).await.unwrap().status(), 200);
    assert!(start.elapsed() < secs(1), "it waited {:?}", start.elapsed());
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A request that has its turn, and then waits until the service is ready, loses it if the lane is closed meanwhile.
#[tokio::test(start_paused = true)]
async fn a_throttle_while_a_request_waits_for_readiness_holds_it_back() {
    let start = Instant::now();
    let sent_at = Arc::new(Mutex::new(Vec::new()));
    let log = sent_at.clone();
    let stub = tower::service_fn(move |_request: Request<ReplayBody<Full<Bytes>>>| {
        let mut log = log.lock().unwrap();
        log.push(start.elapsed());
        let n_sends = log.len();
        async move {
            let reply = match n_sends {
                1 => with(429, &[("retry-after", "1")]),
                2 => {
                    tokio::time::sleep(secs(3)).await;
                    with(429, &[("retry-after", "5")])
                }
                _ => status(200),
            };
            respond(&reply)
        }
    });
    let retry = Retry::builder().random(|| 0.0).build();
    let service = RetryLayer::new(retry).layer(ConcurrencyLimit::new(stub, 1));
    let calls = (0..3).map(|_| service.clone().oneshot(get("/items")));
    let ends = futures_util::future::join_all(calls).await;
    assert!(ends.iter().all(|end| end.as_ref().unwrap().status() == 200));
    let sent_at = sent_at.lock().unwrap();
    assert_eq!(sent_at[..2], [Duration::ZERO, secs(1)]);
    assert!(sent_at[2..].iter().all(|at| *at >= secs(9)), "the second throttle is at 4 s: {sent_at:?}");
}

/// A service that breaks ends the call with its error, and with an event.
#[tokio::test(start_paused = true)]
async fn a_service_that_breaks_ends_the_call_with_failed() {
    let stub = Stub::new(status(500));
    let (builder, events) = recorded(Retry::builder().policy(slow()).random(|| 0.5));
    let service = RetryLayer::new(builder.build()).layer(stub.clone());
    let call = tokio::spawn(service.oneshot(get("/items")));
    settle().await;
    stub.readiness.is_broken.store(true, Ordering::Relaxed);
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(events.lock().unwrap().last(), Some(&EventKind::Failed { why: Why::Done }));
}
