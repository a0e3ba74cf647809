//! The retry clients against a real gateway: bursts, many clients at once, outages. The access log shows when each request came.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::future::BoxFuture;
use http::{Extensions, HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::TokioExecutor;
use ratewright_client::call::{ReplayBody, RequestInfo};
use ratewright_client::layer::tower_layer::Layer;
use ratewright_client::layer::tower_service::Service;
use ratewright_client::retry_decision::BodyKind;
use ratewright_client::{Client, Retry, RetryLayer, RetryPolicy, RetrySummary};
use ratewright_lab::{Nginx, foreign, is_full_run, join, output_within, skip, wait_until};
use serde_json::Value;

use crate::process::{Guarded, Ratewright};

/// Set for a test that is run as one process of a herd: the gateway's address, and how many calls to make.
const HERD: &str = "RATEWRIGHT_TEST_HERD";

/// Every denial of this limit asks for one second.
const LIMIT: &str =
    "gateway: {access_log: true}\npolicies: [{name: per-ip, by: ip, quota: {rate: 50/s, burst: 20}}]\n";

fn application() -> Nginx {
    Nginx::start(1, "", "location /broken { return 503; }\nlocation / { return 200 'served'; }\n")
}

fn gateway(application: &Nginx, config: &str) -> Ratewright {
    let address = application.address();
    let routes = format!("routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{address}'}}]\n");
    Ratewright::start(&format!("{config}{routes}"))
}

/// How long a herd may take, on machines that are busy.
fn herd_time() -> Duration {
    Duration::from_secs(if is_full_run() { 120 } else { 90 })
}

/// How long a test waits for a herd. The gate ends a test after 120 s, and then nobody sees its message.
fn herd_limit() -> Duration {
    herd_time() + Duration::from_secs(10)
}

/// A client that retries for as long.
fn patient() -> Retry {
    Retry::builder().policy(RetryPolicy::default().deadline(herd_time()).attempts(20)).build()
}

/// A way to send a `GET`: its status, its body and its attempts.
type Get = Box<dyn Fn(String) -> BoxFuture<'static, (StatusCode, String, u32)>>;

fn attempts(extensions: &Extensions) -> u32 {
    extensions.get::<RetrySummary>().unwrap().attempts
}

/// A client that uses no proxy of the machine.
fn client(retry: Retry) -> Client {
    let direct = reqwest::Client::builder().no_proxy();
    Client::with(direct, reqwest::redirect::Policy::default(), retry).unwrap()
}

fn by_client(retry: Retry) -> Get {
    let client = client(retry);
    Box::new(move |url| {
        let client = client.clone();
        Box::pin(async move {
            let response = client.get(url).send().await.unwrap();
            let (status, attempts) = (response.status(), attempts(response.extensions()));
            (status, response.text().await.unwrap(), attempts)
        })
    })
}

/// The tower layer around hyper's client.
fn by_layer(retry: Retry) -> Get {
    let http = HyperClient::builder(TokioExecutor::new()).build_http::<ReplayBody<Empty<Bytes>>>();
    let service = RetryLayer::new(retry).layer(http);
    Box::new(move |url| {
        let mut service = service.clone();
        Box::pin(async move {
            std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
            let response = service.call(Request::get(url).body(Empty::new()).unwrap()).await.unwrap();
            let (status, attempts) = (response.status(), attempts(response.extensions()));
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap(), attempts)
        })
    })
}

/// `Retry::send` with a function that sends by a plain client.
fn by_function(retry: Retry) -> Get {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    Box::new(move |url| {
        let (retry, client) = (retry.clone(), client.clone());
        Box::pin(async move {
            let uri = url.parse().unwrap();
            let request = RequestInfo::new(&Method::GET, &uri, &HeaderMap::new(), BodyKind::None);
            let response = retry.send(request, |_attempt| client.get(&url).send()).await.unwrap();
            let (status, attempts) = (response.status(), attempts(response.extensions()));
            (status, response.text().await.unwrap(), attempts)
        })
    })
}

