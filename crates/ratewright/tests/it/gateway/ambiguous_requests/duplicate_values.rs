//! Duplicate cookies, parameters and headers, and those that upstreams read differently.

use ratewright_lab::Nginx;

use super::{application, check, decide, gateway, limit, pass};
use crate::curl::{HTTP_1, HTTP_2, Request};
use crate::process::Ratewright;

/// A policy that reads these values rejects a request with more values than it reads.
#[test]
fn a_request_with_too_many_values_is_rejected() {
    let many = "/?action=1&action=2&action=3&action=4&action=5&action=export";
    let methods = "/?_method=A&_method=B&_method=C&_method=D&_method=E&_method=DELETE";
    let options =
        "/?_method=OPTIONS&_method=options&_method=Options&_method=oPTIONS&_method=opTIONS&_method=POST";
    check(&limit("by: ip, when: {'query:action': export}"), &[("GET", many, &[])], &[400], Some(&[400]));
    check(&limit("by: ip, when: {method: DELETE}"), &[("POST", methods, &[])], &[400], Some(&[400]));
    let requests: [Request<'_>; 2] = [("OPTIONS", options, &[]), ("OPTIONS", options, &[])];
    check(&limit("by: ip"), &requests, &[200, 429], Some(&[200, 429]));
}

/// One session has one bucket, however its cookie is written.
#[test]
fn a_cookie_counts_in_every_spelling() {
    let spellings: [&[u8]; 5] = [
        b"Cookie: sid=abc",
        b"Cookie: sid=%61bc",
        br#"Cookie: sid="\141bc""#,
        b"Cookie: SID=abc",
        b"Cookie: sid=\"abc\"",
    ];
    let requests = spellings.each_ref().map(|header| ("GET", "/", std::slice::from_ref(header)));
    check(
        &limit("by: 'cookie:sid'"),
        &requests,
        &[200, 429, 429, 429, 429],
        Some(&[200, 429, 429, 429, 429]),
    );
    let basic: [&[u8]; 3] =
        [b"Authorization: Basic dTpw", b"Authorization: basic dTpw", b"Authorization: Basic  dTpw"];
    let requests = basic.each_ref().map(|header| ("GET", "/", std::slice::from_ref(header)));
    check(&limit("by: 'header:Authorization'"), &requests, &[200, 429, 429], None);
}

#[test]
fn every_value_of_a_cookie_or_parameter_is_charged() {
    let [ab, b, c]: [&[u8]; 3] = [b"Cookie: sid=a; sid=b", b"Cookie: sid=b", b"Cookie: sid=c"];
    let many: &[u8] = b"Cookie: sid=1; sid=2; sid=3; sid=4; sid=5";
    let cookies: [Request<'_>; 4] =
        [("GET", "/", &[ab]), ("GET", "/", &[b]), ("GET", "/", &[c]), ("GET", "/", &[many])];
    check(&limit("by: 'cookie:sid'"), &cookies, &[200, 429, 200, 400], Some(&[200, 429, 200, 400]));
    let params: [Request<'_>; 4] = [
        ("GET", "/?k=a&k=b", &[]),
        ("GET", "/?k=b", &[]),
        ("GET", "/?k=c", &[]),
        ("GET", "/?k=1&k=2&k=3&k=4&k=5", &[]),
    ];
    check(&limit("by: 'query:k'"), &params, &[200, 429, 200, 400], Some(&[200, 429, 200, 400]));
    let elsewhere = limit("by: 'cookie:sid', when: {path: /other}");
    check(&elsewhere, &[("GET", "/", &[many])], &[200], Some(&[200]));
}

/// As PHP, Rails, Express and ASP.NET read names, and as aiohttp and WebOb find cookies.
#[test]
fn a_name_counts_in_every_spelling_that_frameworks_accept() {
    let params: [Request<'_>; 8] = [
        ("GET", "/?api_key=R", &[]),
        ("GET", "/?api.key=R", &[]),
        ("GET", "/?api_key[]=R", &[]),
        ("GET", "/?+api_key=R", &[]),
        ("GET", "/?API_Key=R", &[]),
        ("GET", "/?api_key[name]=S", &[]),
        ("GET", "/?api_key[name]=T", &[]),
        ("GET", "/?api_key=S", &[]),
    ];
    // Upstreams read arrays and the like differently. Both the value and the client address count.
    let expected = [200, 429, 429, 429, 429, 200, 429, 429];
    check(&limit("by: 'query:api_key'"), &params, &expected, Some(&expected));
    let cookies: [Request<'_>; 8] = [
        ("GET", "/", &[b"Cookie: sid=R"]),
        ("GET", "/", &[b"Cookie: x=1 sid =R"]),
        ("GET", "/", &[b"Cookie: sid= R x=7"]),
        ("GET", "/", &[b"Cookie: \xa0sid=R"]),
        ("GET", "/", &[b"Cookie: sid=R]8"]),
        ("GET", "/", &[b"Cookie: a=1", b"Cookie: sid=R"]),
        ("GET", "/", &[b"Cookie: x=1 sid =S"]),
        ("GET", "/", &[b"Cookie: sid=S; prefs={\"sid\": [1, 2]}"]),
    ];
    check(&limit("by: 'cookie:sid'"), &cookies, &[200, 429, 429, 429, 429, 429, 200, 429], None);
    let other: Request<'_> = ("GET", "/", &[b"Cookie: sid=U; prefs={\"sid\": [1, 2]}"]);
    check(&limit("by: 'cookie:sid'"), &[cookies[6], other], &[200, 200], None);
    let decide_body = |table: &str| format!(r#"{{"attributes": {{"ip": "192.0.2.1", "query": {table}}}}}"#);
    let ratewright = Ratewright::start(&limit("by: 'query:api_key'"));
    let tables =
        [r#"{"api_key": "R"}"#, r#"{"api_key[]": ["R"]}"#, r#"{"Api.Key": "R"}"#, r#"{"api_key[]": ["S"]}"#];
    let statuses = tables.map(|table| ratewright.post("/api/v1/decide", &[], &decide_body(table)).status);
    assert_eq!(statuses, [200, 429, 429, 200], "an array counts as its value and the client address");
}

#[test]
fn an_unreadable_value_is_counted_by_address() {
    let [unreadable, beside]: [&[u8]; 2] = [b"Cookie: sid=\xff", b"Cookie: sid=\xff; sid=REAL"];
    let real: &[u8] = b"Cookie: sid=REAL";
    let requests: [Request<'_>; 5] = [
        ("GET", "/", &[beside]),
        ("GET", "/", &[real]),
        ("GET", "/", &[unreadable]),
        ("GET", "/", &[unreadable]),
        ("GET", "/", &[]),
    ];
    check(&limit("by: 'cookie:sid'"), &requests, &[200, 429, 429, 429, 200], None);
    // An upstream may read the long one, so others beside it do not make it a new client.
    let long = "s".repeat(5_000);
    let beside = |n: u8| format!("Cookie: sid={long}; sid=made-up-{n}").into_bytes();
    let beside = [beside(1), beside(2)];
    let requests: [Request<'_>; 2] = [("GET", "/", &[&beside[0]]), ("GET", "/", &[&beside[1]])];
    check(&limit("by: 'cookie:sid'"), &requests, &[200, 429], Some(&[200, 429]));
    let long = [b"X-Api-Key: ".as_slice(), &[b'k'; 5_000]].concat();
    let requests: [Request<'_>; 2] = [("GET", "/", &[&long]), ("GET", "/", &[&long])];
    check(&limit("by: 'header:X-Api-Key'"), &requests, &[200, 429], Some(&[200, 429]));
}

#[test]
fn a_duplicate_key_header_is_rejected() {
    let [a, b]: [&[u8]; 2] = [b"X-Api-Key: a", b"X-Api-Key: b"];
    let requests: [Request<'_>; 3] = [("GET", "/", &[a]), ("GET", "/", &[a, b]), ("GET", "/", &[b])];
    check(&limit("by: 'header:X-Api-Key'"), &requests, &[200, 400, 200], Some(&[200, 400, 200]));
    check(&limit("by: ip"), &[("GET", "/", &[a, b])], &[200], Some(&[200]));
    let elsewhere = limit("by: 'header:X-Api-Key', when: {path: /other}");
    let requests: [Request<'_>; 3] =
        [("GET", "/", &[a, b]), ("GET", "/", &[a, b]), ("GET", "/other", &[a, b])];
    check(&elsewhere, &requests, &[200, 200, 400], Some(&[200, 200, 400]));
    let users = "clients: {trusted_proxies: [127.0.0.0/8], user: {header: X-User}}\n\
                 policies: [{name: p, by: user, quota: {rate: 1/h}}]\n";
    let [anna, bert]: [&[u8]; 2] = [b"X-User: anna", b"X-User: bert"];
    check(users, &[("GET", "/", &[anna, bert]), ("GET", "/", &[bert])], &[400, 200], None);
}

/// HTTP/2 has no such header: see `identity.rs` in the tests of `ratewright-gateway`. `/decide` strips nothing.
#[test]
fn a_header_that_is_counted_by_is_never_hop_by_hop() {
    let [key, hop]: [&[u8]; 2] = [b"X-Api-Key: a", b"Connection: X-Api-Key"];
    let application = application();
    let ratewright = gateway(&application, &limit("by: 'header:X-Api-Key'"));
    assert_eq!(pass(&ratewright, HTTP_1, ("GET", "/", &[key, hop])).0, 400);
    assert_eq!(pass(&ratewright, HTTP_1, ("GET", "/", &[key])).0, 200, "nothing was counted");
    let ratewright = gateway(&application, &limit("by: 'header:X-Api-Key'"));
    assert_eq!(
        [&[key, hop][..], &[key]].map(|headers| decide(&ratewright, ("GET", "/", headers))),
        [200, 429]
    );
}

/// Browsers send cookies one by one over HTTP/2. They are joined before they are counted, and for the upstream.
#[test]
fn cookies_that_come_one_by_one_are_joined() {
    let [a, b, c]: [&[u8]; 3] = [b"Cookie: sid=a", b"Cookie: sid=b", b"Cookie: sid=c"];
    let requests: [Request<'_>; 4] =
        [("GET", "/", &[a, b]), ("GET", "/", &[a]), ("GET", "/", &[b]), ("GET", "/", &[c])];
    let expected = [200, 429, 429, 200];
    check(&limit("by: 'cookie:sid'"), &requests, &expected, Some(&expected));
    let application = Nginx::start(1, "", "location / { return 200 '$http_cookie'; }\n");
    let ratewright = gateway(&application, &limit("by: 'cookie:sid'"));
    assert_eq!(pass(&ratewright, HTTP_2, requests[0]), (200, "sid=a; sid=b".to_owned()));
}

/// The readable value counts, and the client address too.
#[test]
fn an_unreadable_parameter_does_not_hide_others() {
    let paths = ["/?k=%ff&k=REAL", "/?k=REAL", "/?k=%ff", "/?k=%fe&k=OTHER", "/?k=OTHER"];
    let requests = paths.map(|path| ("GET", path, &[][..]));
    let expected = [200, 429, 429, 429, 200];
    check(&limit("by: 'query:k'"), &requests, &expected, Some(&expected));
}
