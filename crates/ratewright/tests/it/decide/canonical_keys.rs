//! One client or request in several spellings always has the same bucket.

use serde_json::{Value, json};

use crate::process::Ratewright;

/// Starts with a limit of two, and asks in these ways, one after the other: the third and later ones are denied.
#[track_caller]
fn one_bucket(policy: &str, spellings: &[Value]) {
    let ratewright = Ratewright::start(&format!("policies: [{{{policy}, name: p, quota: {{rate: 2/d}}}}]\n"));
    for (n, attributes) in spellings.iter().enumerate() {
        let answer = ratewright.decide(attributes);
        assert_eq!(answer.status, if n < 2 { 200 } else { 429 }, "{attributes}: {}", answer.body);
    }
}

#[test]
fn b3_a_host_is_the_same_with_a_port_and_a_dot() {
    let hosts = [
        "api.example.com",
        "API.example.com",
        "api.example.com:443",
        "api.example.com.",
        "x@api.example.com",
    ];
    let mut request_attributes: Vec<_> = hosts.iter().map(|host| json!({ "host": host })).collect();
    request_attributes.push(json!({ "headers": { "Host": "api.example.com:8443" } }));
    one_bucket("when: {host: api.example.com}", &request_attributes);
}

/// An upstream may read it all the same, so it is counted by address: here without one, all in the same bucket.
#[test]
fn an_invalid_host_is_counted_by_address() {
    let ratewright = Ratewright::start("policies: [{name: p, by: host, quota: {rate: 1/d}}]\n");
    let mut expected = 200;
    for rubbish in ["[]é", "[::1]é:80", "[", "é:é", "a..", "@"] {
        for request_attributes in [json!({ "host": rubbish }), json!({ "headers": { "Host": rubbish } })] {
            let answer = ratewright.decide(&request_attributes);
            assert_eq!(answer.status, expected, "{request_attributes}: {}", answer.body);
            expected = 429;
        }
    }
}

#[test]
fn b5_a_cookie_and_a_header_count_in_both_forms() {
    let cookies = [
        json!({ "cookies": { "sid": "a" } }),
        json!({ "headers": { "Cookie": "x=y; sid=a" } }),
        json!({ "headers": { "cookie": "sid=\"a\"" } }),
    ];
    one_bucket("by: 'cookie:sid'", &cookies);
    let keys = ["k", " k", "k\t"].map(|key| json!({ "headers": { "X-Api-Key": key } }));
    one_bucket("by: 'header:X-Api-Key'", &keys);
}

/// Upstreams that send a `#` on find the parameters after it, also behind a question mark of its own.
#[test]
fn b5_a_parameter_counts_wherever_upstreams_look_for_it() {
    let paths = ["/x?key=a", "/x#?key=a", "/x#key=a", "/x?y=1#?key=a", "/x?y#key=a", "/x;key=a", "/x?KEY=a"];
    let mut request_attributes: Vec<_> = paths.iter().map(|path| json!({ "path": path })).collect();
    request_attributes.extend(["key", "Key", " key", "key[]"].map(|name| json!({ "query": { name: "a" } })));
    one_bucket("by: 'query:key'", &request_attributes);
    request_attributes.reverse();
    one_bucket("by: 'query:key'", &request_attributes);
    // A policy that denies without a parameter accepts this one.
    let hidden = ["/x#?key=a", "/x?y=1#?key=a", "/x?key=a", "/x#key=a"].map(|path| json!({ "path": path }));
    one_bucket("by: 'query:key', missing: deny", &hidden);
}

/// Frameworks ignore case in the names of cookies, drop blanks before them, decode them or make lists of them. In a header and in
/// `cookies` the same names mean the same.
#[test]
fn b5_a_cookie_counts_under_every_name_that_upstreams_accept() {
    let names = ["sid", "Sid", "SID", "sid[]", "%73id"];
    let mut request_attributes: Vec<_> =
        names.iter().map(|name| json!({ "cookies": { *name: "a" } })).collect();
    request_attributes.push(json!({ "cookies": { " sid": "a" } }));
    request_attributes.extend(names.map(|name| json!({ "headers": { "Cookie": format!("x=y; {name}=a") } })));
    one_bucket("by: 'cookie:sid'", &request_attributes);
    request_attributes.reverse();
    one_bucket("by: 'cookie:sid'", &request_attributes);
}

#[test]
fn names_that_no_upstream_accepts_are_other_cookies() {
    let ratewright = Ratewright::start("policies: [{name: p, by: 'cookie:sid', quota: {rate: 1/d}}]\n");
    for name in ["sid2", "xsid", "si", "x-sid", "sid_"] {
        for request_attributes in
            [json!({ "cookies": { name: "a" } }), json!({ "headers": { "Cookie": format!("{name}=a") } })]
        {
            let answer = ratewright.decide(&request_attributes);
            assert_eq!(
                (answer.status, answer.remaining("p")),
                (200, None),
                "{request_attributes}: {}",
                answer.body
            );
        }
    }
}

#[test]
fn b3_a_path_has_no_parameters_and_no_second_spelling() {
    let paths =
        ["/orders", "/orders;x=1", "//orders", "/static/..;/orders", "/%6frders/", "/a%2f..%2forders?q=1"];
    one_bucket("when: {path: /orders}, by: path", &paths.map(|path| json!({ "path": path })));
}

#[test]
fn a_path_that_is_too_long_is_rejected() {
    let ratewright = Ratewright::start("policies: [{name: p, by: path, quota: {rate: 2/d}}]\n");
    let path = "/api/v1".repeat(2_000);
    let answer = ratewright.decide(&json!({ "path": path }));
    assert_eq!((answer.status, answer.json()["parameter"].as_str()), (400, Some("path")), "{}", answer.body);
}

/// What an operator sees of a key is what its client meets.
#[test]
fn inspect_applies_the_override_of_the_keys_address() {
    let ratewright = Ratewright::start(
        "policies:\n- {name: p, by: ip, quota: {rate: 100/d}, overrides: [{match: {ip: 10.0.0.0/8}, quota: {rate: 1/d}}]}\n",
    );
    assert_eq!(ratewright.decide(&json!({ "ip": "10.1.1.1" })).status, 200);
    let check = ratewright.get("check?policy=p&key=10.1.1.1");
    assert_eq!(check.status, 429, "{}", check.body);
}