/// Calls `/items/FIRST` and those after it at once; the attempts of each.
async fn burst(gateway: &str, get: Get, paths: std::ops::Range<usize>) -> Vec<u32> {
    let calls: Vec<_> = paths
        .map(|n| {
            let call = get(format!("http://{gateway}/items/{n}"));
            tokio::spawn(async move {
                let (status, body, attempts) = call.await;
                assert_eq!((status.as_u16(), body.as_str()), (200, "served"));
                attempts
            })
        })
        .collect();
    let mut attempts = Vec::new();
    for call in calls {
        attempts.push(call.await.unwrap());
    }
    attempts
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(herd_limit(), future).await })
        .expect("all calls have a response")
}

/// The access log, read while the gateway writes it.
struct AccessLog(std::thread::JoinHandle<String>);

/// The statuses of each path with their times in milliseconds, in order.
type Requests = HashMap<String, Vec<(u64, u64)>>;

impl AccessLog {
    fn of(ratewright: &mut Ratewright) -> Self {
        let mut out = ratewright.stdout_pipe(); // without a deadline: a herd may take longer than `stdout` has
        Self(std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        }))
    }

    /// Stops the gateway, and reads to the end.
    fn requests(self, ratewright: &Ratewright) -> Requests {
        ratewright.signal("TERM");
        let mut requests = Requests::new();
        for line in join(self.0, "the gateway ends").lines() {
            let entry: Value = serde_json::from_str(line).unwrap();
            let path = entry["path"].as_str().unwrap().to_owned();
            let request = (entry["status"].as_u64().unwrap(), millis_of_day(entry["time"].as_str().unwrap()));
            requests.entry(path).or_default().push(request);
        }
        for times in requests.values_mut() {
            times.sort_by_key(|(_, at)| *at);
        }
        requests
    }
}

/// Of a time like `2026-11-15T12:00:00.123Z`.
fn millis_of_day(time: &str) -> u64 {
    let parts: Vec<u64> =
        time.get(11..23).unwrap().split([':', '.']).map(|part| part.parse().unwrap()).collect();
    ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1_000 + parts[3]
}

/// Checks that every path was served once, and that no retry came earlier than the second that was asked for. How many
/// requests there were.
fn check_log(requests: &HashMap<String, Vec<(u64, u64)>>, n_paths: usize) -> usize {
    assert_eq!(requests.len(), n_paths);
    for (path, sent) in requests {
        let (last, denied) = sent.split_last().unwrap();
        assert_eq!(last.0, 200, "{path}: {sent:?}");
        assert!(denied.iter().all(|(status, _)| *status == 429), "{path}: {sent:?}");
        for pair in sent.windows(2) {
            let between = (pair[1].1 + 86_400_000 - pair[0].1) % 86_400_000; // midnight may lie between
            assert!(between >= 1_000, "{path} came again after {between} ms, and was asked to wait 1 s");
        }
    }
    requests.values().map(Vec::len).sum()
}

/// Sends 200 calls at once. All are served in the end, none is early, and few are wasted.
fn check_herd(get: fn(Retry) -> Get) {
    let application = application();
    let mut ratewright = gateway(&application, LIMIT);
    let log = AccessLog::of(&mut ratewright);
    let attempts = run(async { burst(&ratewright.gateway, get(patient()), 0..200).await });
    let requests = log.requests(&ratewright);
    let n_requests = check_log(&requests, 200);
    assert!(n_requests > 200, "no call was throttled");
    for (n, attempts) in attempts.iter().enumerate() {
        let seen = &requests[&format!("/items/{n}")];
        assert_eq!(seen.len(), *attempts as usize, "the client counts what the gateway sees: {n}, {seen:?}");
    }
    assert!(n_requests <= 600, "{n_requests} requests for 200 calls");
}

/// E3: 200 tasks in one process are all served in the end; nobody comes early; few calls are wasted.
#[test]
fn e3_a_herd_of_200_tasks_is_served_by_the_real_gateway() {
    check_herd(by_client);
}

/// E3: the same by the tower layer.
#[test]
fn e3_a_herd_of_200_tasks_by_the_layer_is_served_by_the_real_gateway() {
    check_herd(by_layer);
}

