//! Requests to each example, with a real Redis.

use std::collections::BTreeMap;

use jsonwebtoken::{EncodingKey, Header, encode};
use ratewright_lab::{Redis, wait_until};
use serde_json::{Value, json};

use super::folder;
use crate::process::{Answer, Ratewright};

const SECRET: &str = "a secret for tests, long enough for HS256";

/// An example on free ports, with a Redis of its own.
fn start(name: &str, profile: Option<&str>) -> (Ratewright, Redis) {
    let redis = Redis::start();
    let text = std::fs::read_to_string(folder().join(name)).unwrap();
    // The limit is what is looked at here, not how fast Redis answers on a busy machine.
    let text =
        text.replace("    deadline: 5ms ", "    #").replace("  redis:\n", "  redis:\n    deadline: 10s\n");
    let over = profile.map(|profile| {
        let name = name.replace(".yaml", &format!(".{profile}.yaml"));
        (profile, std::fs::read_to_string(folder().join(name)).unwrap())
    });
    let over = over.as_ref().map(|(profile, text)| (*profile, text.as_str()));
    let ratewright =
        Ratewright::start_profile(&text, over, &[("REDIS_URL", &redis.url()), ("JWT_SECRET", SECRET)]);
    wait_until("it decides by Redis", || {
        let basis = ratewright.get("remaining?key=warm").json()["basis"].clone();
        basis == "shared" || basis == "off"
    });
    (ratewright, redis)
}

/// Asks about that path so many times, and counts the answers by status.
fn statuses(ratewright: &Ratewright, n: usize, attributes: &Value) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..n {
        *counts.entry(ratewright.decide(attributes).status).or_default() += 1;
    }
    counts
}

fn from(ip: &str, path: &str) -> Value {
    json!({ "ip": ip, "method": "POST", "path": path })
}

