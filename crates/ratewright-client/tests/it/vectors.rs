//! The cases of clients/vectors, which the TypeScript client passes too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ratewright_client::lane::{Lane, Throttle, Turn};
use ratewright_client::retry_decision::{
    BodyKind, CallState, Cause, Failure, NextStep, Now, Repeat, RequestKind, Seen, WaitSource, decide,
};
use ratewright_client::{Backoff, RetryPolicy, Why};
use ratewright_lab::{output, without_settings};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors")
}

fn cases(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn ms(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap())
}

fn policy(given: &Value) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    for (name, value) in given.as_object().into_iter().flatten() {
        let backoff = || Backoff { first: ms(&value["firstMs"]), max: ms(&value["maxMs"]) };
        match name.as_str() {
            "attempts" => policy.attempts = u32::try_from(value.as_u64().unwrap()).unwrap(),
            "deadlineMs" => policy.deadline = ms(value),
            "serverWaitMaxMs" => policy.server_wait_max = ms(value),
            "failureBackoff" => policy.failure_backoff = backoff(),
            "throttleBackoff" => policy.throttle_backoff = backoff(),
            "spread" => policy.spread = backoff(),
            "replayMax" => policy.replay_max = usize::try_from(value.as_u64().unwrap()).unwrap(),
            "trust429" => policy.trust_429 = value.as_bool().unwrap(),
            other => panic!("the policy of a case has an unknown member {other}"),
        }
    }
    policy
}

fn request(given: &Value) -> RequestKind {
    let body = match (given["body"].as_str(), given["body"]["bytes"].as_u64()) {
        (None | Some("none"), None) => BodyKind::None,
        (None, Some(length)) => BodyKind::Bytes(usize::try_from(length).unwrap()),
        (Some("factory"), _) => BodyKind::Factory,
        (Some("stream"), _) => BodyKind::Stream,
        (other, _) => panic!("unknown {other:?}"),
    };
    let repeat = match given["repeat"].as_str().unwrap_or("auto") {
        "auto" => Repeat::Auto,
        "safe" => Repeat::Safe,
        "unprocessed" => Repeat::OnlyIfUnprocessed,
        "never" => Repeat::Never,
        other => panic!("unknown {other}"),
    };
    let method = given["method"].as_str().unwrap_or("GET").parse().unwrap();
    let has_idempotency_key = given["idempotencyKey"].as_bool().unwrap_or(false);
    RequestKind { method, has_idempotency_key, body, repeat }
}

/// Text of a case as bytes on the wire, which are Latin 1.
fn latin1(text: &str) -> HeaderValue {
    let bytes: Vec<u8> = text.chars().map(|char| u8::try_from(u32::from(char)).unwrap()).collect();
    HeaderValue::from_bytes(&bytes).unwrap()
}

fn headers(given: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for header in given.as_array().into_iter().flatten() {
        let name: HeaderName = header[0].as_str().unwrap().parse().unwrap();
        headers.append(name, latin1(header[1].as_str().unwrap()));
    }
    headers
}

fn outcome(step: NextStep) -> Value {
    match step {
        NextStep::Return { why, retry_at } => {
            let why = match why {
                Why::Done => "done",
                Why::Never => "never",
                Why::Attempts => "attempts",
                Why::Unsafe => "unsafe",
                Why::Body => "body",
                Why::ServerWait => "server-wait",
                Why::Deadline => "deadline",
                Why::Budget => "budget",
                _ => panic!("{why:?} has no name in the vectors"),
            };
            let mut out = json!({ "why": why });
            if let Some(at) = retry_at {
                let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
                out["retryAtWallMs"] = json!(u64::try_from(at).unwrap());
            }
            json!({ "return": out })
        }
        NextStep::Retry { at, cause, cost } => {
            let cause = match cause {
                Cause::Server(WaitSource::RetryAfter) => "retry-after",
                Cause::Server(WaitSource::RateLimit) => "ratelimit",
                Cause::Server(WaitSource::RateLimitReset) => "ratelimit-reset",
                Cause::Server(WaitSource::XRateLimitReset) => "x-ratelimit-reset",
                Cause::Throttled => "throttled",
                Cause::ServerError => "server-error",
                Cause::Connection => "connection",
                Cause::Server(_) | _ => panic!("{cause:?} has no name in the vectors"),
            };
            let at = u64::try_from(at.as_millis()).unwrap();
            json!({ "retry": { "atMs": at, "cause": cause, "cost": cost } })
        }
    }
}

