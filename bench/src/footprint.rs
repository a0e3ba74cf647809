//! What the gateway takes: size of the binary, time to start, memory. Beside nginx with the same reverse proxy.
//!
//! ```text
//!   10,000 idle connections        ┌ ours   a token bucket for each address ┐
//!   from 127.0.0.2 … 127.0.0.21 ──►┤                                        ├──► an nginx with fixed answers
//!   (one request each)             └ nginx  limit_req                       ┘
//! ```
//!
//! Memory is the proportional set size of all processes of a proxy: pages that they share count once. Connections have been
//! answered once and are kept open. All of it is on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ratewright_lab::{Nginx, free_port, wait_until};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::load::{pids, ratewright};
use crate::rounds::now;

const N_STARTS: usize = 20;
const N_CONNECTIONS: usize = 10_000;
const N_SOURCES: usize = 20; // of 500 connections each: one address may have 1,000
/// Descriptors that are needed beside those of the connections.
const OTHER_DESCRIPTORS: u64 = 500;

const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A proxy that can be started many times.
struct Proxy {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    port: u16,
}

/// A running proxy. Ends with its workers when it goes.
struct Started(Child);

/// What one proxy takes.
struct Footprint {
    binary_bytes: u64,
    start: Duration,
    idle_bytes: u64,
    connected_bytes: u64,
}

/// Measures both, and prints a table.
pub(crate) fn run() -> Result<(), String> {
    raise_descriptors()?;
    let upstream = Nginx::upstream();
    let peer = Nginx::start(cores(), &nginx_http(&upstream), NGINX_SERVER);
    let proxies = [ours(&upstream)?, nginx(peer)];
    let [ours, nginx] = proxies.each_ref().map(Proxy::measure);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / 1_048_576.0);
    let kib = |footprint: &Footprint| {
        let grown = footprint.connected_bytes.saturating_sub(footprint.idle_bytes);
        format!("{:.1} KiB", grown as f64 / 1024.0 / N_CONNECTIONS as f64)
    };
    let ms = |start: Duration| format!("{:.1} ms", start.as_secs_f64() * 1e3);
    println!("| | Ratewright | nginx |\n|---|---|---|");
    let row = |what: &str, ours: String, nginx: String| println!("| {what} | {ours} | {nginx} |");
    row("binary, stripped", mib(ours.binary_bytes), mib(nginx.binary_bytes));
    row("start until the first response (median of 20)", ms(ours.start), ms(nginx.start));
    row("memory after the start", mib(ours.idle_bytes), mib(nginx.idle_bytes));
    row("memory with 10,000 idle connections", mib(ours.connected_bytes), mib(nginx.connected_bytes));
    row("that is, for each connection", kib(&ours), kib(&nginx));
    let _ = std::fs::remove_dir_all(crate::load::folder());
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lets this process and those that it starts open as many descriptors as the system allows them.
fn raise_descriptors() -> Result<(), String> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let needed = N_CONNECTIONS as u64 + OTHER_DESCRIPTORS;
    if maximum.is_some_and(|maximum| maximum < needed) {
        return Err(format!("ulimit -Hn is {}; this needs {needed}", maximum.unwrap_or_default()));
    }
    let raised = Rlimit { current: maximum.or(Some(2 * needed)), maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| format!("cannot raise ulimit -n: {error}"))
}

