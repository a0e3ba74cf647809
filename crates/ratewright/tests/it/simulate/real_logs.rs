//! Logs that real servers wrote, whatever clients sent to them.

use std::io::{Read as _, Write as _};
use std::path::Path;

use ratewright_lab::{Caddy, Nginx, Stream, free_port, skip, wait_until};
use serde_json::Value;

use super::{folder, json_of};
use crate::envoy::has_envoy;
use crate::process::run_in;

/// Requests that a client may send, and whether they are for /login. All are well-formed.
const REQUESTS: [(&str, bool); 9] = [
    ("GET /login HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true),
    ("GET /%6Cogin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true),
    ("GET //login/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true),
    ("GET /login?a=%22%5C%00&b=\"'\\ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true),
    (
        "GET /other HTTP/1.1\r\nHost: a\r\nUser-Agent: a \"b\" \\ [c]\r\nReferer: \" - - [x] \"\r\nConnection: close\r\n\r\n",
        false,
    ),
    (
        "GET /a%20b/%E2%82%AC HTTP/1.1\r\nHost: a\r\nUser-Agent: \u{1F600}\u{202e}\r\nConnection: close\r\n\r\n",
        false,
    ),
    ("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false),
    ("GET / HTTP/1.0\r\n\r\n", false),
    ("GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n", false),
];

/// Sends a request, and waits for the end of the response.
fn send(address: &str, request: &[u8]) {
    let mut stream = Stream::connect(address);
    stream.write_all(request).unwrap();
    // The response does not matter; a server may reset the connection after an error.
    let _ = stream.read_to_end(&mut Vec::new());
}

fn n_lines(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().lines().count()
}

/// Simulates a log, and checks that every line was read.
fn simulated(log: &Path, format: &str, n_requests: usize) -> Value {
    let policies = "policies:\n  - { name: login, when: { path: /login }, by: ip, quota: { rate: 1/h } }\n";
    let folder = folder(&[("p.yaml", policies)]);
    let output = run_in(folder.path(), &["simulate", "-c", "p.yaml", "--json", log.to_str().unwrap()]);
    let report = json_of(&output);
    let lines = std::fs::read_to_string(log).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{lines}");
    assert_eq!(report["logs"][0]["format"], format, "{lines}");
    assert_eq!(
        (&report["unreadable"], &report["requests"]),
        (&0.into(), &n_requests.into()),
        "{report:#}\n{lines}"
    );
    report
}

/// The policy for /login applied to each request for it, and to no other.
fn check_login(report: &Value) {
    let n_login = REQUESTS.iter().filter(|(_, is_login)| *is_login).count();
    let login = &report["policies"][0];
    assert_eq!((&login["requests"], &login["denied"]), (&n_login.into(), &(n_login - 1).into()), "{login:#}");
    assert_eq!(login["clients"], 1, "one client, whatever X-Forwarded-For it sends");
}

#[test]
fn nginx() {
    let nginx = Nginx::start(1, "", "access_log access.log combined; location / { return 200 'x'; }");
    for (request, _) in REQUESTS {
        send(&nginx.address(), request.as_bytes());
    }
    // Not HTTP: logged with status 400.
    send(&nginx.address(), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\"\\\n\n");
    let log = nginx.folder().join("access.log");
    wait_until("all requests are logged", || n_lines(&log) == REQUESTS.len() + 1);
    let report = simulated(&log, "combined", REQUESTS.len());
    assert_eq!(report["lines_without_request"], 1);
    check_login(&report);
    assert_eq!(report["policies"][0]["most_denied"][0]["client"], "127.0.0.1");
}

#[test]
fn caddy() {
    if !Caddy::is_installed() {
        return skip("Caddy is not installed; `make deps` installs it");
    }
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let log = folder.path().join("access.log");
    let site = format!(
        "http://127.0.0.1:{port}, http://a:{port}, http://:{port} {{\n  bind 127.0.0.1\n  log {{\n    output file {}\n    format json\n  }}\n  respond x\n}}",
        log.display()
    );
    let caddy = Caddy::serve(&format!("{site}\n"), port);
    for (request, _) in REQUESTS {
        send(&caddy.address(), request.as_bytes());
    }
    wait_until("all requests are logged", || n_lines(&log) >= REQUESTS.len());
    let report = simulated(&log, "caddy", REQUESTS.len());
    check_login(&report);
    assert_eq!(report["policies"][0]["most_denied"][0]["client"], "127.0.0.1");
}

/// Envoy's default format, and JSON with the operators of its documentation. For a client on loopback, Envoy logs its own address.
#[test]
fn envoy() {
    if !has_envoy() {
        return;
    }
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let [text, json] = ["text.log", "json.log"].map(|name| folder.path().join(name));
    let config = format!(
        r#"
static_resources:
  listeners:
    - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: a
                use_remote_address: true
                delayed_close_timeout: 0.05s
                http_protocol_options: {{ accept_http_10: true, default_host_for_http_10: a }}
                access_log:
                  - name: text
                    typed_config: {{ "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: "{text}" }}
                  - name: json
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                      path: "{json}"
                      log_format:
                        json_format:
                          start_time: "%START_TIME%"
                          method: "%REQ(:METHOD)%"
                          path: "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"
                          protocol: "%PROTOCOL%"
                          response_code: "%RESPONSE_CODE%"
                          bytes_received: "%BYTES_RECEIVED%"
                          bytes_sent: "%BYTES_SENT%"
                          duration: "%DURATION%"
                          x_forwarded_for: "%REQ(X-FORWARDED-FOR)%"
                          user_agent: "%REQ(USER-AGENT)%"
                          authority: "%REQ(:AUTHORITY)%"
                          downstream_remote_address: "%DOWNSTREAM_REMOTE_ADDRESS%"
                route_config:
                  virtual_hosts:
                    - name: a
                      domains: ["*"]
                      routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: 200, body: {{ inline_string: x }} }} }}]
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
"#,
        text = text.display(),
        json = json.display()
    );
    let envoy = ratewright_lab::Envoy::serve(&config, port);
    for (request, _) in REQUESTS {
        send(&envoy.address(), request.as_bytes());
    }
    wait_until("all requests are logged", || [&text, &json].iter().all(|log| n_lines(log) >= REQUESTS.len()));
    for (log, format) in [(text, "envoy"), (json, "envoy-json")] {
        check_login(&simulated(&log, format, n_lines(&log)));
    }
}
