//! The program on a real Redis, by requirement id.

mod keys;
mod topology;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratewright_lab::{Client, Load, Redis, wait_until};

use crate::process::{Answer, Ratewright, run};

/// A program on that server, with these lines in its `store` section.
fn start(server: &Redis, store: &str, rest: &str) -> Ratewright {
    start_off_by(0, server, store, rest)
}

/// The same, under a wall clock that is so many seconds off.
fn start_off_by(seconds: i64, server: &Redis, store: &str, rest: &str) -> Ratewright {
    let url = server.url();
    let config =
        format!("store:\n  redis: {{url: '{url}', deadline: 10s, prefix: rate_limiter}}\n  {store}\n{rest}");
    let ratewright =
        if seconds == 0 { Ratewright::start(&config) } else { Ratewright::start_off_by(seconds, &config) };
    ratewright.wait_for_redis();
    ratewright
}

fn basis(ratewright: &Ratewright, key: &str) -> String {
    let answer = ratewright.get(&format!("remaining?key={key}"));
    answer.json()["basis"].as_str().unwrap().to_owned()
}

const SLOW: &str = "api: {defaults: {token_bucket: {rate: 1/h, burst: 10}}}\n";

#[test]
fn c5_keys_are_prefix_algorithm_and_key() {
    let server = Redis::start();
    let ratewright = start(&server, "", SLOW);
    assert_eq!(ratewright.get("check?key=user:123").json()["basis"], "shared");
    assert_eq!(ratewright.get("check?key=user:123&algorithm=SLIDING_WINDOW").status, 200);
    let keys = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<_> = keys.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["rate_limiter:sliding_window:user:123", "rate_limiter:token_bucket:user:123"]);
    assert!(ratewright.banner.contains(&format!("buckets in Redis at 127.0.0.1:{}", server.port())));
}

#[test]
fn c12_instances_share_buckets_and_a_crash_loses_none() {
    let server = Redis::start();
    let (first, second) = (start(&server, "", SLOW), start(&server, "", SLOW));
    assert_eq!(first.get("check?key=c&permits=4").json()["remaining"], 6);
    assert_eq!(second.get("check?key=c&permits=3").json()["remaining"], 3);
    first.stop("KILL");
    assert_eq!(second.get("check?key=c").json()["remaining"], 2);
    assert_eq!(start(&server, "", SLOW).get("check?key=c").json()["remaining"], 1);
}

#[test]
fn c7_the_response_has_the_basis_without_redis() {
    for (on_failure, basis, statuses) in [
        ("local", "local", [200, 200, 200, 200, 200, 429]),
        ("open", "fail_open", [200; 6]),
        ("closed", "fail_closed", [429; 6]),
    ] {
        let mut server = Redis::start();
        let ratewright = start(&server, &format!("on_failure: {on_failure}"), SLOW);
        server.kill();
        wait_until("it decides without Redis", || self::basis(&ratewright, "warm") == basis);
        let answers: Vec<_> = (0..6).map(|_| ratewright.get("check?key=c")).collect();
        assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), statuses, "{on_failure}");
        assert!(answers.iter().all(|answer| answer.json()["basis"] == basis));
        let denied = answers.iter().filter(|answer| answer.status == 429);
        assert!(denied.clone().all(|answer| answer.headers["retry-after"] != "0"));
        if on_failure == "closed" {
            assert_eq!(answers[0].json()["message"], "Rate limits cannot be checked");
            assert_eq!(answers[0].headers["retry-after"], "1");
        }
    }
}

/// A8: without Redis, responses show the share. A request above the share may pass later; one above the whole quota gets 400.
#[test]
fn a8_without_redis_responses_show_the_share() {
    let mut server = Redis::start();
    let ratewright = start(&server, "local: {share: 0.5}", SLOW);
    assert_eq!(ratewright.get("check?key=c").headers["x-ratelimit-limit"], "10");
    server.kill();
    wait_until("it decides without Redis", || basis(&ratewright, "warm") == "local");
    let allowed = ratewright.get("check?key=c&permits=2");
    let shown = |answer: &Answer, name: &str| answer.headers[name].clone();
    assert_eq!([shown(&allowed, "x-ratelimit-limit"), shown(&allowed, "x-ratelimit-remaining")], ["5", "3"]);
    assert!(shown(&allowed, "ratelimit-policy").contains(";q=5;"), "{allowed:?}");
    let denied = ratewright.get("check?key=c&permits=6");
    assert_eq!((denied.status, &*shown(&denied, "retry-after")), (429, "1"), "{denied:?}");
    let impossible = ratewright.get("check?key=c&permits=11");
    assert_eq!(impossible.status, 400, "{impossible:?}");
    assert!(impossible.body.contains("never has more than 10; use 1 to 10"), "{impossible:?}");
}

