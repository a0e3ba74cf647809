//! What could be read in two ways is rejected or counted: through the gateway over HTTP/1.1 and HTTP/2, and at `/decide`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::{application, gateway};
use crate::process::Ratewright;

const SECRET: &str = "a secret of at least thirty-two bytes";

const USERS: &str = "clients: {user: {jwt: {secret: a secret of at least thirty-two bytes}}}\n";

/// A request: the method, the path, and its headers, which may be no text.
type Request<'a> = (&'a str, &'a str, &'a [&'a [u8]]);

fn token(sub: &str, expires: u64) -> Vec<u8> {
    let claims = json!({"sub": sub, "exp": expires});
    let token = encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap();
    format!("Authorization: Bearer {token}").into_bytes()
}

/// What curl gets for a request over this version of HTTP.
fn curl(ratewright: &Ratewright, version: &str, (method, path, headers): Request<'_>) -> u16 {
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--path-as-is",
        "--globoff",
        "--max-time",
        "30",
        version,
    ]);
    if method == "HEAD" {
        curl.arg("--head");
    } else {
        curl.args(["-X", method]);
    }
    for header in headers {
        curl.arg("-H").arg(OsStr::from_bytes(header));
    }
    let output = curl.arg(format!("http://{}{path}", ratewright.gateway)).output().unwrap();
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

/// What `/decide` says of a request.
fn decide(ratewright: &Ratewright, (method, path, headers): Request<'_>) -> u16 {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for header in headers {
        let (name, value) = std::str::from_utf8(header).unwrap().split_once(':').unwrap();
        match told.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value.trim_matches(' ').to_owned()),
            None => told.push((name.to_owned(), vec![value.trim_matches(' ').to_owned()])),
        }
    }
    let headers: serde_json::Map<String, Value> =
        told.into_iter().map(|(name, values)| (name, json!(values))).collect();
    ratewright.decide(&json!({"ip": "192.0.2.1", "method": method, "path": path, "headers": headers})).status
}

/// Sends requests through the gateway, in each version of HTTP to a fresh one, and then asks `/decide` about them.
#[track_caller]
fn check(config: &str, requests: &[Request<'_>], through: &[u16], decided: Option<&[u16]>) {
    let application = application();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let ratewright = gateway(&application, config);
        let got: Vec<u16> = requests.iter().map(|request| curl(&ratewright, version, *request)).collect();
        assert_eq!(got, through, "{version}");
    }
    if let Some(decided) = decided {
        let ratewright = gateway(&application, config);
        let got: Vec<u16> = requests.iter().map(|request| decide(&ratewright, *request)).collect();
        assert_eq!(got, decided, "/decide");
    }
}

fn limit(terms: &str) -> String {
    format!("{USERS}policies: [{{name: p, {terms}, quota: {{rate: 1/h}}}}]\n")
}

#[test]
fn two_authorization_headers_are_rejected_or_counted_by_address() {
    let (anna, bert) = (token("anna", 4_000_000_000), token("bert", 4_000_000_000));
    let both: Request<'_> = ("GET", "/", &[&anna, &bert]);
    check(&limit("by: user"), &[both, both], &[400, 400], Some(&[200, 429]));
}

