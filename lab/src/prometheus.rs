//! One Prometheus that scrapes one address.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::free_port;
use crate::server_process::ServerProcess;

/// A Prometheus of its own.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    /// Declared before its folder, so that it is dropped first.
    running: ServerProcess,
    _folder: TempDir,
}

/// One series of an answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The series' labels, an object of strings.
    pub labels: Value,
    /// Its value.
    pub value: f64,
}

impl Prometheus {
    /// Scrapes `http://{address}{path}` four times a second, and waits until it answers queries.
    pub fn scraping(address: &str, path: &str) -> Self {
        let (port, folder) = (free_port(), TempDir::new().expect("a temporary folder"));
        let file = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\n\
             scrape_configs:\n\
             - {{job_name: ratewright, metrics_path: {path}, static_configs: [{{targets: ['{address}']}}]}}\n"
        );
        std::fs::write(&file, text).expect("a file");
        let log = folder.path().join("prometheus.log");
        let command = [
            "prometheus".to_owned(),
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let prometheus = Self { port, running: ServerProcess::start(command, log), _folder: folder };
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

    /// What it says of its only target: up, and how the last scrape failed if it did.
    pub fn target(&self) -> (bool, String) {
        let answer = self.get("/api/v1/targets").and_then(|body| serde_json::from_str::<Value>(&body).ok());
        let target = answer.unwrap_or_default()["data"]["activeTargets"][0].clone();
        (target["health"] == "up", target["lastError"].as_str().unwrap_or_default().to_owned())
    }

    /// The body of a good answer. As HTTP/1.0, it comes in one piece and ends with the connection.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        (head.split(' ').nth(1)? == "200").then(|| body.to_owned())
    }
}

impl Sample {
    fn parse(result: &Value) -> Self {
        let value = result["value"][1].as_str().and_then(|text| text.parse().ok());
        Self { labels: result["metric"].clone(), value: value.expect("a number") }
    }
}