/// A8, C10: one WARN at the switch with its cause, silence, one INFO at the return.
#[test]
#[expect(clippy::disallowed_methods, reason = "the program is calm after a second of real time")]
fn a8_an_outage_logs_one_warning_and_one_recovery() {
    let mut server = Redis::start();
    let ratewright = start(&server, "", SLOW);
    server.kill();
    wait_until("it decides without Redis", || basis(&ratewright, "c") == "local");
    for _ in 0..50 {
        assert_eq!(ratewright.get("check?key=d").json()["basis"], "local");
    }
    server.run();
    wait_until("it decides by Redis", || basis(&ratewright, "c") == "shared");
    let calm = Instant::now();
    wait_until("a second is over", || {
        assert_eq!(basis(&ratewright, "c"), "shared");
        calm.elapsed() > Duration::from_millis(1_200)
    });
    let log: Vec<_> = ratewright
        .log()
        .into_iter()
        .filter(|line| !line.contains("denied") && !line.contains("stopping"))
        .collect();
    let [warning, info] = &log[..] else { panic!("expected one warning and one recovery: {log:#?}") };
    let address = format!("127.0.0.1:{}", server.port());
    assert!(warning.contains("WARN") && warning.contains("deciding without Redis"), "{warning}");
    assert!(warning.contains(&address), "{warning}");
    assert!(info.contains("INFO") && info.contains("deciding with Redis again"), "{info}");
    assert!(info.contains("\"decisions\":"), "{info}");
}

/// C9: whether Redis answers within 5 ms can be read off.
#[test]
fn c8_the_traffic_with_redis_is_in_the_metrics() {
    let mut server = Redis::start();
    let ratewright = start(&server, "", SLOW);
    let n_calls = ratewright.metric("ratewright_store_call_seconds_count");
    ratewright.get("check?key=c");
    assert!(ratewright.metric("ratewright_store_call_seconds_count") > n_calls);
    assert!(ratewright.metric("ratewright_store_call_seconds_sum") > 0.0);
    assert!(ratewright.metric("ratewright_store_call_seconds_bucket{le=\"1.0\"}") > n_calls);
    ratewright.metric("ratewright_store_call_seconds_bucket{le=\"0.005\"}");
    for kind in ["queue_full", "timed_out", "lost", "refused", "bad_reply"] {
        assert_eq!(ratewright.metric(&format!("ratewright_store_failures_total{{kind=\"{kind}\"}}")), 0.0);
    }
    assert_eq!(ratewright.metric("ratewright_store_outages_total"), 0.0);
    let unreachable = "ratewright_store_failures_total{kind=\"unreachable\"}";
    let at_start = ratewright.metric(unreachable);
    server.kill();
    wait_until("it decides without Redis", || basis(&ratewright, "c") == "local");
    wait_until("nobody waits for Redis", || {
        basis(&ratewright, "c");
        ratewright.metric(unreachable) > at_start
    });
    assert_eq!(ratewright.metric("ratewright_store_outages_total"), 1.0);
}

/// C10: allowed decisions at DEBUG, with the key.
#[test]
fn c10_decisions_are_logged_at_debug() {
    let server = Redis::start();
    let ratewright = start(&server, "", "log: {level: debug}\n");
    ratewright.get("check?key=user:123");
    let log = ratewright.log();
    let line = log.iter().find(|line| line.contains("user:123")).unwrap();
    assert!(line.contains("DEBUG") && line.contains("allowed") && line.contains("token_bucket"), "{line}");
}

