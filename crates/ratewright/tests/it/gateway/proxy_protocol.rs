//! The PROXY protocol, with a real HAProxy in front; its logs and metrics.

use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;

use ratewright_lab::{Haproxy, Nginx, Stream, free_port, output, wait_until};
use tempfile::TempDir;

use super::{application, with_routes};
use crate::process::{Ratewright, command, http, own_address};

/// One request an hour for each address.
const POLICIES: &str = "policies: [{name: each, by: ip, quota: {rate: 1/h, burst: 1}}]\n";

const GET: &str = "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The program behind load balancers on this machine.
struct Balanced {
    _folder: TempDir,
    file: PathBuf,
    application: Nginx,
    ratewright: Ratewright,
}

/// The text of a policy file whose gateway accepts headers from here.
fn text(application: &Nginx, from: &str) -> String {
    let gateway = format!("{{address: '127.0.0.1:0', proxy_protocol: {{from: {from}}}}}");
    let others = "api: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0'";
    let listen = format!("listen: {{gateway: {gateway}, {others}}}\n");
    with_routes(application, &format!("{listen}{POLICIES}"))
}

impl Balanced {
    fn start() -> Self {
        let (folder, application) = (TempDir::new().unwrap(), application());
        let file = folder.path().join("ratewright.yaml");
        std::fs::write(&file, text(&application, "127.0.0.0/8")).unwrap();
        let ratewright = Ratewright::serve(&["-c", file.to_str().unwrap()]);
        Self { _folder: folder, file, application, ratewright }
    }

    /// The response to these bytes.
    fn response_to(&self, bytes: &str) -> String {
        read_all(Stream::connect(&self.ratewright.gateway), bytes)
    }

    fn refused(&self, reason: &str) -> f64 {
        let labels = format!("{{listener=\"gateway\",reason=\"{reason}\"}}");
        self.ratewright.metric(&format!("ratewright_proxy_protocol_refused_total{labels}"))
    }
}

/// Sends bytes, and reads until the end or a reset.
#[track_caller]
fn read_all(mut stream: Stream, bytes: &str) -> String {
    let _reset = stream.write_all(bytes.as_bytes());
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(error) if error.kind() == ErrorKind::TimedOut => panic!("{error}"),
        _ => String::from_utf8_lossy(&response).into_owned(),
    }
}

/// A real HAProxy, which also checks whether the gateway is there.
fn behind_haproxy(send: &str) {
    let Some(address) = own_address() else { return };
    let (balanced, port) = (Balanced::start(), free_port());
    let gateway = &balanced.ratewright.gateway;
    let haproxy = Haproxy::start(
        1,
        &format!("    mode tcp\n    bind {address}:{port}"),
        &format!(
            "    mode tcp\n    timeout check 10s\n    option httpchk GET /health\n    server gateway {gateway} {send} check inter 100ms fall 1"
        ),
    );
    // Its checks are requests of its own.
    let checks = r#"gateway_request_total{status="200",route_path="/"}"#;
    wait_until("it has checked", || balanced.ratewright.admin("/metrics").body.contains(checks));
    let answer = http(&format!("{address}:{port}"), GET);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.starts_with(&format!("GET /a|{address}|")), "{}", answer.body);
    assert_eq!(http(&format!("{address}:{port}"), GET).status, 429, "the client's own bucket");
    for reason in ["peer", "timeout", "closed", "missing", "malformed", "unsupported", "checksum"] {
        assert_eq!(balanced.refused(reason), 0.0, "{reason}");
    }
    // A client on the load balancer's own machine announces loopback, as the one did that waited for HAProxy's port.
    let before = balanced.refused("address");
    read_all(Stream::connect(haproxy.address()), GET);
    wait_until("it is refused", || balanced.refused("address") > before);
}

#[test]
fn haproxy_sends_client_addresses_by_version_1() {
    behind_haproxy("send-proxy");
}

