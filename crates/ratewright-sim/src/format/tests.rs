use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use ratewright_http::problem::iso;

use super::*;
use crate::record::LoggedDecision;

/// A line of every format, as its documentation has it, with everything that the format tells.
const SAMPLES: [(&str, &str); 9] = [
    ("combined", COMBINED),
    ("ratewright", RATEWRIGHT),
    ("envoy", ENVOY),
    ("envoy-json", ENVOY_JSON),
    ("traefik", TRAEFIK),
    ("caddy", CADDY),
    ("alb", ALB),
    ("json", JSON),
    ("csv", CSV),
];

const COMBINED: &str = r#"203.0.113.7 - anna [18/Nov/2026:09:24:06 +0100] "GET /shop?page=2 HTTP/1.1" 200 512 "https://example.com/" "curl/8.5.0""#;

const RATEWRIGHT: &str = r#"{"time":"2026-11-18T08:24:06.120Z","client":"203.0.113.7","method":"POST","host":"example.com","path":"/login","route":"shop","policy":"logins","denied":true,"status":429,"duration_ms":0.412,"request_id":"0192f3a1","user_agent":"caf\u00e9/1","http":"1.1"}"#;

const ENVOY: &str = r#"[2026-11-18T08:24:06.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "198.51.100.4,10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;

const ENVOY_JSON: &str = r#"{"start_time":"2026-11-18T08:24:06.310Z","route_name":"default","method":"GET","path":"/status/418","protocol":"HTTP/1.1","response_code":418,"response_flags":"-","response_code_details":"via_upstream","bytes_received":12,"bytes_sent":135,"duration":4,"upstream_service_time":"4","x_forwarded_for":null,"user_agent":"curl/8.5.0","request_id":"84961386","authority":"httpbin:8000","upstream_host":"10.44.1.23:80","downstream_remote_address":"10.44.1.27:46520","requested_server_name":null}"#;

const TRAEFIK: &str = r#"{"ClientAddr":"203.0.113.7:44962","ClientHost":"203.0.113.7","ClientPort":"44962","ClientUsername":"anna","DownstreamContentSize":19,"DownstreamStatus":404,"Duration":55321,"RequestAddr":"example.com","RequestContentSize":7,"RequestCount":1,"RequestHost":"example.com","RequestMethod":"PUT","RequestPath":"/a?b=1","RequestProtocol":"HTTP/1.1","StartLocal":"2026-11-18T09:24:06.123456789+01:00","StartUTC":"2026-11-18T08:24:06.123456789Z","level":"info","msg":"","request_Authorization":"REDACTED","request_User-Agent":"curl/8.5.0","request_X-Api-Key":"k1","time":"2026-11-18T08:24:06Z"}"#;

const CADDY: &str = r#"{"level":"info","ts":1794990246.5241024,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"41342","client_ip":"203.0.113.7","proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/a?b=1","headers":{"User-Agent":["curl/8.5.0"],"Accept":["*/*","text/html"],"Authorization":["REDACTED"]},"tls":{"resumed":false,"version":772}},"bytes_read":3,"user_id":"anna","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;

const ALB: &str = r#"https 2026-11-18T08:24:07.186641Z app/my-loadbalancer/50dc6c495c0c9188 203.0.113.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b=1 HTTP/1.1" "curl/8.5.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678" 1 2026-11-18T08:24:06.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-""#;

const JSON: &str = r#"{"ts":1794990246123,"client":{"addr":"203.0.113.7:1"},"xff":"198.51.100.4","verb":"GET","uri":"/a","h":"example.com","u":"anna","r":"shop","code":"200","len":5,"denied":true,"by":"logins","request":{"headers":{"X-Api-Key":["k1","k2"]}},"sid":"s1","plan":"gold","q":"x","tenant":7}"#;

const CSV: &str = r#"1794990246.25,203.0.113.7,198.51.100.4,GET,/a,example.com,anna,shop,200,5,0,logins,k1,s1,gold,"x ""y""",7"#;

const FIELDS: &str = "time=ts,ip=client.addr,forwarded_for=xff,method=verb,path=uri,host=h,user=u,route=r,status=code,\
                      request_bytes=len,denied=denied,policy=by,header:X-Api-Key=request.headers.X-Api-Key,cookie:sid=sid,\
                      claim:plan=plan,query:q=q,attribute:tenant=tenant";

const COLUMNS: &str = "time=1,ip=2,forwarded_for=3,method=4,path=5,host=6,user=7,route=8,status=9,request_bytes=10,\
                       denied=11,policy=12,header:X-Api-Key=13,cookie:sid=14,claim:plan=15,query:q=16,attribute:tenant=17";

