//! Every block of every page is run or checked, so that no page can contradict the program unnoticed.
//!
//! | language | check |
//! |---|---|
//! | `yaml` | `ratewright check` accepts it |
//! | `yaml profile` | `ratewright check --profile` accepts it over the page's first file |
//! | `console` | its commands are run, and print what the page shows |
//! | `sh` | it is well-formed; its options, targets and tests exist |
//! | `rust` | it compiles: a crate includes the page in its documentation |
//! | `nginx`, `promql` | `nginx -t` and `promtool` accept it |
//! | `json`, `toml`, `yml PROGRAM` | it can be parsed |
//! | `text` | output or a drawing, without commands |
//! | others | a test of their own: [`SPECIAL`] |

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use ratewright_lab::{free_port, output};
use tempfile::TempDir;

use super::commands::check_shell;
use super::markdown::{Block, blocks};
use super::page_files::{objection_of_check, write_files};
use super::replayed::{ELSEWHERE, is_replayed};
use crate::packages::{files_in, root, text_of, tracked};

/// Blocks with a test of their own: the page, how the block begins after its backticks, and the test.
const SPECIAL: [(&str, &str, &str); 26] = [
    (
        "clients/typescript/README.md",
        "js",
        "the code on the pages passes the type checker, and code with a mistake does not",
    ),
    (
        "clients/typescript/README.md",
        "ts",
        "the code on the pages passes the type checker, and code with a mistake does not",
    ),
    (
        "docs/guides/clients.md",
        "ts",
        "the code on the pages passes the type checker, and code with a mistake does not",
    ),
    ("docs/guides/clients.md", "bash retry.sh", "e5_the_loop_for_curl_follows_the_rules"),
    ("docs/guides/clients.md", "python retry.py", "e5_the_loop_in_python_follows_the_rules"),
    ("docs/guides/clients.md", "java Retry.java", "e5_the_loop_in_java_follows_the_rules"),
    ("docs/guides/clients.md", "go retry.go", "e5_the_loop_in_go_follows_the_rules"),
    ("docs/guides/clients.md", "python vectors.py", "the_snippet_runs_the_vectors"),
    ("docs/guides/envoy.md", "yaml # envoy.yaml", "the_page_on_envoy_limits_a_route"),
    ("docs/guides/proxies.md", "caddy", "caddy_denies_with_429_and_fails_closed"),
    ("docs/guides/proxies.md", "haproxy     http-request", "haproxy_excludes_plain_targets_only"),
    ("docs/guides/proxies.md", "haproxy", "haproxy_denies_with_429_and_fails_closed"),
    ("docs/guides/proxies.md", "lua         local", "haproxy_is_open_only_if_nothing_listens"),
    ("docs/guides/proxies.md", "lua", "haproxy_denies_with_429_and_fails_closed"),
    ("docs/guides/proxies.md", "nginx", "nginx_denies_with_429_and_fails_closed"),
    ("docs/guides/proxies.md", "yaml # envoy.yaml", "envoy_denies_with_429_and_fails_closed"),
    ("docs/guides/proxies.md", "yaml                       routes:", "envoy_excludes_plain_targets_only"),
    ("docs/guides/proxies.md", "yaml # dynamic configuration", "the_policy_file_on_the_page_is_valid"),
    ("docs/guides/redis.md", "acl", "the_acl_user_of_the_page_on_redis_has_all_rights_that_ratewright_needs"),
    ("docs/guides/rest.md", "java Limits.java", "the_client_in_java_asks_and_fails_open"),
    ("docs/guides/rest.md", "kotlin Limits.kt", "the_client_in_kotlin_asks_and_fails_open"),
    ("docs/guides/rest.md", "js limits.mjs", "the_client_in_node_asks_and_fails_open"),
    ("docs/guides/rest.md", "python limits.py", "the_client_in_python_asks_and_fails_open"),
    ("docs/guides/rest.md", "go limits.go", "the_client_in_go_asks_and_fails_open"),
    ("docs/guides/rest.md", "js server.mjs", "the_server_in_node_forwards_the_headers"),
    (
        "docs/operations/production.md",
        "yaml # prometheus.yml",
        "d7_e2_e4_e6_the_page_on_operations_shows_what_an_operator_sees",
    ),
];

