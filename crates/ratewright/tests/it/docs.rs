//! The pages in docs/ against the program: transcripts are replayed, files are checked.

mod blocks;
mod commands;
mod markdown;
mod operations;
mod page_files;
mod rate_limiting;
mod redis;
mod reference;
mod replayed;
mod rest;
mod transcript;

use std::path::Path;

use expect_test::expect_file;
use tempfile::TempDir;

use ratewright_gateway::Target;
use ratewright_http::path::Case;
use ratewright_lab::{Envoy, foreign, free_port, wait_until};

use crate::envoy::has_envoy;
use crate::live_page::LiveLines;
use crate::process::{Guarded, Ratewright, http, run};
use transcript::{Stage, replay};

const BEGIN: &str = "<!-- reference -->\n";
const END: &str = "<!-- end of reference -->\n";

pub(crate) fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The policy files on a page.
fn files(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// A text with other words in place of some that it must have: a file that had lost its port would take the usual one.
#[track_caller]
pub(crate) fn replaced(text: &str, written: &str, real: &str) -> String {
    assert!(text.contains(written), "{written} is not in: {text}");
    text.replace(written, real)
}

/// With UPDATE_EXPECT=1 the page is written anew.
#[test]
fn the_reference_of_settings_is_what_the_program_prints() {
    let output = run(&["schema", "--reference"]);
    let reference = String::from_utf8(output.stdout).unwrap();
    let page = page("reference/configuration.md");
    let (before, rest) = page.split_once(BEGIN).expect("a place for the reference");
    let (_, after) = rest.split_once(END).expect("an end of the reference");
    let made = format!("{before}{BEGIN}\n{reference}{END}{after}");
    expect_file!["../../../../docs/reference/configuration.md"].assert_eq(&made);
}

/// Each command on the page is run, in order. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn the_page_on_the_api_shows_real_responses() {
    let page = page("guides/api.md");
    let (ratewright, folder) = (Ratewright::start(files(&page)[0]), TempDir::new().unwrap());
    let described = ratewright.ask("GET", "/openapi.json").json();
    for path in described["paths"].as_object().unwrap().keys() {
        assert!(page.contains(path), "the page does not show {path}");
    }
    expect_file!["../../../../docs/guides/api.md"]
        .assert_eq(&replay(&page, &Stage::new(&ratewright, folder.path())));
}

/// A reader's application: `python3 -m http.server`. Ends with the test.
struct Site(Guarded, String);

impl Site {
    fn start(folder: &Path) -> Self {
        std::fs::write(folder.join("index.html"), "hello\n").unwrap();
        let port = free_port();
        let mut python = foreign("python3");
        python.args(["-m", "http.server", &port.to_string(), "--bind", "127.0.0.1", "--directory"]);
        let nobody = std::process::Stdio::null;
        let child = python.arg(folder).stdout(nobody()).stderr(nobody()).spawn().unwrap();
        let mut site = Self(Guarded(child), format!("127.0.0.1:{port}"));
        wait_until("the application listens", || {
            assert!(site.0.0.try_wait().unwrap().is_none(), "the application exited");
            std::net::TcpStream::connect(&site.1).is_ok()
        });
        site
    }
}

/// Each command on the page is run, after six requests. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn the_page_on_the_live_page_shows_its_data() {
    let page = page("operations/live-page.md");
    let (ratewright, folder) = (Ratewright::start(files(&page)[0]), TempDir::new().unwrap());
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/logs/access.log");
    std::fs::copy(log, folder.path().join("access.log")).unwrap();
    for _ in 0..6 {
        ratewright.decide(&serde_json::json!({"ip": "203.0.113.7", "method": "POST", "path": "/login"}));
    }
    wait_until("the history has them", || {
        let line = LiveLines::open(&ratewright).next().unwrap();
        let seconds = line["seconds"].as_array().unwrap().iter();
        seconds.map(|second| second[1].as_u64().unwrap() + second[2].as_u64().unwrap()).sum::<u64>() == 6
    });
    expect_file!["../../../../docs/operations/live-page.md"]
        .assert_eq(&replay(&page, &Stage::new(&ratewright, folder.path())));
}

