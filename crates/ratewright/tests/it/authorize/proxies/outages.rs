//! A client whose limit is used up must not get a request through by making Ratewright fail.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;

/// What an impostor does with a connection.
type Serve = fn(TcpStream);

/// What stands in Ratewright's place, and what it does with a connection.
const IMPOSTORS: [(&str, Serve); 3] = [
    ("closes connections", drop),
    ("closes connections after the request", |mut stream| {
        let _gone_already = stream.read(&mut [0; 16_384]);
    }),
    ("responds with 503", |mut stream| {
        let _gone_already = stream.read(&mut [0; 16_384]);
        let _gone_already = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy");
    }),
];

impl<P> ProxySetup<P> {
    /// Uses up a client's limit, and lets Ratewright fail in several ways. Returns the proxy's status when nothing listens.
    #[track_caller]
    fn status_when_killed(self, is_open: bool) -> u16 {
        let login = |address: &str| http_from([127, 0, 0, 2], address, &request("GET", "/login", "")).status;
        while login(&self.address) != 429 {}
        self.halt();
        assert_ne!(login(&self.address), 200, "it hangs");
        let waiting = fill_backlog(&self.ratewright.address);
        assert_ne!(login(&self.address), 200, "its queue of connections is full");
        drop(waiting);
        self.ratewright.signal("CONT");
        wait_until("it decides again", || login(&self.address) == 429);

        let Self { proxy, address, ratewright, _application, .. } = self;
        let own = ratewright.address.clone();
        ratewright.stop("KILL");
        for (does, serve) in IMPOSTORS {
            let impostor = Impostor::start(&own, serve);
            for _ in 0..3 {
                assert_ne!(login(&address), 200, "what listens {does}");
            }
            impostor.stop();
        }
        if is_open {
            wait_until("requests pass while nothing listens", || login(&address) == 200);
        }
        let status = login(&address);
        drop((proxy, _application));
        status
    }
}

/// Connections to a stopped program, until one more would have to wait.
fn fill_backlog(address: &str) -> Vec<TcpStream> {
    let address = address.parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    std::iter::from_fn(|| connect().ok()).collect()
}

/// A listener at the address of a killed Ratewright.
struct Impostor {
    address: String,
    thread: std::thread::JoinHandle<()>,
}

impl Impostor {
    fn start(address: &str, serve: Serve) -> Self {
        let mut listener = None;
        wait_until("its address is free", || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut first = [0; 4];
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                if stream.peek(&mut first).is_ok_and(|n| &first[..n] == b"stop") {
                    return;
                }
                serve(stream);
            }
        });
        Self { address: address.to_owned(), thread }
    }

    fn stop(self) {
        TcpStream::connect(&self.address).unwrap().write_all(b"stop").unwrap();
        join(self.thread, "it stops");
    }
}

#[test]
fn no_outage_lifts_a_limit_at_nginx() {
    let closed =
        start_proxy(NGINX, POLICIES, AS_WRITTEN, |port, adapt| nginx(port, &adapt(&recipe("nginx", 0))));
    assert_eq!(closed.status_when_killed(false), 500);
}

#[test]
fn nginx_is_open_only_if_nothing_listens() {
    let open = start_proxy(NGINX, POLICIES, AS_WRITTEN, |port, adapt| nginx(port, &adapt(&open_nginx())));
    assert_eq!(open.status_when_killed(true), 200);
}

/// With several addresses, nginx would stop using those that do not respond in time, if `max_fails` were not 0. Then it would find
/// none, without any connection: the same as if the connection had been refused.
#[test]
fn nginx_with_several_addresses_is_open_only_if_nothing_listens() {
    let open = start_proxy(NGINX, POLICIES, AS_WRITTEN, |port, adapt| {
        let server = "    server    127.0.0.1:8080 max_fails=0;\n";
        nginx(port, &adapt(&replaced(&open_nginx(), server, &server.repeat(2))))
    });
    let login = || open.ask(2, "GET", "/login", "").status;
    while login() != 429 {}
    open.halt();
    for _ in 0..3 {
        assert_ne!(login(), 200, "it hangs");
    }
    assert_eq!(open.status_without_ratewright().1, 200);
}

#[test]
fn no_outage_lifts_a_limit_at_caddy() {
    if !Caddy::is_installed() {
        return skip("Caddy is not installed; `make deps` installs it");
    }
    assert_eq!(start_proxy(CADDY, POLICIES, AS_WRITTEN, caddy_as_written).status_when_killed(false), 502);
}

#[test]
fn no_outage_lifts_a_limit_at_haproxy() {
    let (closed, _folder) = haproxy((&recipe("lua", 0), &recipe("haproxy", 0)), POLICIES, AS_WRITTEN);
    assert_eq!(closed.status_when_killed(false), 503);
}

#[test]
fn haproxy_is_open_only_if_nothing_listens() {
    let (open, _folder) = haproxy((&open_haproxy(), &recipe("haproxy", 0)), POLICIES, AS_WRITTEN);
    assert_eq!(open.status_when_killed(true), 200);
}

#[test]
fn no_outage_lifts_a_limit_at_envoy() {
    if has_envoy() {
        assert_eq!(envoy(&recipe("yaml", 1), POLICIES, AS_WRITTEN).status_when_killed(false), 503);
    }
}