fn token(user: &str) -> String {
    let claims = json!({ "sub": user, "exp": 4_000_000_000_u64 });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

#[track_caller]
fn assert_denied(answer: &Answer, policy: &str) {
    assert_eq!(answer.status, 429, "{}", answer.body);
    assert_eq!(answer.json()["limitType"], policy);
    assert!(answer.headers["retry-after"].parse::<u64>().unwrap() >= 1);
}

/// A1, A6, A7: a full bucket, the rate as the limit, and the problem of the document.
#[test]
fn a1_a6_a7_the_gateway_example_limits_each_client() {
    let (ratewright, _redis) = start("gateway.yaml", None);
    let first = ratewright.decide(&from("192.0.2.1", "/api/reports/today"));
    assert_eq!((first.status, first.headers["x-ratelimit-remaining"].as_str()), (200, "14"));
    assert_eq!(first.headers["x-ratelimit-limit"], "10", "the rate as written");
    let denied = (0..2_000).map(|_| ratewright.decide(&from("192.0.2.1", "/api/reports/today")));
    let denied = denied.into_iter().find(|answer| answer.status == 429).expect("it runs dry");
    assert_denied(&denied, "reports");
    assert_eq!(denied.json()["type"], "https://api.gateway/errors/rate-limit-exceeded");
    assert_eq!(ratewright.decide(&from("192.0.2.2", "/api/reports/today")).status, 200, "another client");
    assert_eq!(
        ratewright.decide(&from("192.0.2.1", "/api/other")).json()["limits"],
        json!([]),
        "A10: no policy, no limit"
    );
}

/// B2, B3, B8: fifteen logins at once: ten pass, five do not. The kind follows from the path, for every method.
#[test]
fn b2_b3_b8_the_endpoints_example_limits_by_path() {
    let (ratewright, _redis) = start("endpoints.yaml", None);
    let login = from("192.0.2.1", "/api/v1/auth/login");
    assert_eq!(statuses(&ratewright, 15, &login), BTreeMap::from([(200, 10), (429, 5)]));
    let denied = ratewright.decide(&login);
    assert_denied(&denied, "login");
    assert_eq!(
        (denied.headers["retry-after"].as_str(), denied.headers["x-ratelimit-remaining"].as_str()),
        ("60", "0")
    );
    let recovery = from("192.0.2.1", "/api/v1/password/forgot");
    assert_eq!(statuses(&ratewright, 6, &recovery), BTreeMap::from([(200, 5), (429, 1)]));
    assert_eq!(ratewright.decide(&recovery).headers["retry-after"], "300");
    let kind = |path: &str| ratewright.decide(&from("192.0.2.9", path)).json()["limits"][0]["policy"].clone();
    assert_eq!(
        ["/signin", "/x/reset/y", "/api/payments/1", "/api/orders"].map(kind),
        ["login", "recovery", "payment", "default"].map(Value::from)
    );
    for exempt in ["/actuator/x", "/healthz", "/metrics", "/static/a", "/css/a", "/js/a", "/images/a"] {
        assert_eq!(ratewright.decide(&from("192.0.2.1", exempt)).json()["basis"], "none", "B4: {exempt}");
    }
    let user = json!({ "ip": "192.0.2.1", "user": "192.0.2.1", "method": "GET", "path": "/login" });
    assert_eq!(ratewright.decide(&user).status, 200, "B5: a user is not the address of the same name");
}

/// B2: the production values, and B1: a profile that switches it off.
#[test]
fn b1_b2_profiles_change_the_endpoints_example() {
    let (ratewright, _redis) = start("endpoints.yaml", Some("production"));
    let login = from("192.0.2.1", "/login");
    assert_eq!(statuses(&ratewright, 7, &login), BTreeMap::from([(200, 5), (429, 2)]));
    let recovery = from("192.0.2.1", "/recovery");
    assert_eq!(statuses(&ratewright, 4, &recovery), BTreeMap::from([(200, 3), (429, 1)]));
    assert_eq!(ratewright.decide(&recovery).headers["retry-after"], "600");
    let (ratewright, _redis) = start("endpoints.yaml", Some("dev"));
    assert_eq!(statuses(&ratewright, 30, &login), BTreeMap::from([(200, 30)]));
}

/// C3, C5, C7: the defaults of the document, its prefix, and open without Redis.
#[test]
fn c3_c5_c7_the_decisions_example_checks_keys_and_fails_open() {
    let (ratewright, mut redis) = start("decisions.yaml", None);
    let check = |algorithm: &str| ratewright.get(&format!("check?algorithm={algorithm}&key=user:123")).json();
    assert_eq!(
        (&check("TOKEN_BUCKET")["remaining"], &check("SLIDING_WINDOW")["remaining"]),
        (&json!(99), &json!(99))
    );
    // 99 units take ten seconds to come back; the one above is back, and its key gone, before a busy machine looks.
    assert_eq!(ratewright.get("check?key=user:124&permits=99").status, 200);
    let keys = redis.cli(&["KEYS", "rate_limiter:*"]);
    assert!(keys.contains("rate_limiter:token_bucket:user:124"), "{keys}");
    redis.kill();
    wait_until("it fails open", || {
        let answer = ratewright.get("check?key=user:123&permits=100");
        assert_eq!(answer.status, 200, "nobody is denied without Redis: {}", answer.body);
        answer.json()["basis"] == "fail_open"
    });
}

/// E1: 101 at once from one address, and 251 of one user from many; as buckets and strictly.
#[test]
fn e1_the_availability_examples_limit_addresses_and_users() {
    for name in ["availability.yaml", "availability-strict.yaml"] {
        let (ratewright, _redis) = start(name, None);
        let request = from("192.0.2.1", "/api/wishlist");
        assert_eq!(statuses(&ratewright, 100, &request), BTreeMap::from([(200, 100)]), "{name}");
        // A bucket gives one back every 0.6 s, which is less than this takes on a busy machine.
        let denied = (0..500).map(|_| ratewright.decide(&request)).find(|answer| answer.status == 429);
        assert_denied(&denied.expect("it runs dry"), "per-ip");
        let authorization = format!("Bearer {}", token("anna"));
        let of_anna = |n: usize| {
            let ip = format!("198.51.100.{}", n % 200);
            let headers = json!({ "Authorization": authorization });
            ratewright.decide(&json!({ "ip": ip, "method": "GET", "path": "/api", "headers": headers }))
        };
        assert!((0..250).all(|n| of_anna(n).status == 200), "{name}");
        let denied = (0..2_000).map(of_anna).find(|answer| answer.status == 429);
        assert_denied(&denied.expect("it runs dry"), "per-user");
        let forged = json!({ "Authorization": "Bearer a.b.c" });
        let unknown = ratewright.decide(&json!({ "ip": "203.0.113.1", "path": "/api", "headers": forged }));
        let limits = unknown.json()["limits"].as_array().unwrap().len();
        assert_eq!(limits, 2, "under per-user it is counted by address");
    }
}
