//! What the lab starts does what it says, and is gone afterwards.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use ratewright_lab::{
    Client, Load, Nginx, PATIENCE, Prometheus, Redis, Stream, accept, all_of, foreign, free_port, join,
    lines_of, output, output_within, receive, wait, wait_until, without_settings,
};

#[test]
fn an_upstream_gives_its_fixed_answers() {
    let upstream = Nginx::upstream();
    let mut client = Client::connect(&upstream.address());
    for (path, status, length) in [("/small", 200, Nginx::SMALL), ("/64k", 200, Nginx::LARGE)] {
        let (got, body) = client.get(path).unwrap();
        assert_eq!((got, body.len()), (status, length), "{path}");
    }
    assert_eq!(client.get("/other").unwrap().0, 404);
    assert_eq!(upstream.warnings(), "");
}

#[test]
fn nginx_passes_on_what_is_written_down_for_it() {
    let upstream = Nginx::upstream();
    let there = format!("location / {{ proxy_pass http://{}; }}", upstream.address());
    let nginx = Nginx::start(2, "", &there);
    let (status, body) = Client::connect(&nginx.address()).get("/small").unwrap();
    assert_eq!((status, body.len()), (200, Nginx::SMALL));
}

#[test]
fn nginx_goes_with_its_workers_and_can_come_back() {
    let mut nginx = Nginx::upstream();
    let listens = |nginx: &Nginx| TcpStream::connect(nginx.address()).is_ok();
    nginx.kill();
    assert!(!listens(&nginx));
    nginx.run();
    assert_eq!(Client::connect(&nginx.address()).get("/small").unwrap().0, 200);
    let address = nginx.address();
    drop(nginx);
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
#[should_panic(expected = "unknown directive \"no_such_word\"")]
fn nginx_says_why_it_does_not_start() {
    Nginx::start(1, "", "no_such_word;");
}

/// A killed process keeps its port until the kernel has freed its memory, so the test gives Redis a lot of it.
#[test]
fn the_port_of_a_killed_server_is_free_at_once() {
    let mut redis = Redis::start_with(&["--enable-debug-command", "yes"]);
    for _ in 0..10 {
        assert_eq!(redis.cli(&["DEBUG", "POPULATE", "300000"]), "OK");
        redis.kill();
        drop(TcpListener::bind(("127.0.0.1", redis.port())).expect("a free port"));
        redis.run();
    }
}

/// The test fails at once, not after a minute.
#[test]
fn a_server_that_exits_at_start_fails_the_test_with_its_log() {
    let mut redis = Redis::start();
    redis.kill();
    let _taken = TcpListener::bind(("127.0.0.1", redis.port())).unwrap();
    let message = start_failure(|| redis.run());
    assert!(message.contains("Address already in use"), "{message}");
    let message = start_failure(|| Redis::start_with(&["--no-such-option", "1"]));
    assert!(message.contains("no-such-option"), "{message}");
    let message = start_failure(|| Prometheus::scraping("127.0.0.1:9", "/metrics, no_such_word: 1"));
    assert!(message.contains("no_such_word"), "{message}");
}

fn start_failure<T>(start: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(start)).err().expect("a failed start");
    let message = *panic.downcast::<String>().expect("a message");
    assert!(message.contains("the server exited"), "{message}");
    message
}

#[test]
fn no_port_is_given_out_twice() {
    let ports: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| [(); 50].map(|()| free_port()))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
}

/// A timeout of each read would go on for ever.
#[test]
fn a_stream_that_never_stops_ends_at_its_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let endless = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        while stream.write_all(b"more\n").is_ok() {}
    });
    let mut stream = Stream::connect(address).lasting(Duration::from_millis(50));
    let error = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop(stream);
    join(endless, "the sender notices");
}

#[test]
fn a_silent_stream_ends_at_its_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = Stream::connect(listener.local_addr().unwrap()).lasting(Duration::from_millis(50));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_command_that_does_not_end_is_killed_with_what_it_started() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo so far; echo $$ >&2; sleep 1000 & sleep 1000"]);
    let limit = Duration::from_millis(200);
    let panic = catch_unwind(AssertUnwindSafe(|| output_within(limit, &mut command))).unwrap_err();
    let message = panic.downcast::<String>().unwrap();
    assert!(message.contains("so far"), "{message}");
    let group = message.split('"').nth(3).unwrap().trim_end_matches("\\n");
    let is_there = || std::fs::exists(format!("/proc/{group}/cwd")).unwrap_or(false);
    wait_until("the shell is gone", || !is_there());
}

#[test]
fn the_output_of_a_command_is_whole() {
    let output = output(Command::new("sh").args(["-c", "head -c 200000 /dev/zero; echo why >&2; exit 3"]));
    assert_eq!((output.stdout.len(), output.stderr.as_slice()), (200_000, b"why\n".as_slice()));
    assert_eq!(output.status.code(), Some(3));
}

/// Without it, the scope would wait for its threads for ever.
#[test]
fn a_failed_assertion_ends_the_load_beside_it() {
    let failed = catch_unwind(|| {
        std::thread::scope(|scope| {
            let load = Load::default();
            let goes_on = load.goes_on();
            scope.spawn(move || {
                while goes_on() {
                    std::thread::yield_now();
                }
            });
            panic!("on purpose");
        });
    });
    assert!(failed.is_err());
}

#[test]
fn programs_see_no_settings_of_the_shell() {
    let mut command = Command::new("env");
    command.envs([
        ("HTTP_PROXY", "on-purpose"),
        ("REDISCLI_AUTH", "on-purpose"),
        ("http_proxy", "on-purpose"),
    ]);
    let text = String::from_utf8(output(without_settings(&mut command)).stdout).unwrap();
    assert!(text.contains("PATH=") && !text.contains("on-purpose"), "{text}");
}

#[test]
fn lines_of_a_pipe_are_read_while_it_is_open() {
    let mut shell = foreign("sh");
    shell.args(["-c", "echo one; read -r word; echo $word; echo three"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(shell.stdout.take().unwrap());
    assert_eq!(receive(&lines, "the first line"), "one");
    writeln!(shell.stdin.take().unwrap(), "two").unwrap();
    assert_eq!([receive(&lines, "the second line"), receive(&lines, "the third line")], ["two", "three"]);
    assert_eq!(lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "the pipe has ended");
    assert!(wait(&mut shell).success());
    let mut shell = foreign("sh").args(["-c", "echo one; echo two"]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(all_of(shell.stdout.take().unwrap(), "the shell ends"), "one\ntwo\n");
    assert!(wait(&mut shell).success());
}

#[test]
fn programs_of_others_have_the_real_clock_and_no_settings() {
    let command = foreign("sh");
    let removed: BTreeSet<_> =
        command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
    for name in ["LD_PRELOAD", "HTTP_PROXY", "NODE_OPTIONS", "REDISCLI_AUTH"] {
        assert!(removed.contains(std::ffi::OsStr::new(name)), "{name}: {removed:?}");
    }
}
