//! Paths: their spellings, and which of them are exempt.

use super::{USERS, application, check, decide, gateway, limit, pass};
use crate::curl::{HTTP_1, HTTP_2, Request};
use crate::process::Ratewright;

/// Another form of the same request at `/decide` is counted the same.
#[test]
fn decide_reads_targets_and_tables_as_upstreams_do() {
    let ratewright = Ratewright::start(&limit("by: ip, when: {path: /login}"));
    for (n, path) in
        ["/login", "/login#x", "http://h/login", "https://h:8080/login?x#y"].into_iter().enumerate()
    {
        assert_eq!(decide(&ratewright, ("GET", path, &[])), if n == 0 { 200 } else { 429 }, "{path}");
    }
    let ratewright = Ratewright::start(&limit("by: user"));
    let garbage = r#"{"attributes": {"path": "/u", "headers": {"Authorization": "Bearer garbage"}}}"#;
    let nowhere = [(), ()].map(|()| ratewright.post("/api/v1/decide", &[], garbage).status);
    assert_eq!(nowhere, [200, 429], "without an address they share one bucket");
    let ratewright = Ratewright::start(&limit("by: 'cookie:c'"));
    let twice = r#"{"attributes": {"ip": "192.0.2.1", "cookies": {"c": "real", "c": "made-up"}}}"#;
    let real = r#"{"attributes": {"ip": "192.0.2.1", "cookies": {"c": "real"}}}"#;
    let statuses = [twice, real].map(|body| ratewright.post("/api/v1/decide", &[], body).status);
    assert_eq!(statuses, [200, 429], "both values count");
    let ratewright = Ratewright::start(&limit("by: host"));
    let hosts: [Request<'_>; 4] = [
        ("GET", "http://a.example/", &[b"Host: b.example", b"host: c.example"]),
        ("GET", "/", &[b"Host: A.example:80"]),
        ("GET", "/", &[b"Host: b.example"]),
        ("GET", "/", &[b"Host: c.example"]),
    ];
    assert_eq!(hosts.map(|request| decide(&ratewright, request)), [200, 429, 429, 429]);
}

#[test]
fn a_path_that_names_a_host_is_counted_with_and_without_it() {
    let requests: [Request<'_>; 6] = [
        ("GET", "/login", &[]),
        ("GET", "//x/login", &[]),
        ("GET", "///x/login", &[]),
        ("GET", "/a%2fb/../login", &[]),
        ("GET", "//x/a%5cb/%2e./login", &[]),
        ("GET", "/x/login", &[]),
    ];
    let ratewright = Ratewright::start(&limit("by: ip, when: {path: /login}"));
    assert_eq!(requests.map(|request| decide(&ratewright, request)), [200, 429, 429, 429, 429, 200]);
}

/// The gateway normalises a path, then counts and forwards that one. `/decide` does not know what is forwarded.
#[test]
fn a_path_falls_under_the_policies_of_every_reading() {
    let ambiguous: Request<'_> = ("GET", "/api/items/1%2f..%2f..%2fx", &[]);
    let items = limit("by: ip, when: {path: '/api/items/**'}");
    check(&items, &[("GET", "/api/items/1", &[]), ambiguous], &[200, 200], Some(&[200, 429]));
    let x = limit("by: ip, when: {path: '/api/x'}");
    check(&x, &[ambiguous, ambiguous, ("GET", "/api/x", &[])], &[200, 429, 429], Some(&[200, 429, 429]));
    let rejecting = format!("clients: {{ambiguous_paths: reject}}\n{}", x.replace(USERS, ""));
    check(&rejecting, &[ambiguous, ("GET", "/api/y", &[])], &[200, 200], Some(&[400, 200]));
    let application = application();
    let ratewright = gateway(&application, &items);
    for version in [HTTP_1, HTTP_2] {
        let (status, seen) = pass(&ratewright, version, ambiguous);
        assert!(status == 200 && seen.starts_with("GET /api/x|"), "{version}: {seen}");
    }
}

/// B4
#[test]
fn only_whole_segments_are_exempt_by_default() {
    let by_path = limit("by: [ip, path]");
    let twice = |paths: &[&'static str]| -> Vec<Request<'static>> {
        paths.iter().flat_map(|path| [("GET", *path, &[][..]); 2]).collect()
    };
    let counted = twice(&["/healthcare", "/metricsfoo", "/metrics/x", "/healthzz"]);
    let expected = [200, 429].repeat(4);
    check(&by_path, &counted, &expected, Some(&expected));
    let exempt = twice(&[
        "/health",
        "/health/live",
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/actuator/info",
        "/css/a",
    ]);
    check(&by_path, &exempt, &[200; 16], Some(&[200; 16]));
}

#[test]
fn paths_that_differ_by_case_are_one_if_the_file_says_so() {
    let requests: [Request<'_>; 2] = [("GET", "/login", &[]), ("GET", "/Login", &[])];
    let terms = "by: ip, when: {path: /login}";
    check(&limit(terms), &requests, &[401, 200], Some(&[200, 200]));
    let folded = format!("clients: {{case: insensitive}}\n{}", limit(terms).replace(USERS, ""));
    check(&folded, &requests, &[401, 429], Some(&[200, 429]));
}
