//! Many connections: idle ones, and load by wrk and h2load.

use std::io::{Read, Write};

use ratewright_lab::{Nginx, Stream, foreign, output, skip_here};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{application, gateway};
use crate::process::Ratewright;

/// Raises the limit of open files of this process as far as it goes. Tells whether so many can be open.
fn can_open(n: u64) -> bool {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    let limit = setrlimit(Resource::Nofile, raised).map_or(limits.current, |()| limits.maximum);
    let is_enough = limit.is_none_or(|limit| limit >= n);
    if !is_enough {
        let limit = limit.unwrap_or_default();
        skip_here(&format!("open file limit too low: {limit} of {n}; raise `ulimit -Hn`"));
    }
    is_enough
}

/// Half of them have never said anything, and half have asked once.
#[test]
fn five_thousand_idle_connections_use_little_memory() {
    const N: usize = 5_000;
    if !can_open(N as u64 + 1_000) {
        return;
    }
    let application = application();
    let ratewright = gateway(
        &application,
        "gateway: {connections_per_address: 0, timeouts: {request_header: 10min}}\npolicies: []\n",
    );
    assert_eq!(ratewright.pass("/", &[]).status, 200);
    let before = ratewright.resident();
    let mut idle = Vec::new();
    for n in 0..N {
        let mut stream = Stream::connect(&ratewright.gateway);
        if n % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"HTTP/1.1 200", "{n}");
        }
        idle.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(ratewright.pass("/", &[]).status, 200, "with all of them open");
    }
    let each = ratewright.resident().saturating_sub(before) / N as u64;
    assert!(each < 32 * 1024, "{each} bytes for each");
}

/// Requests that were answered, by status.
fn counted(ratewright: &Ratewright, status: &str) -> f64 {
    let page = ratewright.admin("/metrics").body;
    let of_status = format!("gateway_request_total{{status=\"{status}\"");
    let counts = page.lines().filter(|line| line.starts_with(&of_status));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// What a program prints that asks the gateway.
fn load(program: &str, args: &[&str], ratewright: &Ratewright) -> String {
    let url = format!("http://{}/small", ratewright.gateway);
    let output = output(foreign(program).args(args).arg(url));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number before this word.
fn number_before(printed: &str, word: &str) -> f64 {
    let (before, _) = printed.split_once(word).unwrap_or_else(|| panic!("no {word} in {printed}"));
    before.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn wrk_counts_what_the_gateway_counts() {
    const CONNECTIONS: f64 = 32.0;
    let application = Nginx::upstream();
    let ratewright = gateway(&application, "policies: [{name: p, by: ip, quota: {rate: 1000000/s}}]\n");
    let connections = CONNECTIONS.to_string();
    let printed = load("wrk", &["-t", "1", "-c", &connections, "-d", "1s"], &ratewright);
    assert!(!printed.contains("Socket errors") && !printed.contains("Non-2xx"), "{printed}");
    let n = number_before(&printed, " requests in ");
    let counted = counted(&ratewright, "200");
    // When its time is over it leaves without waiting for what it has asked.
    assert!((n..=n + CONNECTIONS).contains(&counted), "{counted} here, and there {printed}");
}

#[test]
fn h2load_counts_what_the_gateway_counts() {
    let application = Nginx::upstream();
    let ratewright = gateway(&application, "policies: [{name: p, by: ip, quota: {rate: 1000000/s}}]\n");
    for (n_before, args) in [(0.0, &[][..]), (4_000.0, &["--h1"])] {
        let printed = load("h2load", &[&["-n", "4000", "-c", "4", "-m", "32"], args].concat(), &ratewright);
        assert_eq!(number_before(&printed, " succeeded"), 4_000.0, "{printed}");
        assert_eq!(number_before(&printed, " 2xx"), 4_000.0, "{printed}");
        assert_eq!(counted(&ratewright, "200"), n_before + 4_000.0);
    }
}
