//! Files whose conversion could take minutes. The tests read no clock: a slow conversion runs into the time limit of the test run.

use super::*;

#[test]
fn files_that_expand_without_end_are_rejected() {
    let list = |name: char| format!("[{}]", vec![format!("*{name}"); 9].join(", "));
    let bomb: String = ('b'..'p')
        .map(|name| format!("{name}: &{name} {}\n", list(char::from_u32(name as u32 - 1).unwrap())))
        .collect();
    let deep = format!("a: {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let doubling: String = (1..40).map(|n| format!("p{n}: '${{p{}}}${{p{}}}'\n", n - 1, n - 1)).collect();
    for text in [
        format!("a: &a [x]\n{bomb}"),
        deep,
        format!("p0: x\n{doubling}rate-limit.default-limit: {{capacity: '${{p39}}'}}"),
    ] {
        assert!(converted(&text).is_err());
    }
}

#[test]
fn placeholders_that_expand_to_nothing_are_counted() {
    let names = |n: usize| format!("${{p{}}}", n - 1).repeat(12);
    let empty: String = (1..8).map(|n| format!("p{n}: '{}'\n", names(n))).collect();
    let text = format!("p0: ''\n{empty}rate-limit.default-limit: {{capacity: '1${{p7}}', window: 1m}}");
    assert!(errors(&text).contains("more than 100000 placeholders"));
}

#[test]
fn many_names_and_limits_without_names_take_no_quadratic_time() {
    let names: String = (0..60_000).map(|n| format!("n{n}: 1\n")).collect();
    let limits = "{capacity: 1, window: 1m, path: /a}, ".repeat(1_000);
    both(&format!("{names}rate-limit.limits: [{limits}]\n"));
}

#[test]
fn a_long_pattern_is_an_error() {
    let route = |path: &str| {
        format!("spring.cloud.gateway.routes: [{{id: a, uri: 'http://h', predicates: ['Path=/{path}']}}]")
    };
    assert!(errors(&route(&"{".repeat(300_000))).contains("a pattern has more than 2048 bytes"));
    let url = format!(
        "bucket4j.filters: [{{url: '/{}', rate-limits: [{{bandwidths: [{{capacity: 1, time: 1, unit: hours}}]}}]}}]",
        "a".repeat(300_000)
    );
    assert!(both(&url).1.contains("the limit covers all paths"));
}
