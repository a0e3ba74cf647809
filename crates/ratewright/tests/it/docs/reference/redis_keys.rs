//! `docs/reference/redis-keys.md`: keys that a Ratewright writes into a real Redis, with their fields and times to live.

use std::collections::BTreeMap;

use ratewright_lab::{Cluster, Redis, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{assert_page, code, page, paragraph, table, with_reference};
use crate::process::Ratewright;

/// One policy for each kind of name, and one for each kind of state.
const POLICIES: &str = "
api: {defaults: {token_bucket: {rate: 1/h, burst: 5}}}
policies:
- {name: all, when: {path: /all}, quota: {rate: 10/d, burst: 10}}
- {name: login, when: {path: /login}, by: ip, quota: {rate: 1/h, burst: 5}, overrides: [{name: office, match: {ip: 198.51.100.0/24}, quota: {rate: 10/h}}]}
- {name: orders, when: {path: /orders}, by: ip, quota: [{rate: 1/h, burst: 5}, {name: day, rate: 10/d, burst: 10}]}
- {name: per-method, when: {path: /method}, by: [method, ip], quota: {rate: 10/d}}
- {name: per-client, when: {path: /client}, by: {first_of: [user, ip]}, quota: {rate: 10/d}}
- {name: per-key, when: {path: /key}, by: 'header:X-Api-Key', quota: {rate: 10/d}}
- {name: leaky, when: {path: /leaky}, by: ip, quota: {algorithm: leaky_bucket, rate: 1/h, burst: 5}}
- {name: stepped, when: {path: /stepped}, by: ip, quota: {rate: 2/4h, burst: 5, refill: stepped}}
- {name: log, when: {path: /log}, by: ip, quota: {algorithm: sliding_window, rate: 10/d}}
- {name: counter, when: {path: /counter}, by: ip, quota: {algorithm: sliding_window_counter, rate: 10/d}}
- {name: fixed, when: {path: /fixed}, by: ip, quota: {algorithm: fixed_window, rate: 10/d}}
";

const RULES: &str = "
domain: edge
descriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 100}}]
";

/// Keys in the order of the page: the key, and its bucket.
const NAMES: [(&str, &str); 12] = [
    ("ratelimit:login:203.0.113.7", "the client 203.0.113.7 under the policy `login`"),
    (
        "ratelimit:login+office:198.51.100.7",
        "the same, under the override `office`; an override without a name has a digest of its `match`",
    ),
    ("ratelimit:orders:203.0.113.7", "the first quota of a policy with several"),
    ("ratelimit:orders/day:203.0.113.7", "its second quota, with the name `day`"),
    (
        "ratelimit:fixed~fixed_window.86400000000:203.0.113.7",
        "another kind of state than a smooth token bucket: see the table of states",
    ),
    ("ratelimit:per-method:GET|203.0.113.7", "a policy that counts by two attributes"),
    (
        "ratelimit:per-client:user:anna",
        "`by: {first_of: [user, ip]}`: the value begins with the name of the attribute",
    ),
    ("ratelimit:per-key:#3605a9e4358da4302f8acea41f0f52ce", "the API key `k-123`, as a digest"),
    ("ratelimit:all", "a policy without `by`: one bucket for all clients"),
    ("ratelimit:token_bucket:user:123", "the ad hoc key `user:123` of `/api/v1/rate-limit/check`"),
    (
        "ratelimit:envoy.edge.path/fixed_window.day~fixed_window.86400000000:/login",
        "a rule for Envoy with the descriptor `path=/login`",
    ),
    ("ratelimit:@instances", "the instances that share these buckets; not a bucket"),
];

/// Kinds of state: the algorithm, the key, and when the key expires if nothing is spent any more.
const STATES: [(&str, &str, &str); 6] = [
    ("Token bucket", "ratelimit:login:203.0.113.7", "the bucket is full again"),
    ("Leaky bucket", "ratelimit:leaky~leaky_bucket:203.0.113.7", "the bucket is empty again"),
    (
        "Token bucket that refills in steps",
        "ratelimit:stepped~token_bucket.stepped:203.0.113.7",
        "the bucket is full again",
    ),
    (
        "Sliding window",
        "ratelimit:log~sliding_window.86400000000:203.0.113.7",
        "the newest charge leaves the window",
    ),
    (
        "Sliding window counter",
        "ratelimit:counter~sliding_window_counter.86400000000:203.0.113.7",
        "the window after the current one ends",
    ),
    ("Fixed window", "ratelimit:fixed~fixed_window.86400000000:203.0.113.7", "the window ends"),
];

