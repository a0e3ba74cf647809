//! The policy file, as people write it.

use expect_test::{Expect, expect};
use tollgate_core::Algorithm;

use super::*;

#[track_caller]
fn check(text: &str, expected: Expect) {
    let shown = match Config::of_text(text) {
        Ok(config) => {
            let quota = |name: &&str| {
                let policy = config.policies.named(name).unwrap();
                let quota = policy.limits()[0].quota();
                format!("{name} {} of {}", quota.rate(), quota.capacity())
            };
            let quotas: Vec<_> = Algorithm::NAMES.iter().map(quota).collect();
            format!("{}\n{}", config.listen.api.address, quotas.join("\n"))
        }
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn an_empty_file_is_a_working_limiter() {
    for text in ["", "# nothing\n", "api: {}\nlisten:\n"] {
        check(
            text,
            expect![[r#"
                127.0.0.1:8080
                token_bucket 10/s of 100
                leaky_bucket 10/s of 100
                sliding_window 100/min of 100
                sliding_window_counter 100/min of 100
                fixed_window 100/min of 100"#]],
        );
    }
}

#[test]
fn what_is_written_counts() {
    check(
        "listen: {api: '[::1]:9000'}\napi:\n  defaults:\n    token_bucket: {rate: 1/6s, burst: 10, refill: stepped}\n    fixed_window: {rate: 5/h}\n",
        expect![[r#"
            [::1]:9000
            token_bucket 1/6s of 10
            leaky_bucket 10/s of 100
            sliding_window 100/min of 100
            sliding_window_counter 100/min of 100
            fixed_window 5/h of 5"#]],
    );
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_place() {
    check(
        "listen:\n  api: nowhere\napi:\n  defaults:\n    token_bucket: {rate: 10/s, burst: 0}\n    sliding_window: {rate: 20000/s}\n    fixed_window: {rate: often}\npolicies:\n- {name: A B, quota: {rate: 1/s}}\n- {quota: {rate: 1/s}}\n- {name: p, by: [ip, usr], quota: {burst: 3}, when: {path: login, sky: blue}}\n- {name: q, quota: [{rate: 1/s}, {rate: 1/h}], missing: perhaps}\n",
        expect![[r#"
            t.yaml:2:8: listen.api is "nowhere"; use an address and a port, for example 127.0.0.1:8080
            t.yaml:5:39: api.defaults.token_bucket.burst is "0"; a burst of 0 would deny everything. Use at least 1
            t.yaml:6:28: api.defaults.sliding_window: sliding_window remembers every charge, so it takes at most 10000 units, not 20000; use sliding_window_counter for more
            t.yaml:7:26: api.defaults.fixed_window.rate is "often"; a rate is units/time, for example 10/s, 1/6s or 250/min
            t.yaml:9:10: policies.name is "A B"; it stands in keys, so use 1 to 64 of a-z 0-9 . _ -
            t.yaml:10:3: a policy has no name; write name: login
            t.yaml:11:22: policies.p.by is "usr"; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:11:35: policies.p.quota has no rate; write rate: 10/s
            t.yaml:11:60: policies.p.when.path is "login", which no path fits; begin with / or **
            t.yaml:11:72: policies.p.when.sky: "sky" is no attribute; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:12:34: policies.q.quota[1] has no name; the second quota and later ones need one, for example name: hour
            t.yaml:12:57: policies.q.missing is "perhaps"; use one of skip, ip, deny"#]],
    );
}
