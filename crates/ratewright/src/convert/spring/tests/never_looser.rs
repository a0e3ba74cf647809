//! Spring files of which an earlier conversion made looser limits without a word.

use super::*;

const LIMIT: &str = "default-limit: {capacity: 1, window: 1m}";

/// A route with a limit.
fn limited(id: &str, predicates: &str) -> String {
    format!(
        "{{id: {id}, uri: 'http://h', predicates: [{predicates}], filters: [{{name: RequestRateLimiter, args: {{redis-rate-limiter: {{replenishRate: 1, burstCapacity: 1}}, key-resolver: '#{{@ip}}'}}}}]}}"
    )
}

/// A filter of the starter with one limit.
fn starter(limit: &str) -> String {
    format!("bucket4j.filters: [{{url: '/a/.*', rate-limits: [{{{limit}}}]}}]")
}

#[test]
fn a_section_that_is_off_switches_only_its_own_limits_off() {
    let (text, _) =
        both(&format!("a.rate-limit: {{enabled: false, {LIMIT}}}\nb.rate-limit: {{enabled: true, {LIMIT}}}"));
    assert!(!text.contains("\nenabled:"), "{text}");
    assert_eq!(text.matches("mode: off").count(), 1, "{text}");
    let route = limited("r", "Path=/r");
    let (text, _) = both(&format!("a.rate-limit.enabled: false\nspring.cloud.gateway.routes: [{route}]"));
    assert!(!text.contains("\nenabled:") && !text.contains("mode: off"), "{text}");
    let starter = starter("bandwidths: [{capacity: 1, time: 1, unit: hours}]");
    let (text, _) = both(&format!("{starter}\nbucket4j.enabled: false\na.rate-limit: {{{LIMIT}}}"));
    assert!(!text.contains("\nenabled:"), "{text}");
    assert_eq!(text.matches("mode: off").count(), 1, "{text}");
    let (text, _) =
        both(&format!("{starter}\nbucket4j.enabled: false\na.rate-limit: {{enabled: false, {LIMIT}}}"));
    assert!(text.contains("\nenabled: false"), "{text}");
}

#[test]
fn a_variable_switches_a_section_or_is_reported() {
    let (text, _) = both("rate-limit: {enabled: '${E:false}', capacity: 1, window: 1m}");
    assert!(text.contains("enabled: \"${E:-false}\"") && !text.contains("mode:"), "{text}");
    let (text, remarks) =
        both(&format!("a.rate-limit: {{enabled: '${{E:false}}', {LIMIT}}}\nb.rate-limit: {{{LIMIT}}}"));
    assert!(!text.contains("\nenabled:") && !text.contains("\n    mode: off"), "{text}");
    assert!(
        text.contains("assumed: enabled") && remarks.contains("a.rate-limit.enabled: other limits"),
        "{text}{remarks}"
    );
    let (text, remarks) = both("rate-limit.limits.a: {enabled: '${E:false}', capacity: 1, window: 1m}");
    assert!(!text.contains("mode: off"), "{text}");
    assert!(
        text.contains("assumed: rate-limit.limits.a.enabled") && remarks.contains("assumed true"),
        "{text}{remarks}"
    );
}

#[test]
fn a_period_beside_a_rate_is_its_period() {
    for (period, quota) in [
        ("period: 1m", "{ rate: 10/min, burst: 100 }"),
        ("window: 60s", "{ rate: 10/60s, burst: 100 }"),
        ("interval: 2m", "{ rate: 10/2min, burst: 100 }"),
        ("refill-period: 1h", "{ rate: 10/h, burst: 100 }"),
    ] {
        let (text, _) =
            both(&format!("rate-limit.default-limit: {{capacity: 100, refill-rate: 10, {period}}}"));
        assert!(text.contains(quota), "{text}");
    }
    let (text, _) =
        both("rate-limit.default-limit: {capacity: 10, requests-per-minute: 5, window: 1h, refill-rate: 7}");
    assert!(text.contains("assumed") && text.contains("not converted"), "{text}");
}