#[test]
fn haproxy_sends_client_addresses_by_version_2() {
    behind_haproxy("send-proxy-v2");
}

/// With a checksum, and another TLV.
#[test]
fn haproxy_sends_client_addresses_by_version_2_with_a_checksum() {
    behind_haproxy("send-proxy-v2 proxy-v2-options crc32c,unique-id");
}

#[test]
fn refused_connections_are_counted_and_logged() {
    let balanced = Balanced::start();
    let announced = |client: &str| format!("PROXY TCP4 {client} 10.0.0.9 40000 8000\r\n{GET}");
    assert!(balanced.response_to(&announced("198.51.100.7")).starts_with("HTTP/1.1 200 "));
    assert!(balanced.response_to(&announced("198.51.100.7")).starts_with("HTTP/1.1 429 "));
    assert!(balanced.response_to(&announced("198.51.100.8")).starts_with("HTTP/1.1 200 "));
    for _ in 0..3 {
        assert_eq!(balanced.response_to(GET), "");
    }
    assert_eq!(balanced.response_to(&announced("127.0.0.1")), "");
    assert_eq!(balanced.response_to("PROXY TCP4\r\n"), "");
    let refused = ["peer", "missing", "malformed", "address"].map(|reason| balanced.refused(reason));
    assert_eq!(refused, [0.0, 3.0, 1.0, 1.0]);
    let line =
        balanced.ratewright.wait_for_line(&["connection refused by proxy_protocol", "begin with a header"]);
    assert!(line.contains("\"listener\":\"gateway\"") && line.contains("127.0.0.1"), "{line}");
    let lines = balanced.ratewright.log();
    let n_logged = lines.iter().filter(|line| line.contains("connection refused by proxy_protocol")).count();
    assert_eq!(n_logged, 3, "once for each reason: {lines:?}");
}

/// Listeners cannot change at a reload, so a change is logged, and needs a restart.
#[test]
fn a_change_of_proxy_protocol_needs_a_restart() {
    let balanced = Balanced::start();
    let (ratewright, application) = (&balanced.ratewright, &balanced.application);
    let reload = |text: &str| {
        let before = ratewright.metric("ratewright_reloads_total");
        std::fs::write(&balanced.file, text).unwrap();
        wait_until("it is in force", || ratewright.metric("ratewright_reloads_total") > before);
    };
    let same = text(application, "127.0.0.0/8");
    reload(&same.replace("burst: 1}", "burst: 2}"));
    assert!(!ratewright.logged().iter().any(|line| line.contains("restart")), "{:?}", ratewright.logged());
    reload(&text(application, "10.0.0.0/8"));
    ratewright.wait_for_line(&["WARN", "listener proxy_protocol changed: listen.gateway; restart to apply"]);
    let client = format!("PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n{GET}");
    assert!(balanced.response_to(&client).starts_with("HTTP/1.1 200 "), "the old networks count");
    reload(&same.replace("proxy_protocol: {from: 127.0.0.0/8}", "open: false").replace(", open: false", ""));
    let n_lines =
        || ratewright.logged().iter().filter(|line| line.contains("listener proxy_protocol changed")).count();
    wait_until("the change is logged again", || n_lines() == 2);
    assert_eq!(balanced.response_to(GET), "", "a header is still required");
}

#[test]
fn check_lists_the_trusted_load_balancers() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let application = application();
    let check = |from: &str| {
        std::fs::write(&file, text(&application, from)).unwrap();
        let output = output(&mut command(&["check", file.to_str().unwrap()]));
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        format!("{out}{err}")
    };
    let printed = check("10.0.0.0/8");
    let line =
        "listen.gateway requires a PROXY protocol header, and accepts connections from 10.0.0.0/8 only\n";
    assert!(printed.contains(line), "{printed}");
    let printed = check("0.0.0.0/0");
    assert!(printed.contains("0.0.0.0/0 includes every address, so anyone"), "{printed}");
}
