//! What every listener does, whatever it serves: each test runs for the gateway, the REST API and Envoy's service.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use ratewright_lab::{Stream, accept, free_port, wait_until, write_certificates};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::process::{Ratewright, listen, program, program_by};

/// How clients reach the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entrypoint {
    Gateway,
    Api,
    Grpc,
}

const ENTRYPOINTS: [Entrypoint; 3] = [Entrypoint::Gateway, Entrypoint::Api, Entrypoint::Grpc];

/// The program with all entrypoints, a folder for its files, and the gateway's upstream, which nobody serves.
struct Program {
    folder: TempDir,
    upstream: TcpListener,
    ratewright: Ratewright,
}

/// The options of a test.
#[derive(Default)]
struct Options {
    /// More settings of each listener.
    listener: &'static str,
    has_tls: bool,
    /// The most file descriptors.
    n_files: Option<u32>,
}

impl Program {
    fn start(options: &Options) -> Self {
        let (folder, upstream) = (TempDir::new().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        write_certificates(folder.path());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let tls = format!("{{cert: {}, key: {}}}", path("server.pem"), path("server.key"));
        // Nothing else takes these ports once the program has left them, as it could with ephemeral ones.
        let listener =
            |open: &str| format!("{{address: '127.0.0.1:{}'{}{open}}}", free_port(), options.listener);
        let [gateway, api, grpc] = ["", "", ", open: true"].map(listener);
        let limit = "{key: k, rate_limit: {unit: second, requests_per_unit: 1000000}}";
        std::fs::write(path("rules.yaml"), format!("domain: d\ndescriptors: [{limit}]\n")).unwrap();
        let mut settings = vec![("gateway", &*gateway), ("api", &api), ("grpc", &grpc)];
        settings.extend(options.has_tls.then_some(("tls", &*tls)));
        let text = format!(
            "{}\
             stop_delay: 0s\ndrain_timeout: 1h\n\
             api: {{tokens: [t]}}\n\
             envoy: {{files: {}, connection_grace: 1h}}\n\
             routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{}'}}]\n",
            listen(&settings),
            path("rules.yaml"),
            upstream.local_addr().unwrap()
        );
        std::fs::write(path("ratewright.yaml"), text).unwrap();
        let limit = options.n_files.map(|n| format!("--nofile={n}"));
        let mut command = limit.map_or_else(program, |limit| program_by(&["prlimit", &limit]));
        command.args(["serve", "-c", &path("ratewright.yaml")]);
        Self { ratewright: Ratewright::spawn(command), folder, upstream }
    }

    fn address(&self, entrypoint: Entrypoint) -> &str {
        match entrypoint {
            Entrypoint::Gateway => &self.ratewright.gateway,
            Entrypoint::Api => &self.ratewright.address,
            Entrypoint::Grpc => &self.ratewright.grpc,
        }
    }

    fn connect(&self, entrypoint: Entrypoint) -> Stream {
        Stream::connect(self.address(entrypoint))
    }

    /// A connection over TLS. The handshake takes place with the first byte.
    fn connect_tls(&self, entrypoint: Entrypoint) -> StreamOwned<ClientConnection, Stream> {
        let ca = std::fs::read(self.folder.path().join("ca.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(config, name).unwrap(), self.connect(entrypoint))
    }

    /// Sends SIGTERM, and waits until nobody accepts connections any more.
    fn begin_stop(&self) {
        self.ratewright.signal("TERM");
        for entrypoint in ENTRYPOINTS {
            let refuses = || TcpStream::connect(self.address(entrypoint)).is_err();
            wait_until(&format!("{entrypoint:?} refuses connections"), refuses);
        }
    }
}

impl Entrypoint {
    /// A request that needs nobody else: the gateway rejects it itself.
    fn request(self) -> Vec<u8> {
        let fields = "Host: localhost\r\nAuthorization: Bearer t\r\nConnection: close\r\n";
        match self {
            Self::Gateway => format!("GET /a%00b HTTP/1.1\r\n{fields}\r\n").into_bytes(),
            Self::Api => format!("GET /health HTTP/1.1\r\n{fields}\r\n").into_bytes(),
            Self::Grpc => [grpc_head(), frame(DATA, END, 1, MESSAGE)].concat(),
        }
    }

    /// Reads the response to a request.
    fn read_response(self, mut stream: impl Read) -> io::Result<()> {
        if self == Self::Grpc {
            return wait_for_frame(stream, |kind, flags| kind == HEADERS && flags & END != 0);
        }
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        let is_response = response.starts_with(b"HTTP/1.1 ");
        is_response.then_some(()).ok_or_else(|| io::Error::other("closed without a response"))
    }

    /// Sends a request, and reads the response.
    fn exchange(self, mut stream: impl Read + Write) -> io::Result<()> {
        stream.write_all(&self.request())?;
        self.read_response(stream)
    }
}

/// Kinds and flags of HTTP/2 frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A call of Envoy's: domain `d`, one descriptor with the entry `k=v`.
const MESSAGE: &[u8] = b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The beginning of an HTTP/2 connection, and the head of a call.
fn grpc_head() -> Vec<u8> {
    let path = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let field = |index: &[u8], value: &[u8]| [index, &[u8::try_from(value.len()).unwrap()], value].concat();
    let fields = [
        vec![0x83, 0x86], // POST, http
        field(&[0x04], path),
        field(&[0x01], b"localhost"),
        field(&[0x0f, 0x10], b"application/grpc"),
        field(b"\0\x02te", b"trailers"),
    ];
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, b""),
        frame(HEADERS, END_HEADERS, 1, &fields.concat()),
    ]
    .concat()
}

/// Reads frames until one has the kind and flags that are wanted.
fn wait_for_frame(mut stream: impl Read, is_wanted: impl Fn(u8, u8) -> bool) -> io::Result<()> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize])?;
        if is_wanted(head[3], head[4]) {
            return Ok(());
        }
    }
}

