//! The example does what it says, over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use ratewright_lab::{Stream, end, receive, without_settings};

struct Program(Child, String);

impl Program {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_limited"));
        command.arg("127.0.0.1:0").stdout(Stdio::piped());
        let mut child = without_settings(&mut command).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (says, said) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            says.send(line).unwrap();
        });
        let line = receive(&said, "its address");
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self(child, address)
    }

    /// The whole answer to one request.
    fn send(&self, line: &str, body: &str) -> String {
        let head =
            format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}", body.len());
        Stream::connect(&self.1).exchange(&format!("{head}\r\n\r\n{body}"))
    }

    fn status(&self, line: &str, body: &str) -> String {
        self.send(line, body).split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

#[test]
fn five_pass_and_then_they_are_told_to_wait() {
    let program = Program::start();
    let first = program.send("GET /", "");
    assert!(first.starts_with("HTTP/1.1 200") && first.ends_with("hello\n"), "{first}");
    assert!(
        first.contains("x-ratelimit-remaining: 4\r\n") && first.contains("ratelimit: \"everything\";r=4;t=1"),
        "{first}"
    );
    let denied = (0..20).map(|_| program.send("GET /", "")).find(|answer| answer.starts_with("HTTP/1.1 429"));
    let denied = denied.expect("twenty in a row are more than five and one each second");
    assert!(
        denied.contains("retry-after: 1\r\n") && denied.contains(r#""limitType":"everything""#),
        "{denied}"
    );
}

#[test]
fn failed_logins_count_and_good_ones_do_not() {
    let program = Program::start();
    let login = |password| program.status("POST /login", password);
    assert_eq!(login("open sesame"), "200");
    assert_eq!([login("x"), login("y"), login("z")], ["401"; 3]);
    let denied = program.send("POST /login", "open sesame");
    assert!(denied.starts_with("HTTP/1.1 429") && denied.contains("failed-logins"), "{denied}");
}
