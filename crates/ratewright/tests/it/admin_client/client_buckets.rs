//! All buckets of a client address: `inspect --client`.

use expect_test::expect;
use serde_json::{Value, json};

use super::{ask, check, json_of, printed};
use crate::process::{Ratewright, run};

const POLICIES: &str = "
clients: {user: {jwt: {secret: a secret of at least thirty-two bytes}}}
policies:
- {name: login, by: ip, quota: [{rate: 1/h, burst: 10}, {name: day, algorithm: sliding_window, rate: 20/d}], when: {path: /login}}
- name: tiers
  by: ip
  quota: {rate: 5/h}
  when: {path: /tiers}
  overrides: [{name: get, match: {method: GET}, quota: {rate: 9/h}}]
- {name: fallback, by: {first_of: [user, ip]}, quota: {rate: 2/h}, when: {path: /fallback}}
- {name: keyed, by: 'header:X-Api-Key', missing: ip, quota: {rate: 7/h}, when: {path: /keyed}}
- {name: pair, by: [method, ip], quota: {rate: 5/h}, when: {path: /pair}}
- {name: strict, by: ['claim:plan', {first_of: [user, 'cookie:sid']}], missing: deny, quota: {rate: 5/h}, when: {path: /strict}}
- {name: per-user, by: user, quota: {rate: 5/h}, when: {path: /user}}
- {name: all, mode: shadow, quota: {rate: 10/1000d}, when: {path: /all}}
- {name: idle, by: ip, mode: off, quota: {rate: 1/h}}
- {name: at-once, by: ip, in_flight: 3}
";

/// Charges each policy that a request without a user falls under.
fn spend(ratewright: &Ratewright, ip: &str) {
    for path in ["/login", "/tiers", "/fallback", "/keyed", "/all"] {
        let attributes = json!({"ip": ip, "method": "POST", "path": path});
        assert_eq!(ratewright.decide(&attributes).status, 200, "{path}");
    }
    assert_eq!(ratewright.decide(&json!({"ip": ip, "method": "GET", "path": "/tiers"})).status, 200);
}

/// The buckets of an address: policy, override, quota, key and units left.
fn buckets(ratewright: &Ratewright, ip: &str) -> Vec<String> {
    let answer = json_of(&ask(ratewright, &["inspect", "--client", ip, "--json"]));
    let text = |value: &Value| value.as_str().map_or(String::new(), str::to_owned);
    let policies = answer["policies"].as_array().unwrap();
    let of_policy = |policy: &Value| {
        let bucket = |limit: &Value| {
            let names = ["policy", "override", "quota"].map(|name| text(&limit[name])).join(" ");
            format!("{names} {} {}/{}", text(&policy["key"]), limit["remaining"], limit["limit"])
        };
        policy["limits"].as_array().unwrap().iter().map(bucket).collect::<Vec<_>>()
    };
    policies.iter().flat_map(of_policy).collect()
}