/// Running out of file descriptors is reported, and passes.
#[test]
fn a_listener_without_file_descriptors_recovers() {
    let n_files = 120;
    let program = Program::start(&Options { n_files: Some(n_files), ..Options::default() });
    for entrypoint in ENTRYPOINTS {
        let clients: Vec<_> = (0..n_files).map(|_| program.connect(entrypoint)).collect();
        let address = program.address(entrypoint);
        program.ratewright.wait_for_line(&["cannot accept connections", address, "Too many open files"]);
        drop(clients);
        entrypoint.exchange(program.connect(entrypoint)).unwrap();
    }
    let is_report = |line: &&String| line.contains("cannot accept connections");
    let n_reports = program.ratewright.logged().iter().filter(is_report).count();
    assert_eq!(n_reports, ENTRYPOINTS.len(), "one line for each listener, however often it failed");
    assert_eq!(program.ratewright.stop("TERM").code(), Some(0));
}

/// A client that never finishes its handshake holds up neither other clients nor a stop.
#[test]
fn unfinished_handshakes_hold_up_nobody() {
    let program = Program::start(&Options { has_tls: true, ..Options::default() });
    let mut unfinished = Vec::new();
    for entrypoint in ENTRYPOINTS {
        for beginning in [&b""[..], b"\x16\x03\x01\x02\0\x01"] {
            let mut client = program.connect(entrypoint);
            client.write_all(beginning).unwrap();
            unfinished.push(client);
        }
        entrypoint.exchange(program.connect_tls(entrypoint)).unwrap();
        let plain = entrypoint.exchange(program.connect(entrypoint));
        assert!(plain.is_err(), "{entrypoint:?}: no response without TLS");
    }
    program.begin_stop();
    for mut client in unfinished {
        let mut received = Vec::new();
        let _ = client.read_to_end(&mut received); // may be reset
        assert_eq!(received, b"");
    }
    assert_eq!(program.ratewright.wait().code(), Some(0));
}

#[test]
fn a_request_in_flight_finishes_after_a_stop() {
    let program = Program::start(&Options::default());
    let [mut gateway, mut api, mut grpc] = ENTRYPOINTS.map(|entrypoint| program.connect(entrypoint));
    gateway.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut upstream = accept(&program.upstream);
    // With the interim response the body is being read.
    let head = "POST /api/v1/decide HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 18\r\nAuthorization: Bearer t\r\n\r\n";
    api.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    api.read_exact(&mut interim).unwrap();
    // Frames are read in order: with the response to the PING the call has begun.
    let (half, other_half) = MESSAGE.split_at(7);
    grpc.write_all(&[grpc_head(), frame(DATA, 0, 1, half), frame(PING, 0, 0, &[0; 8])].concat()).unwrap();
    wait_for_frame(&mut grpc, |kind, flags| kind == PING && flags == ACK).unwrap();

    program.begin_stop();
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    api.write_all(br#"{"attributes": {}}"#).unwrap();
    grpc.write_all(&frame(DATA, END, 1, other_half)).unwrap();
    for (entrypoint, stream) in ENTRYPOINTS.into_iter().zip([gateway, api, grpc]) {
        entrypoint.read_response(stream).unwrap();
    }
    assert_eq!(program.ratewright.wait().code(), Some(0));
}

/// Connections that only the kernel has accepted when the program stops.
#[test]
fn queued_connections_are_served_after_a_stop() {
    let program = Program::start(&Options::default());
    program.ratewright.signal("STOP");
    let mut queued = Vec::new();
    for entrypoint in ENTRYPOINTS {
        for _ in 0..20 {
            let mut stream = program.connect(entrypoint);
            stream.write_all(&entrypoint.request()).unwrap();
            queued.push((entrypoint, stream));
        }
    }
    program.ratewright.signal("TERM");
    program.ratewright.signal("CONT");
    for (entrypoint, stream) in queued {
        entrypoint.read_response(stream).unwrap_or_else(|error| panic!("{entrypoint:?}: {error}"));
    }
    assert_eq!(program.ratewright.wait().code(), Some(0));
}

#[test]
fn a_connection_without_the_required_proxy_header_gets_no_response() {
    let listener = ", proxy_protocol: {from: 127.0.0.0/8}";
    let program = Program::start(&Options { listener, ..Options::default() });
    let mut silent = Vec::new();
    for entrypoint in ENTRYPOINTS {
        silent.push(program.connect(entrypoint));
        let mut stream = program.connect(entrypoint);
        stream.write_all(b"PROXY TCP4 198.51.100.7 10.0.0.9 40000 8000\r\n").unwrap();
        entrypoint.exchange(stream).unwrap();
        assert!(entrypoint.exchange(program.connect(entrypoint)).is_err(), "{entrypoint:?}");
        let name = format!("{entrypoint:?}").to_lowercase();
        let series =
            format!("ratewright_proxy_protocol_refused_total{{listener=\"{name}\",reason=\"missing\"}}");
        assert_eq!(program.ratewright.metric(&series), 1.0, "{entrypoint:?}");
    }
    program.begin_stop();
    for mut client in silent {
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0, "a stop closes it");
    }
    assert_eq!(program.ratewright.wait().code(), Some(0));
}