/// Pages whose blocks are not a reader's: what was decided, and what has changed.
const NOT_CHECKED: [&str; 2] = ["docs/decisions/", "CHANGELOG.md"];

/// The Markdown pages that git tracks, by their path from the root. Without a checkout there are none.
fn pages() -> Vec<String> {
    let is_page =
        |file: &String| file.ends_with(".md") && !NOT_CHECKED.iter().any(|start| file.starts_with(start));
    // A tracked file may be deleted in the working tree; the commit will say so.
    let exists = |page: &String| root().join(page).is_file();
    tracked().unwrap_or_default().into_iter().filter(is_page).filter(exists).collect()
}

/// A page, and a folder with the files that it shows.
struct PageFolder<'a> {
    page: &'a str,
    first_file: &'a str,
    folder: TempDir,
}

impl<'a> PageFolder<'a> {
    fn of(page: &'a str, text: &'a str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_files(text, folder.path());
        let first = blocks(text).into_iter().find(|block| block.language == "yaml");
        Self { page, first_file: first.map_or("", |block| block.text), folder }
    }

    /// What is wrong with a block.
    fn objection(&self, block: &Block<'_>) -> Option<String> {
        if let Some((_, _, test)) = special(self.page, block) {
            return (!exists(test)).then(|| format!("the test {test} does not exist"));
        }
        let folder = self.folder.path();
        match block.language {
            "yaml" => objection_of_check(block.text, folder, &[]),
            "yaml profile" => {
                std::fs::write(folder.join("checked.page.yaml"), block.text).unwrap();
                objection_of_check(self.first_file, folder, &["--profile", "page"])
            }
            "console" => (!is_replayed(self.page)).then(|| "no test runs its commands".to_owned()),
            "sh" => check_shell(block.text).err(),
            "rust" | "rust,no_run" => (!is_included(self.page))
                .then(|| "no crate includes the page, so it is not compiled".to_owned()),
            // Code of another library, to compare with.
            "rust,ignore" => None,
            "nginx" => objection_of_nginx(block.text, folder),
            "promql" => objection_of_promtool(block.text, folder),
            // A file of another program, to compare with.
            other if other.starts_with("yml ") => {
                serde_saphyr::from_str::<serde_json::Value>(block.text).err().map(|error| error.to_string())
            }
            "json" => {
                serde_json::from_str::<serde_json::Value>(block.text).err().map(|error| error.to_string())
            }
            "toml" => block.text.parse::<toml::Table>().err().map(|error| error.to_string()),
            "text" => {
                block.text.lines().any(|line| line.starts_with("$ ")).then(|| "it has commands".to_owned())
            }
            _ => Some("no test knows this language: see SPECIAL".to_owned()),
        }
    }
}

fn special(page: &str, block: &Block<'_>) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let begins = format!("{} {}", block.language, block.text);
    SPECIAL.iter().find(|(special, start, _)| *special == page && begins.starts_with(start))
}

/// In place of the system's log and folders, which nginx would open or make: not everybody may.
const OWN_FILES: &str = "access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;";

