//! `ratewright health` against an instance that is ready, stopping, without Redis, and unreachable.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;

use expect_test::{Expect, expect};
use ratewright_lab::{Stream, accept, free_port, output, wait_until, write_certificates};
use tempfile::TempDir;

use crate::process::{Ratewright, command, listen, run};

fn ask(ratewright: &Ratewright, args: &[&str]) -> Output {
    run(&[&["health", "--admin", &format!("http://{}", ratewright.admin)], args].concat())
}

#[track_caller]
fn check(output: &Output, expected: Expect) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err, exit) = (text(&output.stdout), text(&output.stderr), output.status.code().unwrap());
    expected.assert_eq(&format!("{out}{err}exit {exit}"));
}

#[test]
fn a_running_program_is_ready_and_alive() {
    let ratewright = Ratewright::start("");
    check(
        &ask(&ratewright, &[]),
        expect![[r#"
        ready
        exit 0"#]],
    );
    check(
        &ask(&ratewright, &["--live"]),
        expect![[r#"
        alive
        exit 0"#]],
    );
    check(
        &ask(&ratewright, &["--json"]),
        expect![[r#"
        {"status":"UP"}
        exit 0"#]],
    );
}

#[test]
fn a_draining_instance_is_alive_but_not_ready() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let ratewright = Ratewright::start(&format!(
        "routes: [{{id: slow, match: {{path: /**}}, upstream: 'http://{address}'}}]\n"
    ));
    let mut client = Stream::connect(&ratewright.gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut held = accept(&upstream);
    ratewright.signal("TERM");
    wait_until("it is not ready", || !ask(&ratewright, &[]).status.success());
    check(
        &ask(&ratewright, &[]),
        expect![[r#"
        not ready: the instance is stopping
        exit 1"#]],
    );
    check(
        &ask(&ratewright, &["--live"]),
        expect![[r#"
        alive
        exit 0"#]],
    );
    assert!(held.read_some().starts_with(b"GET / "));
    held.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
    drop(held);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(ratewright.wait().success());
}

#[test]
fn an_instance_that_needs_redis_is_not_ready_without_it() {
    let port = free_port();
    let ratewright = Ratewright::start(&format!(
        "store: {{redis: {{url: 'redis://127.0.0.1:{port}'}}, on_failure: closed}}\n"
    ));
    check(
        &ask(&ratewright, &[]),
        expect![[r#"
        not ready: Redis is unreachable and store.on_failure is closed
        exit 1"#]],
    );
}

#[test]
fn an_unreachable_instance_is_reported() {
    let admin = format!("http://127.0.0.1:{}", free_port());
    let output = output(command(&["health"]).env("RATEWRIGHT_ADMIN", &admin));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.starts_with(&format!("error: cannot reach {admin} (Connection refused")), "{printed}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(run(&["health", "--admin", "8082"]).status.code(), Some(2), "an option is invalid");
}

/// Readiness is open to all: the token is not sent, so that no probe needs it and none can leak it.
#[test]
fn health_uses_tls_and_sends_no_token() {
    let folder = TempDir::new().unwrap();
    write_certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tls = format!("{{cert: {}, key: {}}}", path("server.pem"), path("server.key"));
    let listen = listen(&[("admin", &format!("{{address: '127.0.0.1:0', tls: {tls}}}"))]);
    std::fs::write(path("ratewright.yaml"), format!("{listen}api: {{tokens: [secret]}}\n")).unwrap();
    let ratewright = Ratewright::serve(&["-c", &path("ratewright.yaml")]);
    let admin = format!("https://{}", ratewright.admin);
    let args = ["health", "--admin", &admin, "--ca", &path("ca.pem")];
    check(
        &output(command(&args).env("RATEWRIGHT_TOKEN", "another")),
        expect![[r#"
        ready
        exit 0"#]],
    );
    let untrusted = run(&args[..3]);
    assert_eq!(untrusted.status.code(), Some(1));
}

#[test]
fn help_has_exit_status_and_examples() {
    let help = String::from_utf8(run(&["health", "--help"]).stdout).unwrap();
    for part in [
        "--live",
        "Exit status:\n  0  the instance is ready",
        "Examples:\n  ratewright health\n",
        "RATEWRIGHT_ADMIN",
    ] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
}
