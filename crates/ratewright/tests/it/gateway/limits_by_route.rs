//! Named limits and limits by route, through the gateway to a real nginx, with buckets in a real Redis.

use std::time::Instant;

use ratewright_lab::Redis;
use serde_json::json;

use super::application;
use super::scenarios::start;
use crate::process::Ratewright;

/// One limit of examples/endpoints.yaml, with the numbers that requirement B2 asks for.
struct NamedLimit {
    name: &'static str,
    path: &'static str,
    capacity: u64,
    /// Units refilled, and in how many seconds.
    refill: (u64, u64),
    /// True if a second quota, a sliding window of the same capacity, prevents any refill during the test.
    has_sliding_window: bool,
    retry_after_min: u64,
}

const LOGIN: NamedLimit = NamedLimit {
    name: "login",
    path: "/api/login",
    capacity: 10,
    refill: (1, 6),
    has_sliding_window: true,
    retry_after_min: 60,
};
const RECOVERY: NamedLimit = NamedLimit {
    name: "recovery",
    path: "/account/forgot",
    capacity: 5,
    refill: (1, 60),
    has_sliding_window: true,
    retry_after_min: 300,
};
const PAYMENT: NamedLimit = NamedLimit {
    name: "payment",
    path: "/api/payments/1",
    capacity: 30,
    refill: (5, 2),
    has_sliding_window: false,
    retry_after_min: 1,
};
const DEFAULT: NamedLimit = NamedLimit {
    name: "default",
    path: "/api/orders",
    capacity: 100,
    refill: (10, 1),
    has_sliding_window: false,
    retry_after_min: 60,
};

/// B2: clients of the gateway see the numbers of examples/endpoints.yaml, with and without the production profile.
#[test]
#[expect(clippy::disallowed_methods, reason = "what comes back meanwhile depends on how long the test takes")]
fn b2_the_gateway_enforces_the_named_limits_of_each_profile() {
    let production = [
        NamedLimit { capacity: 5, refill: (1, 12), ..LOGIN },
        NamedLimit { capacity: 3, refill: (1, 180), retry_after_min: 600, ..RECOVERY },
        PAYMENT,
        NamedLimit { capacity: 60, ..DEFAULT },
    ];
    for (profile, limits) in [(None, [LOGIN, RECOVERY, PAYMENT, DEFAULT]), (Some("production"), production)] {
        let (ratewright, _application, _redis) = start("endpoints.yaml", profile);
        for NamedLimit {
            name,
            path,
            capacity,
            refill: (units, seconds),
            has_sliding_window,
            retry_after_min,
        } in limits
        {
            let what = format!("{name}, {profile:?}");
            let start = Instant::now();
            let first = ratewright.pass(path, &[]);
            assert_eq!(first.headers["x-ratelimit-limit"], capacity.to_string(), "{what}");
            assert_eq!(first.headers["x-ratelimit-remaining"], (capacity - 1).to_string(), "{what}");
            // `w` is how long an empty bucket takes to fill.
            let policy = format!("\"{name}\";q={capacity};w={}", capacity * seconds / units);
            let policies = &first.headers["ratelimit-policy"];
            assert!(policies.contains(&policy), "{what}: {policy} is not in {policies}");

            let passes = if name == "login" { 401 } else { 200 }; // the application rejects logins
            assert_eq!(first.status, passes, "{what}");
            let mut n_passed = 1;
            let denied = (0..1_000).map(|_| ratewright.pass(path, &[])).find(|answer| {
                n_passed += u64::from(answer.status == passes);
                answer.status != passes
            });
            let denied = denied.unwrap_or_else(|| panic!("{what}: the bucket is never empty"));
            assert_eq!(denied.status, 429, "{what}: {denied:?}");
            let n_periods = start.elapsed().as_secs() / seconds + 1;
            let returned = if has_sliding_window { 0 } else { units * n_periods };
            assert!((capacity..=capacity + returned).contains(&n_passed), "{what}: {n_passed} passed");
            let retry_after: u64 = denied.headers["retry-after"].parse().unwrap();
            let retry_after_max = retry_after_min.max(seconds);
            assert!((retry_after_min..=retry_after_max).contains(&retry_after), "{what}: {retry_after}");
            let problem = denied.json();
            assert_eq!((&problem["limitType"], &problem["retryAfter"]), (&json!(name), &json!(retry_after)));
        }
    }
}

/// A4: a policy by route and IP address has one bucket, and one Redis key, for each pair. A policy that only one route
/// lists applies to that route only. All buckets survive a reload that adds a route.
#[test]
fn a4_a_policy_by_route_and_address_has_one_bucket_per_pair() {
    let (application, redis) = (application(), Redis::start());
    let (upstream, redis_url) = (format!("http://{}", application.address()), redis.url());
    let config = |more: &str| {
        format!(
            "store: {{redis: {{url: '{redis_url}', deadline: 10s}}}}
clients: {{trusted_proxies: [127.0.0.1]}}
policies:
- {{name: per-route, by: [route, ip], quota: {{rate: 2/h}}}}
- {{name: slow, by: [route, ip], quota: {{rate: 1/h}}}}
routes:
- {{id: orders, match: {{path: /api/orders/**}}, upstream: '{upstream}'}}
- {{id: reports, match: {{path: /api/reports/**}}, upstream: '{upstream}'}}
- {{id: export, match: {{path: /api/export/**}}, upstream: '{upstream}', policies: [slow]}}
{more}"
        )
    };
    let ratewright = Ratewright::start(&config(""));
    ratewright.wait_for_redis();
    let ask = |path: &str, client: &str| ratewright.pass(path, &[("X-Forwarded-For", client)]).status;
    let clients = ["198.51.100.1", "198.51.100.2"];
    for client in clients {
        // Routes alternate: a bucket shared by both would be empty too early.
        let answers = [(); 3].map(|()| ["/api/orders/1", "/api/reports/1"].map(|path| ask(path, client)));
        assert_eq!(answers, [[200, 200], [200, 200], [429, 429]], "{client}");
        assert_eq!(ask("/api/orders/2", client), 429, "the bucket is per route, not per path");
        assert_eq!([ask("/api/export/1", client), ask("/api/export/2", client)], [200, 429]);
    }
    let mut expected: Vec<_> = clients
        .iter()
        .flat_map(|client| {
            let per_route =
                ["orders", "reports", "export"].map(|route| format!("ratelimit:per-route:{route}|{client}"));
            per_route.into_iter().chain([format!("ratelimit:slow:export|{client}")])
        })
        .collect();
    expected.sort();
    let stored = redis.cli(&["--scan", "--pattern", "ratelimit:*"]);
    let mut stored: Vec<_> = stored.lines().collect();
    stored.sort_unstable();
    assert_eq!(stored, expected);

    ratewright.reload(&config(&format!("- {{id: rest, match: {{path: /**}}, upstream: '{upstream}'}}\n")));
    assert_eq!(ask("/api/orders/3", clients[0]), 429, "buckets survive the reload");
    assert_eq!(
        [(); 3].map(|()| ask("/elsewhere", clients[0])),
        [200, 200, 429],
        "the new route has its own bucket"
    );
    // A path that normalises to the same route uses the same bucket.
    assert_eq!(ask("/api/x/../orders/1", clients[0]), 429);
    redis.cli(&["DEL", &format!("ratelimit:per-route:orders|{}", clients[0])]);
    assert_eq!([ask("/api/orders/1", clients[0]), ask("/api/reports/1", clients[0])], [200, 429]);
}
