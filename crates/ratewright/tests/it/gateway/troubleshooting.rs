//! How an operator finds out why a request was limited: logs, and the explain header.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use ratewright_lab::{Redis, Stream, all_of};

use super::{application, gateway};
use crate::process::Ratewright;

const TOKEN: &str = "an-admin-token-of-32-characters-";

#[test]
fn a_forwarding_header_from_an_untrusted_peer_logs_one_warning() {
    let application = application();
    let ratewright = gateway(&application, "policies: [{name: p, by: ip, quota: {rate: 100/h}}]\n");
    for client in ["203.0.113.7", "203.0.113.8", "198.51.100.1"] {
        assert_eq!(ratewright.pass("/", &[("X-Forwarded-For", client)]).status, 200);
    }
    ratewright.wait_for_line(&["WARN", "forwarding header ignored", "clients.trusted_proxies", "127.0.0.1"]);
    let log = ratewright.log();
    assert_eq!(log.iter().filter(|line| line.contains("forwarding header ignored")).count(), 1, "{log:#?}");
}

#[test]
fn a_denial_at_the_gateway_is_found_in_the_log_by_its_id() {
    let application = application();
    let ratewright = gateway(&application, "policies: [{name: p, by: ip, quota: {rate: 1/h}}]\n");
    assert_eq!(ratewright.pass("/", &[]).status, 200);
    let denied = ratewright.pass("/", &[("X-Request-Id", "r-7")]);
    assert_eq!((denied.status, &denied.json()["correlationId"]), (429, &"r-7".into()));
    ratewright.wait_for_line(&["WARN", "denied", "r-7"]);
    let made = ratewright.pass("/", &[]).json()["correlationId"].as_str().unwrap().to_owned();
    ratewright.wait_for_line(&["WARN", "denied", &made]);
}

#[test]
fn the_explain_header_takes_a_token_of_the_api_and_is_never_logged() {
    let application = application();
    let config = format!(
        "log: {{level: trace}}\ngateway: {{access_log: true}}\napi: {{tokens: [\"{TOKEN}\"]}}\n\
         policies: [{{name: p, by: ip, quota: {{rate: 1/h}}}}]\n"
    );
    let mut ratewright = gateway(&application, &config);
    let out = ratewright.stdout();
    let explained = ratewright.pass("/", &[("X-Ratewright-Explain", TOKEN)]);
    let header = &explained.headers["x-ratewright-explain"];
    assert!(header.starts_with("verdict=allow policy=p"), "{header}");
    let wrong = ratewright.pass("/", &[("X-Ratewright-Explain", "wrong")]);
    assert_eq!((wrong.status, wrong.headers.get("x-ratewright-explain")), (429, None));
    ratewright.signal("TERM");
    let access_log = all_of(out, "the program ends");
    let log = ratewright.log().join("\n");
    assert!(!log.contains(TOKEN) && !access_log.contains(TOKEN), "{log}\n{access_log}");
    assert!(access_log.contains("\"policy\":\"p\",\"denied\":true,\"status\":429"), "{access_log}");
}

fn post(ratewright: &Ratewright, head: &str, body: &str) -> u16 {
    let request = format!("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n\r\n{body}");
    ratewright.pass_raw(&request).status
}

/// An application that reads all of a body before it answers. It ends with the test.
fn reading_application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|client| drop(read_and_answer(client.into())))
    });
    address
}

fn read_and_answer(mut client: Stream) -> std::io::Result<()> {
    let mut text = String::new();
    loop {
        let is_whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            length.map_or_else(|| body.ends_with("0\r\n\r\n"), |length: usize| body.len() >= length)
        });
        if is_whole {
            return client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let mut piece = [0; 1024];
        let n = client.read(&mut piece)?;
        if n == 0 {
            return Ok(()); // the gateway has cut the request off
        }
        text.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
}

/// Content-Length is charged before the request is forwarded, a chunked body as it comes: also in Redis, for all instances.
#[test]
fn bytes_of_requests_are_counted_for_all_instances() {
    let (application, redis) = (reading_application(), Redis::start());
    let config = format!(
        "store: {{redis: {{url: '{}', deadline: 10s}}}}\n\
         policies: [{{name: upload, by: ip, cost: {{bytes: request}}, quota: {{rate: 1KB/30d, burst: 100B}}}}]\n\
         routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{application}'}}]\n",
        redis.url()
    );
    let [one, two] = std::array::from_fn(|_| Ratewright::start(&config));
    one.wait_for_redis();
    two.wait_for_redis();
    assert_eq!(post(&one, "Content-Length: 40", &"x".repeat(40)), 200);
    assert_eq!(post(&two, "Content-Length: 61", &"x".repeat(61)), 429, "60 bytes are left");
    let chunked = format!("1e\r\n{}\r\n0\r\n\r\n", "x".repeat(30));
    assert_eq!(post(&two, "Transfer-Encoding: chunked", &chunked), 200);
    let left = || one.get("remaining?policy=upload&key=127.0.0.1").json()["remaining"].as_u64();
    assert_eq!(left(), Some(30), "a chunked body is charged as it comes");
    assert_eq!(post(&one, "Content-Length: 31", &"x".repeat(31)), 429);
    let longer = format!("28\r\n{}\r\n0\r\n\r\n", "x".repeat(40));
    assert_eq!(post(&two, "Transfer-Encoding: chunked", &longer), 429);
    one.wait_for_line(&["WARN", "denied", "upload"]);
    assert_eq!(post(&one, "Content-Length: 30", &"x".repeat(30)), 200);
    assert_eq!(post(&one, "Transfer-Encoding: chunked", &chunked), 429, "there is no room for one byte");
}

/// Nobody counts a body after `/decide`, so a length that cannot be read is longer than any limit.
#[test]
fn an_odd_length_at_decide_is_never_charged_less_than_the_body() {
    let policies =
        "policies: [{name: upload, by: ip, cost: {bytes: request}, quota: {rate: 1KB/30d, burst: 10KB}}]\n";
    let ratewright = Ratewright::start(policies);
    let decide = |headers: serde_json::Value| {
        ratewright.decide(&serde_json::json!({"ip": "192.0.2.7", "headers": headers})).status
    };
    let zeros = format!("{}5000", "0".repeat(5_000));
    for length in ["+5000", "5000, 5000", "5e3", "5 000", "\0", "-1", "18446744073709551616", zeros.as_str()]
    {
        assert_eq!(decide(serde_json::json!({"Content-Length": length})), 429, "{length:?}");
    }
    let chunked = serde_json::json!({"Content-Length": "0", "Transfer-Encoding": "chunked"});
    assert_eq!(decide(chunked), 429, "chunked counts, whatever length stands beside it");
    assert_eq!(decide(serde_json::json!({"Content-Length": ["1", "10241"]})), 429, "the larger of two");
    assert_eq!(decide(serde_json::json!({"Content-Length": "10240"})), 200, "nothing was spent before");
    assert_eq!(decide(serde_json::json!({"Content-Length": "1"})), 429);
}
