//! Invalid and changed Spring files: the conversion reports them, never panics, and never shows a password.

mod invalid;
mod never_looser;
mod secrets;
mod sizes;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::config::Config;

const SECRET: &str = "s3cret-in-a-file";
const BUCKET4J: &str = include_str!("../../../tests/it/convert/bucket4j.yml");
const GATEWAY: &str = include_str!("../../../tests/it/convert/gateway.yml");
const STARTER: &str = include_str!("../../../tests/it/convert/starter.yml");
const DECISIONS: &str = include_str!("../../../tests/it/convert/decisions.yml");

fn converted(text: &str) -> Result<Conversion, Vec<ConfigError>> {
    let file = SourceFile { path: "application.yml".into(), text: text.to_owned(), is_profile: false };
    convert(&[file], None)
}

/// The policy file, and all warnings and notes.
#[track_caller]
fn both(text: &str) -> (String, String) {
    let Conversion { text, warnings, notes } = converted(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let remarks = warnings.iter().map(ToString::to_string).chain(notes).map(|line| line + "\n");
    // Comments without line breaks.
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let comment = line.trim_start().strip_prefix("# ");
        let begins =
            comment.is_some_and(|text| text.starts_with("assumed") || text.starts_with("not converted"));
        match (comment, lines.last_mut()) {
            (Some(comment), Some(last)) if !begins && last.contains("# ") => {
                last.push_str(&format!(" {comment}"))
            }
            _ => lines.push(line.to_owned()),
        }
    }
    (lines.join("\n") + "\n", remarks.collect())
}

/// The errors of a text.
#[track_caller]
fn errors(text: &str) -> String {
    let errors = converted(text).err().expect("the conversion fails");
    errors.iter().map(|error| format!("{error:#}\n")).collect()
}

/// Converts a text, and compares the policy file without its head, or the errors.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let shown = match converted(text) {
        Ok(conversion) => conversion.text.lines().skip(2).map(|line| format!("{line}\n")).collect(),
        Err(errors) => errors.iter().map(|error| format!("error: {error}\n")).collect::<String>(),
    };
    expected.assert_eq(&shown);
}

