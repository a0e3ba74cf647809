//! The scenarios of the documents, with the files in `examples/`.

use std::collections::BTreeMap;

use jsonwebtoken::{EncodingKey, Header, encode};
use ratewright_lab::{Nginx, Redis, foreign, output, wait_until};
use serde_json::json;

use super::{application, gateway, statuses, with_routes};
use crate::docs::replaced;
use crate::process::Ratewright;

const SECRET: &str = "a secret for tests, long enough for HS256";

/// Starts an example, with a profile if given, in front of nginx and with its own Redis. All of 127.0.0.0/8 are trusted
/// proxies.
pub(super) fn start(name: &str, profile: Option<&str>) -> (Ratewright, Nginx, Redis) {
    let (application, redis) = (application(), Redis::start());
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let overlay = profile.map(|profile| {
        let name = name.replace(".yaml", &format!(".{profile}.yaml"));
        (profile, std::fs::read_to_string(folder.join(name)).unwrap())
    });
    let overlay = overlay.as_ref().map(|(profile, text)| (*profile, text.as_str()));
    // The limit is what is looked at here, not how fast Redis answers on a busy machine.
    let text = replaced(&text, "  redis:\n", "  redis:\n    deadline: 10s\n");
    let variables = [
        ("REDIS_URL", redis.url()),
        ("UPSTREAM", format!("http://{}", application.address())),
        ("JWT_SECRET", SECRET.to_owned()),
        ("TRUSTED_PROXIES", "127.0.0.0/8".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ratewright = Ratewright::start_profile(&text, overlay, &variables);
    ratewright.wait_for_redis();
    (ratewright, application, redis)
}

fn token(user: &str) -> String {
    let claims = json!({ "sub": user, "exp": 4_000_000_000_u64 });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

#[test]
fn a13_twenty_curls_in_a_row_print_200s_and_then_429s() {
    let (ratewright, _application, redis) = start("gateway.yaml", None);
    let url = format!("http://{}/api/reports/today", ratewright.gateway);
    let twenty = || {
        let mut curl = foreign("curl");
        curl.args(["-q", "-s", "-w", "%{http_code} "]);
        for _ in 0..20 {
            curl.args(["-o", "/dev/null", &url]);
        }
        String::from_utf8(output(&mut curl).stdout).unwrap()
    };
    // Ten come back each second: on a busy machine twenty curls may take so long that none is denied, which proves nothing.
    let mut printed = String::new();
    wait_until("twenty curls in half a second", || {
        printed = twenty();
        let is_fast_enough = printed.contains("429");
        if !is_fast_enough {
            redis.cli(&["FLUSHALL"]);
        }
        is_fast_enough
    });
    let printed: Vec<_> = printed.split_whitespace().collect();
    assert_eq!(printed[..15], ["200"; 15], "{printed:?}");
}

#[test]
fn a6_a7_a10_responses_have_the_headers_and_routes_without_policies_have_none() {
    let (ratewright, _application, _redis) = start("gateway.yaml", None);
    let first = ratewright.pass("/api/reports/today", &[("X-Request-Id", "r-1")]);
    assert_eq!(first.status, 200);
    assert_eq!(first.headers["x-ratelimit-limit"], "10", "the rate as written");
    assert_eq!(first.headers["x-ratelimit-remaining"], "14");
    assert!(first.body.ends_with("|r-1"), "the request's id is passed on: {}", first.body);
    let denied = (0..2_000)
        .map(|_| ratewright.pass("/api/reports/today", &[("X-Request-Id", "r-2")]))
        .find(|answer| answer.status == 429)
        .expect("it runs dry");
    assert!(denied.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(denied.headers["content-type"], "application/problem+json");
    let problem = denied.json();
    assert_eq!(problem["type"], "https://api.gateway/errors/rate-limit-exceeded");
    assert_eq!((&problem["title"], &problem["status"]), (&json!("Too Many Requests"), &json!(429)));
    assert_eq!((&problem["correlationId"], &problem["limitType"]), (&json!("r-2"), &json!("reports")));
    assert!(problem["detail"].as_str().unwrap().contains("second"), "{problem}");
    let untouched = ratewright.pass("/elsewhere", &[]);
    assert_eq!(untouched.status, 200);
    assert!(!untouched.headers.keys().any(|name| name.contains("ratelimit")), "{:?}", untouched.headers);
}

#[test]
fn a11_c11_only_trusted_proxies_name_the_client() {
    let application = application();
    let policies = "policies: [{name: once, by: ip, quota: {rate: 1/h}}]\n";
    let forged = |ratewright: &Ratewright, n: usize| {
        ratewright.pass("/", &[("X-Forwarded-For", &format!("198.51.100.{n}"))]).status
    };
    let ratewright = gateway(&application, policies);
    assert_eq!([forged(&ratewright, 1), forged(&ratewright, 2)], [200, 429]);
    let trusting = format!("clients: {{trusted_proxies: [127.0.0.1]}}\n{policies}");
    let ratewright = gateway(&application, &trusting);
    assert_eq!([forged(&ratewright, 1), forged(&ratewright, 2), forged(&ratewright, 1)], [200, 200, 429]);
    let seen = ratewright.pass("/", &[("X-Forwarded-For", "198.51.100.9")]).body;
    assert!(seen.contains("|198.51.100.9, 127.0.0.1|"), "the chain is passed on: {seen}");
}

#[test]
fn a12_requests_are_counted_by_status_and_route() {
    let (ratewright, _application, _redis) = start("gateway.yaml", None);
    for path in ["/api/orders/1", "/api/orders/2", "/other"] {
        assert_eq!(ratewright.pass(path, &[]).status, 200);
    }
    let count = |route: &str| {
        ratewright.metric(&format!("gateway_request_total{{status=\"200\",route_path=\"{route}\"}}"))
    };
    assert_eq!([count("/api/orders"), count("/")], [2.0, 1.0]);
    assert_eq!(ratewright.metric("gateway_request_duration_seconds_count{route_path=\"/api/orders\"}"), 2.0);
    let page = ratewright.admin("/metrics").body;
    assert!(page.contains("gateway_upstream_healthy{route=\"orders\",server=\"http://127.0.0.1:"), "{page}");
}

#[test]
fn b1_a_limit_and_all_of_them_can_be_switched_off() {
    let application = application();
    let off = gateway(&application, "policies: [{name: once, by: ip, quota: {rate: 1/h}, mode: off}]\n");
    assert_eq!(statuses(5, |_| off.pass("/", &[])), BTreeMap::from([(200, 5)]));
    let all = gateway(&application, "enabled: false\npolicies: [{name: once, by: ip, quota: {rate: 1/h}}]\n");
    assert_eq!(statuses(5, |_| all.pass("/", &[])), BTreeMap::from([(200, 5)]));
}

#[test]
fn b3_b6_b8_fifteen_logins_at_once_ten_reach_the_application_and_five_do_not() {
    let (ratewright, _application, _redis) = start("endpoints.yaml", None);
    let login = |_| ratewright.pass("/api/v1/auth/login", &[]);
    assert_eq!(statuses(15, login), BTreeMap::from([(401, 10), (429, 5)]));
    let denied = ratewright.pass("/login", &[]);
    let problem = denied.json();
    assert_eq!((&problem["limitType"], &problem["retryAfter"]), (&json!("login"), &json!(60)));
    assert!(problem["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(denied.headers["x-ratelimit-remaining"], "0");
    assert_eq!(ratewright.pass("/api/orders", &[]).status, 200, "the rest has its own");
    let user = ratewright.pass("/login", &[("X-User-Id", "anna")]);
    assert_eq!(user.status, 401, "B5: who is known by name is counted by name");
    ratewright.wait_for_line(&["denied", "login", "429", "127.0.0.1"]);
}

#[test]
fn b4_exempt_paths_are_never_limited() {
    let (ratewright, _application, _redis) = start("endpoints.yaml", None);
    for path in ["/actuator/x", "/healthz", "/metrics", "/static/a", "/css/a", "/js/a", "/images/a"] {
        let answers = statuses(120, |_| ratewright.pass(path, &[]));
        assert_eq!(answers, BTreeMap::from([(200, 120)]), "{path}");
    }
    let options = |_| ratewright.pass_raw("OPTIONS /login HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(statuses(20, options), BTreeMap::from([(401, 20)]));
    let sly = statuses(11, |_| ratewright.pass("/static/..%2flogin", &[]));
    assert_eq!(sly, BTreeMap::from([(401, 10), (429, 1)]), "what is forwarded is what is limited");
}

#[test]
fn e1_an_address_and_a_user_are_limited_at_once_by_buckets_and_strictly() {
    for name in ["availability.yaml", "availability-strict.yaml"] {
        let (ratewright, _application, _redis) = start(name, None);
        let from = |ip: &str, token: Option<&str>| {
            let authorization = token.map(|token| format!("Bearer {token}"));
            let mut headers = vec![("X-Forwarded-For", ip)];
            headers.extend(authorization.as_deref().map(|value| ("Authorization", value)));
            ratewright.pass("/api/wishlist", &headers)
        };
        let first = statuses(100, |_| from("192.0.2.1", None));
        assert_eq!(first, BTreeMap::from([(200, 100)]), "{name}");
        // A bucket fills while it is asked; a window that is full stays so.
        let n_more = if name == "availability.yaml" { 500 } else { 1 };
        let denied = (0..n_more).map(|_| from("192.0.2.1", None)).find(|answer| answer.status == 429);
        let denied = denied.expect("it runs dry");
        assert_eq!(denied.json()["limitType"], "per-ip");
        assert!(denied.headers["retry-after"].parse::<u64>().unwrap() >= 1);
        let anna = token("anna");
        let of_anna = |n: usize| from(&format!("198.51.100.{}", n % 200), Some(&anna));
        assert_eq!(statuses(250, of_anna), BTreeMap::from([(200, 250)]), "{name}");
        let n_more = if name == "availability.yaml" { 2_000 } else { 1 };
        let denied = (0..n_more).map(of_anna).find(|answer| answer.status == 429).expect("it runs dry");
        assert_eq!(denied.json()["limitType"], "per-user");
        assert_eq!(from("198.51.100.1", Some("a.b.c")).status, 200, "a forged token names nobody");
    }
}

#[test]
fn e6_a_limit_is_softened_shadowed_and_switched_off_without_a_restart() {
    let application = application();
    let policy = |rest: &str| {
        with_routes(&application, &format!("policies: [{{name: p, by: ip, quota: {{rate: {rest}}}]\n"))
    };
    let ratewright = Ratewright::start(&policy("2/h}"));
    let ask = |_| ratewright.pass("/", &[]);
    assert_eq!(statuses(4, ask), BTreeMap::from([(200, 2), (429, 2)]));
    ratewright.reload(&policy("2/h, burst: 4}"));
    assert_eq!(statuses(4, ask), BTreeMap::from([(429, 4)]), "what was spent stays spent");
    ratewright.reload(&policy("1000/s, burst: 4}"));
    wait_until("it comes back soon", || ratewright.pass("/", &[]).status == 200);
    ratewright.reload(&policy("2/h, burst: 4}"));
    wait_until("it is tight again", || ratewright.pass("/", &[]).status == 429);
    ratewright.reload(&policy("2/h, burst: 4}, mode: shadow"));
    let shadow = ratewright.pass("/", &[]);
    assert_eq!((shadow.status, shadow.headers.contains_key("x-ratelimit-limit")), (200, false));
    assert_eq!(statuses(10, ask), BTreeMap::from([(200, 10)]));
    ratewright.reload(&policy("2/h, burst: 4}, mode: enforce"));
    assert_eq!(ratewright.pass("/", &[]).status, 429);
    ratewright.reload(&format!("headers: {{retry_after: false}}\n{}", policy("2/h, burst: 4}")));
    let denied = ratewright.pass("/", &[]);
    assert_eq!((denied.status, denied.headers.contains_key("retry-after")), (429, false));
    ratewright.reload(&policy("2/h, burst: 4}, mode: off"));
    assert_eq!(statuses(10, ask), BTreeMap::from([(200, 10)]));
}

#[test]
fn routes_can_be_changed_while_requests_come() {
    let (one, two) = (application(), Nginx::start(1, "", "location / { return 200 'two'; }\n"));
    let ratewright = gateway(&one, "policies: []\n");
    assert!(ratewright.pass("/x", &[]).body.starts_with("GET /x|"));
    ratewright.reload(&with_routes(&two, "policies: []\n"));
    assert_eq!(ratewright.pass("/x", &[]).body, "two");
}