#[test]
fn a_client_address_shows_its_buckets_under_every_policy_or_what_is_missing() {
    let ratewright = Ratewright::start(POLICIES);
    spend(&ratewright, "192.0.2.1");
    let expected = expect![[r#"
        192.0.2.1

        LIMIT      KEY            LEFT  OF  FULL IN    MODE     BASIS
        login      192.0.2.1         9  10  nnnn s     enforce  local
        login/day  192.0.2.1        19  20  nnnnn s    enforce  local
        tiers      192.0.2.1         4   5  nnn s      enforce  local
        tiers+get  192.0.2.1         8   9  nnn s      enforce  local
        fallback   ip:192.0.2.1      1   2  nnnn s     enforce  local
        keyed      ip:192.0.2.1      6   7  nnn s      enforce  local
        all        (all clients)     9  10  nnnnnnn s  shadow   local

        pair: needs method
        strict: needs claim:plan and (user or cookie:sid)
        per-user: needs user
        idle: the policy is off
        at-once: the gateway is not running, and only the gateway counts requests in flight
        exit 0"#]];
    check(&ratewright, &["inspect", "--client", "192.0.2.1"], expected);
    let answer = json_of(&ask(&ratewright, &["inspect", "--client", "192.0.2.1", "--json"]));
    assert_eq!((&answer["ip"], &answer["client"]), (&json!("192.0.2.1"), &json!("192.0.2.1")));
    assert_eq!(answer["policies"][5]["needs"], json!(["claim:plan", "user or cookie:sid"]));
    let limit = answer["policies"][0]["limits"][1].as_object().unwrap();
    for name in ["limit", "remaining", "resetAfterSeconds", "quota", "basis", "mode"] {
        assert!(limit.contains_key(name), "{name} is not in {limit:?}");
    }
}

#[test]
fn inspecting_a_client_spends_nothing_and_shows_no_other_client() {
    let ratewright = Ratewright::start(POLICIES);
    spend(&ratewright, "192.0.2.1");
    let expected = [
        "login   192.0.2.1 9/10",
        "login  day 192.0.2.1 19/20",
        "tiers   192.0.2.1 4/5",
        "tiers get  192.0.2.1 8/9",
        "fallback   ip:192.0.2.1 1/2",
        "keyed   ip:192.0.2.1 6/7",
        "all    9/10",
    ];
    for _ in 0..3 {
        assert_eq!(buckets(&ratewright, "192.0.2.1"), expected);
    }
    let others = buckets(&ratewright, "192.0.2.2");
    assert_eq!(others[0], "login   192.0.2.2 10/10");
    assert_eq!(others[6], "all    9/10", "everybody's");
    assert_eq!(
        ratewright.metric(
            r#"ratewright_decisions_total{policy="login",entrypoint="rest",verdict="allowed",basis="local",mode="enforce"}"#
        ),
        1.0
    );
}

/// A request with an invalid token is counted by address, in a bucket of the policy by user.
#[test]
fn the_bucket_of_requests_whose_user_cannot_be_read_is_shown_once_it_is_used() {
    let ratewright = Ratewright::start(POLICIES);
    let has_bucket = || buckets(&ratewright, "192.0.2.1").contains(&"per-user   ip:192.0.2.1 4/5".to_owned());
    assert!(!has_bucket());
    let headers = json!({"Authorization": "Bearer a.b.c"});
    ratewright.decide(&json!({"ip": "192.0.2.1", "path": "/user", "headers": headers}));
    assert!(has_bucket(), "{:#?}", buckets(&ratewright, "192.0.2.1"));
    let text = printed(&ask(&ratewright, &["inspect", "--client", "192.0.2.1"]));
    let remark = "per-user: needs user; also counted by address: requests whose value cannot be read\n";
    assert!(text.contains(remark), "{text}");
}

#[test]
fn all_addresses_of_an_ipv6_network_are_one_client() {
    let config = POLICIES.replace("clients: {", "clients: {ipv6_prefix: 56, ");
    let ratewright = Ratewright::start(&config);
    spend(&ratewright, "2001:db8:0:aa01::1");
    let there = buckets(&ratewright, "2001:db8:0:aaff::2");
    assert_eq!(there[0], "login   2001:db8:0:aa00::/56 9/10");
    assert_eq!(buckets(&ratewright, "2001:db8:0:ab00::1")[0], "login   2001:db8:0:ab00::/56 10/10");
    let text = printed(&ask(&ratewright, &["inspect", "--client", "2001:db8:0:aaff::2"]));
    assert!(text.starts_with("2001:db8:0:aaff::2, counted as 2001:db8:0:aa00::/56\n"), "{text}");
    spend(&ratewright, "192.0.2.1");
    assert_eq!(buckets(&ratewright, "::ffff:192.0.2.1")[0], "login   192.0.2.1 9/10", "the same client");
}

#[test]
fn a_client_that_is_not_an_address_is_rejected() {
    let ratewright = Ratewright::start("");
    for (query, detail) in [
        (
            "ip=2001:db8::/64",
            r#"ip is "2001:db8::/64"; use one address, for example 192.0.2.7 or 2001:db8::7; for a network, any of its addresses"#,
        ),
        ("", "ip is missing; send the client's address, for example ip=192.0.2.7"),
        ("ip=192.0.2.1&ip=192.0.2.1", "ip is given twice; send it once"),
        ("ip=192.0.2.1&user=a", r#"unknown parameter "user"; this call takes ip"#),
    ] {
        let answer = ratewright.admin(&format!("/api/v1/admin/client?{query}"));
        assert_eq!((answer.status, answer.json()["detail"].as_str()), (400, Some(detail)), "{query}");
    }
    for misuse in [
        &["inspect", "--client", "2001:db8::/64"][..],
        &["inspect", "--client", "nobody"],
        &["inspect", "login:192.0.2.1", "--client", "192.0.2.1"],
    ] {
        assert_eq!(run(misuse).status.code(), Some(2), "{misuse:?}");
    }
    let text = printed(&ask(&ratewright, &["inspect", "--client", "192.0.2.1"]));
    assert_eq!(text, "192.0.2.1\n\nThere are no policies\nexit 0");
}
