//! What the lab starts does what it says, and is gone afterwards.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ratewright_lab::{Client, Nginx, Prometheus, Redis, free_port};

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
