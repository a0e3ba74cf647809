//! What the lab starts does what it says, and is gone afterwards.

use std::net::TcpStream;

use ratewright_lab::{Client, Nginx, wait_until};

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
    wait_until("nobody listens", || !listens(&nginx));
    nginx.run();
    assert_eq!(Client::connect(&nginx.address()).get("/small").unwrap().0, 200);
    let address = nginx.address();
    drop(nginx);
    wait_until("nobody listens", || TcpStream::connect(&address).is_err());
}

#[test]
#[should_panic(expected = "unknown directive \"no_such_word\"")]
fn nginx_says_why_it_does_not_start() {
    Nginx::start(1, "", "no_such_word;");
}
