//! Digests of long and secret values in Redis keys, and `ratewright key`, which prints them.

use std::collections::BTreeSet;

use ratewright_lab::{PATIENCE, Redis};
use serde_json::json;

use super::{SLOW, start};
use crate::process::{command, output_for, run};

/// What `ratewright key` prints for a value.
fn printed(value: &str) -> String {
    let output = run(&["key", value]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let text = String::from_utf8(output.stdout).unwrap();
    text.strip_suffix('\n').unwrap().to_owned()
}

/// The same, where the value comes from standard input.
fn printed_from_input(value: &str) -> String {
    let output = output_for(&mut command(&["key", "-"]), value, PATIENCE);
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
}

fn keys(server: &Redis) -> BTreeSet<String> {
    server.cli(&["KEYS", "rate_limiter:*"]).lines().map(str::to_owned).collect()
}

/// C5: up to 64 bytes an ad hoc key stands as it is, and above as its digest; each has its own bucket.
#[test]
fn c5_an_ad_hoc_key_over_64_bytes_is_stored_as_the_digest_that_the_command_prints() {
    let server = Redis::start();
    let ratewright = start(&server, "", SLOW);
    let [longest, longer, other] = ["k".repeat(64), "k".repeat(65), "k".repeat(1_024)];
    // Bytes count, and not letters: 22 of three bytes each are 66, written as 198.
    let (wide, encoded) = ("日".repeat(22), "%E6%97%A5".repeat(22));
    for key in [&longest, &longer, &other, &encoded] {
        for left in [9, 8] {
            let answer = ratewright.get(&format!("check?key={key}"));
            assert_eq!(answer.json()["basis"], "shared");
            assert_eq!(answer.json()["remaining"], left, "{key} has a bucket of its own");
        }
    }
    let digests = [&longer, &other, &wide].map(|value| printed(value));
    let mut expected: BTreeSet<_> =
        digests.iter().map(|digest| format!("rate_limiter:token_bucket:{digest}")).collect();
    expected.insert(format!("rate_limiter:token_bucket:{longest}"));
    assert_eq!(keys(&server), expected);
    assert!(digests.iter().all(|digest| digest.starts_with('#') && digest.len() == 33), "{digests:?}");
}

/// A secret is found in Redis by its digest, and nowhere as it is.
#[test]
fn a_secret_is_stored_as_the_digest_that_the_command_prints() {
    let server = Redis::start();
    let policies = "policies:\n\
        - {name: key, by: 'header:X-Api-Key', quota: {rate: 10/d}}\n\
        - {name: session, by: 'cookie:session_token', quota: {rate: 10/d}}\n\
        - {name: access, by: ['query:access_token', ip], quota: {rate: 10/d}}\n\
        - {name: page, by: 'query:page', quota: {rate: 10/d}}\n";
    let ratewright = start(&server, "", policies);
    let answer = ratewright.decide(&json!({
        "ip": "192.0.2.1",
        "path": "/?access_token=s3cret&page=12",
        "headers": {"X-Api-Key": "k-123", "Cookie": "session_token=very-secret"},
    }));
    assert_eq!((answer.status, answer.json()["basis"].as_str()), (200, Some("shared")));
    let expected = [
        format!("rate_limiter:access:{}|192.0.2.1", printed("s3cret")),
        format!("rate_limiter:key:{}", printed("k-123")),
        "rate_limiter:page:12".to_owned(),
        format!("rate_limiter:session:{}", printed("very-secret")),
    ];
    assert_eq!(keys(&server), BTreeSet::from(expected));
    assert_eq!(printed_from_input("k-123"), printed("k-123"));
    assert_ne!(printed_from_input("k-123\n"), printed("k-123"), "a trailing newline is part of the value");
    // As the help and docs/guides/redis.md say.
    let pattern = format!("rate_limiter:key*:*{}*", printed("k-123"));
    assert_eq!(
        server.cli(&["--scan", "--pattern", &pattern]),
        format!("rate_limiter:key:{}", printed("k-123"))
    );
}
