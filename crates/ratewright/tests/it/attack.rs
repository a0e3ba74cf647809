//! Attacks: whatever some clients do, the others are served, and memory stays bounded.
//!
//! `make chaos` plays it at full size, with ten thousand idle connections and a million keys, and prints the rows of
//! docs/operations/reliability.md.
#![expect(clippy::disallowed_methods, reason = "the size is a variable, and the times of the rows are real")]
#![expect(clippy::print_stdout, reason = "the rows are the output")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ratewright_lab::{PATIENCE, Stream};
use serde_json::json;

use crate::process::Ratewright;

const FILE: &str = "
store: {local: {max_keys: 100000}}
policies:
- {name: per-client, by: ip, quota: {algorithm: fixed_window, rate: 1000000/100year}}
- {name: strict, by: user, quota: {algorithm: fixed_window, rate: 5/100year}}
";

/// The most memory that an attack may take: 100,000 keys, and the connections.
const RESIDENT_MAX: u64 = 400 << 20;

/// True for the full size.
fn is_full() -> bool {
    std::env::var_os("CHAOS_SECONDS").is_some()
}

/// A connection that gives up after a while.
fn connect(ratewright: &Ratewright) -> Option<Stream> {
    let stream = TcpStream::connect(&ratewright.address).ok()?;
    Some(Stream::from(stream).lasting(Duration::from_secs(5)))
}

/// Sends requests during `attack`; each response must be right. A client over its limit stays denied. Returns the number of
/// responses and the slowest.
fn besieged(name: &str, attack: impl Fn(&Ratewright) + Sync) {
    let ratewright = Ratewright::start(FILE);
    let offender = || ratewright.decide(&json!({ "user": "offender" })).status;
    (0..5).for_each(|_| assert_eq!(offender(), 200));
    assert_eq!(offender(), 429);
    let (mut n_answers, mut slowest) = (0_u64, Duration::ZERO);
    let (start, limit) = (Instant::now(), if is_full() { 10 * PATIENCE } else { Duration::from_secs(100) });
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| attack(&ratewright));
        // An attack whose assertion has failed is over too.
        while !attack.is_finished() || n_answers < 20 {
            assert!(start.elapsed() < limit, "{name} lasts for more than {limit:?}");
            let begun = Instant::now();
            let answer = ratewright.decide(&json!({ "ip": "192.0.2.1", "path": "/" }));
            assert_eq!(answer.status, 200, "{name}: {}", answer.body);
            n_answers += 1;
            slowest = slowest.max(begun.elapsed());
        }
    });
    assert_eq!(offender(), 429, "{name}: an offender is not let go");
    let resident = ratewright.resident();
    assert!(resident < RESIDENT_MAX, "{name} took {resident} bytes");
    assert!(ratewright.metric("ratewright_memory_keys") <= 100_000.0, "{name}");
    if is_full() {
        let (slowest, resident) = (slowest.as_secs_f64() * 1_000.0, resident >> 20);
        println!("| {name} | {n_answers} | {slowest:.1} | {resident} |");
    }
}

#[test]
fn idle_connections() {
    let n = if is_full() { 10_000 } else { 500 };
    besieged(&format!("{n} idle connections"), |ratewright| {
        let idle: Vec<_> = (0..n).filter_map(|_| TcpStream::connect(&ratewright.address).ok()).collect();
        assert_eq!(idle.len(), n);
        let answer = ratewright.decide(&json!({ "ip": "192.0.2.2" }));
        assert_eq!(answer.status, 200, "with all of them open");
    });
}

#[test]
fn a_flood_of_unique_keys() {
    let n = if is_full() { 1_000_000 } else { 20_000 };
    besieged(&format!("{n} unique keys"), |ratewright| {
        for batch in 0..n / 1_000 {
            let address = |k: u32| json!({ "attributes": { "ip": std::net::Ipv4Addr::from(batch * 1_000 + k + (10 << 24)) } });
            let queries: Vec<_> = (0..1_000).map(address).collect();
            let answer =
                ratewright.post("/api/v1/decide/batch", &[], &json!({ "queries": queries }).to_string());
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    });
}

#[test]
fn endless_request_bodies() {
    let (n, mib) = if is_full() { (20, 100) } else { (5, 20) };
    besieged(&format!("{n} bodies of {mib} MiB"), |ratewright| {
        let chunk = vec![b' '; 1 << 20];
        for n in 0..n {
            let Some(mut stream) = connect(ratewright) else { continue };
            let path = ["/api/v1/decide", "/api/v1/decide/batch", "/api/v1/rate-limit/check"][n % 3];
            let length = format!("Content-Length: {}", mib << 20);
            let coded = if n % 2 == 0 { length.as_str() } else { "Transfer-Encoding: chunked" };
            let _ = write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\n{coded}\r\n\r\n");
            for _ in 0..mib {
                // It is refused, and cut off, long before.
                let chunked = if n % 2 == 0 { Ok(()) } else { write!(stream, "{:x}\r\n", chunk.len()) };
                if chunked.and_then(|()| stream.write_all(&chunk)).is_err() {
                    break;
                }
            }
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
    });
}

#[test]
fn endless_and_slow_request_heads() {
    let n = if is_full() { 2_000 } else { 100 };
    besieged(&format!("{n} slow heads and {n} of 1 MB"), |ratewright| {
        let slow: Vec<_> = (0..n)
            .filter_map(|_| {
                let mut stream = connect(ratewright)?;
                stream.write_all(b"GET /api/v1/rate-limit/check HTTP/1.1\r\nHost: ").ok()?;
                Some(stream)
            })
            .collect();
        let field = format!("X-Long: {}\r\n", "x".repeat(10_000)).repeat(100);
        for _ in 0..n {
            let Some(mut stream) = connect(ratewright) else { continue };
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n").and_then(|()| stream.write_all(field.as_bytes()));
        }
        for mut stream in slow {
            let _ = stream.write_all(b"t");
        }
    });
}

#[test]
fn a_flood_of_denials() {
    let n = if is_full() { 100_000 } else { 2_000 };
    besieged(&format!("{n} denials of unique users"), |ratewright| {
        for batch in 0..n / 500 {
            let asks = (0..500).map(|k| {
                json!({ "attributes": { "ip": "192.0.2.3", "user": format!("u{batch}-{k}") }, "cost": 2_000_000 })
            });
            let body = json!({ "queries": asks.collect::<Vec<_>>() }).to_string();
            let answer = ratewright.post("/api/v1/decide/batch", &[], &body);
            assert_eq!(answer.json()["decisions"][0]["status"], 429);
        }
    });
}
