//! Envoy's rate limit service over gRPC, beside a bare tonic service and beside throttlecrab-server.
//!
//! ```text
//!                 ┌ ours          a fixed window for each descriptor, in memory  ┐
//!   h2load ───────┼ tonic         a constant of the same size                    │ CPU per call
//!   4 × 32        └ throttlecrab  GCRA for one key, its own protocol             ┘
//!
//!   h2load ──► ours ──► Redis                       decisions a second, and what they cost Redis
//!   5,000/s ──► Envoy ──► nginx                     how long answers take, with the filter and without
//!                 └──► ours
//! ```
//!
//! | line | what it is |
//! |---|---|
//! | `grpc-1`, `grpc-4` | one and four descriptors, against the bare service |
//! | `grpc-throttlecrab` | one descriptor, against throttlecrab |

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message;
use ratewright_lab::{Envoy, Filter, Nginx, Redis, free_port, wait_until};
use ratewright_rls::wire::{
    Code, DescriptorStatus, Entry, RateLimit, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    RateLimitService, RateLimitServiceServer, Unit,
};
use tonic::{Request, Response, Status};

use crate::load::{Running, folder, micros_per_call, ratewright};
use crate::openloop::{Answers, Grpc, Http1, Pace, ask};
use crate::rounds::{in_turn, report};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const THROTTLE: &str = "/throttlecrab.RateLimiter/Throttle";

/// Short and many: a neighbour's load comes and goes.
const ROUNDS: usize = 9;
const CALLS: usize = 40_000;

/// How often Envoy's clients ask, over how many connections, and for how long.
const RATE: f64 = 5_000.0;
const CONNECTIONS: usize = 64;
const SPAN: Duration = Duration::from_secs(5);

/// More than any run asks for.
const PLENTY: u32 = 4_000_000_000;

/// The rules of both files.
const RULES: &str = "domain: edge
descriptors:
- {key: remote_address, rate_limit: {unit: day, requests_per_unit: 4000000000}}
- {key: path, rate_limit: {unit: day, requests_per_unit: 4000000000}}
- {key: user, rate_limit: {unit: day, requests_per_unit: 4000000000}}
- {key: tenant, rate_limit: {unit: day, requests_per_unit: 4000000000}}
";

/// What is asked for, in the order of the rules.
const ENTRIES: [(&str, &str); 4] =
    [("remote_address", "10.0.0.1"), ("path", "/orders"), ("user", "u-4711"), ("tenant", "acme")];

/// By address, and by path.
const ACTIONS: &str = "- actions: [{remote_address: {}}]
- actions: [{request_headers: {header_name: ':path', descriptor_key: path}}]
";

/// What comes before a message: whether it is compressed, and its length.
const FRAME: usize = 5;

/// A server in hand, and what it is asked. Ends with the benchmark.
struct Server {
    running: Running,
    address: String,
    path: &'static str,
    /// The call, as it goes over the wire.
    call: PathBuf,
}

/// One whose answers are timed.
enum Asked {
    Service(Server),
    Envoy(Envoy),
}