/// Fields by the beginning of their names, and elements of lists: the meaning.
const FIELDS: [(&str, &str); 11] = [
    (
        "full_at of ",
        "When the bucket is full (a leaky bucket: empty) again, in µs since 1970; `1/3` after it is a fraction of a microsecond. The name has the burst, and the µs in which it fills.",
    ),
    (
        "spent of ",
        "Units spent, and the start of the period, in µs. The name has the burst, the units and the µs of a period.",
    ),
    ("tokens", "Units left at the last write, for people. Missing with `store.redis.readable: false`."),
    (
        "lastRefill",
        "When that was, in ms since 1970, for people. Missing with `store.redis.readable: false`.",
    ),
    ("window", "The length of the window in µs."),
    ("opened_at", "When the current window began, in µs since 1970."),
    ("previous", "Units spent in the window before."),
    ("current", "Units spent in the current window."),
    ("count", "Units spent in the window."),
    ("element 0", "Units in the log, and the most that are kept."),
    (
        "element 1",
        "Up to 64 charges: time of the newest in µs, units, number of charges, start in µs; then each charge in µs after the start, with `*COST` if it is not 1.",
    ),
];

/// Windows of a day begin at midnight, and must not end while their keys are looked at.
fn wait_for_a_quiet_day(redis: &Redis) {
    const DAY: u64 = 86_400_000_000;
    wait_until("no day ends soon", || DAY - redis.now() % DAY > 20_000_000);
}

/// A Ratewright that has written every kind of key.
struct Written {
    redis: Redis,
    _ratewright: Ratewright,
    /// A mark of a receipt, and the bucket that it belongs to.
    used: String,
}

impl Written {
    fn all() -> Self {
        let (redis, folder) = (Redis::start(), TempDir::new().unwrap());
        let rules = folder.path().join("rules.yaml");
        std::fs::write(&rules, RULES).unwrap();
        wait_for_a_quiet_day(&redis);
        let store =
            format!("store: {{redis: {{url: '{}', deadline: 10s}}, local: {{share: auto}}}}", redis.url());
        let envoy = format!("envoy: {{files: ['{}']}}", rules.display());
        let ratewright = Ratewright::start(&format!("{store}\n{envoy}\n{POLICIES}"));
        ratewright.wait_for_redis();
        let decide = |ip: &str, path: &str| {
            let headers = json!({"X-Api-Key": "k-123"});
            let user = (path == "/client").then_some("anna");
            let attributes =
                json!({"ip": ip, "method": "GET", "path": path, "headers": headers, "user": user});
            let answer = ratewright.post(
                "/api/v1/decide",
                &[],
                &json!({"attributes": attributes, "receipt": true}).to_string(),
            );
            assert_eq!((answer.status, &answer.json()["basis"]), (200, &Value::from("shared")), "{path}");
            answer.json()["receipt"].as_str().unwrap().to_owned()
        };
        for path in [
            "/all", "/login", "/orders", "/method", "/client", "/key", "/leaky", "/stepped", "/log",
            "/counter", "/fixed",
        ] {
            decide("203.0.113.7", path);
        }
        decide("198.51.100.7", "/login");
        assert_eq!(ratewright.get("check?key=user:123").status, 200);
        let entries = json!([{"entries": [{"key": "path", "value": "/login"}]}]);
        let asked = json!({"domain": "edge", "descriptors": entries}).to_string();
        assert_eq!(ratewright.post("/json", &[], &asked).status, 200);
        let receipt = decide("192.0.2.1", "/login");
        decide("192.0.2.1", "/login");
        let refunded = ratewright.post("/api/v1/refund", &[], &json!({"receipt": receipt}).to_string());
        assert_eq!(refunded.json()["refunded"], 1, "{refunded:?}");
        let mut used = String::new();
        wait_until("the instance and the refund are there", || {
            used = redis.cli(&["--scan", "--pattern", "ratelimit:@used:*"]);
            !used.is_empty() && redis.cli(&["EXISTS", "ratelimit:@instances"]) == "1"
        });
        Self { redis, _ratewright: ratewright, used }
    }

    /// The fields of a hash, or the elements of a list.
    fn fields(&self, key: &str) -> Vec<(String, String)> {
        let lines =
            |arguments: &[&str]| self.redis.cli(arguments).lines().map(str::to_owned).collect::<Vec<_>>();
        match &*self.redis.cli(&["TYPE", key]) {
            "hash" => {
                lines(&["HGETALL", key]).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
            }
            "list" => (0..).map(|n| format!("element {n}")).zip(lines(&["LRANGE", key, "0", "-1"])).collect(),
            other => panic!("{key} is a {other}"),
        }
    }

    /// Fails unless the key expires within a second after a moment.
    #[track_caller]
    fn assert_expires_after(&self, key: &str, micros: u64) {
        let expires_at: u64 = self.redis.cli(&["PEXPIRETIME", key]).parse().unwrap();
        let after = (expires_at * 1_000).saturating_sub(micros);
        assert!(
            (400_000..1_400_000).contains(&after),
            "{key} expires {after} µs after its state means nothing"
        );
    }
}