#[test]
fn the_program_starts_without_redis_and_connects_later() {
    let mut server = Redis::start();
    server.kill();
    let url = server.url();
    let ratewright = Ratewright::start(&format!("store: {{redis: {{url: '{url}', deadline: 10s}}}}\n{SLOW}"));
    assert_eq!(ratewright.get("check?key=c").json()["basis"], "local");
    server.run();
    wait_until("it decides by Redis", || basis(&ratewright, "c") == "shared");
}

#[test]
fn invalid_store_settings_are_reported_with_their_position() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "store:\n  redis:\n    url: redis://user:s3cret@:x\n    deadline: soon\n    prefix: 'a b'\n  local: {share: 2, max_keys: 0, ttl: 1 fortnight}\n",
    )
    .unwrap();
    let output = run(&["serve", "-c", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.contains("s3cret"), "{errors}");
    for expected_error in [
        ":3:10: store.redis.url: address 1 is invalid",
        ":4:15: store.redis.deadline is \"soon\"; use a whole number and us, ms, s, min, h or d: 5ms, 60s",
        ":5:13: store.redis.prefix is \"a b\"; use 1 to 64 visible characters without spaces and braces",
        ":6:18: store.local.share is \"2\"; use a decimal above 0 and up to 1 such as 0.5, or `auto`",
        ":6:31: store.local.max_keys is \"0\"; use a whole number from 1 to 4294967295",
        ":6:39: store.local.ttl is \"1 fortnight\"",
    ] {
        assert!(errors.contains(expected_error), "{expected_error}\n{errors}");
    }
    std::fs::write(file.path(), "store: {redis: {url: 'redis://:${NO_SUCH_VARIABLE}@127.0.0.1'}}\n").unwrap();
    let output = run(&["serve", "-c", file.path().to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("the environment has no variable NO_SUCH_VARIABLE"), "{errors}");
}

/// C9: four instances whose clocks are far apart, far more load than the limit allows. What passes is the limit,
/// exactly at most, and to one per cent at least.
#[test]
fn c9_four_instances_admit_as_much_as_one() {
    let server = Redis::start();
    let limits = "api: {defaults: {token_bucket: {rate: 100/s, burst: 1000}}}\n";
    let instances = [0, 0, 3_600, -86_400];
    let instances = instances.map(|off_by| start_off_by(off_by, &server, "on_failure: closed", limits));
    let [n_admitted, n_denied] = [(); 2].map(|()| AtomicU64::new(0));
    let before = server.now();
    #[expect(clippy::disallowed_methods, reason = "a test's own setting: longer under `make chaos`")]
    let seconds = std::env::var("CHAOS_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let (from, until) = std::thread::scope(|scope| {
        let load = Load::default();
        for instance in instances.iter().chain(&instances) {
            let (goes_on, n_admitted, n_denied) = (load.goes_on(), &n_admitted, &n_denied);
            scope.spawn(move || {
                let mut client = Client::connect(&instance.address);
                while goes_on() {
                    let (status, body) = client.get("/api/v1/rate-limit/check?key=hot").unwrap();
                    assert!(body.contains("\"basis\":\"shared\""), "{body}");
                    if status == 200 { n_admitted } else { n_denied }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("it is under way", || n_admitted.load(Ordering::Relaxed) > 0);
        let from = server.now();
        let mut until = from;
        wait_until("the time is over, and what has come back is spent too", || {
            until = server.now();
            until - from > seconds.unwrap_or(3) * 1_000_000 && n_admitted.load(Ordering::Relaxed) >= 1_200
        });
        // Eight clients: one of nine denials was asked for after that, so all that came back before it is spent.
        let so_far = n_denied.load(Ordering::Relaxed);
        wait_until("the bucket is empty", || n_denied.load(Ordering::Relaxed) > so_far + 8);
        (from, until)
    });
    let after = server.now();
    let n_admitted = n_admitted.load(Ordering::Relaxed);
    let (most, least) =
        (1_000 + (after - before) * 100 / 1_000_000, 1_000 + (until - from) * 100 / 1_000_000);
    assert!(n_admitted <= most, "{n_admitted} admitted, at most {most}");
    assert!(n_admitted * 100 >= least * 99, "{n_admitted} admitted of {least}");
}