#[test]
fn without_a_fallback_requests_are_denied_if_the_file_says_so() {
    let store = |text: &str| both(&format!("rate-limit: {{{text}, {LIMIT}}}"));
    assert!(store("fallback-enabled: false, fail-open: false").0.contains("on_failure: closed"));
    assert!(store("fail-open: '${F:true}'").0.contains("on_failure: closed"));
    let (text, remarks) = store("fallback-enabled: false");
    assert!(
        text.contains("on_failure: open") && text.contains("# assumed: rate-limit.fallback-enabled"),
        "{text}"
    );
    assert!(remarks.contains("requests pass while Redis is gone"), "{remarks}");
}

#[test]
fn variables_stay_or_are_reported() {
    let filter = |args: &str| {
        with_filter(&format!("{{name: RequestRateLimiter, args: {{{args}, key-resolver: '#{{@user}}'}}}}"))
    };
    let (text, _) =
        both(&filter("redis-rate-limiter: {replenishRate: 1, burstCapacity: 9, requestedTokens: '${T:1}'}"));
    assert!(text.contains("cost: \"${T:-1}\""), "{text}");
    let (text, _) = both(&filter("redis-rate-limiter: {replenishRate: '${R:0.5}', burstCapacity: 9}"));
    assert!(text.contains("is \"0.5\"; a policy file has no variable for it"), "{text}");
    let (text, _) = both(&filter(
        "deny-empty-key: '${D:false}', redis-rate-limiter: {replenishRate: 1, burstCapacity: 9}",
    ));
    assert!(
        text.contains("missing: deny") && text.contains("is true; a policy file has no variable"),
        "{text}"
    );
    let (text, _) = both(&starter("bandwidths: [{capacity: 5, time: '${T:1}', unit: minutes}]"));
    assert!(text.contains("rate: \"5/${T:-1}min\""), "{text}");
    let (text, _) = both(&starter("bandwidths: [{capacity: 5, time: 1, unit: '${U:minutes}'}]"));
    assert!(text.contains("is \"minutes\"; a policy file has no variable for it"), "{text}");
}

#[test]
fn cache_keys_are_strict_and_guesses_are_reported() {
    let limit = |key: &str| {
        both(&starter(&format!("cache-key: \"{key}\", bandwidths: [{{capacity: 1, time: 1, unit: hours}}]")))
            .0
    };
    let text = limit("getHeader('X-Api-Key')");
    assert!(text.contains("missing: deny") && text.contains("the starter counts them together"), "{text}");
    for key in [
        "getHeader('X-Api-Key').toLowerCase()",
        "@tenantService.tenantOf(authentication)",
        "getRemoteAddr().substring(0, 3)",
    ] {
        assert!(limit(key).contains("expressions are not evaluated"), "{key}");
    }
    assert!(!limit("getRemoteAddr()").contains("assumed:"));
}

#[test]
fn exemptions_have_no_defaults() {
    let route = limited("r", "Path=/r");
    let (text, _) =
        both(&format!("rate-limit.allowed-ips: [10.0.0.1]\nspring.cloud.gateway.routes: [{route}]"));
    assert!(text.contains("  paths: []\n  methods: []\n  clients: [10.0.0.1]"), "{text}");
    let (text, remarks) = both(&format!(
        "a.rate-limit: {{skip-paths: [/x], {LIMIT}}}\nb.rate-limit: {{skip-paths: [/y, /x], {LIMIT}}}"
    ));
    assert!(
        text.contains("paths: [/x, /y]") && text.contains("# assumed: a.rate-limit.skip-paths"),
        "{text}"
    );
    assert!(remarks.contains("also from those of other sections"), "{remarks}");
}

#[test]
fn ambiguous_numbers_and_names_are_errors() {
    let text = errors("rate-limit.default-limit:\n  capacity: 010\n  window: 1m");
    assert!(text.contains(":2:13: ") && text.contains("leading zero is ambiguous"), "{text}");
    let text = errors("rate-limit.default-limit:\n  capacity: 5\n  Capacity: 50\n  window: 1m");
    assert!(text.contains("written twice, in lines 2 and 3"), "{text}");
}

#[test]
fn a_global_key_is_one_bucket() {
    let (text, _) = both(&format!("rate-limit: {{key-type: global, {LIMIT}}}"));
    assert!(!text.contains("by:"), "{text}");
}

