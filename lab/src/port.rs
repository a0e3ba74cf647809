//! Free ports for test servers.

use std::fs::{File, Permissions};
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::geteuid;

use crate::wait_until;

/// Below the ephemeral ports, so that no outgoing connection takes a server's port while it restarts. Redis Cluster
/// nodes also listen on port + 10,000, which is below them too.
const PORTS: Range<u16> = 10_000..20_000;

/// How far away a node of Redis Cluster opens its second port.
const CLUSTER_BUS: u16 = 10_000;

/// A free port on loopback. It is handed out again only after all others in the range.
///
/// All test processes of the machine share a locked file with the last port. With random ports, two servers sometimes
/// got the same one. Another program may still take the port before the server does; the lab then starts the server on
/// another port.
pub fn free_port() -> u16 {
    let mut file = shared_file();
    wait_until("the file with the last port is locked", || file.try_lock().is_ok()); // until this function ends
    let mut text = String::new();
    file.read_to_string(&mut text).expect("the last port");
    let last = text.trim().parse().ok().filter(|port| PORTS.contains(port)).unwrap_or(PORTS.start);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let turn = (last + 1..PORTS.end).chain(PORTS.start..=last);
    let port = turn.into_iter().find(|port| is_free(*port) && is_free(*port + CLUSTER_BUS));
    let port = port.expect("one port of ten thousand is free");
    file.rewind().expect("a file");
    file.set_len(0).expect("a file");
    write!(file, "{port}").expect("room for five digits");
    port
}

/// The file with the last port, which every user may write. It is in /tmp if possible, because processes with another
/// `TMPDIR` share the ports too. If another user's file cannot be opened, each user has their own.
fn shared_file() -> File {
    let open = |path: PathBuf| {
        let options = || File::options().read(true).write(true).clone();
        options().open(&path).or_else(|_| {
            let file = options().create(true).truncate(false).open(&path)?;
            file.set_permissions(Permissions::from_mode(0o666))?;
            Ok::<_, std::io::Error>(file)
        })
    };
    let own = format!("ratewright-lab-{}.port", geteuid().as_raw());
    let paths = [PathBuf::from("/tmp"), std::env::temp_dir()]
        .map(|folder| ["ratewright-lab.port", &own].map(|name| folder.join(name)));
    paths.into_iter().flatten().find_map(|path| open(path).ok()).expect("a file for the last port")
}