/// A call of throttlecrab's.
#[derive(Clone, PartialEq, Message)]
struct Throttle {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

/// Its answer.
#[derive(Clone, PartialEq, Message)]
struct Throttled {
    #[prost(bool, tag = "1")]
    allowed: bool,
    #[prost(int32, tag = "2")]
    limit: i32,
}

/// The peer: the least that a tonic service can do.
struct Constant(RateLimitResponse);

/// Runs all of it; against throttlecrab, if its program is given.
pub(crate) fn run(throttlecrab: Option<&str>) -> Result<(), String> {
    let this = std::env::current_exe().expect("the path of this program");
    let ratewright = ratewright()?;
    let folder = folder();
    for n_descriptors in [1, 4] {
        let ours = Server::ours(&ratewright, &folder, n_descriptors, "");
        let reset = ours.answer().statuses[0].duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
        let bare = Server::constant(&this, &folder, n_descriptors, reset);
        assert_eq!(ours.answer().encoded_len(), bare.answer().encoded_len(), "both say as much");
        let costs = in_turn(&[ours, bare], ROUNDS, |server| [server.micros_per_call()]);
        report(&format!("grpc-{n_descriptors}"), costs[0][0], costs[1][0]);
    }
    if let Some(throttlecrab) = throttlecrab {
        let ours = Server::ours(&ratewright, &folder, 1, "");
        let peer = Server::throttlecrab(throttlecrab, &folder);
        let costs = in_turn(&[ours, peer], ROUNDS, |server| [server.micros_per_call()]);
        report("grpc-throttlecrab", costs[0][0], costs[1][0]);
    }
    with_redis(&ratewright, &folder);
    behind_envoy((&ratewright, &this), &folder);
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// Decisions a second, and what each costs.
fn with_redis(ratewright: &Path, folder: &Path) {
    println!("descriptors  calls/s  Redis µs  Ratewright µs, for each call, decided by Redis");
    for n_descriptors in [1, 4] {
        let redis = Redis::start();
        let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", redis.url());
        let ours = Server::ours(ratewright, folder, n_descriptors, &store);
        wait_until("it decides by Redis", || {
            ours.answer();
            !redis.cli(&["KEYS", "*"]).is_empty()
        });
        let figures = in_turn(&[ours], 3, |ours| {
            let (start, before) = (crate::rounds::now(), redis.cpu_nanos());
            let micros = ours.micros_per_call();
            let rate = CALLS as f64 / start.elapsed().as_secs_f64();
            [rate, (redis.cpu_nanos() - before) / 1e3 / CALLS as f64, micros]
        });
        let [rate, redis, micros] = figures[0];
        println!("{n_descriptors:11}  {rate:7.0}  {redis:8.1}  {micros:13.1}");
    }
}

/// How long answers take at the door, through Envoy with its filter, and through one that asks nobody. The filter waits for 20 ms, its default, and denies
/// what it has no answer for: an answer later than that ends the run.
fn behind_envoy((ratewright, this): (&Path, &Path), folder: &Path) {
    if Envoy::program().is_none() {
        println!("without Envoy: it is not installed; `make deps` installs it");
        return;
    }
    let upstream = Nginx::upstream();
    let address = upstream.address();
    let redis = Redis::start();
    let store = format!("store: {{redis: {{url: '{}'}}}}\n", redis.url());
    let (memory, shared) =
        (Server::ours(ratewright, folder, 1, ""), Server::ours(ratewright, folder, 1, &store));
    let unasked = Filter { service: &memory.address, upstream: &address, ..Filter::PATIENT };
    let filter = Filter { rate_limits: ACTIONS, failure_mode_deny: true, timeout: "0.02s", ..unasked };
    let by_redis = Filter { service: &shared.address, ..filter };
    let bare = Server::constant(this, folder, 2, 20_000);
    let by_bare = Filter { service: &bare.address, ..filter };
    let envoys = [
        ("Envoy that asks nobody", unasked),
        ("Envoy with a bare service", by_bare),
        ("Envoy", filter),
        ("Envoy, by Redis", by_redis),
    ];
    let envoys = envoys.map(|(name, filter)| (name, Asked::Envoy(Envoy::start(&filter))));
    let doors = [
        ("the service itself", Asked::Service(memory)),
        ("the service itself, by Redis", Asked::Service(shared)),
    ];
    let all: Vec<_> = doors.into_iter().chain(envoys).collect();
    println!("{RATE} requests a second to    rate/s   p50 µs   p99 µs  p999 µs");
    let figures = in_turn(&all, 3, |(_, asked)| {
        let answers = asked.load();
        [answers.rate, answers.permille(500), answers.permille(990), answers.permille(999)]
    });
    for ((name, _), [rate, p50, p99, p999]) in all.iter().zip(figures) {
        println!("{name:27}  {rate:7.0}  {p50:7.0}  {p99:7.0}  {p999:7.0}");
    }
}

impl Asked {
    fn load(&self) -> Answers {
        match self {
            Self::Service(server) => {
                let call = std::fs::read(&server.call).expect("a call of ours");
                let talk = || Grpc::new(&server.address, server.path, call.clone());
                ask((&server.address, talk), CONNECTIONS, Pace::Rate(RATE), SPAN)
            }
            Self::Envoy(envoy) => {
                let address = envoy.address();
                let talk = || Http1::new(&address, "/small");
                ask((&address, talk), CONNECTIONS, Pace::Rate(RATE), SPAN)
            }
        }
    }
}

/// The peer as a program: serves until it is ended.
pub(crate) fn serve_constant(address: &str, n_descriptors: usize, reset: i64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let status = DescriptorStatus {
        code: Code::Ok.into(),
        current_limit: Some(RateLimit {
            requests_per_unit: PLENTY,
            unit: Unit::Day.into(),
            name: String::new(),
        }),
        limit_remaining: PLENTY - 1,
        duration_until_reset: Some(prost_types::Duration { seconds: reset, nanos: 0 }),
    };
    let answer = RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![status; n_descriptors],
        ..RateLimitResponse::default()
    };
    runtime.block_on(async {
        let service = RateLimitServiceServer::new(Constant(answer));
        let served = tonic::transport::Server::builder().add_service(service);
        served.serve(address.parse().expect("an address")).await.expect("a free port");
    });
}

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.0.clone()))
    }
}

