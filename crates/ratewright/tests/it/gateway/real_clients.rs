//! Real clients: curl over HTTP/1.1 and HTTP/2, with and without TLS, and Python; large bodies, and a stop during requests.

use std::io::{Read, Write};
use std::time::Duration;

use ratewright_lab::{PATIENCE, Stream, foreign, free_port, is_full_run, output, output_within, wait_until};

use super::{application, gateway, python, with_routes};
use crate::process::Ratewright;

/// What curl prints of an answer: its version, status and body.
fn curl(args: &[&str], url: &str) -> String {
    let mut command = foreign("curl");
    command.args(["-q", "-sS", "-w", "\n%{http_version} %{http_code}"]).args(args).arg(url);
    // A gigabyte takes a while on a busy machine.
    let limit = if is_full_run() { 5 * PATIENCE } else { Duration::from_secs(100) };
    let output = output_within(limit, &mut command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn curl_speaks_http_1_and_http_2_in_the_clear() {
    let application = application();
    let ratewright = gateway(&application, "policies: []\n");
    let url = format!("http://{}/a?b=c", ratewright.gateway);
    for (args, version) in [
        (&["--http1.1"][..], "1.1 200"),
        (&["--http1.0"], "\n1 200"),
        (&["--http2-prior-knowledge"], "2 200"),
    ] {
        let printed = curl(args, &url);
        assert!(printed.starts_with("GET /a?b=c|127.0.0.1|127.0.0.1:"), "{printed}");
        assert!(printed.ends_with(version), "{args:?}: {printed}");
    }
}

#[test]
fn curl_speaks_http_2_over_tls_and_certificates_are_renewed() {
    let application = application();
    let folder = tempfile::TempDir::new().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let renew = || {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    };
    renew();
    let file = folder.path().join("ratewright.yaml");
    let text = format!(
        "listen: {{gateway: {{address: '127.0.0.1:0', tls: {{cert: {cert:?}, key: {key:?}}}}}, \
         api: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0'}}\n\
         routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{}'}}]\n",
        application.address()
    );
    std::fs::write(&file, text).unwrap();
    let ratewright = Ratewright::serve(&["-c", file.to_str().unwrap()]);
    let url = format!("https://{}/a", ratewright.gateway);
    for (args, version) in [(&["--http1.1"][..], "1.1 200"), (&["--http2"], "2 200")] {
        let printed = curl(&[args, &["--cacert", cert.to_str().unwrap()]].concat(), &url);
        assert!(printed.starts_with("GET /a|") && printed.ends_with(version), "{args:?}: {printed}");
    }
    renew();
    wait_until("it shows the new certificate", || {
        output(foreign("curl").args(["-q", "-s", "--cacert", cert.to_str().unwrap(), &url])).status.success()
    });
}

#[test]
fn python_reuses_one_connection() {
    let application = application();
    let ratewright = gateway(&application, "policies: [{name: p, by: ip, quota: {rate: 5/h}}]\n");
    let program = "
import requests, sys
session = requests.Session()
session.trust_env = False
post = lambda n: session.post('http://' + sys.argv[1], data=b'x' * 100000 * n)
print([post(n).status_code for n in range(8)])
";
    let output = output(foreign(python()).args(["-c", program, &ratewright.gateway]));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.trim(), "[200, 200, 200, 200, 200, 429, 429, 429]", "{output:?}");
}

#[test]
fn requests_in_flight_finish_after_sigterm() {
    let (application, folder) = (application(), tempfile::TempDir::new().unwrap());
    let file = folder.path().join("ratewright.yaml");
    // A port that no other test gets meanwhile: that nothing listens there any more is looked at.
    let listen = format!(
        "listen: {{gateway: '127.0.0.1:{}', api: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0'}}\nstop_delay: 0s\n",
        free_port()
    );
    std::fs::write(&file, with_routes(&application, &listen)).unwrap();
    let ratewright = Ratewright::serve(&["-c", file.to_str().unwrap()]);
    let mut stream = Stream::connect(&ratewright.gateway);
    stream
        .write_all(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    let mut goes_on = [0; 25];
    stream.read_exact(&mut goes_on).unwrap();
    assert_eq!(goes_on, *b"HTTP/1.1 100 Continue\r\n\r\n", "it is under way");
    stream.write_all(b"half.").unwrap();
    ratewright.signal("TERM");
    wait_until("nobody else gets in", || std::net::TcpStream::connect(&ratewright.gateway).is_err());
    stream.write_all(b"whole").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("POST /x|"), "{answer}");
}

/// A large body each way, and memory does not grow with what passes. In `make test-all` it is a gigabyte.
#[test]
fn large_bodies_pass_both_ways_with_flat_memory() {
    let length: u64 = if is_full_run() { 1024 * 1024 * 1024 } else { 128 * 1024 * 1024 };
    let files = tempfile::TempDir::new().unwrap();
    let large = files.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(length).unwrap(); // a sparse file, which takes no space
    let server = format!(
        "client_max_body_size 0; root {};\nlocation /sink {{ return 200 $content_length; }}\n",
        files.path().display()
    );
    let application = ratewright_lab::Nginx::start(1, "", &server);
    let ratewright = gateway(&application, "policies: []\n");
    assert_eq!(ratewright.pass("/sink", &[]).status, 200);
    let before = ratewright.resident();
    let url = |path: &str| format!("http://{}/{path}", ratewright.gateway);
    let got = curl(&["-o", "/dev/null", "-w", "%{size_download}"], &url("large"));
    assert!(got.starts_with(&length.to_string()), "{got}");
    let after = ratewright.resident();
    assert!(after < before + 32 * 1024 * 1024, "{before} then {after}");
    let sent = curl(&["-T", large.to_str().unwrap()], &url("sink"));
    assert!(sent.starts_with(&length.to_string()), "{sent}");
    let after = ratewright.resident();
    assert!(after < before + 32 * 1024 * 1024, "{before} then {after}");
}

/// The same by HTTP/2, to the gateway and from it. nginx reads all of an upload before it asks whom it passes it on to.
#[test]
fn large_bodies_pass_both_ways_by_http_2_with_flat_memory() {
    const LARGE: u64 = 128 * 1024 * 1024;
    let files = tempfile::TempDir::new().unwrap();
    let large = files.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(LARGE).unwrap(); // a sparse file, which takes no space
    let (port, sink) = (free_port(), free_port());
    let behind = format!(
        "client_max_body_size 0;\nserver {{ listen 127.0.0.1:{sink}; location / {{ return 200 $content_length; }} }}\n"
    );
    let server = format!(
        "listen 127.0.0.1:{port} http2; root {};\nlocation /sink {{ proxy_pass http://127.0.0.1:{sink}; }}\n",
        files.path().display()
    );
    let _application = ratewright_lab::Nginx::start(1, &behind, &server);
    let ratewright = Ratewright::start(&format!(
        "policies: []\nroutes: [{{id: app, match: {{path: /**}}, upstream: {{servers: ['http://127.0.0.1:{port}'], protocol: http2}}}}]\n"
    ));
    assert_eq!(ratewright.pass("/sink", &[]).status, 200);
    let before = ratewright.resident();
    let by_http_2 = |args: &[&str], path: &str| {
        let url = format!("http://{}/{path}", ratewright.gateway);
        let printed = curl(&[&["--http2-prior-knowledge"], args].concat(), &url);
        let after = ratewright.resident();
        assert!(after < before + 32 * 1024 * 1024, "{before} then {after}");
        printed
    };
    let got = by_http_2(&["-o", "/dev/null", "-w", "%{size_download} by %{http_version}"], "large");
    assert_eq!(got, format!("{LARGE} by 2"));
    let sent = by_http_2(&["-T", large.to_str().unwrap()], "sink");
    assert_eq!(sent, format!("{LARGE}\n2 200"));
}
