//! What the live page costs: instructions of a decision over HTTP while the page is open, against while it is closed.
//!
//! Both run the same program under callgrind, with requests of 1,000 client addresses over one connection. Callgrind is
//! about 50 times slower, so work done once a second counts about 50 times as much as in production.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::load::{Running, folder, ratewright};
use crate::rounds::report;

/// The most instructions with the page open, as a ratio.
const RATIO_MAX: f64 = 1.02;

const FILE: &str = "listen: {api: '127.0.0.1:0', admin: '127.0.0.1:0'}
stop_delay: 0s
policies:
- {name: per-client, by: ip, quota: {rate: 1000000/s, burst: 1000000}}
";

/// Runs all of it.
pub(crate) fn run() -> Result<(), String> {
    let [open, closed] = [true, false].map(instructions);
    let (open, closed) = (open?, closed?);
    println!("instructions per decision: {open:.0} with the page open, {closed:.0} with it closed");
    report("page", open, closed);
    if open / closed < RATIO_MAX {
        Ok(())
    } else {
        Err(format!(
            "page open: {:.3} times the instructions of page closed; must be below {RATIO_MAX}",
            open / closed
        ))
    }
}

/// Instructions of a decision.
fn instructions(is_open: bool) -> Result<f64, String> {
    Ok((total(is_open, 12_000)? - total(is_open, 2_000)?) / 10_000.0)
}

/// Instructions of a process that decides so many times.
fn total(is_open: bool, n_decisions: u32) -> Result<f64, String> {
    let folder = folder();
    let file = folder.join("page.yaml");
    std::fs::write(&file, FILE).expect("the folder takes a file");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(ratewright()?);
    let child = command.arg("-c").arg(&file).stderr(Stdio::piped()).spawn();
    let mut running = Running(child.map_err(|error| format!("cannot start valgrind: {error}; install it"))?);
    let mut lines = BufReader::new(running.0.stderr.take().expect("its output is ours")).lines();
    let banner = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("ratewright "));
    let banner = banner.ok_or("ratewright did not start")?;
    let address = |listener: &str| {
        let (_, rest) = banner.split_once(&format!("{listener} on http://"))?;
        rest.split([',', ';']).next().map(str::to_owned)
    };
    let (api, admin) =
        address("decisions").zip(address("admin")).ok_or("ratewright printed no listener addresses")?;
    let page = is_open.then(|| open_page(&admin));
    let mut client = BufReader::new(TcpStream::connect(api).expect("it listens"));
    for n in 0..n_decisions {
        decide(&mut client, n % 1_000);
    }
    let pid = i32::try_from(running.0.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::INT).expect("it is running");
    let counted = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("Collected : ").and_then(|(_, n)| n.trim().parse().ok()));
    drop(page);
    let _ = running.0.wait();
    let _ = std::fs::remove_dir_all(folder);
    counted.ok_or_else(|| "callgrind printed no total".to_owned())
}

/// Opens the page, and reads its lines until the program ends.
fn open_page(admin: &str) -> std::thread::JoinHandle<()> {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    write!(stream, "GET /api/v1/admin/live HTTP/1.1\r\nHost: {admin}\r\n\r\n").expect("it reads");
    let mut first = [0; 1];
    stream.read_exact(&mut first).expect("the page is open");
    std::thread::spawn(move || drop(std::io::copy(&mut stream, &mut std::io::sink())))
}

/// Sends one decision, and reads its response.
fn decide(client: &mut BufReader<TcpStream>, address: u32) {
    let [a, b] = [address / 250, address % 250];
    let body = format!(r#"{{"attributes":{{"ip":"203.0.{a}.{b}","method":"GET","path":"/api/orders"}}}}"#);
    let head =
        format!("POST /api/v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    client.get_mut().write_all(format!("{head}{body}").as_bytes()).expect("it reads");
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).expect("it responds");
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.trim().parse().expect("a number");
        }
    }
    let mut rest = vec![0; length];
    client.read_exact(&mut rest).expect("it responds");
    assert!(rest.starts_with(br#"{"allowed":true"#), "every request is allowed");
}
