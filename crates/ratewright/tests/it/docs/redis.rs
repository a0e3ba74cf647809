//! The page on Redis: what `MONITOR` shows of a decision.

use std::process::{Command, Stdio};

use ratewright_lab::{Redis, lines_of, receive, without_settings};

use super::page;
use crate::packages::{root, run};
use crate::process::{Guarded, Ratewright};

/// The lines that Redis tells of one check of a new client, without their times and addresses.
fn monitored(server: &Redis, ratewright: &Ratewright) -> Vec<String> {
    let mut monitor = Command::new("redis-cli");
    monitor.args(["-p", &server.port().to_string(), "MONITOR"]).stdout(Stdio::piped());
    let mut monitor = Guarded(without_settings(&mut monitor).spawn().unwrap());
    let lines = lines_of(monitor.0.stdout.take().unwrap());
    assert_eq!(receive(&lines, "it watches"), "OK", "it watches from now on");
    assert_eq!(ratewright.get("check?key=user:9").json()["basis"], "shared");
    let lines = std::iter::repeat_with(|| receive(&lines, "a line of MONITOR"));
    let lines = lines.map(|line| line.split_once("] ").unwrap().1.to_owned());
    // A link that has nothing to do tries the script without keys.
    let lines = lines.skip_while(|line| !line.contains("user:9"));
    lines.take(6).collect()
}

/// D3: the script is known by its digest, and does what the page says.
#[test]
fn d3_the_page_on_redis_shows_what_monitor_prints() {
    let server = Redis::start();
    let defaults = "api: {defaults: {token_bucket: {rate: 3/min, burst: 5}}}";
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n{defaults}", server.url());
    let ratewright = Ratewright::start(&store);
    ratewright.wait_for_redis();
    let digest =
        run(Command::new("sha1sum").arg("crates/ratewright-store/src/redis/apply.lua").current_dir(root()));
    let digest = digest.split(' ').next().unwrap();
    let page = page("guides/redis.md");
    let (_, written) = page.split_once("```text\n\"EVALSHA\"").unwrap();
    let written = format!("\"EVALSHA\"{}", written.split("\n```").next().unwrap());
    let shown: Vec<_> = written.replace("DIGEST", digest).lines().map(masked).collect();
    let printed: Vec<_> = monitored(&server, &ratewright).iter().map(|line| masked(line)).collect();
    assert_eq!(shown, printed);
}

/// A line without the packed charges and the time of day.
fn masked(line: &str) -> String {
    let is_time = |word: &str| {
        word.trim_matches('"').len() > 12 && word.trim_matches('"').bytes().all(|c| c.is_ascii_digit())
    };
    let n_words = if line.starts_with("\"EVALSHA\"") { 4 } else { usize::MAX };
    let words = line.split(' ').take(n_words).map(|word| if is_time(word) { "TIME" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The ACL user on the page can run every command that Ratewright sends.
#[test]
fn the_acl_user_of_the_page_on_redis_has_all_rights_that_ratewright_needs() {
    let page = page("guides/redis.md");
    let (_, block) = page.split_once("```acl\n").unwrap();
    let lines = block.split("\n```").next().unwrap().lines();
    let users: Vec<&str> = lines.flat_map(|line| line.split(' ')).collect();
    let admin = "user admin on nopass ~* +@all".split(' ');
    let options: Vec<_> =
        users.into_iter().chain(admin).map(|word| if word == "user" { "--user" } else { word }).collect();
    let server = Redis::start_with(&options);
    let url = format!("redis://limiter:secret@127.0.0.1:{}", server.port());
    let ratewright = Ratewright::start(&format!(
        "store: {{redis: {{url: '{url}', deadline: 10s}}, local: {{share: auto}}}}\n\
         policies: [{{name: a, by: user, quota: [{{rate: 5/h}}, {{name: log, algorithm: sliding_window, rate: 5/h}}]}}]"
    ));
    ratewright.wait_for_redis();
    for algorithm in
        ["TOKEN_BUCKET", "LEAKY_BUCKET", "SLIDING_WINDOW", "SLIDING_WINDOW_COUNTER", "FIXED_WINDOW"]
    {
        for _ in 0..2 {
            let checked = ratewright.get(&format!("check?key=c&algorithm={algorithm}")).json();
            assert_eq!(checked["basis"], "shared", "{algorithm}: {checked}");
        }
    }
    let request = r#"{"attributes": {"user": "anna"}, "receipt": true}"#;
    let receipt = ratewright.post("/api/v1/decide", &[], request).json()["receipt"].clone();
    let refund = serde_json::json!({ "receipt": receipt }).to_string();
    assert_eq!(ratewright.post("/api/v1/refund", &[], &refund).json()["refunded"], 2);
    assert_eq!(ratewright.ask("DELETE", "/api/v1/rate-limit/reset?key=c").status, 200);
    assert_eq!(
        server.cli(&["--user", "admin", "--no-auth-warning", "-a", "any", "ACL", "LOG"]),
        "",
        "Redis denied a command"
    );
}