/// Converts a text, and compares the warnings and notes.
#[track_caller]
fn check_remarks(text: &str, expected: Expect) {
    let Conversion { warnings, notes, .. } = converted(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let remarks = warnings.iter().map(ToString::to_string).chain(notes).map(|line| line + "\n");
    expected.assert_eq(&remarks.collect::<String>());
}

/// A route of Spring Cloud Gateway with this filter.
fn with_filter(filter: &str) -> String {
    format!(
        "spring.cloud.gateway.routes[0]: {{id: a, uri: 'http://h', predicates: [Path=/a], filters: [{filter}]}}"
    )
}

#[test]
fn requested_tokens_are_the_cost_and_a_rate_may_have_decimals() {
    let limiter = |args: &str| {
        with_filter(&format!("{{name: RequestRateLimiter, args: {{{args}, key-resolver: '#{{@ip}}'}}}}"))
    };
    let quota = |args: &str| {
        let text = converted(&limiter(args)).unwrap_or_else(|errors| panic!("{errors:?}")).text;
        let lines =
            text.lines().filter(|line| line.trim().starts_with("quota:") || line.trim().starts_with("cost:"));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(", ")
    };
    let check = |args: &str, expected: Expect| expected.assert_eq(&quota(args));
    check(
        "redis-rate-limiter: {replenishRate: 10, burstCapacity: 20, requestedTokens: 5}",
        expect!["quota: { rate: 10/s, burst: 20 }, cost: 5"],
    );
    check(
        "redis-rate-limiter.replenishRate: 0.5, redis-rate-limiter.burstCapacity: 3",
        expect!["quota: { rate: 1/2s, burst: 3 }"],
    );
    check("redis-rate-limiter.replenish-rate: 2.50", expect!["quota: { rate: 5/2s, burst: 1 }"]);
    check(
        "redis-rate-limiter.replenish_rate: '${R:7}', redis-rate-limiter.burst_capacity: '${B}'",
        expect![[r#"quota: { rate: "${R:-7}/s", burst: "${B}" }"#]],
    );
    check(
        "redis-rate-limiter: {replenishRate: 1, burstCapacity: 0}",
        expect!["quota: { rate: 1/s, burst: 1 }, cost: 2"],
    );
    check(
        "bucket4j-rate-limiter: {capacity: 20, refillTokens: 5, refillPeriod: PT1M, refillStyle: INTERVALLY}",
        expect!["quota: { rate: 5/min, burst: 20, refill: stepped }"],
    );
    check(
        "redis-rate-limiter: {replenishRate: 99999999999, burstCapacity: 99999999999}",
        expect!["quota: { rate: 4294967295/s, burst: 4294967295 }"],
    );
}

#[test]
fn routes_that_differ_only_by_headers_share_all_their_limits() {
    let limiter = |rate: u32| {
        format!(
            "{{name: RequestRateLimiter, args: {{redis-rate-limiter: {{replenishRate: {rate}, burstCapacity: {rate}}}, keyResolver: '#{{@ipKeyResolver}}'}}}}"
        )
    };
    let text = format!(
        "spring: {{cloud: {{gateway: {{routes: [{{id: gold, uri: 'http://h', predicates: ['Path=/a/**', 'Header=X-Tier, gold'], filters: [{}]}}, {{id: other, uri: 'http://h', predicates: ['Path=/a/**'], filters: [{}]}}]}}}}}}",
        limiter(100),
        limiter(10)
    );
    let text = converted(&text).unwrap_or_else(|errors| panic!("{errors:?}")).text;
    assert!(text.contains("policies: [gold, other]"), "{text}");
}

#[test]
fn a_route_without_an_upstream_keeps_its_limits() {
    check(
        "spring.cloud.gateway.routes:\n- {id: a, uri: 'forward:/x', predicates: ['Path=/a/{id}'], filters: [{name: RequestRateLimiter, args: {redis-rate-limiter: {replenishRate: 1, burstCapacity: 2}, key-resolver: '#{@tenantResolver}'}}]}\n- {id: b, uri: 'http://h', predicates: [Path=/**]}\n",
        expect![[r#"
            store:
              # Spring Cloud Gateway lets every request pass while Redis is gone; on_failure: open does the same.
              redis:
                url: redis://localhost:6379
              on_failure: local

            # Behind a load balancer, name it; otherwise all requests have its address:
            # clients: { trusted_proxies: [10.0.0.0/8] }

            exempt:
              # Spring limits every request. Without this section, /health, /static/** and others would be exempt.
              paths: []
              methods: []

            policies:
              - name: a
                # assumed: by, in place of the bean tenantResolver
                by: ip
                quota: { rate: 1/s, burst: 2 }
                when: { path: /a/* }

            routes:
              # not converted: spring.cloud.gateway.routes[0].uri (line 2); routes need an upstream: http://host:port or
              # https://host

              - id: b
                match: { path: /** }
                upstream: http://h
                host: upstream
        "#]],
    );
}

#[test]
fn two_sections_have_two_groups() {
    let limit = "{limits: {login: {capacity: 1, window: 1m}}, default-limit: {capacity: 9, window: 1m}}";
    let text = converted(&format!("a.rate-limit: {limit}\nb.rate-limit: {limit}\n"))
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .text;
    for line in [
        "name: login",
        "name: default",
        "name: login-2",
        "name: default-2",
        "group: endpoint\n",
        "group: endpoint-2\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn variables_of_spring_become_variables_of_ratewright() {
    check(
        "rate-limit: {enabled: '${LIMITS:true}', default-limit: {capacity: '${CAPACITY:10}', window: '${WINDOW:1m}', skip: 1}}\n\
         spring.data.redis: {host: '${REDIS_HOST:localhost}', port: '${REDIS_PORT}', password: '${REDIS_PASSWORD:}', ssl.enabled: true, database: 2}",
        expect![[r#"
            enabled: "${LIMITS:-true}"

            store:
              redis:
                url: "rediss://:${REDIS_PASSWORD:-}@${REDIS_HOST:-localhost}:${REDIS_PORT}/2"

            # Behind a load balancer, name it; otherwise all requests have its address:
            # clients: { trusted_proxies: [10.0.0.0/8] }

            policies:
              # assumed: limits count by client address; for users write by: { first_of: [user, ip] }
              # assumed: tokens come back evenly (refillGreedy); for refillIntervally add refill: stepped
              # assumed: /health, /static/** and Ratewright's other defaults are exempt; see exempt

              - name: default
                by: ip
                quota: { rate: "${CAPACITY:-10}/${WINDOW:-1m}", burst: "${CAPACITY:-10}" }
                # not converted: rate-limit.default-limit.skip (line 1); this property is not known;
                # docs/reference/configuration.md lists all settings

            # To put the gateway in front of the application, add a route to it:
            # routes: [{ id: app, match: { path: /** }, upstream: http://127.0.0.1:8080 }]
        "#]],
    );
}

#[test]
fn every_property_is_converted_or_named() {
    check_remarks(
        "rate-limit:\n  limits:\n    login: {capacity: 1, window: 1m, paths: '.*/login.*', colour: red}\n  audit:\n    sink: [kafka]\n  key-type: ip\n  skip-paths: /h\nserver.port: 80\n",
        expect![[r#"
            application.yml:2:3: rate-limit: the file does not say; assumed: tokens come back evenly (refillGreedy); for refillIntervally add refill: stepped
            application.yml:3:67: rate-limit.limits.login.colour: not converted; this property is not known; docs/reference/configuration.md lists all settings
            application.yml:5:12: rate-limit.audit.sink[0]: not converted; this property is not known; docs/reference/configuration.md lists all settings
            these sections are not about rate limits, and were not read: server
        "#]],
    );
}

/// Values to put in place of others.
fn odd() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "0",
        "-1",
        "1",
        "4294967296",
        "18446744073709551616",
        "0.5",
        "1e300",
        ".nan",
        "~",
        "''",
        "[]",
        "{}",
        "[[[]]]",
        "ä",
        "${A}",
        "${A:1}",
        "${",
        "#{@x}",
        "'*'",
        "**",
        "lb://x",
        "1m",
        "PT1S",
        "PT",
        "P",
        "..",
        "true",
        "/",
        "|",
        "&a",
        "*a",
        "\t",
        "[0]",
        "a.b",
        "\u{202e}",
    ])
}

/// All that a conversion prints to standard error. A converted file passes the check that prints no errors.
fn reported(text: &str) -> String {
    match converted(text) {
        Err(errors) => errors.iter().map(|error| format!("{error:#}\n")).collect(),
        Ok(Conversion { warnings, notes, .. }) => {
            warnings.iter().map(ToString::to_string).chain(notes).map(|line| line + "\n").collect()
        }
    }
}

proptest! {
    /// A word of a file is replaced by another.
    #[test]
    fn no_value_makes_the_conversion_panic_or_shows_a_password(n in 0_usize..4, at in 0_usize..400, other in odd()) {
        let text = [BUCKET4J, GATEWAY, STARTER, DECISIONS][n];
        let is_part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
        let mut words: Vec<&str> = text.split_inclusive(|c| !is_part(c)).collect();
        let at = at % words.len();
        let end = words[at].trim_start_matches(is_part);
        let changed = format!("{other}{end}");
        words[at] = &changed;
        prop_assert!(!reported(&words.concat()).contains(SECRET));
    }

    /// The file is truncated.
    #[test]
    fn no_cut_makes_the_conversion_panic(n in 0_usize..4, at in 0_usize..2_000) {
        let text = [BUCKET4J, GATEWAY, STARTER, DECISIONS][n];
        reported(text.get(..at % text.len()).unwrap_or_default());
    }

    /// A converted limit is the one in the file, whatever its numbers.
    #[test]
    fn a_converted_bucket_is_never_looser(capacity in 1_u64.., tokens in 1_u64.., period in 1_u64..10_000_000_000) {
        let text = format!("rate-limit.default-limit: {{capacity: {capacity}, refill-tokens: {tokens}, refill-period: {period}ms}}");
        let Ok(Conversion { text, .. }) = converted(&text) else { return Ok(()) };
        let config = Config::of_text(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
        let policy = config.policies.named("default").unwrap();
        let quota = policy.limits()[0].quota();
        prop_assert!(u64::from(quota.capacity().get()) <= capacity);
        let (units, window) = (u128::from(quota.rate().units().get()), u128::from(quota.window().as_micros()));
        // units / window <= tokens / period
        prop_assert!(units * u128::from(period) * 1_000 <= u128::from(tokens) * window);
    }
}
