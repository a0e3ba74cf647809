//! A call through the retry layer, beside the same client without it.
//!
//! The client within answers from memory, so all that is measured is the layer: the copy of the request's head, the gate,
//! the decision, the budget. Responses carry rate limit fields, as ours do.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::process::Command;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use ratewright_client::{Retry, RetryLayer};
use tower_layer::Layer;
use tower_service::Service;

use crate::rounds::{in_turn, report, thread_cpu_nanos};

const CALLS: u32 = 50_000;
/// The most that the layer may add to a call, in nanoseconds.
const ADDED_MAX: f64 = 1_000.0;

/// A client whose server is always there.
#[derive(Clone)]
struct Stub;

impl<B> Service<Request<B>> for Stub {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        std::hint::black_box(&request);
        let mut response = Response::new(Full::new(Bytes::from_static(b"ok")));
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        headers.insert("ratelimit-policy", HeaderValue::from_static("\"per-user\";q=100;w=60"));
        headers.insert("ratelimit", HeaderValue::from_static("\"per-user\";r=99;t=1"));
        ready(Ok(response))
    }
}

fn request() -> Request<Full<Bytes>> {
    Request::get("https://api.example.com/v1/items/17?full=1")
        .header("accept", "application/json")
        .header("authorization", "Bearer 0123456789abcdef")
        .header("user-agent", "bench/1")
        .body(Full::new(Bytes::new()))
        .expect("the request is well-formed")
}

/// Plays so many calls, with the layer or without.
pub(crate) fn play(is_ours: bool, calls: u32) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(async {
        if is_ours {
            // The stub is always ready, so nobody asks it.
            let mut service = RetryLayer::new(Retry::new()).layer(Stub);
            for _ in 0..calls {
                std::hint::black_box(service.call(request()).await).expect("the stub answers");
            }
        } else {
            let mut service = Stub;
            for _ in 0..calls {
                std::hint::black_box(service.call(request()).await).expect("the stub answers");
            }
        }
    });
}

/// Instructions of a call, counted by callgrind; nothing if it is not installed.
fn instructions(side: &str) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let total = |calls: u32| -> Option<f64> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&program);
        let output = command.args(["client-play", side, &calls.to_string()]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
    };
    Some((total(12_000)? - total(2_000)?) / 10_000.0)
}

pub(crate) fn run() -> Result<(), String> {
    let measure = |is_ours: &bool| {
        let start = thread_cpu_nanos();
        play(*is_ours, CALLS);
        [(thread_cpu_nanos() - start) / f64::from(CALLS)]
    };
    let figures = in_turn(&[true, false], 9, measure);
    let (ours, peer) = (figures[0][0], figures[1][0]);
    match (instructions("ours"), instructions("peer")) {
        (Some(ours), Some(peer)) => {
            println!("instructions a call: {ours:.0} with the layer, {peer:.0} without")
        }
        _ => println!("instructions are not counted: valgrind is not installed"),
    }
    println!("the layer adds {:.0} ns to a call", ours - peer);
    report("client", ours, peer);
    if ours - peer >= ADDED_MAX {
        Err(format!("the layer adds {ADDED_MAX} ns or more to a call"))
    } else {
        Ok(())
    }
}
