//! One Prometheus: what it scrapes, the rules that it evaluates, what it answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::Stream;
use crate::server_process::ServerProcess;

/// A Prometheus of its own.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    /// Declared before its folder, so that it is dropped first.
    running: ServerProcess,
    folder: TempDir,
}

/// What is scraped: the name of a job, `host:port`, and the path.
pub type Target<'a> = (&'a str, &'a str, &'a str);

/// One series of an answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The series' labels, an object of strings.
    pub labels: Value,
    /// Its value.
    pub value: f64,
}

/// One series of an answer over a stretch of time.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// The series' labels, an object of strings.
    pub labels: Value,
    /// Seconds since the beginning, and the value then.
    pub points: Vec<(f64, f64)>,
}

const CONFIG: &str = "prometheus.yml";

impl Prometheus {
    /// Scrapes `http://{address}{path}` four times a second, and waits until it answers queries.
    pub fn scraping(address: &str, path: &str) -> Self {
        Self::with_rules(&[("ratewright", address, path)], "groups: []\n")
    }

    /// Scrapes these targets and evaluates these rules, both four times a second, and waits until it answers queries.
    pub fn with_rules(targets: &[Target<'_>], rules: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join(CONFIG);
        std::fs::write(&file, config(targets)).expect("a file");
        std::fs::write(folder.path().join("rules.yml"), rules).expect("a file");
        let (port, running) = ServerProcess::on_free_port(|port| {
            let command = [
                "prometheus".to_owned(),
                format!("--config.file={}", file.display()),
                format!("--storage.tsdb.path={}", folder.path().join("data").display()),
                format!("--web.listen-address=127.0.0.1:{port}"),
                "--query.lookback-delta=5s".to_owned(), // a series that is no longer scraped is soon gone
            ];
            ServerProcess::start(command, folder.path().join("prometheus.log"))
        });
        let prometheus = Self { port, running, folder };
        prometheus.running.wait_until("Prometheus is ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// What a query in PromQL gives now: each series with its value.
    ///
    /// # Panics
    /// If Prometheus does not take the query.
    pub fn query(&self, promql: &str) -> Vec<Sample> {
        let encoded: String = promql.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let body = self.get(&format!("/api/v1/query?query={encoded}")).expect("a query that it takes");
        let answer: Value = serde_json::from_str(&body).expect("an answer in JSON");
        let results = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        results.iter().map(Sample::parse).collect()
    }

    /// Where it answers, `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Scrapes these targets from now on, in place of the others.
    pub fn scrape(&self, targets: &[Target<'_>]) {
        std::fs::write(self.folder.path().join(CONFIG), config(targets)).expect("a file");
        self.running.signal(Signal::HUP);
    }

    /// What a query in PromQL gives over the last so many seconds, in steps of as many: each series with its values, by their
    /// distance from the beginning in seconds.
    ///
    /// # Panics
    /// If Prometheus does not take the query.
    pub fn range(&self, promql: &str, seconds: f64, step: f64) -> Vec<Range> {
        let encoded: String = promql.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let now = self.query("vector(time())")[0].value; // its own clock, which may differ from the test's
        let start = now - seconds;
        let path = format!("/api/v1/query_range?query={encoded}&start={start}&end={now}&step={step}");
        let body = self.get(&path).expect("a query that it takes");
        let answer: Value = serde_json::from_str(&body).expect("an answer in JSON");
        let results = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        results.iter().map(|result| Range::parse(result, start)).collect()
    }

    /// What it says of its only target: up, and how the last scrape failed if it did.
    pub fn target(&self) -> (bool, String) {
        let answer = self.get("/api/v1/targets").and_then(|body| serde_json::from_str::<Value>(&body).ok());
        let target = answer.unwrap_or_default()["data"]["activeTargets"][0].clone();
        (target["health"] == "up", target["lastError"].as_str().unwrap_or_default().to_owned())
    }

    /// The body of a good answer. As HTTP/1.0, it comes in one piece and ends with the connection.
    fn get(&self, path: &str) -> Option<String> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let mut stream = Stream::from(stream).lasting(Duration::from_secs(5));
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        (head.split(' ').nth(1)? == "200").then(|| body.to_owned())
    }
}

/// The configuration file.
fn config(targets: &[Target<'_>]) -> String {
    let global = "global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}\n";
    let jobs = targets.iter().map(|(job, address, path)| {
        format!("- {{job_name: {job}, metrics_path: {path}, static_configs: [{{targets: ['{address}']}}]}}\n")
    });
    format!("{global}rule_files: [rules.yml]\nscrape_configs:\n{}", jobs.collect::<String>())
}

impl Range {
    fn parse(result: &Value, start: f64) -> Self {
        let points = result["values"].as_array().cloned().unwrap_or_default();
        let point = |point: &Value| {
            let value = point[1].as_str().and_then(|text| text.parse().ok());
            (point[0].as_f64().expect("a time") - start, value.expect("a number"))
        };
        Self { labels: result["metric"].clone(), points: points.iter().map(point).collect() }
    }
}

impl Sample {
    fn parse(result: &Value) -> Self {
        let value = result["value"][1].as_str().and_then(|text| text.parse().ok());
        Self { labels: result["metric"].clone(), value: value.expect("a number") }
    }
}