fn decided(case: &Value) -> Value {
    let headers = headers(&case["seen"]["headers"]);
    let seen = match case["seen"]["failure"].as_str() {
        Some("not-sent") => Seen::Failure(Failure::NotSent),
        Some(_) => Seen::Failure(Failure::Unknown),
        None => {
            let status = u16::try_from(case["seen"]["status"].as_u64().unwrap()).unwrap();
            Seen::Response(StatusCode::from_u16(status).unwrap(), &headers)
        }
    };
    let request = request(&case["request"]);
    let state = CallState {
        request: &request,
        attempts: u32::try_from(case["state"]["attempts"].as_u64().unwrap_or(1)).unwrap(),
        budget: case["state"]["budget"].as_u64().unwrap_or(50_000),
    };
    let wall = SystemTime::UNIX_EPOCH + ms(&case["now"]["wallMs"]);
    let now = Now { elapsed: ms(&case["now"]["elapsedMs"]), wall };
    outcome(decide(&policy(&case["policy"]), state, seen, now, case["random"].as_f64().unwrap()))
}

/// E3: what a client does after each response is what the vectors say.
#[test]
fn e3_decisions_are_those_of_the_vectors() {
    let mut n_cases = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".json") || name == "gate.json" {
            continue;
        }
        for case in cases(&name) {
            assert_eq!(decided(&case), case["expect"], "{name}: {case:#}");
            n_cases += 1;
        }
    }
    assert!(n_cases >= 300, "only {n_cases} cases");
}

/// E3: a lane paces requests as the vectors say.
#[test]
fn e3_lanes_are_those_of_the_vectors() {
    for case in cases("gate.json") {
        let mut lane = Lane::default();
        for step in case["steps"].as_array().unwrap() {
            let now = step["at"].as_f64().unwrap();
            if let Some(limit) = step.get("learn") {
                lane.learn(limit["q"].as_u64().unwrap(), limit["w"].as_u64().unwrap());
            } else if let Some(expected) = step.get("enter") {
                let turn = match lane.enter(now, true) {
                    Turn::Go => json!("go"),
                    Turn::Full => json!("full"),
                    Turn::Until(at) => json!({ "until": format!("{}", at.ceil()).parse::<u64>().unwrap() }),
                };
                assert_eq!(turn, *expected, "{}: {step}", case["name"]);
            } else if let Some(given) = step.get("throttled") {
                let value = |name: &str| given[name].as_f64().unwrap();
                let (sent_at, hint, retry_at) = (value("sentAt"), value("hint"), value("retryAt"));
                lane.throttled(now, Throttle { sent_at, hint, retry_at });
            } else if step.get("accepted").is_some() {
                lane.accepted(now);
            } else {
                lane.failed();
            }
            if let Some(rate) = step["rate"].as_f64() {
                let is = lane.rate().unwrap();
                assert!((is - rate).abs() <= rate / 1e6, "{}: {step}: the rate is {is}", case["name"]);
            }
        }
    }
}

/// The files are what make.py writes, so that nobody edits an expectation by hand.
#[test]
fn the_vectors_are_those_of_their_program() {
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(folder().join("make.py"), copy.path().join("make.py")).unwrap();
    let made = output(without_settings(Command::new("python3").arg("make.py").current_dir(copy.path())));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut n_files = 0;
    for entry in std::fs::read_dir(copy.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let read = |folder: &Path| std::fs::read_to_string(folder.join(&name)).unwrap();
        assert!(read(copy.path()) == read(&folder()), "{name} differs: run python3 clients/vectors/make.py");
        n_files += 1;
    }
    assert_eq!(n_files, 12);
}