/// When a state means nothing any more, by its fields.
fn ends_at(fields: &[(String, String)]) -> u64 {
    let by_name: BTreeMap<&str, &str> =
        fields.iter().map(|(name, value)| (name.split(" of ").next().unwrap(), value.as_str())).collect();
    let number = |name: &str, n: usize| by_name[name].split(' ').nth(n).unwrap().parse::<u64>().unwrap();
    match by_name.keys().next().copied() {
        _ if by_name.contains_key("full_at") => number("full_at", 0),
        _ if by_name.contains_key("spent") => number("spent", 2) + 4 * 3_600_000_000, // one period: one unit is missing
        _ if by_name.contains_key("count") => number("opened_at", 0) + number("window", 0),
        _ if by_name.contains_key("current") => number("opened_at", 0) + 2 * number("window", 0),
        _ => number("element 1", 0) + 86_400_000_000,
    }
}

/// A value without the time of day: numbers of 13 digits are milliseconds, those of 16 microseconds.
fn masked(value: &str) -> String {
    let mask = |word: &str| {
        let digits = word.trim_end_matches(':');
        match digits.len() {
            13 => word.replace(digits, "MILLIS"),
            16 => word.replace(digits, "MICROS"),
            _ => word.to_owned(),
        }
    };
    value.split(' ').map(mask).collect::<Vec<_>>().join(" ")
}

fn render_state(written: &Written, (title, key, ends): (&str, &str, &str)) -> String {
    let fields = written.fields(key);
    written.assert_expires_after(key, ends_at(&fields));
    let kind = written.redis.cli(&["TYPE", key]);
    let rows = fields.iter().map(|(name, value)| {
        let meaning = FIELDS.iter().find(|(start, _)| name.starts_with(start));
        let (_, meaning) = meaning.unwrap_or_else(|| panic!("{title}: the field {name} has no meaning"));
        [code(name), code(&masked(value)), (*meaning).to_owned()]
    });
    let fields = table(["field", "value", "meaning"], rows);
    let about = paragraph(&format!("Key `{key}`, a {kind}. It expires up to one second after {ends}."));
    format!("### {title}\n\n{about}{fields}")
}

fn render(written: &Written) -> String {
    let found = written.redis.cli(&["--scan", "--pattern", "*"]);
    let mut unlisted: Vec<&str> = found.lines().collect();
    let listed = NAMES.iter().map(|(key, _)| *key).chain(STATES.iter().map(|(_, key, _)| *key));
    for key in listed.chain(["ratelimit:login:192.0.2.1", &written.used]) {
        assert!(found.lines().any(|name| name == key), "{key} is not there: {found}");
        unlisted.retain(|name| *name != key);
    }
    assert!(unlisted.is_empty(), "the page does not list {unlisted:?}");
    let names = table(["key", "bucket"], NAMES.iter().map(|(key, bucket)| [code(key), (*bucket).to_owned()]));
    let states: String = STATES.iter().map(|state| render_state(written, *state)).collect();
    format!("## Names\n\n{names}## States\n\n{states}")
}

/// Keys that are not buckets: their types and times to live.
fn assert_others(written: &Written) {
    let redis = &written.redis;
    assert_eq!(redis.cli(&["TYPE", "ratelimit:@instances"]), "zset");
    assert!((1..=10).contains(&redis.cli(&["TTL", "ratelimit:@instances"]).parse::<i64>().unwrap()));
    assert_eq!(
        (redis.cli(&["TYPE", &written.used]), redis.cli(&["GET", &written.used])),
        ("string".into(), "1".into())
    );
    assert!(written.used.starts_with("ratelimit:@used:{ratelimit:login:192.0.2.1}:"), "{}", written.used);
}

#[test]
fn the_page_on_redis_keys_shows_keys_of_the_program() {
    let written = Written::all();
    assert_others(&written);
    assert_page("redis-keys.md", &with_reference("redis-keys.md", &render(&written)));
}

/// The keys that the page shows for a Cluster.
#[test]
fn the_page_on_redis_keys_shows_keys_of_a_cluster() {
    let cluster = Cluster::start();
    let store = format!("store: {{redis: {{url: [{}], deadline: 10s}}}}", cluster.urls().join(", "));
    let ratewright = Ratewright::start(&format!("{store}\n{POLICIES}"));
    ratewright.wait_for_redis();
    for path in ["/login", "/all"] {
        let answer = ratewright.decide(&json!({"ip": "203.0.113.7", "path": path}));
        assert_eq!(answer.json()["basis"], "shared", "{answer:?}");
    }
    assert_eq!(ratewright.get("check?key=user:123").json()["basis"], "shared");
    let page = page("reference/redis-keys.md");
    let (_, section) = page.split_once("## Redis Cluster\n").unwrap();
    let shown = section.split("\n## ").next().unwrap();
    let is_master = |node: &&Redis| node.cli(&["ROLE"]).starts_with("master");
    let keys = cluster.nodes.iter().filter(is_master).map(|node| node.cli(&["--scan", "--pattern", "*"]));
    let keys: Vec<String> =
        keys.flat_map(|keys| keys.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    for key in keys {
        assert!(shown.contains(&code(&key)), "the page does not show {key}");
    }
}
