//! Free ports for test servers.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::ops::Range;

use rustix::process::geteuid;

/// Below the ephemeral ports, so that no outgoing connection takes a server's port while it restarts. Redis Cluster
/// nodes also listen on port + 10,000, which is below them too.
const PORTS: Range<u16> = 10_000..20_000;

/// A free port on loopback. It is handed out again only after all others in the range.
///
/// All test processes of a user share a locked file with the last port. With random ports, two servers sometimes got
/// the same one.
pub fn free_port() -> u16 {
    let file = std::env::temp_dir().join(format!("ratewright-lab-{}.port", geteuid().as_raw()));
    let file = File::options().read(true).write(true).create(true).truncate(false).open(file);
    let mut file = file.expect("a file for the last port");
    file.lock().expect("a lock, which ends with this function");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("the last port");
    let last = text.trim().parse().ok().filter(|port| PORTS.contains(port)).unwrap_or(PORTS.start);
    let turn = (last + 1..PORTS.end).chain(PORTS.start..=last);
    let port = turn.into_iter().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = port.expect("one port of ten thousand is free");
    file.rewind().expect("a file");
    file.set_len(0).expect("a file");
    write!(file, "{port}").expect("room for five digits");
    port
}