/// The commands that need no installed service are run. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn the_page_on_installation_shows_what_an_operator_sees() {
    let page = page("operations/install.md");
    let (folder, files) = (TempDir::new().unwrap(), files(&page));
    assert!(files.len() > 1, "{} files", files.len());
    let site = Site::start(folder.path());
    let config = replaced(files[0], "127.0.0.1:3000", &site.1);
    let ratewright = Ratewright::start(&replaced(&config, "listen:\n  gateway: 127.0.0.1:8000", "#"));
    let stage = Stage::new(&ratewright, folder.path());
    expect_file!["../../../../docs/operations/install.md"].assert_eq(&replay(&page, &stage));
    for file in files {
        let file = file.replace("${RATEWRIGHT_TOKEN}", "a-token-for-tests");
        assert_eq!(ratewright::parse_policy_file(&file), Ok(()), "{file}");
    }
}

/// E5: the page for customers shows a real 429. With UPDATE_EXPECT=1 what its commands print is written anew.
#[test]
fn e5_the_page_on_clients_shows_a_limited_response() {
    let ratewright = Ratewright::start(
        "routes: [{id: orders, match: {path: /orders}, upstream: 'http://127.0.0.1:1'}]\n\
         policies: [{name: orders, by: ip, quota: {rate: 1/min, burst: 10}}]",
    );
    for _ in 0..10 {
        assert_eq!(ratewright.pass("/orders", &[]).status, 502, "allowed, but there is no application");
    }
    let folder = TempDir::new().unwrap();
    let mut stage = Stage::new(&ratewright, folder.path());
    stage.addresses.push(("https://api.example.com", format!("http://{}", ratewright.gateway)));
    expect_file!["../../../../docs/guides/clients.md"].assert_eq(&replay(&page("guides/clients.md"), &stage));
}

#[test]
fn the_page_on_the_gateway_describes_path_normalisation() {
    let page = page("guides/gateway.md");
    let (_, rest) = page.split_once("| written | forwarded | |\n|---|---|---|\n").unwrap();
    let rows: Vec<_> = rest.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 4, "{rows:?}");
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        for written in cells[1].split(", ").map(|text| text.trim_matches('`')) {
            let uri = written.parse().unwrap();
            let target = Target::of(&http::Method::GET, &uri, Case::Sensitive).unwrap();
            assert_eq!(target.forwarded().as_str(), cells[2].trim_matches('`'), "{written}");
        }
    }
}

/// The page's three files, with Envoy if it is installed.
#[test]
fn the_page_on_envoy_limits_a_route() {
    let page = page("guides/envoy.md");
    let files = files(&page);
    let [rules, config, envoy, listen, open, more] = &files[..] else { panic!("{} files", files.len()) };
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    // A minute may end during the test; a year hardly ever does.
    std::fs::write(path("edge.yaml"), replaced(rules, "unit: minute", "unit: year")).unwrap();
    for (name, text) in [("more.yaml", more), ("open.yaml", open)] {
        std::fs::write(path(name), text).unwrap();
        let checked = run(&["check", path(name).to_str().unwrap()]);
        assert!(checked.status.success(), "{checked:?}");
    }
    assert!(listen.contains("client_ca"), "that needs certificates, and has a test of its own: {listen}");
    let config = replaced(config, "edge.yaml", path("edge.yaml").to_str().unwrap());
    let (ratewright, site) = (Ratewright::start(&config), Site::start(folder.path()));
    if !has_envoy() {
        return;
    }
    let port = free_port();
    let text = [("10000", port.to_string()), ("3000", port_of(&site.1)), ("8081", port_of(&ratewright.grpc))]
        .iter()
        // On a busy machine 20 ms may pass without a decision, and then Envoy adds no header.
        .fold(replaced(envoy, "timeout: 0.02s", "timeout: 10s"), |text, (written, real)| {
            replaced(&text, &format!("port_value: {written}"), &format!("port_value: {real}"))
        });
    let envoy = Envoy::serve(&text, port);
    let printed = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        http(&envoy.address(), &request)
    };
    let seen: String = (0..4)
        .map(|_| {
            let answer = get("/login");
            format!("{} {}\n", answer.status, answer.headers["x-ratelimit-remaining"])
        })
        .collect();
    assert_eq!(seen, printed);
    for spelling in ["/login?x=1", "//login", "/%6Cogin", "/x/../login", "/x%2f..%2flogin?y=2"] {
        assert_eq!(get(spelling).status, 429, "{spelling}");
    }
    let rule = page.split("as it is written: `").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    assert_eq!(ratewright.metric(&format!("ratewright_envoy_hits_total{{rule=\"{rule}\"}}")), 9.0);
    let page = ratewright.admin("/metrics").body;
    assert!(page.contains(r#"entrypoint="grpc",verdict="denied""#), "E4: its entrypoint is counted\n{page}");
}

fn port_of(address: &str) -> String {
    address.rsplit(':').next().unwrap().to_owned()
}