/// What nginx says against lines for a location, a server, or all of `http`. It also opens the ports, so it gets another one.
fn objection_of_nginx(text: &str, folder: &Path) -> Option<String> {
    let (file, mut objection) = (folder.join("nginx.conf"), String::new());
    let port = format!(" 127.0.0.1:{};", free_port());
    let listen = format!("listen {port}");
    let text = text.replace(" 80;", &port).replace(" 8888;", &port);
    let wrapped = [
        format!("http {{ server {{ {listen} location / {{ {text} }} }} }}"),
        format!("http {{ server {{ {listen} {text} }} }}"),
        format!("http {{ {text} }}"),
        text,
    ];
    for text in wrapped {
        let text = text.replacen("http {", &format!("http {{ {OWN_FILES}"), 1);
        std::fs::write(&file, format!("pid nginx.pid;\nerror_log stderr;\nevents {{}}\n{text}\n")).unwrap();
        let mut nginx = Command::new("nginx");
        nginx.args(["-t", "-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&file);
        let nginx = output(&mut nginx);
        if nginx.status.success() {
            return None;
        }
        objection += &String::from_utf8_lossy(&nginx.stderr);
    }
    Some(objection)
}

/// What Prometheus says against an expression.
fn objection_of_promtool(text: &str, folder: &Path) -> Option<String> {
    let rule =
        format!("groups: [{{name: page, rules: [{{record: page, expr: {}}}]}}]", serde_json::json!(text));
    std::fs::write(folder.join("rules.yaml"), rule).unwrap();
    let mut promtool = Command::new("promtool");
    let output = output(promtool.args(["check", "rules", "rules.yaml"]).current_dir(folder));
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The code of all crates and of the client in TypeScript.
static SOURCES: LazyLock<String> = LazyLock::new(|| {
    let files = ["crates", "clients/typescript"].map(files_in).into_iter().flatten();
    let is_source =
        |file: &Path| [".rs", ".test.mjs"].iter().any(|end| file.to_string_lossy().ends_with(end));
    files.filter(|file| is_source(file)).map(|file| std::fs::read_to_string(file).unwrap()).collect()
});

/// True if some crate, or the client in TypeScript, has a test of that name.
fn exists(test: &str) -> bool {
    SOURCES.contains(&format!("fn {test}(")) || SOURCES.contains(&format!("test(\"{test}\""))
}

/// True if the documentation of a crate has the page in it, whose Rust blocks then are doctests.
fn is_included(page: &str) -> bool {
    let includes = |name, path: &str| {
        text_of(&format!("crates/{name}/src/lib.rs")).contains(&format!("include_str!(\"{path}\")"))
    };
    match page.strip_prefix("crates/").and_then(|rest| rest.split_once('/')) {
        Some((name, rest)) => includes(name, &format!("../{rest}")),
        None => ["ratewright-client", "ratewright-tower"]
            .iter()
            .any(|name| includes(*name, &format!("../../../{page}"))),
    }
}

#[test]
fn every_block_of_every_page_is_run_or_checked() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = text_of(&page);
        let found = blocks(&text);
        if found.is_empty() {
            continue;
        }
        let folder = PageFolder::of(&page, &text);
        for block in found {
            if let Some(objection) = folder.objection(&block) {
                let start = block.text.lines().next().unwrap_or_default();
                wrong.push(format!("{page}: ```{} {start}: {objection}", block.language));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The tests of forward authentication run the recipe of the guide; the page to start from has the same one, on another port.
#[test]
fn the_first_page_on_proxies_has_the_recipe_of_the_guide() {
    let [start, guide] = ["docs/start/proxy.md", "docs/guides/proxies.md"].map(text_of);
    let nginx = |page: &str| {
        let block = blocks(page).into_iter().find(|block| block.language == "nginx").unwrap();
        block.text.to_owned()
    };
    let lines = |text: &str| -> Vec<String> {
        let code = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
        code.filter(|line| !line.is_empty() && !line.starts_with("listen ")).collect()
    };
    assert_eq!(lines(&nginx(&start)), lines(&nginx(&guide)));
}

#[test]
fn special_blocks_and_their_tests_exist() {
    for (page, test) in ELSEWHERE {
        assert!(exists(test), "{page}: the test {test} does not exist");
    }
    for (page, start, _) in SPECIAL {
        let text = text_of(page);
        let has = blocks(&text)
            .iter()
            .any(|block| special(page, block).is_some_and(|(_, found, _)| *found == start));
        assert!(has, "{page} has no block that begins with {start}");
    }
}

#[test]
fn blocks_with_mistakes_are_found() {
    let objection =
        |language: &str, text: &str| PageFolder::of("docs/page.md", "").objection(&Block { language, text });
    for (language, right, wrong) in [
        ("yaml", "policies: []\n", "polices: []\n"),
        ("nginx", "proxy_pass http://127.0.0.1:1;", "proxy_passes http://127.0.0.1:1;"),
        ("promql", "rate(a_total[5m])", "rate(a_total[5m]"),
        ("json", "{\"a\": 1}", "{a: 1}"),
        ("toml", "a = 1", "a: 1"),
        ("text", "output", "$ command"),
        ("sh", "make test", "make tests"),
    ] {
        assert_eq!(objection(language, right), None, "{language}");
        assert!(objection(language, wrong).is_some(), "{language}: {wrong}");
    }
    for unknown in ["console", "rust", "cobol"] {
        assert!(objection(unknown, "").is_some(), "{unknown} on a page that no test knows");
    }
}