#[test]
fn limits_in_other_forms_are_reported() {
    for (text, name) in [
        ("app.rate-limits: [{path: /a, limit: 5}]", "app.rate-limits"),
        ("services: [{name: a, rate-limit: {limit: 5}}]", "services"),
        ("resilience4j.ratelimiter.instances.a.limit-for-period: 5", "resilience4j.ratelimiter"),
    ] {
        let (policies, remarks) = both(&format!("{text}\nx.rate-limit: {{{LIMIT}}}"));
        assert!(remarks.contains(&format!("{name}: not converted; rate limits in this form")), "{remarks}");
        assert!(policies.contains(&format!("# not converted: {name}")), "{policies}");
        assert!(errors(text).contains(&format!("{name}: not converted")));
    }
}

#[test]
fn a_later_route_does_not_take_requests_from_the_limits_of_an_earlier_one() {
    for (earlier, later, is_added) in [
        ("Path=/api/**", "Path=/api/login", true),
        ("Path=/api/*", "Path=/api/login", true),
        ("Path=/api/**", "'Path=/api/**', Method=POST", true),
        ("Path=/{t}/login", "Path=/acme/**", false),
        ("Path=/a/**", "Host=h.example", false),
    ] {
        let (text, remarks) = both(&format!(
            "spring.cloud.gateway.routes: [{}, {{id: second, uri: 'http://g', predicates: [{later}]}}]",
            limited("first", &format!("'{earlier}'"))
        ));
        let (_, second) = text.split_once("- id: second").unwrap();
        assert_eq!(second.contains("policies: [first]"), is_added, "{text}");
        assert!(second.contains("# assumed: route first comes first in Spring"), "{text}");
        assert!(remarks.contains("routes[1]: assumed: route first"), "{remarks}");
    }
    let (text, _) = both(&format!(
        "spring.cloud.gateway.routes: [{}, {{id: rest, uri: 'http://g', predicates: ['Path=/**']}}]",
        limited("first", "'Path=/api/**'")
    ));
    assert!(!text.contains("comes first"), "{text}");
}

#[test]
fn documents_and_files_that_are_not_read_are_reported() {
    let (text, remarks) = both(&format!(
        "rate-limit: {{{LIMIT}}}\nspring: {{config.import: 'file:x.yml', profiles.include: a}}\n---\nspring.config.activate.on-cloud-platform: kubernetes\nrate-limit.default-limit.capacity: 999\n---\nspring.config.activate.on-profile: dev\nrate-limit.enabled: false\n"
    ));
    assert!(text.contains("rate: 1/min") && !text.contains("999"), "{text}");
    for name in
        ["cloud platform kubernetes", "profile dev", "spring.config.import", "spring.profiles.include"]
    {
        assert!(text.contains(name) && remarks.contains(name), "{name}: {text}{remarks}");
    }
}

#[test]
fn a_profile_that_no_file_has_is_an_error() {
    let file = |path: &str| SourceFile {
        path: path.into(),
        text: format!("rate-limit: {{{LIMIT}}}"),
        is_profile: false,
    };
    let files = [file("application.yml"), file("application-prod.yml")];
    assert!(convert(&files, Some("prod")).is_ok());
    assert!(convert(&files, Some("pord")).is_err());
}

#[test]
fn paths_of_limits_match_and_do_not_hide_each_other() {
    let limit = |path: &str| format!("{{capacity: 1, window: 1m, path: '{path}'}}");
    for (path, expected) in [
        ("/users/{id}/x", "path: /users/*/x "),
        ("/a?c", "path: /a*c "),
        ("/users/", "path: [/users/, /users] "),
        ("^/(?!a).*", "path: \"**\""),
    ] {
        let (text, _) = both(&format!("rate-limit.limits.a: {}", limit(path)));
        assert!(text.contains(expected), "{text}");
    }
    let (text, remarks) =
        both(&format!("rate-limit.limits:\n  api: {}\n  login: {}\n", limit("/api/**"), limit("/api/login")));
    assert!(text.find("name: login") < text.find("name: api"), "{text}");
    assert!(remarks.contains("limits.login: assumed: it applies before"), "{remarks}");
}
