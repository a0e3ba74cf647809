//! Legitimate requests are not affected: hundreds of requests of different clients at one address, each limited to one an hour.

use ratewright_lab::{LIMITS, OrdinaryRequest, ordinary_requests};

use super::{USERS, application, check, decide, gateway, token};
use crate::curl::{self, HTTP_1, HTTP_2, Request};
use crate::process::Ratewright;

/// The headers of a request, as lines. Over HTTP/2 curl drops those of the connection.
fn lines(request: &OrdinaryRequest, version: &str) -> Vec<Vec<u8>> {
    let lines = request.headers.iter().flat_map(|(name, value)| {
        // Browsers send cookies one by one over HTTP/2.
        let is_split = *name == "Cookie" && version == HTTP_2;
        let values: Vec<&str> = if is_split { value.split("; ").collect() } else { vec![value] };
        values.into_iter().map(|value| format!("{name}: {value}").into_bytes()).collect::<Vec<_>>()
    });
    lines.collect()
}

/// Calls `send` with the requests as they are in this version of HTTP, and tells which ones do not get `expected`.
#[track_caller]
fn expect_all(
    requests: &[OrdinaryRequest],
    version: &str,
    expected: u16,
    send: impl FnOnce(&[Request<'_>]) -> Vec<u16>,
) {
    let headers: Vec<Vec<Vec<u8>>> = requests.iter().map(|request| lines(request, version)).collect();
    let headers: Vec<Vec<&[u8]>> =
        headers.iter().map(|lines| lines.iter().map(Vec::as_slice).collect()).collect();
    let sent = requests.iter().zip(&headers);
    let sent: Vec<Request<'_>> =
        sent.map(|(request, lines)| (request.method, request.path.as_str(), lines.as_slice())).collect();
    let got = send(&sent).into_iter().zip(requests).filter(|(status, _)| *status != expected);
    let got: Vec<String> = got.map(|(status, request)| format!("{status}: {request:?}\n")).collect();
    assert!(got.is_empty(), "{} of {} do not get {expected}:\n{}", got.len(), requests.len(), got.concat());
}

/// A limit for every kind of key, and one that has requests with an overridden method read in two ways.
fn one_an_hour() -> String {
    let policies = LIMITS.map(|(name, by)| {
        format!("- {{name: {name}, by: {by:?}, when: {{path: '/{name}/**'}}, quota: {{rate: 1/h}}}}\n")
    });
    let writes = "- {name: writes, by: ip, when: {method: [POST, PATCH]}, quota: {rate: 100000/h}}\n";
    format!("{USERS}policies:\n{}{writes}", policies.concat())
}

fn requests() -> Vec<OrdinaryRequest> {
    ordinary_requests(|user| token(user, 4_000_000_000))
}

/// Each is counted as its own client, whichever version of HTTP it comes over.
#[test]
fn ordinary_requests_of_different_clients_pass_the_gateway_once() {
    let (application, requests) = (application(), requests());
    for versions in [[HTTP_1, HTTP_2], [HTTP_2, HTTP_1]] {
        let ratewright = gateway(&application, &one_an_hour());
        for (version, expected) in versions.into_iter().zip([200, 429]) {
            expect_all(&requests, version, expected, |sent| {
                curl::statuses(version, &ratewright.gateway, sent)
            });
        }
    }
}

#[test]
fn ordinary_requests_of_different_clients_pass_decide_once() {
    let (ratewright, requests) = (Ratewright::start(&one_an_hour()), requests());
    for (version, expected) in [(HTTP_1, 200), (HTTP_2, 429)] {
        expect_all(&requests, version, expected, |sent| {
            sent.iter().map(|request| decide(&ratewright, *request)).collect()
        });
    }
}

/// Upstreams read these differently, so they are counted by client address too: see docs/guides/policy-file.md. None of them is rejected.
#[test]
fn ordinary_requests_that_upstreams_read_differently_are_not_rejected() {
    let names = [
        "query:page",
        "query:ids",
        "query:filter",
        "cookie:PHPSESSID",
        "cookie:prefs",
        "header:Authorization",
    ];
    let policies: String = (0..)
        .zip(names)
        .map(|(n, name)| format!("- {{name: p{n}, by: '{name}', quota: {{rate: 1000/h}}}}\n"))
        .collect();
    let headers: [&[&[u8]]; 8] = [
        &[b"Cookie: PHPSESSID=a1,b2-c3"],
        &[br#"Cookie: prefs={"columns":[1,2],"a":"b c"}; prefs={"columns":[3]}"#],
        &[b"Cookie: prefs=name=anna&id=7"],
        &[br#"Authorization: Digest username="anna", realm="a", nonce="b", uri="/", qop=auth, nc=00000001, response="c""#],
        &[b"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20231113/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0a"],
        &[br#"Authorization: OAuth realm="P", oauth_consumer_key="k", oauth_signature="a%2Bb%3D""#],
        &[b"Connection: TE, close", b"TE: trailers, deflate;q=0.3"],
        &[b"Cookie: JSESSIONID=1; JSESSIONID=2; JSESSIONID=3; JSESSIONID=4; JSESSIONID=5; JSESSIONID=6"],
    ];
    let paths = [
        "/?page[size]=20&page[number]=3&page[cursor]=a&page[after]=b&page[before]=c",
        "/?ids[]=1&ids[]=2&ids[]=3&ids[]=4&ids[]=5&ids[]=6&ids[]=7",
        "/?ids%5B0%5D=1&ids%5B1%5D=2&filter[status][]=open&filter[status][]=new&filter[author]=7",
        "/?filter=a;b&tag=1&tag=2&tag=3&tag=4&tag=5&tag=6",
    ];
    let requests: Vec<Request<'_>> =
        headers.iter().flat_map(|headers| paths.map(|path| ("GET", path, *headers))).collect();
    let expected = vec![200; requests.len()];
    check(&format!("policies:\n{policies}"), &requests, &expected, Some(&expected));
}
