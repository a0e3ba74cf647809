//! Load from clients that count every failure. They are strict: a connection that closes without notice is a failure, and no request
//! is retried.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use ratewright_lab::{Nginx, PATIENCE, Printed, Stream, join, wait_until};

use crate::gateway::python;
use crate::process::Guarded;

/// Servers behind the gateway, and rules for Envoy.
pub(super) struct Behind {
    application: Nginx,
    _echo: Guarded,
    echo_port: u16,
}

const ECHO: &str = r#"
import asyncio
from websockets.asyncio.server import serve

async def echo(socket):
    async for message in socket:
        await socket.send(message)

async def main():
    async with serve(echo, "127.0.0.1", 0) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

asyncio.run(main())
"#;

impl Behind {
    pub(super) fn start() -> Self {
        let mut echo = Command::new(python());
        let mut echo = Guarded(echo.args(["-c", ECHO]).stdout(Stdio::piped()).spawn().unwrap());
        let mut port = String::new();
        BufReader::new(Printed::by(echo.0.stdout.take().unwrap())).read_line(&mut port).unwrap();
        let application = Nginx::start(1, "", "location / { return 200 'app'; }\n");
        Self { application, _echo: echo, echo_port: port.trim().parse().unwrap() }
    }

    /// A policy file without its listeners. The rules for Envoy go into a folder.
    pub(super) fn config(&self, folder: &std::path::Path) -> String {
        let rules = folder.join("rules.yaml");
        let limit = "{key: k, rate_limit: {unit: second, requests_per_unit: 1000000}}";
        std::fs::write(&rules, format!("domain: d\ndescriptors: [{limit}]\n")).unwrap();
        format!(
            "stop_delay: 500ms\n\
             policies: [{{name: p, by: ip, quota: {{rate: 1000000/s}}}}]\n\
             envoy: {{files: '{}'}}\n\
             routes:\n\
             - {{id: app, match: {{path: /**}}, upstream: 'http://{}'}}\n\
             - {{id: chat, match: {{path: /chat}}, upstream: 'http://127.0.0.1:{}'}}\n",
            rules.display(),
            self.application.address(),
            self.echo_port
        )
    }
}

/// Clients of all kinds, which run until `stop`, or until this is dropped.
pub(super) struct Load {
    kinds: Vec<Arc<Kind>>,
    threads: Vec<JoinHandle<()>>,
}

/// The counts of one kind of client.
#[derive(Default)]
struct Kind {
    name: &'static str,
    is_over: AtomicBool,
    n_served: AtomicU64,
    failures: std::sync::Mutex<Vec<String>>,
}

