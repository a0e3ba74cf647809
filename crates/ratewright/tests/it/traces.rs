//! Traces (feature otel).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use ratewright_lab::{Stream, receive};
use serde_json::Value;

use crate::process::Ratewright;

/// A collector: accepts spans, and passes them to the test.
fn collector() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sent, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            if sent.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (address, received)
}

#[test]
fn a_request_is_a_span_under_the_trace_it_came_with() {
    let (address, received) = collector();
    let ratewright = Ratewright::start(&format!("traces: {{endpoint: '{address}', ratio: 0}}\n"));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{trace}-00f067aa0ba902b7-01");
    let mut stream = Stream::connect(&ratewright.address);
    for header in ["", &format!("traceparent: {traceparent}\r\nConnection: close\r\n")] {
        let path = "/api/v1/rate-limit/check?key=a";
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").unwrap();
    }
    stream.read_to_string(&mut String::new()).unwrap();
    ratewright.stop("TERM");
    let sent = receive(&received, "the last spans are sent at the end");
    let spans = sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 1, "a request that nobody traces is not traced at ratio 0: {sent}");
    assert_eq!(spans[0]["traceId"], trace);
    assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(spans[0]["name"], "GET /api/v1/rate-limit/check");
}

/// Paths and methods of clients are attributes of a span, not part of its name.
#[test]
fn a_span_is_named_after_its_route() {
    let (address, received) = collector();
    let ratewright = Ratewright::start(&format!("traces: {{endpoint: '{address}', ratio: 1}}\n"));
    for (method, path) in [
        ("GET", "/api/v1/rate-limit/check?key=a"),
        ("PUT", "/api/v1/rate-limit/check"),
        ("GET", "/made/up/4711"),
        ("MADEUP", "/made/up/4712"),
    ] {
        ratewright.ask(method, path);
    }
    ratewright.stop("TERM");
    let mut span_names = Vec::new();
    while span_names.len() < 4 {
        let sent = receive(&received, "all spans are sent");
        for span in sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap() {
            let attributes = span["attributes"].as_array().unwrap();
            let value = |key: &str| {
                let attribute = attributes.iter().find(|attribute| attribute["key"] == key);
                attribute.map_or("-", |attribute| attribute["value"]["stringValue"].as_str().unwrap())
            };
            let [method, route, path] = ["http.request.method", "http.route", "url.path"].map(value);
            span_names.push(format!("{}: {method} {route} {path}", span["name"].as_str().unwrap()));
        }
    }
    span_names.sort();
    assert_eq!(
        span_names,
        [
            "GET /api/v1/rate-limit/check: GET /api/v1/rate-limit/check /api/v1/rate-limit/check",
            "GET: GET - /made/up/4711",
            "HTTP: _OTHER - /made/up/4712",
            "PUT /api/v1/rate-limit/check: PUT /api/v1/rate-limit/check /api/v1/rate-limit/check",
        ]
    );
}