fn fields(text: &str) -> FieldMap {
    text.parse().unwrap()
}

fn format(name: &str) -> Format {
    let map = match name {
        "json" => Some(fields(FIELDS)),
        "csv" => Some(fields(COLUMNS)),
        _ => None,
    };
    Format::named(name, map).unwrap()
}

/// Everything that a line has, in one text.
fn shown(line: &Result<Line<'_>, LineError>) -> String {
    let record = match line {
        Err(error) => return format!("error: {error}"),
        Ok(Line::NotRequest) => return "not a request".to_owned(),
        Ok(Line::Request(record)) => record,
    };
    let Record { at, is_whole_second, address, forwarded_for, method, target, .. } = record;
    let Record { host, user, route, status, request_bytes, attributes, decision, .. } = record;
    let mut text = format!("{method} {target} at {}", iso(*at));
    write!(text, " +{}us", at.as_micros() % 1_000).unwrap();
    let is_whole = is_whole_second.then(|| "whole second".to_owned());
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(text, "\n{name} {value}").unwrap();
        }
    };
    add("-", is_whole);
    add("address", address.map(|address| address.to_string()));
    add("forwarded for", forwarded_for.as_ref().map(ToString::to_string));
    add("host", host.as_ref().map(ToString::to_string));
    add("user", user.as_ref().map(ToString::to_string));
    add("route", route.as_ref().map(ToString::to_string));
    add("status", status.map(|status| status.to_string()));
    add("bytes", request_bytes.map(|bytes| bytes.to_string()));
    for (name, value) in attributes {
        add(&name.to_string(), Some(value.to_string()));
    }
    if let Some(LoggedDecision { is_denied, policy }) = decision {
        add("denied", Some(format!("{is_denied} by {policy:?}")));
    }
    text
}

#[track_caller]
fn check(name: &str, line: &str, expected: Expect) {
    check_bytes(name, line.as_bytes(), expected);
}

#[track_caller]
fn check_bytes(name: &str, line: &[u8], expected: Expect) {
    expected.assert_eq(&shown(&format(name).parser().parse(line)));
}

/// No text of a record has a control character, and its time is in range.
#[track_caller]
fn check_texts(line: &Line<'_>) {
    let Line::Request(record) = line else { return };
    let optional = [&record.forwarded_for, &record.host, &record.user, &record.route];
    let texts = optional.into_iter().flatten().chain([&record.method, &record.target]);
    let decision = record.decision.iter().flat_map(|decision| &decision.policy);
    let values = record.attributes.iter().map(|(_, value)| value);
    for text in texts.chain(decision).chain(values) {
        assert!(!text.contains(|char: char| char.is_ascii_control()), "{text:?}");
    }
    for (name, _) in &record.attributes {
        assert!(!name.to_string().contains('\0'));
    }
    assert!(record.at.as_micros() < 7_289_654_400_000_000, "{:?}", record.at);
    assert!(record.attributes.len() <= 100);
}