/// E3: the same by a plain function.
#[test]
fn e3_a_herd_of_200_tasks_by_a_function_is_served_by_the_real_gateway() {
    check_herd(by_function);
}

/// E3: 8 processes with 25 calls each, which know nothing of each other.
#[test]
fn e3_a_herd_of_8_processes_is_served_by_the_real_gateway() {
    let application = application();
    let mut ratewright = gateway(&application, LIMIT);
    let log = AccessLog::of(&mut ratewright);
    let processes: Vec<_> = (0..8)
        .map(|n| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "retry_clients::one_process_of_a_herd"]).stdout(Stdio::null());
            Guarded(command.env(HERD, format!("{} {}", ratewright.gateway, 25 * n)).spawn().unwrap())
        })
        .collect();
    for mut process in processes {
        wait_until("a process ends", || process.0.try_wait().unwrap().is_some());
        assert!(process.0.wait().unwrap().success());
    }
    let n_requests = check_log(&log.requests(&ratewright), 200);
    assert!(n_requests <= 700, "{n_requests} requests for 200 calls");
}

/// Calls only as a part of the herd above.
#[test]
fn one_process_of_a_herd() {
    let Some((_, herd)) = std::env::vars().find(|(name, _)| name == HERD) else { return };
    let (gateway, first) = herd.split_once(' ').unwrap();
    let first: usize = first.parse().unwrap();
    run(async { burst(gateway, by_client(patient()), first..first + 25).await });
}

