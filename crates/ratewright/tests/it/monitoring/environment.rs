//! A Ratewright with all entrypoints, its Redis and upstreams, and requests to it.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratewright_lab::{Nginx, Redis, wait_until};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::json;
use tempfile::TempDir;

use crate::process::Ratewright;

/// A Ratewright on Redis, with a gateway, REST, Envoy's service, TLS, and two upstreams.
pub(crate) struct Scene {
    /// First, so that it ends before what it needs.
    pub(crate) ratewright: Ratewright,
    pub(crate) redis: Redis,
    pub(crate) orders: Nginx,
    /// The upstream of everything else, that a test stops.
    pub(crate) site: Nginx,
    folder: TempDir,
    n_clients: u32,
    denied_at: Option<Instant>,
}

impl Scene {
    pub(crate) fn start() -> Self {
        let (redis, folder) = (Redis::start(), TempDir::new().unwrap());
        let [orders, site] = [1, 2].map(|_| Nginx::start(1, "", "location / { return 200 'yes'; }\n"));
        write_certificate(&folder, HOUR); // its alerts fire
        let rules =
            "domain: edge\ndescriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 100000}}]\n";
        std::fs::write(folder.path().join("envoy.yaml"), rules).unwrap();
        let file = folder.path().join("ratewright.yaml");
        std::fs::write(&file, config(&redis, &orders, &site, &folder)).unwrap();
        let ratewright = Ratewright::serve(&["-c".as_ref(), file.as_os_str()]);
        wait_until("it is connected to Redis", || {
            ratewright.metric("ratewright_store_up{application=\"shop\"}") == 1.0
        });
        Self { ratewright, redis, orders, site, folder, n_clients: 0, denied_at: None }
    }

    /// A few requests at each entrypoint. Once one was denied, another is every two seconds.
    pub(crate) fn serve_one_round(&mut self) {
        self.n_clients += 1;
        let client = format!("client-{}", self.n_clients / 10); // ten requests each, which is all that they may have
        self.ratewright.pass("/orders/1", &[("X-Client", &client)]);
        self.ratewright.pass("/", &[]);
        if self.denied_at.is_some_and(|at| at.elapsed() > Duration::from_secs(2)) {
            self.deny_one();
        }
        let attributes = json!({"ip": "192.0.2.1", "method": "GET", "path": "/elsewhere"});
        self.ratewright.decide(&attributes);
        let asked = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/a"}]}]});
        self.ratewright.post("/json", &[], &asked.to_string());
    }

    /// One denial, which must not fire the alert for spikes.
    pub(crate) fn deny_one(&mut self) {
        wait_until("a client is denied", || {
            self.ratewright.pass("/orders/1", &[("X-Client", "noisy")]).status == 429
        });
        self.denied_at = Some(Instant::now());
    }

    /// One client that ignores its limit.
    pub(crate) fn flood(&self) {
        for _ in 0..20 {
            self.ratewright.pass("/orders/1", &[("X-Client", "noisy")]);
        }
    }

    /// Clients with new addresses.
    pub(crate) fn send_as_new_clients(&mut self) {
        for _ in 0..10 {
            self.n_clients += 1;
            let client = format!("new-{}", self.n_clients);
            self.ratewright.pass("/orders/1", &[("X-Client", &client)]);
        }
    }

    pub(crate) fn break_policy_file(&self) {
        std::fs::write(self.file(), "policies: [{name: orders, quota: {rate: often}}]\n").unwrap();
    }

    pub(crate) fn restore_policy_file(&self) {
        std::fs::write(self.file(), config(&self.redis, &self.orders, &self.site, &self.folder)).unwrap();
    }

    /// Installs a certificate that expires in a month.
    pub(crate) fn renew_certificate(&self) {
        write_certificate(&self.folder, 30 * 24 * HOUR);
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ratewright.yaml")
    }
}

fn config(redis: &Redis, orders: &Nginx, site: &Nginx, folder: &TempDir) -> String {
    let (orders, site, folder, redis) =
        (orders.address(), site.address(), folder.path().display(), redis.url());
    format!(
        "listen:\n  gateway: 127.0.0.1:0\n  api: 127.0.0.1:0\n  admin: 127.0.0.1:0\n  grpc:\n    address: 127.0.0.1:0\n    open: true\n    \
         tls: {{cert: {folder}/cert.pem, key: {folder}/cert.key}}\n    proxy_protocol: {{from: [127.0.0.1/32]}}\n\
         stop_delay: 0s\n\
         store:\n  redis: {{url: '{redis}', deadline: 10s}}\n  local: {{share: auto, max_keys: 100}}\n\
         envoy: {{files: ['{folder}/envoy.yaml']}}\n\
         metrics: {{labels: {{application: shop}}}}\n\
         policies:\n\
         - {{name: everybody, quota: {{rate: 1000000/h}}}}\n\
         - {{name: orders, when: {{path: /orders/**}}, by: 'header:X-Client', quota: {{rate: 1/h, burst: 10}}}}\n\
         - {{name: tried, mode: shadow, by: ip, quota: {{rate: 1/s, burst: 5}}}}\n\
         - {{name: at-once, in_flight: 100}}\n\
         routes:\n\
         - {{id: orders, match: {{path: /orders/**}}, upstream: 'http://{orders}'}}\n\
         - {{id: site, match: {{path: /**}}, upstream: {{servers: ['http://{site}'], health: {{failures: 1, eject: 100ms}}}}}}\n"
    )
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A certificate that ends after so much time. Prometheus has the real clock, and the test may have another time of the day: an
/// hour is less than two days by both.
fn write_certificate(folder: &TempDir, time: Duration) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    params.not_after = date_time_ymd(1970, 1, 1) + now + time;
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.path().join("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(folder.path().join("cert.key"), key.serialize_pem()).unwrap();
}