impl Server {
    fn ours(ratewright: &Path, folder: &Path, n_descriptors: usize, more: &str) -> Self {
        let (rules, address) = (folder.join("rules.yaml"), format!("127.0.0.1:{}", free_port()));
        std::fs::write(&rules, RULES).expect("the folder takes a file");
        let file = folder.join(format!("ratewright-{}.yaml", address.replace(':', "-")));
        let rules = rules.display();
        let text = format!(
            "listen: {{api: '127.0.0.1:0', grpc: '{address}', admin: 'off'}}\nenvoy: {{files: ['{rules}']}}\n{more}"
        );
        std::fs::write(&file, text).expect("the folder takes a file");
        Self::start(Command::new(ratewright).arg("-c").arg(&file), address, request(folder, n_descriptors))
    }

    /// The bare service, which says that windows end in so many seconds.
    fn constant(this: &Path, folder: &Path, n_descriptors: usize, reset: i64) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(this);
        command.args(["constant-grpc", &address, &n_descriptors.to_string(), &reset.to_string()]);
        Self::start(&mut command, address, request(folder, n_descriptors))
    }

    fn throttlecrab(program: &str, folder: &Path) -> Self {
        let port = free_port().to_string();
        let call = Throttle {
            key: ENTRIES[0].1.to_owned(),
            max_burst: 1_000_000,
            count_per_period: 1_000_000,
            period: 1,
            quantity: 1,
        };
        let call = (THROTTLE, write(folder, "throttle", &call));
        let options = ["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port", &*port, "--log-level", "error"];
        let server = Self::start(Command::new(program).args(options), format!("127.0.0.1:{port}"), call);
        let throttled = server.ask::<Throttle, Throttled>();
        assert!(throttled.allowed && throttled.limit == 1_000_000, "it understood: {throttled:?}");
        server
    }

    /// Starts a program, and waits until it listens.
    fn start(command: &mut Command, address: String, (path, call): (&'static str, PathBuf)) -> Self {
        let child = command.stdout(Stdio::null()).spawn().expect("the server starts");
        let mut server = Self { running: Running(child), address, path, call };
        wait_until("the server listens", || {
            let exited = server.running.0.try_wait().expect("a child of ours");
            assert!(exited.is_none(), "the server exited: {exited:?}");
            std::net::TcpStream::connect(&server.address).is_ok()
        });
        server
    }

    /// What it answers to its call, which must be a yes.
    fn answer(&self) -> RateLimitResponse {
        let answer = self.ask::<RateLimitRequest, RateLimitResponse>();
        assert_eq!(answer.overall_code(), Code::Ok, "nothing is denied");
        let is_limited = |status: &DescriptorStatus| status.current_limit.is_some();
        assert!(answer.statuses.iter().all(is_limited), "every descriptor has a limit");
        answer
    }

    fn ask<Q: Message + Default + 'static, A: Message + Default + 'static>(&self) -> A {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let call = std::fs::read(&self.call).expect("a call of ours");
        runtime.block_on(async {
            let channel = tonic::transport::Endpoint::new(format!("http://{}", self.address));
            let channel = channel.expect("an address").connect().await.expect("a connection");
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.expect("a connection");
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let call = Request::new(Q::decode(&call[FRAME..]).expect("a call of ours"));
            let path = http::uri::PathAndQuery::from_static(self.path);
            grpc.unary(call, path, codec).await.expect("an answer").into_inner()
        })
    }

    /// CPU time of one call, in microseconds: 4 connections, 128 in flight.
    fn micros_per_call(&self) -> f64 {
        let (url, n) = (format!("http://{}{}", self.address, self.path), CALLS.to_string());
        let call = self.call.to_str().expect("a path of ours");
        let arguments = [
            "-c4",
            "-m32",
            "-n",
            &n,
            "-d",
            call,
            "-H",
            "content-type: application/grpc",
            "-H",
            "te: trailers",
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain([&*url]).collect();
        micros_per_call(self.running.0.id(), CALLS, &arguments)
    }
}

/// The file with a call for so many descriptors.
fn request(folder: &Path, n_descriptors: usize) -> (&'static str, PathBuf) {
    let descriptors = ENTRIES[..n_descriptors].iter().map(|(key, value)| RateLimitDescriptor {
        entries: vec![Entry { key: (*key).to_owned(), value: (*value).to_owned() }],
        ..RateLimitDescriptor::default()
    });
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: descriptors.collect(),
        ..RateLimitRequest::default()
    };
    (SHOULD_RATE_LIMIT, write(folder, &format!("request-{n_descriptors}"), &request))
}

/// Writes a call to a file, as it goes over the wire.
fn write(folder: &Path, name: &str, call: &impl Message) -> PathBuf {
    let length = u32::try_from(call.encoded_len()).expect("a short call");
    let bytes = [&[0][..], &length.to_be_bytes(), &call.encode_to_vec()].concat();
    let file = folder.join(name);
    std::fs::write(&file, bytes).expect("the folder takes a file");
    file
}
