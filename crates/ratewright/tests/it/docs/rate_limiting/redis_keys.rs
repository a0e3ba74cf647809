//! Keys and fields in Redis: those that the page names are those that a real Redis has.

use std::collections::BTreeSet;

use ratewright_lab::{Redis, wait_until};
use serde_json::json;

use super::PAGES;
use crate::docs::markdown::{paragraphs, quoted, tables};
use crate::docs::{page, replaced};
use crate::packages::text_of;
use crate::process::{Ratewright, run};

/// How keys begin, by the files in `examples/`.
pub(super) const PREFIXES: [&str; 3] = ["ratelimit:", "rate-limit:", "rate_limiter:"];

/// Buckets that are full again in a tenth of a second would be gone before a busy machine looks at them.
const SETTINGS: &str = "deadline: 10s, min_ttl: 1h";

/// A limiter on that server, by a file of `examples/`.
fn start_example(name: &str, server: &Redis) -> Ratewright {
    let text = text_of(&format!("examples/{name}"));
    let text = text.replace("    deadline: 5ms", "    #").replace("    min_ttl: 120s", "    #");
    let settings = SETTINGS.replace(", ", "\n    ");
    let text = replaced(&text, "    prefix:", &format!("    {settings}\n    prefix:"));
    let (url, proxies) = (server.url(), "127.0.0.1");
    let ratewright =
        Ratewright::start_profile(&text, None, &[("REDIS_URL", &url), ("TRUSTED_PROXIES", proxies)]);
    // Its metrics may have labels of their own.
    let is_up = |line: &str| line.starts_with("ratewright_store_up") && line.ends_with(" 1.0");
    wait_until("it is connected to Redis", || ratewright.admin("/metrics").body.lines().any(is_up));
    ratewright
}

/// Keys as the examples write them, for the clients of the page.
fn keys_of_the_examples(server: &Redis) {
    let gateway = start_example("gateway.yaml", server);
    gateway.decide(&json!({"ip": "192.168.1.100", "path": "/api/orders/7"}));
    let endpoints = start_example("endpoints.yaml", server);
    endpoints.decide(&json!({"ip": "192.168.1.100", "path": "/login"}));
    let user = "550e8400-e29b-41d4-a716-446655440000";
    endpoints.decide(&json!({"ip": "192.168.1.100", "user": user, "path": "/orders"}));
    let decisions = start_example("decisions.yaml", server);
    decisions.get("check?algorithm=TOKEN_BUCKET&key=user:12345");
    decisions.get("check?algorithm=SLIDING_WINDOW&key=api_key:abc123");
}

/// Keys of every form.
fn keys_of_every_form(server: &Redis) {
    let policies = "policies:
  - name: login
    when: { path: /login }
    by: ip
    quota: [{ rate: 1/h, burst: 5 }, { name: window, algorithm: sliding_window, rate: 5/min }]
    overrides: [{ name: office, match: { method: PUT }, quota: { rate: 1/h, burst: 50 } }]
  - { name: per-user, by: { first_of: [user, ip] }, quota: { rate: 7/h, burst: 5 } }
  - { name: per-route, by: [route, ip], quota: { rate: 1/h } }
  - { name: per-key, by: 'header:X-Api-Key', quota: { rate: 1/h } }
  - { name: steps, when: { path: /steps }, quota: { rate: 2/4h, burst: 5, refill: stepped } }
  - { name: all, quota: { rate: 100/h } }
";
    let store = format!("store: {{redis: {{url: '{}', {SETTINGS}}}}}\n{policies}", server.url());
    let ratewright = Ratewright::start(&store);
    ratewright.wait_for_redis();
    let client = "203.0.113.7";
    for attributes in [
        json!({"ip": client, "path": "/login", "user": "anna", "route": "orders", "headers": {"X-Api-Key": "k-123"}}),
        json!({"ip": client, "path": "/login", "method": "PUT"}),
        json!({"path": "/steps"}),
        json!({"path": "/steps"}),
        json!({"path": "/steps"}),
    ] {
        assert_eq!(ratewright.decide(&attributes).status, 200, "{attributes}");
    }
    ratewright.get("check?key=user:123");
}

/// D3: every key on the page, written out, is one that Redis has; so are the fields of rarer states.
#[test]
fn d3_the_keys_on_the_page_are_those_in_redis() {
    let server = Redis::start();
    keys_of_the_examples(&server);
    keys_of_every_form(&server);
    let stored = server.cli(&["KEYS", "*"]);
    let mut known: BTreeSet<&str> = stored.lines().collect();
    assert!(known.len() > 15, "{known:#?}");
    let digest = String::from_utf8(run(&["key", "k-123"]).stdout).unwrap();
    assert!(known.contains(format!("ratelimit:per-key:{}", digest.trim()).as_str()), "{known:#?}");
    // Of these the page shows what Redis prints.
    let page_of = page(PAGES[0]);
    known.extend(page_of.lines().filter(|line| line.starts_with("ratelimit:")));
    for name in PAGES {
        let page = page(name);
        for quoted in paragraphs(&page).into_iter().flat_map(quoted) {
            let is_key = PREFIXES.iter().any(|prefix| quoted.starts_with(prefix));
            let is_form = quoted.contains(['{', '*']) || quoted.ends_with(":CLIENT");
            assert!(
                !is_key || is_form || known.contains(quoted.as_str()) || is_of_others(&page, &quoted),
                "{name}: {quoted}"
            );
        }
    }
    let steps = server.cli(&["HGETALL", "ratelimit:steps~token_bucket.stepped"]);
    let (field, value) = steps.split_once('\n').unwrap();
    assert!(value.starts_with("3 since 1"), "{steps}");
    let fraction = server.cli(&["HGET", "ratelimit:per-user:user:anna", "full_at of 5 2571428571 3/7"]);
    assert!(
        fraction.ends_with("/7"),
        "{fraction}: {}",
        server.cli(&["HGETALL", "ratelimit:per-user:user:anna"])
    );
    for name in PAGES {
        assert!(page(name).contains(&format!("`{field}`")), "{name}: {field}");
    }
}

/// True for keys of other limiters: those in the first column of the table that compares them.
fn is_of_others(page: &str, key: &str) -> bool {
    let tables = tables(page);
    let compared =
        tables.iter().find(|table| table.rows.iter().any(|row| row[0].contains("{routeId}"))).unwrap();
    compared.rows.iter().any(|row| row[0].contains(key))
}
