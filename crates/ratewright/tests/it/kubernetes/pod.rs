//! The deployed policy file in use: the program started as in the container, with the ConfigMap as the kubelet mounts it.

use std::path::Path;
use std::process::Command;

use ratewright_lab::{Nginx, Redis, wait_until, without_environment};
use serde_json::Value;
use tempfile::TempDir;

use super::{PRODUCTION, documents, object, rendered};
use crate::process::Ratewright;

/// What the Secret would hold. Made up here.
const JWT_SECRET: &str = "a secret for tests, long enough for HS256";
const TOKEN: &str = "a-token-for-tests";

/// A mounted ConfigMap: names are links into `..data`, which is a link to a folder that is replaced as a whole.
struct Mount(TempDir);

impl Mount {
    fn new(data: &[(String, String)]) -> Self {
        let mount = Self(TempDir::new().unwrap());
        mount.put(1, data);
        for (name, _) in data {
            mount.link(&format!("..data/{name}"), name);
        }
        mount
    }

    fn link(&self, to: &str, name: &str) {
        std::os::unix::fs::symlink(to, self.0.path().join(name)).unwrap();
    }

    /// Puts another version in place, as the kubelet does.
    fn put(&self, version: u32, data: &[(String, String)]) {
        let folder = self.0.path().join(format!("..2026_{version}"));
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in data {
            std::fs::write(folder.join(name), text).unwrap();
        }
        self.link(&format!("..2026_{version}"), "..data_tmp");
        std::fs::rename(self.0.path().join("..data_tmp"), self.0.path().join("..data")).unwrap();
        let before = self.0.path().join(format!("..2026_{}", version - 1));
        if before.exists() {
            std::fs::remove_dir_all(before).unwrap();
        }
    }
}

/// Where the listeners of the ConfigMap are.
const USUAL_PORTS: [&str; 3] = ["0.0.0.0:8000", "127.0.0.1:8080", "0.0.0.0:8082"];

/// The files of the ConfigMap. Listeners are on free ports of loopback, since tests run beside each other.
fn data(documents: &[Value]) -> Vec<(String, String)> {
    let map = object(documents, "ConfigMap", "ratewright")["data"].as_object().unwrap().clone();
    let local = |text: &str| {
        // On a busy machine 5 ms may pass without an answer from Redis.
        let text = text.replace("  redis:\n", "  redis:\n    deadline: 10s\n");
        USUAL_PORTS.iter().fold(text, |text, address| text.replace(address, "127.0.0.1:0"))
    };
    let whole: String = map.values().map(|text| text.as_str().unwrap()).collect();
    for address in USUAL_PORTS {
        let has_it = |line: &str| line.split_whitespace().nth(1) == Some(address);
        assert!(whole.lines().any(has_it), "a listener may be on its usual port: {address} is not there");
    }
    map.into_iter().map(|(name, text)| (name, local(text.as_str().unwrap()))).collect()
}

/// Starts the program with the container's arguments and variables, and nothing else of ours.
fn started(documents: &[Value], mount: &Path, redis: &Redis, upstream: &str) -> Ratewright {
    let pod = &object(documents, "Deployment", "ratewright")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mounted_at = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert!(
        container["volumeMounts"][0]["subPath"].is_null(),
        "the kubelet never changes what is mounted so"
    );
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "ratewright");
    let args = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let args: Vec<_> =
        args.map(|word| if word == mounted_at { mount.to_str().unwrap() } else { word }).collect();
    assert_eq!(args[0], "serve");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
    without_environment(command.args(args));
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let value = match name {
            "REDIS_URL" => redis.url(),
            "JWT_SECRET" => JWT_SECRET.to_owned(),
            "RATEWRIGHT_TOKEN" => TOKEN.to_owned(),
            "UPSTREAM" => upstream.to_owned(),
            _ => variable["value"].as_str().unwrap_or_else(|| panic!("{name} has no value")).to_owned(),
        };
        command.env(name, value);
    }
    Ratewright::spawn(command)
}

/// So many requests on one connection, and the statuses of the responses.
fn statuses(ratewright: &Ratewright, n: usize) -> Vec<String> {
    let request = |n_left: usize| {
        let close = if n_left == 0 { "Connection: close\r\n" } else { "" };
        format!("GET /x HTTP/1.1\r\nHost: localhost\r\n{close}\r\n")
    };
    let responses = ratewright.pass_all(&(0..n).rev().map(request).collect::<String>());
    let status = |line: &str| line.strip_prefix("HTTP/1.1 ")?.get(..3).map(str::to_owned);
    responses.lines().filter_map(status).collect()
}

/// E1 and E2: the policy file that is deployed holds each address to 100 in a minute, and a change of the ConfigMap is in force without
/// a restart.
#[test]
fn e1_e2_the_deployed_file_denies_the_101st_request_and_follows_its_config_map() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let documents = documents(&text);
    let (redis, nginx) = (Redis::start(), Nginx::start(1, "", "location / { return 204; }"));
    let files = data(&documents);
    let mount = Mount::new(&files);
    let ratewright = started(&documents, mount.0.path(), &redis, &format!("http://{}", nginx.address()));
    let container =
        &object(&documents, "Deployment", "ratewright")["spec"]["template"]["spec"]["containers"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        wait_until("the probe succeeds", || ratewright.admin(path).status == 200);
    }
    wait_until("it is connected to Redis", || {
        ratewright.admin_with("/metrics", TOKEN).body.contains("\nratewright_store_up 1")
    });
    let seen = statuses(&ratewright, 101);
    let (allowed, last) = seen.split_at(100);
    assert!(allowed.iter().all(|status| status == "204"), "{seen:?}");
    assert_eq!(last, ["429"]);

    let softer = |(name, text): &(String, String)| (name.clone(), text.replace("100/60s", "1000/60s"));
    mount.put(2, &files.iter().map(softer).collect::<Vec<_>>());
    wait_until("the changed ConfigMap is in force", || statuses(&ratewright, 1) == ["204"]);
    ratewright.wait_for_line(&["policies reloaded", "~per-ip"]);
}