impl Kind {
    fn count(&self, result: Result<()>) {
        match result {
            Ok(()) => drop(self.n_served.fetch_add(1, Ordering::Relaxed)),
            Err(error) => self.failures.lock().unwrap().push(error.to_string()),
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

impl Load {
    /// Begins. Each kind of client has been served when this returns.
    pub(super) fn start(gateway: &str, grpc: &str) -> Self {
        let mut load = Self { kinds: Vec::new(), threads: Vec::new() };
        load.add("kept connections", 2, gateway, keeps_connections);
        load.add("new connections", 2, gateway, connects_anew);
        load.add("WebSockets", 2, gateway, speaks_websocket);
        load.add("HTTP/2", 1, gateway, |kind, address| {
            let get = |client: &reqwest::Client| client.get(format!("http://{address}/")).send();
            speaks_http_2(kind, get, |body| body == b"app");
        });
        load.add("gRPC", 1, grpc, |kind, address| {
            let url = format!("http://{address}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
            let call = |client: &reqwest::Client| {
                let request =
                    client.post(&url).header("content-type", "application/grpc").header("te", "trailers");
                request.body(CALL.to_vec()).send()
            };
            // An error has no message, only a status.
            speaks_http_2(kind, call, |body| body.len() > 5);
        });
        load.wait_for_more(1);
        load
    }

    fn add(&mut self, name: &'static str, n: usize, address: &str, run: fn(&Kind, &str)) {
        let kind = Arc::new(Kind { name, ..Kind::default() });
        for _ in 0..n {
            let (kind, address) = (Arc::clone(&kind), address.to_owned());
            self.threads.push(std::thread::spawn(move || run(&kind, &address)));
        }
        self.kinds.push(kind);
    }

    /// Waits until each kind of client was served so many times more.
    pub(super) fn wait_for_more(&self, n: u64) {
        for kind in &self.kinds {
            let served = || kind.n_served.load(Ordering::Relaxed);
            let before = served();
            wait_until(kind.name, || served() >= before + n || !kind.failures.lock().unwrap().is_empty());
        }
    }

    /// Ends, and fails if anything failed.
    #[track_caller]
    #[expect(clippy::print_stdout, reason = "how many were served shows how hard the run was")]
    pub(super) fn stop(mut self) {
        self.end();
        self.threads.drain(..).for_each(|thread| join(thread, "a client of the load ends"));
        let mut failed = Vec::new();
        for kind in &self.kinds {
            let failures = kind.failures.lock().unwrap();
            let n_served = kind.n_served.load(Ordering::Relaxed);
            println!("{}: {n_served} served, {} failed", kind.name, failures.len());
            if let Some(first) = failures.first() {
                failed.push(format!("{}: {} of {n_served}, first: {first}", kind.name, failures.len()));
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
    }

    fn end(&self) {
        self.kinds.iter().for_each(|kind| kind.is_over.store(true, Ordering::Relaxed));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn connect(address: &str) -> Result<BufReader<Stream>> {
    let stream = TcpStream::connect(address).map_err(|error| format!("connect: {error}"))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(Stream::from(stream)))
}

/// Reads a response. True if its connection stays open.
fn read_response(stream: &mut BufReader<Stream>) -> Result<bool> {
    let (mut stays, mut length, mut is_first) = (true, 0, true);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err("closed without a response".into());
        }
        let line = line.trim_end();
        if is_first && line != "HTTP/1.1 200 OK" {
            return Err(line.into());
        }
        is_first = false;
        if line.is_empty() {
            break;
        }
        stays &= line != "connection: close";
        if let Some(n) = line.strip_prefix("content-length: ") {
            length = n.parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    if body == b"app" { Ok(stays) } else { Err("another body".into()) }
}

/// Keeps its connection for as long as the server does.
fn keeps_connections(kind: &Kind, address: &str) {
    while kind.goes_on() {
        let served = || -> Result<()> {
            let mut stream = connect(address)?;
            let mut n_served = 0;
            while kind.goes_on() {
                stream.get_mut().renew();
                stream
                    .get_mut()
                    .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    .map_err(|error| format!("send: {error}"))?;
                let stays =
                    read_response(&mut stream).map_err(|error| format!("after {n_served}: {error}"))?;
                n_served += 1;
                kind.count(Ok(()));
                if !stays {
                    break;
                }
            }
            Ok(())
        };
        if let Err(error) = served() {
            kind.count(Err(error));
        }
    }
}

/// Connects for each request.
fn connects_anew(kind: &Kind, address: &str) {
    while kind.goes_on() {
        let served = || -> Result<()> {
            let mut stream = connect(address)?;
            stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
            read_response(&mut stream).map(drop)
        };
        kind.count(served());
    }
}

/// Opens a WebSocket, has some messages echoed, and closes it.
fn speaks_websocket(kind: &Kind, address: &str) {
    const HANDSHAKE: &[u8] =
        b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    const MESSAGE: &[u8] = b"\x81\x85\0\0\0\0hello"; // masked with nothing
    const ECHOED: &[u8] = b"\x81\x05hello";
    const CLOSE: &[u8] = b"\x88\x80\0\0\0\0";
    while kind.goes_on() {
        let served = || -> Result<()> {
            let mut stream = connect(address)?;
            stream.get_mut().write_all(HANDSHAKE)?;
            let mut line = String::new();
            stream.read_line(&mut line)?;
            if !line.starts_with("HTTP/1.1 101") {
                return Err(format!("handshake: {line:?}").into());
            }
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line)?;
            }
            for n in 0..20 {
                stream.get_mut().write_all(MESSAGE)?;
                let mut echoed = [0; ECHOED.len()];
                stream.read_exact(&mut echoed).map_err(|error| format!("message {n}: {error}"))?;
                if echoed != ECHOED {
                    return Err("another message".into());
                }
            }
            stream.get_mut().write_all(CLOSE)?;
            stream.read_to_end(&mut Vec::new())?;
            Ok(())
        };
        kind.count(served());
    }
}

/// A request of Envoy: domain `d`, one descriptor with the entry `k=v`.
const CALL: &[u8] = b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";

/// Has four requests in flight on one connection.
fn speaks_http_2<F>(kind: &Kind, send: impl Fn(&reqwest::Client) -> F, is_right: impl Fn(&[u8]) -> bool)
where
    F: Future<Output = reqwest::Result<reqwest::Response>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().timeout(PATIENCE);
    let client = client.build().unwrap();
    let ask = async || {
        while kind.goes_on() {
            let served = async {
                let response = send(&client).await?;
                let status = response.status();
                let body = response.bytes().await?;
                if status == 200 && is_right(&body) {
                    Ok(())
                } else {
                    Err(format!("{status}, {} bytes", body.len()).into())
                }
            };
            kind.count(served.await);
        }
    };
    runtime.block_on(async { tokio::join!(ask(), ask(), ask(), ask()) });
}