/// E3: while the application fails, retries add less than a fifth to its load.
#[test]
fn e3_an_outage_gets_less_than_a_fifth_more_load() {
    let application = application();
    let mut ratewright = gateway(&application, "gateway: {access_log: true}\npolicies: []\n");
    let log = AccessLog::of(&mut ratewright);
    let url = format!("http://{}/broken", ratewright.gateway);
    run(async {
        let client = client(Retry::new());
        for _ in 0..20 {
            let calls = (0..25).map(|_| client.get(&url).send());
            for response in futures_util::future::join_all(calls).await {
                assert_eq!(response.unwrap().status(), 503);
            }
        }
    });
    let n_requests: usize = log.requests(&ratewright).values().map(Vec::len).sum();
    assert!((501..=600).contains(&n_requests), "{n_requests} requests for 500 calls");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Runs a script of the TypeScript client with Node, and reads the JSON that it prints. Nothing if Node is not there, and
/// CI is not set.
fn node(script: &str, variables: &[(&str, &str)]) -> Option<Value> {
    let client = root().join("clients/typescript");
    if !client.join("dist/index.js").exists() {
        skip("the TypeScript client is not built; `./.ci/node npm run build` builds it");
        return None;
    }
    let mut command = foreign(root().join(".ci/node"));
    command.args(["node", script]).envs(variables.iter().copied());
    let output = output_within(herd_limit(), &mut command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {out}{err}");
    Some(serde_json::from_str(out.lines().last().unwrap()).unwrap())
}

/// E3: the same burst by the TypeScript client in Node.
#[test]
fn e3_a_burst_of_the_typescript_client_is_served_by_the_real_gateway() {
    let application = application();
    let mut ratewright = gateway(&application, LIMIT);
    let log = AccessLog::of(&mut ratewright);
    let gateway = format!("http://{}", ratewright.gateway);
    let deadline = herd_time().as_millis().to_string();
    let variables = [
        ("GATEWAY_URL", gateway.as_str()),
        ("REQUESTS", "200"),
        ("PATHNAME", "/items/{n}"),
        ("DEADLINE_MS", &deadline),
    ];
    let Some(report) = node("tests/e2e/burst.mjs", &variables) else { return };
    assert_eq!(
        (&report["statuses"], &report["earlyRetries"]),
        (&serde_json::json!({"200": 200}), &0.into()),
        "{report}"
    );
    let n_requests = check_log(&log.requests(&ratewright), 200);
    assert_eq!(report["sends"], n_requests);
    assert!(n_requests <= 600, "{n_requests} requests for 200 calls");
}

/// What a page on `port` sees of a gateway, in a real browser. `None` without a browser, unless CI is set.
fn page(port: &str, ratewright: &Ratewright, variables: &[(&str, &str)]) -> Option<Value> {
    if !Path::new("/usr/bin/chromium").exists() {
        skip("Chromium is not installed; `make deps` installs it");
        return None;
    }
    let gateway = format!("http://{}", ratewright.gateway);
    let own = [("GATEWAY_URL", gateway.as_str()), ("PORT", port)];
    node("tests/e2e/browser.mjs", &[&own, variables].concat())
}

/// Rules that let a page on `port` call the gateway.
fn cors_for(port: &str) -> String {
    format!(
        "gateway: {{cors: {{origins: ['http://127.0.0.1:{port}'], headers: [X-Api-Client], credentials: true}}}}\n"
    )
}

/// E3: a page of another origin, in a real browser: the preflight passes, the page reads Retry-After and the RateLimit headers,
/// waits and is served.
#[test]
fn e3_a_page_of_another_origin_is_served_by_the_real_gateway() {
    let application = application();
    let port = ratewright_lab::free_port().to_string();
    let policies = "policies: [{name: per-ip, by: ip, quota: {rate: 1/s, burst: 1}}]\n";
    let ratewright = gateway(&application, &format!("{}{policies}", cors_for(&port)));
    let Some(report) = page(&port, &ratewright, &[("REQUESTS", "3")]) else { return };
    assert_eq!(report["statuses"], serde_json::json!([200, 200, 200]), "{report}");
    let read = ["retryAfter", "rateLimit", "rateLimitPolicy"].map(|name| report[name].as_str().unwrap());
    assert_eq!(read, ["1", "\"per-ip\";r=0;t=1", "\"per-ip\";q=1;w=1"], "{report}");
    assert_eq!(report["errors"], serde_json::json!([]));
    assert!(report["sends"].as_u64() > Some(3) && report["waits"][0] == "retry-after", "{report}");
    assert!(report["waitedMs"].as_u64() >= Some(1_000), "{report}");
}

/// E3: a page also reads the gateway's own errors. Without CORS headers on them, `fetch` would throw.
#[test]
fn e3_a_page_of_another_origin_reads_the_gateways_own_errors() {
    let nobody = ratewright_lab::free_port();
    let port = ratewright_lab::free_port().to_string();
    let routes =
        format!("routes: [{{id: app, match: {{path: /**}}, upstream: 'http://127.0.0.1:{nobody}'}}]\n");
    let ratewright = Ratewright::start(&format!("{}{routes}", cors_for(&port)));
    let Some(report) = page(&port, &ratewright, &[]) else { return };
    let status = report["statuses"][0].as_u64().unwrap_or_default();
    assert!((502..=503).contains(&status), "{report}");
    assert_eq!(report["whys"], serde_json::json!(["attempts"]), "{report}");
}

/// E3: a page reads nothing if its origin is not allowed.
#[test]
fn e3_a_page_of_an_origin_that_is_not_allowed_reads_nothing() {
    let application = application();
    let port = ratewright_lab::free_port().to_string();
    let ratewright = gateway(&application, &cors_for("1"));
    let Some(report) = page(&port, &ratewright, &[]) else { return };
    let result = report["statuses"][0].as_str().unwrap_or_default();
    assert!(result.starts_with("TypeError"), "{report}");
    assert!(report["console"].to_string().contains("CORS"), "{report}");
}

/// E3: a page that may send credentials sends its cookies, and they reach the application.
#[test]
fn e3_a_page_of_another_origin_sends_its_cookies() {
    let knows = "location / { if ($cookie_session = 'anna') { return 200 'served'; } return 401; }\n";
    let application = Nginx::start(1, "", knows);
    let port = ratewright_lab::free_port().to_string();
    let ratewright = gateway(&application, &cors_for(&port));
    let cookie = ("COOKIE", "session=anna");
    let with = |init: &str| Some(page(&port, &ratewright, &[cookie, ("INIT", init)])?["statuses"].clone());
    let Some(included) = with(r#"{"credentials": "include"}"#) else { return };
    assert_eq!(included, serde_json::json!([200]));
    assert_eq!(with(r#"{"credentials": "omit"}"#), Some(serde_json::json!([401])));
}
