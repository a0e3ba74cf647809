//! Named limits and limits by route, through the gateway to a real nginx, with buckets in a real Redis.

use std::time::Instant;

use ratewright_lab::Redis;
use serde_json::json;

use super::application;
use super::scenarios::start;
use crate::process::Ratewright;

/// What seed 001 says of a named limit.
struct Named {
    name: &'static str,
    path: &'static str,
    capacity: u64,
    /// Units that come back, and in how many seconds.
    refill: (u64, u64),
    /// The second quota, if there is one, has the same capacity; so nothing comes back while the test runs.
    has_window: bool,
    retry_after_min: u64,
}

const LOGIN: Named = Named {
    name: "login",
    path: "/api/login",
    capacity: 10,
    refill: (1, 6),
    has_window: true,
    retry_after_min: 60,
};
const RECOVERY: Named = Named {
    name: "recovery",
    path: "/account/forgot",
    capacity: 5,
    refill: (1, 60),
    has_window: true,
    retry_after_min: 300,
};
const PAYMENT: Named = Named {
    name: "payment",
    path: "/api/payments/1",
    capacity: 30,
    refill: (5, 2),
    has_window: false,
    retry_after_min: 1,
};
const DEFAULT: Named = Named {
    name: "default",
    path: "/api/orders",
    capacity: 100,
    refill: (10, 1),
    has_window: false,
    retry_after_min: 60,
};

/// B2: the figures of the document and of its production profile, as a client of the gateway sees them.
#[test]
#[expect(clippy::disallowed_methods, reason = "what comes back meanwhile depends on how long the test takes")]
fn b2_named_limits_have_their_figures_through_the_gateway() {
    let production = [
        Named { capacity: 5, refill: (1, 12), ..LOGIN },
        Named { capacity: 3, refill: (1, 180), retry_after_min: 600, ..RECOVERY },
        PAYMENT,
        Named { capacity: 60, ..DEFAULT },
    ];
    for (profile, limits) in [(None, [LOGIN, RECOVERY, PAYMENT, DEFAULT]), (Some("production"), production)] {
        let (ratewright, _application, _redis) = start("endpoints.yaml", profile);
        for Named { name, path, capacity, refill: (units, seconds), has_window, retry_after_min } in limits {
            let what = format!("{name}, {profile:?}");
            let start = Instant::now();
            let first = ratewright.pass(path, &[]);
            assert_eq!(first.headers["x-ratelimit-limit"], capacity.to_string(), "{what}");
            assert_eq!(first.headers["x-ratelimit-remaining"], (capacity - 1).to_string(), "{what}");
            // `w` is how long an empty bucket takes to fill.
            let policy = format!("\"{name}\";q={capacity};w={}", capacity * seconds / units);
            let policies = &first.headers["ratelimit-policy"];
            assert!(policies.contains(&policy), "{what}: {policy} is not in {policies}");

            let mut n_passed = 1;
            let denied = loop {
                let answer = ratewright.pass(path, &[]);
                if answer.status == 429 {
                    break answer;
                }
                n_passed += 1;
            };
            let n_periods = start.elapsed().as_secs() / seconds + 1;
            let returned = if has_window { 0 } else { units * n_periods };
            assert!((capacity..=capacity + returned).contains(&n_passed), "{what}: {n_passed} passed");
            let retry_after: u64 = denied.headers["retry-after"].parse().unwrap();
            assert!(retry_after >= retry_after_min, "{what}: {retry_after}");
            let problem = denied.json();
            assert_eq!((&problem["limitType"], &problem["retryAfter"]), (&json!(name), &json!(retry_after)));
        }
    }
}

/// A4: a policy by route and client has a bucket for each pair, and its key in Redis says so. A policy that only one
/// route names counts there, under the same rule. Both survive a reload that adds a route.
#[test]
fn a4_a_policy_by_route_and_address_counts_each_pair_by_itself() {
    let (application, redis) = (application(), Redis::start());
    let (upstream, redis_url) = (format!("http://{}", application.address()), redis.url());
    let config = |more: &str| {
        format!(
            "store: {{redis: {{url: '{redis_url}', deadline: 5s}}}}
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
    let both = ["198.51.100.1", "198.51.100.2"];
    for client in both {
        // The routes take turns, so that one bucket for both would run dry early.
        let answers = [(); 3].map(|()| ["/api/orders/1", "/api/reports/1"].map(|path| ask(path, client)));
        assert_eq!(answers, [[200, 200], [200, 200], [429, 429]], "{client}");
        assert_eq!(ask("/api/orders/2", client), 429, "the route counts, not the path");
        assert_eq!([ask("/api/export/1", client), ask("/api/export/2", client)], [200, 429]);
    }
    let mut expected: Vec<_> = both
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
    assert_eq!(ask("/api/orders/3", both[0]), 429, "what was spent stays spent");
    assert_eq!([(); 3].map(|()| ask("/elsewhere", both[0])), [200, 200, 429], "a new route has its own");
    // Another spelling of a path is the same route, and so the same bucket.
    assert_eq!(ask("/api/x/../orders/1", both[0]), 429);
    redis.cli(&["DEL", &format!("ratelimit:per-route:orders|{}", both[0])]);
    assert_eq!([ask("/api/orders/1", both[0]), ask("/api/reports/1", both[0])], [200, 429]);
}