fn ours(upstream: &Nginx) -> Result<Proxy, String> {
    let (program, port) = (ratewright()?, free_port());
    let file = upstream.folder().join("footprint.yaml");
    let text = format!(
        "listen: {{ gateway: '127.0.0.1:{port}', api: '127.0.0.1:0', admin: '127.0.0.1:0' }}
gateway: {{ connections_max: 11000, timeouts: {{ request_header: 5min }} }}
policies:
  - {{ name: per-ip, by: ip, quota: {{ rate: 1000000/s }} }}
routes:
  - {{ id: all, match: {{ path: /** }}, upstream: 'http://{}' }}
",
        upstream.address()
    );
    std::fs::write(&file, text).expect("the folder takes a file");
    let arguments = vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()];
    Ok(Proxy { name: "ratewright", program, arguments, port })
}

fn nginx_http(upstream: &Nginx) -> String {
    format!(
        "limit_req_zone $binary_remote_addr zone=clients:10m rate=1000000r/s;
         upstream up {{ server {}; keepalive 256; }}",
        upstream.address()
    )
}

const NGINX_SERVER: &str = "limit_req zone=clients burst=1000000 nodelay;
    keepalive_timeout 300;
    location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ''; }";

/// An nginx of the lab, ended, to be started by us with room for all connections.
fn nginx(mut started: Nginx) -> Proxy {
    started.kill();
    let text = std::fs::read_to_string(started.folder().join("nginx.conf")).expect("its file");
    let (folder, port) = (crate::load::folder(), started.port());
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text.replace("worker_connections 2048", "worker_connections 11000"))
        .expect("a file");
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new).into_iter().find(|path| path.exists());
    let arguments = ["-p", &folder.display().to_string(), "-e", "stderr", "-c", &file.display().to_string()];
    Proxy {
        name: "nginx",
        program: program.expect("nginx is installed").to_owned(),
        arguments: arguments.map(str::to_owned).to_vec(),
        port,
    }
}

impl Proxy {
    fn measure(&self) -> Footprint {
        let mut starts: Vec<_> = (0..N_STARTS).map(|_| self.start().1).collect();
        starts.sort_unstable();
        let (running, _) = self.start();
        let idle_bytes = running.memory();
        let mut connections: Vec<_> = (0..N_CONNECTIONS).map(|n| self.connected(n)).collect();
        let connected_bytes = running.memory();
        // All are still there: nobody was closed to make room.
        for (n, stream) in connections.iter_mut().enumerate() {
            assert!(is_answered(stream), "{}: connection {n} was closed", self.name);
        }
        Footprint {
            binary_bytes: self.binary_bytes(),
            start: starts[N_STARTS / 2],
            idle_bytes,
            connected_bytes,
        }
    }

    /// Starts it, and tells how long it took until it passed a request on.
    #[expect(clippy::disallowed_methods, reason = "it sleeps between two attempts")]
    fn start(&self) -> (Started, Duration) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let began = now();
        let mut running = Started(command.spawn().expect("the proxy starts"));
        loop {
            let connected = TcpStream::connect(("127.0.0.1", self.port));
            if connected.is_ok_and(|mut stream| is_answered(&mut stream)) {
                return (running, began.elapsed());
            }
            assert!(running.0.try_wait().expect("a child of ours").is_none(), "{} ended", self.name);
            assert!(began.elapsed() < Duration::from_secs(30), "{} does not answer", self.name);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// A connection that has been answered once, from one of several addresses.
    fn connected(&self, n: usize) -> TcpStream {
        let last = u8::try_from(2 + n % N_SOURCES).expect("few addresses");
        let descriptor = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
        bind(&descriptor, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)).expect("a loopback address");
        connect(&descriptor, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        let mut stream = TcpStream::from(descriptor);
        assert!(is_answered(&mut stream), "{} answers connection {n}", self.name);
        stream
    }

    /// The size of the program without symbols, as packages have it.
    fn binary_bytes(&self) -> u64 {
        let stripped = crate::load::folder().join(self.name);
        let done = Command::new("strip").arg("-o").arg(&stripped).arg(&self.program).status();
        assert!(done.is_ok_and(|status| status.success()), "strip is installed");
        std::fs::metadata(stripped).expect("strip wrote a file").len()
    }
}

/// Sends a request, and reads the response: true if it is a good one.
fn is_answered(stream: &mut TcpStream) -> bool {
    let mut response = [0; 2048];
    let mut n_read = 0;
    if stream.set_read_timeout(Some(Duration::from_secs(10))).is_err() || stream.write_all(REQUEST).is_err() {
        return false;
    }
    let small = [b'x'; Nginx::SMALL];
    while !response[..n_read].ends_with(&small) {
        match stream.read(&mut response[n_read..]) {
            Ok(0) | Err(_) => return false,
            Ok(n) => n_read += n,
        }
    }
    response.starts_with(b"HTTP/1.1 200")
}

impl Started {
    /// The memory of all its processes, in bytes, after a second in which it settles.
    #[expect(clippy::disallowed_methods, reason = "it sleeps for that second")]
    fn memory(&self) -> u64 {
        std::thread::sleep(Duration::from_secs(1));
        pids(self.0.id()).into_iter().map(proportional_bytes).sum()
    }
}

fn proportional_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("the kernel tells the proportional set size") * 1024
}

impl Drop for Started {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        let _ = kill_process(pid, Signal::TERM);
        wait_until("a proxy ends", || self.0.try_wait().is_ok_and(|status| status.is_some()));
    }
}