#[test]
fn a_token_after_a_tab_or_several_spaces_is_a_token() {
    let anna = String::from_utf8(token("anna", 4_000_000_000)).unwrap();
    let [tab, spaces] = ["Bearer\t", "Bearer   "].map(|scheme| anna.replace("Bearer ", scheme).into_bytes());
    let requests: [Request<'_>; 2] = [("GET", "/", &[&tab]), ("GET", "/", &[&spaces])];
    check(&limit("by: user"), &requests, &[200, 429], Some(&[200, 429]));
}

/// Many applications take whatever follows the first blank for the token, or decode its signature leniently.
#[test]
fn a_token_under_another_scheme_names_its_user() {
    let anna = String::from_utf8(token("anna", 4_000_000_000)).unwrap();
    let spelled = |scheme: &str, end: &str| (anna.replace("Bearer ", scheme) + end).into_bytes();
    let lines = [
        spelled("Bearer ", ""),
        spelled("JWT ", ""),
        spelled("Token ", ""),
        spelled("x ", ""),
        spelled("Bearer:", ""),
        spelled("", ""),
        spelled("Bearer ", "="),
        spelled("Bearer ", "~"),
        spelled("Bearer ", " x"),
        spelled("JWT ", "~="),
    ];
    let lines = lines.each_ref().map(|line| [line.as_slice()]);
    let requests = lines.each_ref().map(|line| ("GET", "/", line.as_slice()));
    let expected = [200, 429, 429, 429, 429, 429, 429, 429, 429, 429];
    check(&limit("by: user"), &requests, &expected, Some(&expected));
    let basic: [Request<'_>; 4] = [
        ("GET", "/", &[b"Authorization: Basic YW5uYTpzM2NyZXQ="]),
        ("GET", "/", &[b"Authorization: Basic YW5uYTpzM2NyZXQ=AAAA"]),
        ("GET", "/", &[b"Authorization: Basic YW5u~YTpzM2NyZXQ"]),
        ("GET", "/", &[b"Authorization: Basic Ym9iOnMzY3JldA=="]),
    ];
    let expected = [200, 429, 429, 200];
    check(&limit("by: 'header:Authorization'"), &basic, &expected, Some(&expected));
}

/// A11: in a bucket of its own; a user has another one, and another scheme says nothing.
#[test]
fn a_token_that_is_refused_is_counted_by_address() {
    let (old, anna) = (token("anna", 1_000_000_000), token("anna", 4_000_000_000));
    let forged: &[u8] = b"Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.AAAA";
    let (rubbish, basic): (&[u8], &[u8]) = (b"Authorization: Bearer rubbish", b"Authorization: Basic YTpi");
    let requests: [Request<'_>; 6] = [
        ("GET", "/", &[&old]),
        ("GET", "/", &[forged]),
        ("GET", "/", &[rubbish]),
        ("GET", "/", &[&anna]),
        ("GET", "/", &[basic]),
        ("GET", "/", &[basic]),
    ];
    let expected = [200, 429, 429, 200, 200, 200];
    check(&limit("by: user"), &requests, &expected, Some(&expected));
}

#[test]
fn a_method_in_small_letters_is_rejected_or_counted() {
    let requests: [Request<'_>; 3] = [("POST", "/", &[]), ("post", "/", &[]), ("Post", "/", &[])];
    check(&limit("by: ip, when: {method: POST}"), &requests, &[200, 400, 400], Some(&[200, 429, 429]));
    let options: [Request<'_>; 2] = [("options", "/", &[]), ("options", "/", &[])];
    check(&limit("by: ip"), &options, &[400, 400], Some(&[200, 429]));
}

#[test]
fn get_covers_head() {
    let requests: [Request<'_>; 2] = [("GET", "/", &[]), ("HEAD", "/", &[])];
    check(&limit("by: ip, when: {method: GET}"), &requests, &[200, 429], Some(&[200, 429]));
    let cost = format!("{USERS}policies: [{{name: p, by: ip, cost: {{GET: 3}}, quota: {{rate: 4/h}}}}]\n");
    check(&cost, &[("HEAD", "/", &[]), ("HEAD", "/", &[])], &[200, 429], Some(&[200, 429]));
}

#[test]
fn a_method_that_a_header_or_a_parameter_overrides_is_counted_under_both() {
    let headers: [&[u8]; 3] =
        [b"X-HTTP-Method-Override: delete", b"X-Method-Override: DELETE", b"X-HTTP-Method: DELETE"];
    let mut requests: Vec<Request<'_>> = vec![("DELETE", "/", &[])];
    requests.extend(headers.iter().map(|header| ("POST", "/", std::slice::from_ref(header))));
    requests.extend([("POST", "/?_method=DELETE", &[][..]), ("POST", "/?%5Fmethod=delete", &[])]);
    let expected = [200, 429, 429, 429, 429, 429];
    check(&limit("by: ip, when: {method: DELETE}"), &requests, &expected, Some(&expected));
    let options: [Request<'_>; 2] = [("OPTIONS", "/", &[headers[0]]), ("OPTIONS", "/", &[headers[0]])];
    check(&limit("by: ip"), &options, &[200, 429], Some(&[200, 429]));
}

/// Groups, overrides and costs of one reading do not hide those of another.
#[test]
fn an_overridden_method_does_not_choose_a_larger_quota() {
    let get: &[u8] = b"X-HTTP-Method-Override: GET";
    let list: &[u8] = b"X-HTTP-Method-Override: GET, X";
    let post: [Request<'_>; 2] = [("POST", "/", &[get]), ("POST", "/?_method=get", &[list])];
    let group = "policies:\n\
        - {name: reads, group: g, when: {method: GET}, by: ip, quota: {rate: 1000/h}}\n\
        - {name: writes, group: g, when: {method: POST}, by: ip, quota: {rate: 1/h}}\n";
    check(group, &post, &[200, 429], Some(&[200, 429]));
    let other = "policies: [{name: p, by: ip, quota: {rate: 1/h}, overrides: [{match: {method: GET}, quota: {rate: 1000/h}}]}]\n";
    check(other, &post, &[200, 429], Some(&[200, 429]));
    let shadow = "policies: [{name: p, by: ip, quota: {rate: 1/h}, overrides: [{match: {method: GET}, mode: shadow}]}]\n";
    check(shadow, &post, &[200, 429], Some(&[200, 429]));
}

/// A token that is refused is not a user: it neither joins the members nor keeps the guests' policy away.
#[test]
fn a_refused_token_does_not_choose_the_members_quota() {
    let rubbish: &[u8] = b"Authorization: Bearer rubbish";
    let requests: [Request<'_>; 2] = [("GET", "/", &[rubbish]), ("GET", "/", &[rubbish])];
    for policies in [
        "- {name: u, by: {first_of: [user, ip]}, quota: {rate: 1/h}, overrides: [{match: {user: '*'}, quota: {rate: 1000/h}}]}\n",
        "- {name: members, group: m, when: {user: '*'}, by: user, quota: {rate: 1000/h}}\n- {name: guests, group: m, by: ip, quota: {rate: 1/h}}\n",
        "- {name: members, group: m, by: user, quota: {rate: 1000/h}}\n- {name: guests, group: m, by: ip, quota: {rate: 1/h}}\n",
    ] {
        check(&format!("{USERS}policies:\n{policies}"), &requests, &[200, 429], Some(&[200, 429]));
    }
}

/// More values than are looked at: whoever looks at them rejects the request.
#[test]
fn a_value_behind_many_others_hides_nothing() {
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

/// A route for the method that is asked for may have other policies.
#[test]
fn an_overridden_method_does_not_choose_another_route() {
    let application = application();
    let upstream = application.address();
    let config = format!(
        "policies: [{{name: strict, by: ip, quota: {{rate: 1/h}}}}]\nroutes:\n\
         - {{id: post, match: {{path: /**, method: [GET, POST]}}, upstream: 'http://{upstream}'}}\n\
         - {{id: del, match: {{path: /**, method: DELETE}}, upstream: 'http://{upstream}', policies: [strict]}}\n"
    );
    let ratewright = Ratewright::start(&config);
    let delete: &[u8] = b"X-HTTP-Method-Override: DELETE";
    assert_eq!(curl(&ratewright, "--http1.1", ("POST", "/r", &[delete])), 400);
    assert_eq!(curl(&ratewright, "--http1.1", ("POST", "/r", &[b"X-HTTP-Method-Override: GET"])), 200);
    assert_eq!(curl(&ratewright, "--http1.1", ("POST", "/r", &[])), 200);
}

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
fn headers_that_override_the_method_can_be_stripped() {
    let header: &[u8] = b"X-HTTP-Method-Override: DELETE";
    let config =
        format!("gateway: {{strip_method_override: true}}\n{}", limit("by: ip, when: {method: DELETE}"));
    check(&config, &[("POST", "/", &[header]), ("POST", "/", &[header])], &[200, 200], None);
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
    let told = |table: &str| format!(r#"{{"attributes": {{"ip": "192.0.2.1", "query": {table}}}}}"#);
    let ratewright = Ratewright::start(&limit("by: 'query:api_key'"));
    let tables =
        [r#"{"api_key": "R"}"#, r#"{"api_key[]": ["R"]}"#, r#"{"Api.Key": "R"}"#, r#"{"api_key[]": ["S"]}"#];
    let statuses = tables.map(|table| ratewright.post("/api/v1/decide", &[], &told(table)).status);
    assert_eq!(statuses, [200, 429, 429, 200], "an array counts as its value and the client address");
}

#[test]
fn a_value_that_cannot_be_read_is_counted_by_address() {
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
fn a_header_that_is_counted_by_comes_once() {
    let [a, b]: [&[u8]; 2] = [b"X-Api-Key: a", b"X-Api-Key: b"];
    let requests: [Request<'_>; 3] = [("GET", "/", &[a]), ("GET", "/", &[a, b]), ("GET", "/", &[b])];
    check(&limit("by: 'header:X-Api-Key'"), &requests, &[200, 400, 200], Some(&[200, 400, 200]));
    check(&limit("by: ip"), &[("GET", "/", &[a, b])], &[200], Some(&[200]));
    let users = "clients: {trusted_proxies: [127.0.0.0/8], user: {header: X-User}}\n\
                 policies: [{name: p, by: user, quota: {rate: 1/h}}]\n";
    let [anna, bert]: [&[u8]; 2] = [b"X-User: anna", b"X-User: bert"];
    check(users, &[("GET", "/", &[anna, bert]), ("GET", "/", &[bert])], &[400, 200], None);
}

#[test]
fn a_header_that_is_counted_by_is_never_hop_by_hop() {
    let [key, hop]: [&[u8]; 2] = [b"X-Api-Key: a", b"Connection: X-Api-Key"];
    let application = application();
    let ratewright = gateway(&application, &limit("by: 'header:X-Api-Key'"));
    assert_eq!(curl(&ratewright, "--http1.1", ("GET", "/", &[key, hop])), 400);
    assert_eq!(curl(&ratewright, "--http1.1", ("GET", "/", &[key])), 200, "nothing was counted");
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

#[test]
fn a_path_falls_under_the_policies_of_every_reading() {
    let items = limit("by: ip, when: {path: '/api/items/**'}");
    let requests: [Request<'_>; 2] =
        [("GET", "/api/items/1", &[]), ("GET", "/api/items/1%2f..%2f..%2fx", &[])];
    let ratewright = Ratewright::start(&items);
    assert_eq!(requests.map(|request| decide(&ratewright, request)), [200, 429]);
    let x = limit("by: ip, when: {path: '/api/x'}");
    let ratewright = Ratewright::start(&x);
    assert_eq!([requests[1], requests[1]].map(|request| decide(&ratewright, request)), [200, 429]);
    let rejecting = format!("clients: {{ambiguous_paths: reject}}\n{}", x.replace(USERS, ""));
    let ratewright = Ratewright::start(&rejecting);
    assert_eq!(decide(&ratewright, requests[1]), 400);
    assert_eq!(decide(&ratewright, ("GET", "/api/y", &[])), 200);
}

/// B4
#[test]
fn only_whole_segments_are_exempt_by_default() {
    let counted = ["/healthcare", "/metricsfoo", "/metrics/x", "/healthzz"];
    for path in counted {
        let requests: [Request<'_>; 2] = [("GET", path, &[]), ("GET", path, &[])];
        let ratewright = Ratewright::start(&limit("by: ip"));
        assert_eq!(requests.map(|request| decide(&ratewright, request)), [200, 429], "{path}");
    }
    let exempt =
        ["/health", "/health/live", "/healthz", "/livez", "/readyz", "/metrics", "/actuator/info", "/css/a"];
    let ratewright = Ratewright::start(&limit("by: ip"));
    assert!(exempt.iter().chain(&exempt).all(|path| decide(&ratewright, ("GET", path, &[])) == 200));
}

#[test]
fn paths_that_differ_by_case_are_one_if_the_file_says_so() {
    let requests: [Request<'_>; 2] = [("GET", "/login", &[]), ("GET", "/Login", &[])];
    let terms = "by: ip, when: {path: /login}";
    check(&limit(terms), &requests, &[401, 200], Some(&[200, 200]));
    let folded = format!("clients: {{case: insensitive}}\n{}", limit(terms).replace(USERS, ""));
    check(&folded, &requests, &[401, 429], Some(&[200, 429]));
}

/// Browsers, programs and tools see no new 400.
#[test]
fn ordinary_traffic_passes() {
    let config = "policies:\n\
        - {name: sid, by: 'cookie:sid', quota: {rate: 10000/s}}\n\
        - {name: page, by: 'query:page', quota: {rate: 10000/s}}\n\
        - {name: key, by: 'header:X-Api-Key', quota: {rate: 10000/s}}\n\
        - {name: method, by: [ip, method], when: {method: [GET, POST]}, quota: {rate: 10000/s}}\n";
    let browser: [&[u8]; 4] = [
        b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
        b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        b"Accept-Language: en-GB,en;q=0.9,de;q=0.8",
        b"Sec-Fetch-Mode: navigate",
    ];
    let cookies: [&[u8]; 4] = [
        b"Cookie: sid=abc; theme=dark",
        b"Cookie: sid=for-path; sid=for-root; _ga=GA1.1.1; consent=%7B%22a%22%3A1%7D",
        b"Cookie: a=1; b=; c=\"quoted\"",
        b"Cookie: JSESSIONID=1; JSESSIONID=2; JSESSIONID=3; JSESSIONID=4; JSESSIONID=5; JSESSIONID=6",
    ];
    let paths = [
        "/",
        "/search?q=caf%C3%A9+au+lait&page=2",
        "/list?ids[]=1&ids[]=2&ids[]=3&tag=a&tag=b&tag=c&tag=d&tag=e",
        "/files/report%20final.pdf",
        "/a//b/",
        "/~user/index.html;v=1?page=1&page=1",
        "/%E4%BD%A0%E5%A5%BD",
    ];
    let methods = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "MKCOL", "M-SEARCH",
    ];
    let more: [&[u8]; 5] = [
        b"X-Api-Key: k-123",
        b"Authorization: Basic YTpi",
        b"Content-Type: application/grpc",
        b"TE: trailers",
        b"X-Http-Method-Override: PATCH",
    ];
    let application = application();
    let ratewright = gateway(&application, config);
    let mut n = 0;
    for method in methods {
        for path in paths {
            let (cookie, other) = (cookies[n % cookies.len()], more[n % more.len()]);
            let headers = [&browser[..], &[cookie, other]].concat();
            for version in ["--http1.1", "--http2-prior-knowledge"] {
                let status = curl(&ratewright, version, (method, path, &headers));
                assert!(![400, 403, 429, 0].contains(&status), "{method} {path} over {version}: {status}");
            }
            n += 1;
        }
    }
    let upgrade: [&[u8]; 4] = [
        b"Connection: keep-alive, Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    for headers in [&upgrade[..], &[b"Connection: close"], &[b"Connection: TE", b"TE: trailers"]] {
        let status = curl(&ratewright, "--http1.1", ("GET", "/", headers));
        assert_ne!(status, 400, "{headers:?}");
    }
}