#[test]
fn combined_lines_are_read() {
    check(
        "combined",
        COMBINED,
        expect![[r#"
        GET /shop?page=2 at 2026-11-18T08:24:06.000Z +0us
        - whole second
        address 203.0.113.7
        user anna
        status 200
        header:referer https://example.com/
        header:user-agent curl/8.5.0"#]],
    );
    check(
        "combined",
        "2001:db8::7 - - [18/Nov/2026:08:24:06 +0000] \"HEAD / HTTP/2.0\" 304 -",
        expect![[r#"
        HEAD / at 2026-11-18T08:24:06.000Z +0us
        - whole second
        address 2001:db8::7
        status 304"#]],
    );
    check(
        "combined",
        r#"- - - [18/Nov/2026:08:24:06 -0130] "GET /a" 000 0 "-" "-" "10.0.0.1" rt=0.1"#,
        expect![[r#"
            GET /a at 2026-11-18T09:54:06.000Z +0us
            - whole second"#]],
    );
    check(
        "combined",
        "host.example - - [18/Nov/2026:08:24:06 +0000] \"GET /a HTTP/1.0\" 200 1\r",
        expect![[r#"
        GET /a at 2026-11-18T08:24:06.000Z +0us
        - whole second
        status 200"#]],
    );
    check(
        "combined",
        r#"203.0.113.7 - - [18/Nov/2026:08:24:06 +0000] "GET http://Example.com:8080?a=1 HTTP/1.1" 200 1"#,
        expect![[r#"
            GET /?a=1 at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 203.0.113.7
            host Example.com:8080
            status 200"#]],
    );
}

#[test]
fn apache_may_write_the_host_before_the_client() {
    check(
        "combined",
        r#"shop.example:443 203.0.113.7 - anna [18/Nov/2026:08:24:06 +0000] "GET /a HTTP/1.1" 200 1 "-" "x""#,
        expect![[r#"
            GET /a at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 203.0.113.7
            host shop.example:443
            user anna
            status 200
            header:user-agent x"#]],
    );
}

#[test]
fn escapes_of_nginx_and_apache_are_undone() {
    check(
        "combined",
        r#"1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] "GET /caf\xC3\xA9/\x22\x5C\xFF\x00 HTTP/1.1" 200 1 "-" "a\x22b""#,
        expect![[r#"
            GET /café/"\%FF%00 at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 1.2.3.4
            status 200
            header:user-agent a"b"#]],
    );
    check(
        "combined",
        r#"1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] "GET /a\"b\\c HTTP/1.1" 200 1 "\t\n\q\\" "say \"hi\"""#,
        expect![[r#"
            GET /a"b\c at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 1.2.3.4
            status 200
            header:referer %09%0A\q\
            header:user-agent say "hi""#]],
    );
}

#[test]
fn a_user_may_contain_spaces_and_brackets() {
    check(
        "combined",
        r#"1.2.3.4 - [x] [01/Jan/2020:00:00:00 +0000] y [18/Nov/2026:08:24:06 +0000] "GET /a HTTP/1.1" 200 1"#,
        expect![[r#"
            GET /a at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 1.2.3.4
            user [x] [01/Jan/2020:00:00:00 +0000] y
            status 200"#]],
    );
    check(
        "combined",
        r#"1.2.3.4 - a\"] b [18/Nov/2026:08:24:06 +0000] "GET /a HTTP/1.1" 200 1"#,
        expect![[r#"
        GET /a at 2026-11-18T08:24:06.000Z +0us
        - whole second
        address 1.2.3.4
        user a"] b
        status 200"#]],
    );
    check(
        "combined",
        r#"1.2.3.4 - "" [18/Nov/2026:08:24:06 +0000] "GET /a HTTP/1.1" 200 1"#,
        expect![[r#"
        GET /a at 2026-11-18T08:24:06.000Z +0us
        - whole second
        address 1.2.3.4
        status 200"#]],
    );
}

#[test]
fn raw_bytes_become_percent_encoded() {
    check_bytes(
        "combined",
        b"1.2.3.4 - \x00\xff [18/Nov/2026:08:24:06 +0000] \"GET /\x00\x7f\xe9 HTTP/1.1\" 200 1 \"\x01\" \"\xc3\xa9\"",
        expect![[r#"
            GET /%00%7F%E9 at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 1.2.3.4
            user %00%FF
            status 200
            header:referer %01
            header:user-agent é"#]],
    );
}

#[test]
fn garbage_in_place_of_a_request_is_not_a_request() {
    for request in [
        "",
        "-",
        r"\x16\x03\x01\x02\x00",
        "GET",
        "GET ",
        "GET  /a HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /a HTTP/1.1 x",
        "GET /a FTP/1.1",
        "G(T /a HTTP/1.1",
        "GET a HTTP/1.1",
        "GET ftp://example.com/a HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT example.com:443 HTTP/1.1",
        "MGLNDD_203.0.113.7_80",
        r"t3 12.1.2\x0A",
    ] {
        let line = format!("1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"{request}\" 400 0 \"-\" \"-\"");
        let mut parser = Format::Combined.parser();
        assert_eq!(parser.parse(line.as_bytes()), Ok(Line::NotRequest), "{request}");
    }
}

#[test]
fn a_request_line_with_spaces_that_was_served_is_a_request() {
    for (request, target) in [
        ("GET  /a HTTP/1.1", "/a"),
        ("GET /a  HTTP/1.1", "/a"),
        ("GET /a ", "/a"),
        ("GET /a b HTTP/1.1", "/a%20b"),
        ("GET /a FTP/1.1", "/a%20FTP/1.1"),
    ] {
        let line = format!("1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"{request}\" 200 0 \"-\" \"-\"");
        let mut parser = Format::Combined.parser();
        let Ok(Line::Request(record)) = parser.parse(line.as_bytes()) else { panic!("{request}") };
        assert_eq!((&*record.method, &*record.target), ("GET", target), "{request}");
    }
}

#[test]
fn a_log_of_broken_connections_alone_is_recognised() {
    let line = "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"\\x16\\x03\\x01\" 400 0 \"-\" \"-\"\n";
    assert_eq!(Format::detect(line.repeat(3).as_bytes()), Some(Format::Combined));
    assert_eq!(Format::detect(b"# a comment\nand some text\n"), None);
}

#[test]
fn an_unreadable_combined_line_says_why() {
    let check = |line, expected: Expect| check("combined", line, expected);
    check("", expect!["error: no date in brackets after the client"]);
    check("1.2.3.4 - - \"GET / HTTP/1.1\" 200 1", expect!["error: no date in brackets after the client"]);
    check(
        "1.2.3.4 - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\" 200 1",
        expect!["error: no client, identity and user before the date"],
    );
    check(
        "1.2.3.4 - - [31/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\" 200 1",
        expect!["error: time has a day, hour, minute or second that does not exist"],
    );
    check(
        "1.2.3.4 - - [18/Nov/1926:08:24:06 +0000] \"GET / HTTP/1.1\" 200 1",
        expect!["error: time is before 1970 or after 2200"],
    );
    check(
        "1.2.3.4 - - [today] \"GET / HTTP/1.1\" 200 1",
        expect!["error: time is not a CLF date, an RFC 3339 time or a Unix timestamp"],
    );
    check(
        "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1",
        expect!["error: request has no closing quote"],
    );
    check(
        "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\"",
        expect!["error: no status after the request"],
    );
    check(
        "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\" 200",
        expect!["error: no size after the status"],
    );
    check(
        "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\" 2000 1",
        expect!["error: status is not a number from 100 to 999"],
    );
    check(
        "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\" 200 x",
        expect!["error: size after the status is not a number"],
    );
    check(
        "1.2.3.4 - - [18/Nov/2026:08:24:06 +0000] \"GET / HTTP/1.1\" 200 1 \"x",
        expect!["error: header has no closing quote"],
    );
}

#[test]
fn envoy_lines_are_read() {
    check(
        "envoy",
        ENVOY,
        expect![[r#"
        POST /api/v1/locations at 2026-11-18T08:24:06.310Z +0us
        forwarded for 198.51.100.4,10.0.35.28
        host locations
        status 204
        bytes 154
        header:user-agent nsq2http"#]],
    );
    check(
        "envoy",
        r#"[2026-11-18T08:24:06.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/8.5.0" "84961386" "httpbin:8000" "10.44.1.23:80" inbound|8000|| 127.0.0.1:80 10.44.1.23:80 [2001:db8::7]:46520 outbound_.8000 default"#,
        expect![[r#"
            GET /status/418 at 2026-11-18T08:24:06.409Z +0us
            address 2001:db8::7
            host httpbin:8000
            status 418
            bytes 0
            header:user-agent curl/8.5.0"#]],
    );
    check(
        "envoy",
        r#"[2026-11-18T08:24:06.310Z] "GET / HTTP/1.1" 0 DC 0 0 1 - "2001:db8::7" "a" "b" "c" "-" "evil.example" "-""#,
        expect![[r#"
            GET / at 2026-11-18T08:24:06.310Z +0us
            forwarded for 2001:db8::7
            host evil.example
            bytes 0
            header:user-agent a" "b" "c"#]],
    );
    check(
        "envoy",
        r#"[2026-11-18T08:24:06.310Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-""#,
        expect!["not a request"],
    );
    check(
        "envoy",
        r#"[2026-11-18T08:24:06.310Z] "GET / HTTP/1.1" 200 - 0 11 0 -"#,
        expect!["error: quoted fields are missing after the duration"],
    );
    check(
        "envoy",
        r#"[2026-11-18T08:24:06.310Z] "GET / HTTP/1.1" 200 - x"#,
        expect!["error: no received bytes after the flags"],
    );
}

#[test]
fn ratewright_lines_are_read() {
    check(
        "ratewright",
        RATEWRIGHT,
        expect![[r#"
        POST /login at 2026-11-18T08:24:06.120Z +0us
        address 203.0.113.7
        host example.com
        route shop
        status 429
        header:user-agent café/1
        denied true by Some("logins")"#]],
    );
    check(
        "ratewright",
        r#"{"time":"2026-11-18T08:24:06.120Z","client":"2001:db8::7","method":"GET","host":null,"path":"/","route":null,"policy":"per-ip","denied":false,"status":null,"duration_ms":0.412,"request_id":"","user_agent":null,"http":"2"}"#,
        expect![[r#"
            GET / at 2026-11-18T08:24:06.120Z +0us
            address 2001:db8::7
            denied false by None"#]],
    );
    check(
        "ratewright",
        r#"{"timestamp":"2026-11-18T08:24:06Z","level":"INFO","message":"started"}"#,
        expect!["not a request"],
    );
    check("ratewright", r#"{"method":"GET","path":"/"}"#, expect!["error: time field is empty or missing"]);
    check("ratewright", "[]", expect!["error: line is not a JSON object"]);
}

#[test]
fn envoy_lines_in_json_are_read() {
    check(
        "envoy-json",
        ENVOY_JSON,
        expect![[r#"
        GET /status/418 at 2026-11-18T08:24:06.310Z +0us
        address 10.44.1.27
        host httpbin:8000
        status 418
        bytes 12
        header:user-agent curl/8.5.0"#]],
    );
    check(
        "envoy-json",
        r#"{"start_time":"2026-11-18T08:24:06Z","method":"GET","path":"/","response_code":"0","x-forwarded-for":"198.51.100.4","user-agent":"a","authority":"-","downstream_remote_address":"[2001:db8::7]:1"}"#,
        expect![[r#"
            GET / at 2026-11-18T08:24:06.000Z +0us
            - whole second
            address 2001:db8::7
            forwarded for 198.51.100.4
            header:user-agent a"#]],
    );
    check(
        "envoy-json",
        r#"{"start_time":"2026-11-18T08:24:06Z","method":null,"path":null,"protocol":null,"bytes_received":1}"#,
        expect!["not a request"],
    );
}

#[test]
fn traefik_lines_are_read() {
    check(
        "traefik",
        TRAEFIK,
        expect![[r#"
        PUT /a?b=1 at 2026-11-18T08:24:06.123Z +456us
        address 203.0.113.7
        host example.com
        user anna
        status 404
        bytes 7
        header:user-agent curl/8.5.0
        header:x-api-key k1"#]],
    );
    check(
        "traefik",
        r#"{"ClientAddr":"[2001:db8::7]:4","ClientUsername":"-","Duration":1500000,"RequestMethod":"GET","RequestPath":"/","RequestContentSize":-1,"DownstreamStatus":0,"time":"2026-11-18T08:24:06Z"}"#,
        expect![[r#"
            GET / at 2026-11-18T08:24:05.998Z +500us
            address 2001:db8::7"#]],
    );
    check(
        "traefik",
        r#"{"level":"info","msg":"Configuration loaded","time":"2026-11-18T08:24:06Z"}"#,
        expect!["not a request"],
    );
}

#[test]
fn caddy_lines_are_read() {
    check(
        "caddy",
        CADDY,
        expect![[r#"
            GET /a?b=1 at 2026-11-18T08:24:06.523Z +173us
            address 203.0.113.7
            host example.com
            user anna
            status 200
            bytes 3
            header:user-agent curl/8.5.0
            header:accept */*
            header:accept text/html"#]],
    );
    check(
        "caddy",
        r#"{"ts":"2026-11-18T08:24:06.500Z","msg":"handled request","request":{"remote_addr":"[2001:db8::7]:1","method":"GET","uri":"/","headers":{}},"duration":"1.5ms","user_id":"","status":0}"#,
        expect![[r#"
            GET / at 2026-11-18T08:24:06.498Z +500us
            address 2001:db8::7"#]],
    );
    check(
        "caddy",
        r#"{"ts":1794990246,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"::1","method":"GET","uri":"/"},"duration":1500000}"#,
        expect![[r#"
            GET / at 2026-11-18T08:24:05.998Z +500us
            address ::1"#]],
    );
    check(
        "caddy",
        r#"{"level":"info","ts":1794990246.1,"logger":"tls","msg":"cleaned up"}"#,
        expect!["not a request"],
    );
    check(
        "caddy",
        r#"{"ts":1794990246.1,"logger":"http.log.error","msg":"dial tcp","request":{"method":"GET","uri":"/"}}"#,
        expect!["not a request"],
    );
}

#[test]
fn alb_lines_are_read() {
    check(
        "alb",
        ALB,
        expect![[r#"
        GET /a?b=1 at 2026-11-18T08:24:06.364Z +0us
        address 203.0.113.7
        host www.example.com:443
        status 200
        header:user-agent curl/8.5.0"#]],
    );
    check(
        "alb",
        r#"http 2026-11-18T08:24:06.186641Z app/lb/50dc 2001:db8::7:2817 - -1 -1 -1 460 - 34 366 "GET http://www.example.com:80/ HTTP/1.1" "-" - -"#,
        expect![[r#"
            GET / at 2026-11-18T08:24:06.186Z +641us
            address 2001:db8::7
            host www.example.com:80
            status 460"#]],
    );
    check(
        "alb",
        r#"http 2026-11-18T08:24:06.186641Z app/lb/50dc [2001:db8::7]:2817 - -1 -1 -1 400 - 0 272 "- http://lb:80- -" "-" - - - "-" "-" "-" - - "-" "-" "-" "-" "-""#,
        expect!["not a request"],
    );
    check(
        "alb",
        r#"http 2026-11-18T08:24:06Z lb 1.2.3.4:1 - -1 -1 -1 400 - 0 272 "- - -" "-" - -"#,
        expect!["not a request"],
    );
    check(
        "alb",
        r#"http 2026-11-18T08:24:06Z lb 1.2.3.4:1 - -1 -1 -1 400 - 0 272 "- - -""#,
        expect!["error: line ends before the request and the user agent"],
    );
}

#[test]
fn lines_of_json_are_read_by_a_field_map() {
    check(
        "json",
        JSON,
        expect![[r#"
            GET /a at 2026-11-18T08:24:06.123Z +0us
            address 203.0.113.7
            forwarded for 198.51.100.4
            host example.com
            user anna
            route shop
            status 200
            bytes 5
            header:x-api-key k1
            cookie:sid s1
            claim:plan gold
            query:q x
            attribute:tenant 7
            denied true by Some("logins")"#]],
    );
    let line = r#"{"t":"18/Nov/2026:08:24:06 +0000","a":{"b":"nested"},"a.b":"literal","a":{"b":"later"}}"#;
    let mut parser = Format::Json(fields("time=t,user=a.b")).parser();
    expect![[r#"
          at 2026-11-18T08:24:06.000Z +0us
        - whole second
        user literal"#]]
    .assert_eq(&shown(&parser.parse(line.as_bytes())));
    let line = r#"{"t":1794990246,"a":{"b":"nested"},"a":"text","m":"GET"}"#;
    expect![[r#"
          at 2026-11-18T08:24:06.000Z +0us
        - whole second
        user nested"#]]
    .assert_eq(&shown(&parser.parse(line.as_bytes())));
    let mut parser = Format::Json(fields("time=t,method=m,path=p")).parser();
    expect!["error: method or path field is missing"].assert_eq(&shown(&parser.parse(line.as_bytes())));
    let mut check = |line: &str, expected: Expect| expected.assert_eq(&shown(&parser.parse(line.as_bytes())));
    check(
        r#"{"t":1794990246,"m":"GET","p":"https://example.com/\u0000\u00e9"}"#,
        expect![[r#"
            GET /%00é at 2026-11-18T08:24:06.000Z +0us
            - whole second
            host example.com"#]],
    );
    check(r#"{"t":1794990246,"m":"GET","p":"-"}"#, expect!["not a request"]);
    check(
        r#"{"t":1794990246,"m":"GET","p":"shop"}"#,
        expect!["error: path does not begin with / and is not a URL"],
    );
    check(r#"{"t":1794990246,"m":"GET","p":"\ud800"}"#, expect!["error: string has an invalid escape"]);
    check(r#"{"m":"GET","p":"/"}"#, expect!["error: time field is empty or missing"]);
    check(
        r#"{"t":"soon","m":"GET","p":"/"}"#,
        expect!["error: time is not a CLF date, an RFC 3339 time or a Unix timestamp"],
    );
}

#[test]
fn lines_of_csv_are_read_by_a_field_map() {
    check(
        "csv",
        CSV,
        expect![[r#"
            GET /a at 2026-11-18T08:24:06.250Z +0us
            address 203.0.113.7
            forwarded for 198.51.100.4
            host example.com
            user anna
            route shop
            status 200
            bytes 5
            header:x-api-key k1
            cookie:sid s1
            claim:plan gold
            query:q x "y"
            attribute:tenant 7
            denied false by None"#]],
    );
    let mut parser = Format::Csv(fields("time=ts,ip=client,path=uri,user=5")).parser();
    let mut check = |line: &str, expected: Expect| expected.assert_eq(&shown(&parser.parse(line.as_bytes())));
    check("# made by hand", expect!["not a request"]);
    check("client,\"uri\", ts ,x,y,z\r", expect!["not a request"]);
    check(
        "2001:db8::7,\"/a,\"\"b\",2026-11-18 08:24:06,,anna,\"unread",
        expect![[r#"
         /a,"b at 2026-11-18T08:24:06.000Z +0us
        - whole second
        address 2001:db8::7
        user anna"#]],
    );
    check("client,\"uri\", ts ,x,y,z", expect!["not a request"]);
    check("1.2.3.4,/,1794990246.5", expect!["error: line has fewer columns than --fields needs"]);
    check("1.2.3.4,\"/\n", expect!["error: value has no closing quote on this line"]);
    check("1.2.3.4,\"/\"x,1794990246.5,,", expect!["error: no comma after a quoted value"]);
}

#[test]
fn a_csv_log_read_by_column_numbers_may_have_a_header_line() {
    let mut parser = Format::Csv(fields("ip=1,time=2")).parser();
    assert_eq!(parser.parse(b"client ip4,arrival time"), Ok(Line::NotRequest));
    assert!(matches!(parser.parse(b"203.0.113.7,1794990246"), Ok(Line::Request(_))));
    for line in ["203.0.113.7,-", "203.0.113.7,", "203.0.113.7", "client ip4,t1", "client ip4,\"time"] {
        assert!(parser.parse(line.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn a_csv_log_without_the_columns_of_the_map_is_unreadable() {
    let mut parser = Format::Csv(fields("time=ts,ip=client")).parser();
    for line in ["ts,ip", "1794990246,1.2.3.4"] {
        let error = LineError("header line lacks a column named in --fields");
        assert_eq!(parser.parse(line.as_bytes()), Err(error));
    }
}

#[test]
fn every_format_is_detected_by_its_lines() {
    for (name, sample) in SAMPLES {
        let expected = (!matches!(name, "json" | "csv")).then_some(name);
        let log = format!("\n\r\nhello\n{sample}\r\n{sample}\n{}", sample.split_at(sample.len() / 2).0);
        let detected = Format::detect(log.as_bytes());
        assert_eq!(detected.as_ref().map(Format::name), expected);
        let detected = Format::detect(sample.as_bytes());
        assert_eq!(detected.as_ref().map(Format::name), expected);
    }
    let others =
        ["", "\n\n", "hello", "{}", "1,2,3", r#"{"time":"2026-11-18T08:24:06Z","method":"GET","path":"/"}"#];
    for other in others {
        assert_eq!(Format::detect(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn formats_have_names() {
    for (name, _) in SAMPLES {
        assert_eq!(format(name).name(), name);
    }
    let names: Vec<_> = Format::NAMES.into_iter().filter(|name| *name != "common").collect();
    assert_eq!(SAMPLES.map(|(name, _)| name), *names);
    assert_eq!(Format::named("common", None), Ok(Format::Combined));
    let error = |name, map| Format::named(name, map).unwrap_err().to_string();
    expect![[r#"format "iis" is unknown; use one of combined, common, ratewright, envoy, envoy-json, traefik, caddy, alb, json, csv"#]].assert_eq(&error("iis", None));
    expect!["format json needs --fields, such as time=ts,ip=client,method=verb,path=uri"]
        .assert_eq(&error("json", None));
    expect!["--fields works only with --format json or csv, not caddy"]
        .assert_eq(&error("caddy", Some(fields("time=ts"))));
}

#[test]
fn mistakes_in_a_field_map_are_reported() {
    let check = |text: &str, expected: Expect| {
        expected.assert_eq(&text.parse::<FieldMap>().unwrap_err().to_string());
    };
    check("", expect!["time is missing; add time=NAME"]);
    check("ip=a", expect!["time is missing; add time=NAME"]);
    check("time", expect![[r#""time" has no =; write it as time=NAME"#]]);
    check("time=", expect!["time= names no log field; write time=NAME"]);
    check("time=a,time=b", expect!["time appears twice"]);
    check(
        "time=a,key=b",
        expect![[
            r#"unknown field "key"; use time, ip, forwarded_for, method, path, host, user, route, status, request_bytes, denied, policy, header:NAME, cookie:NAME, claim:NAME, query:NAME or attribute:NAME"#
        ]],
    );
    check(
        "time=a,header:=b",
        expect![[
            r#"unknown field "header:"; use time, ip, forwarded_for, method, path, host, user, route, status, request_bytes, denied, policy, header:NAME, cookie:NAME, claim:NAME, query:NAME or attribute:NAME"#
        ]],
    );
    check(
        &format!("time=a,{}", (0..64).map(|n| format!("header:{n}=x,")).collect::<String>()),
        expect!["more than 64 entries"],
    );
    check(
        "time=a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a",
        expect![[r#""a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a" has more than 16 parts"#]],
    );
    assert!("time=a,header:x\0=b".parse::<FieldMap>().is_err());
    assert_eq!(fields(" time = a ,, header:X-A = b=c "), fields("time=a,header:x-a=b=c"));
}

#[test]
fn a_format_tells_what_its_samples_have() {
    let names = [
        "ip",
        "user",
        "method",
        "path",
        "host",
        "route",
        "query:q",
        "header:user-agent",
        "header:x",
        "cookie:sid",
    ];
    let mut text = String::new();
    for (name, sample) in SAMPLES {
        let format = format(name);
        let tells = names.iter().filter(|name| format.has(&AttributeName::parse(name).unwrap()));
        let tells: Vec<&str> = tells.copied().collect();
        let bytes = if format.has_request_bytes() { " bytes" } else { "" };
        writeln!(text, "{name}: {}{bytes}", tells.join(" ")).unwrap();
        let Ok(Line::Request(record)) = format.parser().parse(sample.as_bytes()) else { panic!("{name}") };
        assert_eq!(record.request_bytes.is_some(), format.has_request_bytes(), "{name}");
        assert_eq!(record.status.is_some(), format.has_status(), "{name}");
        for (has, told) in [
            (record.address.or(record.forwarded_for.map(|_| [0; 4].into())).is_some(), AttributeName::Ip),
            (record.user.is_some(), AttributeName::User),
            (record.host.is_some(), AttributeName::Host),
            (record.route.is_some(), AttributeName::Route),
        ] {
            assert_eq!(has, format.has(&told), "{name} {told}");
        }
        for (attribute, _) in &record.attributes {
            assert!(format.has(&attribute.to_owned()), "{name} {attribute}");
        }
    }
    expect![[r#"
        combined: ip user method path query:q header:user-agent
        ratewright: ip method path host route header:user-agent
        envoy: ip method path host query:q header:user-agent bytes
        envoy-json: ip method path host query:q header:user-agent bytes
        traefik: ip user method path host query:q header:user-agent header:x bytes
        caddy: ip user method path host query:q header:user-agent header:x bytes
        alb: ip method path host query:q header:user-agent
        json: ip user method path host route query:q cookie:sid bytes
        csv: ip user method path host route query:q cookie:sid bytes
    "#]]
    .assert_eq(&text);
    let format = Format::Csv(fields("time=1"));
    assert!(names.iter().all(|name| !format.has(&AttributeName::parse(name).unwrap())));
    assert!(!format.has_status() && !format.has_request_bytes());
}

#[test]
fn a_line_that_ends_anywhere_is_no_panic() {
    for (name, sample) in SAMPLES {
        let mut parser = format(name).parser();
        for len in 0..sample.len() {
            let line = parser.parse(&sample.as_bytes()[..len]);
            assert_eq!(line, format(name).parser().parse(&sample.as_bytes()[..len]), "{name} {len}");
            line.iter().for_each(check_texts);
        }
    }
}

#[test]
fn hostile_json_is_no_panic() {
    let deep = format!("{}{}", r#"{"request":"#.repeat(10_000), "1");
    let list = format!(r#"{{"method":{}"#, "[".repeat(60_000));
    let headers: String = (0..2_000).map(|n| format!(r#""h{n}":["v"],"#)).collect();
    let headers = CADDY.replace(r#""headers":{"#, &format!(r#""headers":{{{headers}"#));
    let prefixed: String = (0..2_000).map(|n| format!(r#""request_h{n}":"v","#)).collect();
    let prefixed = TRAEFIK.replacen('{', &format!("{{{prefixed}"), 1);
    for (name, sample) in SAMPLES {
        let huge = sample.replace("200", &"9".repeat(10_000)).replace("1794990246", &"1".repeat(5_000));
        let twice = sample.replacen('{', &format!("{{{},", sample.trim_matches(['{', '}'])), 1);
        let odd = sample.replace("example", "\\u0000\u{1}\u{7f}");
        for line in [&deep, &list, &headers, &prefixed, &huge, &twice, &odd] {
            format(name).parser().parse(line.as_bytes()).iter().for_each(check_texts);
        }
    }
    let Ok(Line::Request(record)) = format("caddy").parser().parse(headers.as_bytes()) else { panic!() };
    assert_eq!(record.attributes.len(), 100);
}

/// A sample with some of its bytes changed.
fn damaged() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    let changes = prop::collection::vec(change, 1..6);
    (prop::sample::select(SAMPLES.to_vec()), changes).prop_map(|((name, sample), changes)| {
        let mut line = sample.as_bytes().to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(line.len());
            match kind {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                2 if line.len() > 1 => drop(line.remove(at)),
                _ => line[at] = b"\"\\[] ,{}:-\0"[usize::from(byte) % 11],
            }
        }
        (name, line)
    })
}

proptest! {
    /// No line makes a parser panic or return a control character, and the lines before it do not change the result.
    #[test]
    fn any_bytes_are_a_line_or_an_error(line in prop::collection::vec(any::<u8>(), 0..200)) {
        for (name, sample) in SAMPLES {
            let mut parser = format(name).parser();
            parser.parse(sample.as_bytes()).unwrap();
            let parsed = parser.parse(&line);
            prop_assert_eq!(&parsed, &format(name).parser().parse(&line));
            parsed.iter().for_each(check_texts);
        }
    }

    #[test]
    fn a_damaged_line_is_a_line_or_an_error((name, line) in damaged()) {
        let sample = SAMPLES.iter().find(|(known, _)| *known == name).unwrap().1;
        let mut parser = format(name).parser();
        parser.parse(sample.as_bytes()).unwrap();
        let parsed = parser.parse(&line);
        prop_assert_eq!(&parsed, &format(name).parser().parse(&line));
        parsed.iter().for_each(check_texts);
    }
}
