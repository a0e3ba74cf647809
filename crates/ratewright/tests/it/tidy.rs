//! The rules of the repository that a test can check.

mod plain_words;
pub(crate) mod rust_text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use ratewright_lab::output;
use toml::Table;

use crate::packages::{files_in, tracked};

/// The allowed dependencies between our crates, including development dependencies. A crate depends on itself to test its features.
const ARROWS: [(&str, &[&str]); 18] = [
    ("ratewright-core", &[]),
    ("ratewright-telemetry", &["ratewright-core"]),
    ("ratewright-store", &["ratewright-core", "ratewright-lab", "ratewright-store", "ratewright-telemetry"]),
    ("ratewright-http", &["ratewright-core", "ratewright-telemetry"]),
    ("ratewright-client", &["ratewright-core", "ratewright-http", "ratewright-lab", "ratewright-store"]),
    (
        "ratewright-config",
        &[
            "ratewright-config",
            "ratewright-core",
            "ratewright-http",
            "ratewright-rls-rules",
            "ratewright-store",
            "ratewright-telemetry",
        ],
    ),
    ("ratewright-rls-rules", &["ratewright-core", "ratewright-lab", "ratewright-telemetry"]),
    ("ratewright-listen", &["ratewright-lab"]),
    (
        "ratewright-server",
        &[
            "ratewright-core",
            "ratewright-http",
            "ratewright-lab",
            "ratewright-listen",
            "ratewright-store",
            "ratewright-telemetry",
        ],
    ),
    (
        "ratewright-tower",
        &["ratewright-core", "ratewright-http", "ratewright-lab", "ratewright-store", "ratewright-tower"],
    ),
    (
        "ratewright-rls",
        &[
            "ratewright-core",
            "ratewright-lab",
            "ratewright-listen",
            "ratewright-rls-rules",
            "ratewright-store",
        ],
    ),
    (
        "ratewright-example-axum",
        &["ratewright-core", "ratewright-http", "ratewright-lab", "ratewright-store", "ratewright-tower"],
    ),
    (
        "ratewright-gateway",
        &[
            "ratewright-core",
            "ratewright-http",
            "ratewright-lab",
            "ratewright-listen",
            "ratewright-store",
            "ratewright-telemetry",
            "ratewright-tower",
        ],
    ),
    (
        "ratewright",
        &[
            "ratewright-client",
            "ratewright-config",
            "ratewright-core",
            "ratewright-gateway",
            "ratewright-http",
            "ratewright-lab",
            "ratewright-listen",
            "ratewright-rls",
            "ratewright-rls-rules",
            "ratewright-server",
            "ratewright-sim",
            "ratewright-store",
            "ratewright-telemetry",
            "ratewright-tower",
        ],
    ),
    (
        "ratewright-sim",
        &[
            "ratewright-config",
            "ratewright-core",
            "ratewright-http",
            "ratewright-store",
            "ratewright-telemetry",
        ],
    ),
    (
        "ratewright-bench",
        &["ratewright-client", "ratewright-core", "ratewright-lab", "ratewright-rls", "ratewright-store"],
    ),
    ("ratewright-book", &["ratewright-core", "ratewright-store"]),
    ("ratewright-lab", &[]),
];

/// All that the model may see of others: no I/O, no clock, no wire.
const IN_CORE: [&str; 8] =
    ["aho-corasick", "arc-swap", "ipnet", "siphasher", "smallvec", "thiserror", "expect-test", "proptest"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The names of each crate's dependencies.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    crates
        .chain(["bench", "book", "lab", "examples/axum"].map(|folder| root().join(folder)))
        .map(|folder| dependencies_of(&folder))
        .collect()
}

fn dependencies_of(folder: &Path) -> (String, BTreeSet<String>) {
    let manifest: Table = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
    assert!(!manifest.contains_key("target"), "dependencies of one platform only would escape these tests");
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let names =
        tables.iter().filter_map(|table| manifest.get(*table)?.as_table()).flat_map(Table::keys).cloned();
    (manifest["package"]["name"].as_str().unwrap().to_owned(), names.collect())
}

#[test]
fn dependencies_go_one_way() {
    let allowed = BTreeMap::from(ARROWS);
    for (name, dependencies) in dependencies() {
        let allowed =
            allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} is new: give it its arrows here"));
        for ours in dependencies.iter().filter(|name| name.starts_with("ratewright")) {
            assert!(allowed.contains(&ours.as_str()), "{name} must not depend on {ours}");
        }
    }
}

#[test]
fn the_model_sees_no_io_no_clock_and_no_wire() {
    for seen in &dependencies()["ratewright-core"] {
        assert!(IN_CORE.contains(&seen.as_str()), "ratewright-core must not depend on {seen}");
    }
}

#[test]
fn the_rules_of_envoy_see_no_wire_and_no_file() {
    let manifest: Table = std::fs::read_to_string(root().join("crates/ratewright-rls-rules/Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let seen: Vec<_> = manifest["dependencies"].as_table().unwrap().keys().collect();
    assert_eq!(seen, ["ratewright-core", "ratewright-telemetry", "smallvec", "thiserror"]);
}

/// The packages that a program builds which depends on this one, with all of the package's features.
fn built_with(package: &str, features: &str) -> BTreeSet<String> {
    // Offline: what it reads was built with these tests, and a test must not wait for a registry.
    let arguments = ["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format"];
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["{p}", "--package", package, "--features", features]);
    let cargo = output(cargo.current_dir(root()));
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let lines = String::from_utf8(cargo.stdout).unwrap();
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// docs/decisions/0033-memory-without-redis.md: mio and socket2 are what sockets of tokio need.
#[test]
fn a_program_that_limits_in_memory_builds_no_redis_no_tls_and_no_server() {
    for package in ["ratewright-store", "ratewright-tower"] {
        let built = built_with(package, "");
        assert!(built.contains("ratewright-store"), "{built:?}");
        let cryptography = ["aws-lc-rs", "aws-lc-sys", "jsonwebtoken"];
        let servers = ["redis", "rustls", "tokio-rustls", "hyper", "axum", "mio", "socket2"];
        for other in servers.iter().chain(&cryptography) {
            assert!(!built.contains(*other), "{package} must not bring {other}");
        }
    }
    let with_axum = built_with("ratewright-tower", "axum");
    assert!(with_axum.contains("axum") && !with_axum.contains("aws-lc-sys"), "{with_axum:?}");
    assert!(built_with("ratewright-tower", "jwt").contains("jsonwebtoken"));
}

/// The most names at the root of a crate: what a reader of its documentation sees at once.
const ROOT_NAMES_MAX: usize = 20;

/// The names that a crate's root offers: modules, items and re-exports. Hidden ones do not count.
fn root_names(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let pieces: Vec<&str> = source.split("\npub ").collect();
    for pair in pieces.windows(2) {
        let (before, item) = (pair[0], pair[1]);
        if before.ends_with("#[doc(hidden)]") {
            continue;
        }
        let (kind, rest) = item.split_once(' ').unwrap_or_default();
        if kind == "use" {
            let paths = rest.split(';').next().unwrap_or_default();
            let leaves = paths.split(['{', '}', ',']).map(str::trim);
            let leaves = leaves.filter(|path| !path.is_empty() && !path.ends_with("::"));
            names.extend(leaves.filter_map(|path| path.rsplit([':', ' ']).next()).map(str::to_owned));
        } else {
            names.extend(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned));
        }
    }
    names
}

/// A user who wants policies only must not compile a runtime, a server or Redis; the feature `memory` brings the store.
#[test]
fn the_policy_file_needs_no_runtime_no_server_and_no_store() {
    let manifest: Table =
        std::fs::read_to_string(root().join("crates/ratewright-config/Cargo.toml")).unwrap().parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    for name in
        ["tokio", "hyper", "axum", "rustls", "redis", "tracing", "ratewright-gateway", "ratewright-listen"]
    {
        assert!(!dependencies.contains_key(name), "ratewright-config must not depend on {name}");
    }
    let is_optional = dependencies["ratewright-store"].get("optional").and_then(toml::Value::as_bool);
    assert_eq!(is_optional, Some(true), "the store is for the feature `memory` only");
    assert!(!manifest["features"].as_table().unwrap().contains_key("default"));
}

/// Only the program opens files and reads the environment.
#[test]
fn the_policy_file_crate_opens_nothing() {
    for path in files_in("crates/ratewright-config/src") {
        let text = std::fs::read_to_string(&path).unwrap();
        for forbidden in ["std::fs", "std::env", "File::open", "std::net::Tcp", "std::process"] {
            assert!(!text.contains(forbidden), "{} has {forbidden}", path.display());
        }
    }
}

#[test]
fn a_crates_root_has_at_most_20_names() {
    let example = "//! a\npub mod m;\n#[doc(hidden)]\npub mod h;\npub use a::{b::{C, D as E}, f};\npub use g;\npub fn n() {}\n";
    assert_eq!(root_names(example).into_iter().collect::<Vec<_>>(), ["C", "E", "f", "g", "m", "n"]);
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let names = root_names(&std::fs::read_to_string(folder.join("src/lib.rs")).unwrap());
        assert!(
            names.len() <= ROOT_NAMES_MAX,
            "{name} has {} names at its root: group them into modules: {names:?}",
            names.len()
        );
    }
}

/// The crates that `make package` names, and those that a user can depend on.
#[test]
fn every_crate_is_published_with_a_readme_and_metadata() {
    let makefile = text("Makefile").replace("\\\n", " ");
    let listed = makefile.lines().find_map(|line| line.strip_prefix("PUBLISHED = ")).unwrap();
    let listed: BTreeSet<&str> = listed.split_whitespace().collect();
    let crates: Vec<_> =
        std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let names: BTreeSet<&str> =
        crates.iter().map(|folder| folder.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(listed, names, "PUBLISHED in the Makefile");
    for folder in &crates {
        let manifest: Table = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let package = manifest["package"].as_table().unwrap();
        for key in ["description", "license", "readme", "keywords", "categories", "rust-version"] {
            assert!(package.contains_key(key), "{} has no {key}", folder.display());
        }
        let readme = folder.join(package["readme"].as_str().unwrap());
        assert!(readme.is_file(), "{} is missing", readme.display());
    }
}

/// `rust-version` is what is promised, the toolchain file what is tested: the two must not drift apart unnoticed. Only this
/// toolchain is tested, so the promise is this version; clippy's `incompatible_msrv` reads it too.
#[test]
fn the_oldest_rust_is_the_one_that_is_tested_and_the_docs_name_it() {
    let manifest: Table = text("Cargo.toml").parse().unwrap();
    let promised = manifest["workspace"]["package"]["rust-version"].as_str().unwrap().to_owned();
    let toolchain: Table = text("rust-toolchain.toml").parse().unwrap();
    let tested = toolchain["toolchain"]["channel"].as_str().unwrap();
    assert!(tested.starts_with(&format!("{promised}.")), "{promised} is promised, {tested} is tested");
    for page in ["README.md", "CONTRIBUTING.md", "docs/operations/install.md"] {
        assert!(text(page).contains(&format!("Rust {promised}")), "{page} does not name Rust {promised}");
    }
    assert!(
        text("Dockerfile").contains(&format!("FROM rust:{promised}-")),
        "the image is built with Rust {promised}"
    );
}

#[test]
fn the_architecture_page_names_every_crate_and_only_paths_that_exist() {
    let page = text("ARCHITECTURE.md");
    for name in dependencies().keys() {
        assert!(page.contains(name.as_str()), "ARCHITECTURE.md does not name {name}");
    }
    for path in quoted_paths(&page) {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
    }
}

#[test]
fn the_architecture_page_has_at_most_1500_words() {
    let n_words = text("ARCHITECTURE.md").split_whitespace().count();
    assert!(
        n_words <= 1_500,
        "ARCHITECTURE.md has {n_words} words: move reasons to docs/decisions, details to their modules"
    );
}

/// The text of a file, by its path from the root.
fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file's path from the root.
fn below_root(file: &Path) -> String {
    let root = crate::packages::root();
    file.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}

/// The paths that a page has in backticks: texts that begin with one of our folders, or end like a source file.
fn quoted_paths(page: &str) -> impl Iterator<Item = &str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| !text.contains(char::is_whitespace) && is_path(text))
}

fn is_path(text: &str) -> bool {
    let Some((first, _)) = text.split_once('/') else { return false };
    let is_folder = !first.is_empty() && root().join(first).is_dir();
    is_folder || text.ends_with(".rs") || text.ends_with(".lua")
}

const DECISIONS: &str = "docs/decisions/";

/// The headings of a decision record, in this order.
const DECISION_HEADINGS: [&str; 6] =
    ["Status", "Context", "Decision", "Alternatives", "Consequences", "Evidence"];

/// The names of the decision records' files.
fn decision_records() -> Vec<String> {
    let files = files_in(DECISIONS);
    let names = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap());
    names.filter(|name| *name != "README.md").map(str::to_owned).collect()
}

#[test]
fn every_decision_record_has_its_headings_and_a_row_in_the_index() {
    let (index, records) = (text("docs/decisions/README.md"), decision_records());
    for name in &records {
        let record = text(&format!("{DECISIONS}{name}"));
        let headings: Vec<&str> = record.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, DECISION_HEADINGS, "headings of {name}");
        let title = record.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        let (number, title) = title.split_once(' ').unwrap_or_default();
        assert!(name.starts_with(&format!("{number}-")), "{name} begins with \"# {number} {title}\"");
        let row = format!("| [{number}]({name}) | {title} | ");
        assert!(index.contains(&row), "docs/decisions/README.md has no row {row:?}");
    }
    let n_rows = index.lines().filter(|line| line.starts_with("| [")).count();
    assert_eq!(n_rows, records.len(), "rows and records of docs/decisions");
}

#[test]
fn decision_records_name_only_paths_that_exist() {
    for name in decision_records() {
        let record = text(&format!("{DECISIONS}{name}"));
        for path in quoted_paths(&record) {
            assert!(root().join(path).exists(), "{name} names {path}, which does not exist");
        }
    }
}

/// The longest line of a Markdown page, in characters.
const LINE_MAX: usize = 120;

#[test]
fn markdown_lines_have_at_most_120_characters() {
    let Some(files) = tracked() else { return };
    let long_lines_of = |page: String| {
        // A tracked file may be deleted in the working tree; the commit will say so.
        let long = long_lines(&std::fs::read_to_string(root().join(&page)).unwrap_or_default());
        (!long.is_empty()).then_some((page, long))
    };
    let pages = files.into_iter().filter(|file| file.ends_with(".md"));
    let long: Vec<_> = pages.filter_map(long_lines_of).collect();
    assert!(long.is_empty(), "lines with over {LINE_MAX} characters: {long:?}");
}

/// The numbers of the lines that are too long. Tables, headings, code, HTML and lines with nothing but a link may be longer.
fn long_lines(page: &str) -> Vec<usize> {
    let (mut long, mut is_code) = (Vec::new(), false);
    for (n, line) in page.lines().enumerate() {
        let text = line.trim_start();
        if text.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !may_be_long(text) && line.chars().count() > LINE_MAX {
            long.push(n + 1);
        }
    }
    long
}

fn may_be_long(line: &str) -> bool {
    let link = line.trim_start_matches(['-', '*', '!', ' ']);
    let is_link = link.starts_with('[') && link.ends_with([')', '.', ',']) && link.matches("](").count() == 1;
    is_link || line.starts_with(['|', '<', '#'])
}

/// Source text that marks a file as a parser.
const PARSER_MARKERS: [&str; 10] = [
    "fn parse",
    "fn decode",
    "fn from_text",
    "fn follow(&mut self, bytes",
    "impl FromStr",
    "httparse::",
    "Request::decode(",
    "from_utf8(",
    "from_str_radix(",
    "serde_json::from_",
];

/// Files that look like parsers of input from outside and need no fuzz target, with the reason.
const NOT_FUZZED: [(&str, &str); 13] = [
    ("program/admin_client", "parses the operator's command line"),
    ("server/admin", "parses operators' parameters, with the functions of server/rest"),
    ("program/access_log", "writes"),
    ("program/upgrade", "reads a line of a process of the same user"),
    ("server/response", "writes"),
    ("listen/parse_errors", "recognises what hyper writes"),
    ("server/access_control", "compares a host and an origin with the names of loopback"),
    (
        "gateway/cors/origin",
        "parses the operator's policy file; a request's Origin is only compared, by a property test",
    ),
    (
        "store/redis/script_codec",
        "reads replies of our own script; `stored.rs` feeds it states that nobody wrote",
    ),
    ("gateway/fuzzing", "contains the fuzz targets' laws"),
    ("rls/fuzzing", "contains the fuzz targets' laws"),
    ("sim/suggest/share", "parses the operator's command line"),
    ("sim/report/schema_tests", "reads our own schemas, in tests"),
];

/// True if a module path from the docs covers a file: gateway/framing_guard covers crates/ratewright-gateway/src/framing_guard.rs and
/// framing_guard/.
fn is_covered(file: &str, module_path: &str) -> bool {
    let (crate_name, module) = module_path.split_once('/').unwrap_or((module_path, ""));
    let folder =
        if crate_name == "program" { "ratewright".to_owned() } else { format!("ratewright-{crate_name}") };
    let prefix = format!("crates/{folder}/src/{module}");
    let rest = file.strip_prefix(&prefix);
    rest.is_some_and(|rest| module.is_empty() || rest == ".rs" || rest.starts_with('/'))
}

/// The table of fuzz targets in docs/operations/reliability.md: each target with its parsers and the number of executions.
fn fuzz_table() -> BTreeMap<String, (Vec<String>, String)> {
    let page = std::fs::read_to_string(root().join("docs/operations/reliability.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| target | parsers |")).skip(2);
    let unquoted = |text: &str| text.trim().trim_matches('`').to_owned();
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let parsers = cells[1].split(',').map(unquoted).collect();
        (unquoted(cells[0]), (parsers, cells[3].trim().to_owned()))
    });
    rows.collect()
}

#[test]
fn every_parser_has_a_fuzz_target_and_every_target_is_in_the_docs() {
    let table = fuzz_table();
    let named = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        entries.map(|entry| stem(entry.unwrap().path())).collect()
    };
    let targets: BTreeSet<String> = table.keys().cloned().collect();
    assert_eq!(
        named("fuzz/targets"),
        targets,
        "targets in docs/operations/reliability.md differ from fuzz/targets"
    );
    assert_eq!(
        named("fuzz/seeds"),
        targets,
        "`make fuzz` runs only targets with seeds: fuzz/seeds differs from the docs"
    );
    let manifest: Table = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap().parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap().iter().map(|bin| bin["name"].as_str().unwrap().to_owned());
    assert_eq!(bins.collect::<BTreeSet<_>>(), targets, "targets in fuzz/Cargo.toml differ from the docs");
    for (target, (_, executions)) in &table {
        let n: u64 = executions.replace(',', "").parse().unwrap_or(0);
        assert!(n > 100_000, "{target}: only {executions} executions, at least 100,000 expected");
    }

    let files: Vec<String> = files_in("crates").iter().map(|file| below_root(file)).collect();
    let sources = || files.iter().filter(|file| file.contains("/src/"));
    let fuzzed: Vec<&str> = table.values().flat_map(|(parsers, _)| parsers).map(String::as_str).collect();
    for by in fuzzed.iter().copied().chain(NOT_FUZZED.map(|(by, _)| by)) {
        assert!(
            sources().any(|file| is_covered(file, by)),
            "no source file for {by}: fix docs/operations/reliability.md or NOT_FUZZED"
        );
    }
    for file in sources().filter(|file| file.ends_with(".rs") && !file.contains("/generated/")) {
        let text = text(file);
        let without_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let Some(marker) = PARSER_MARKERS.iter().find(|marker| without_tests.contains(**marker)) else {
            continue;
        };
        let is_listed =
            fuzzed.iter().copied().chain(NOT_FUZZED.map(|(by, _)| by)).any(|by| is_covered(file, by));
        let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
        assert!(
            is_listed || is_test,
            "parser without fuzz target: {file} contains {marker:?}; add a target, or add the file to NOT_FUZZED with a reason"
        );
    }
}

/// B7: a user can name every module that logs.
#[test]
fn every_crate_that_logs_is_named_in_the_reference_of_log_modules() {
    let reference = std::fs::read_to_string(root().join("docs/reference/configuration.md")).unwrap();
    let modules = reference.lines().find(|line| line.starts_with("| `modules` |")).unwrap();
    // The book's tool only listens to what mdBook logs.
    for (name, dependencies) in dependencies().into_iter().filter(|(name, _)| name != "ratewright-book") {
        let (module, logs) = (name.replace('-', "_"), dependencies.contains("tracing"));
        assert_eq!(modules.contains(&format!("`{module}`")), logs, "{module}");
    }
}

/// A lock file that names where packages come from would send every user there.
#[test]
fn the_lock_of_the_typescript_client_names_no_registry() {
    let lock = std::fs::read_to_string(root().join("clients/typescript/package-lock.json")).unwrap();
    assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""));
}

#[test]
fn the_old_name_is_in_no_file_but_one_line_of_the_changelog() {
    let old_name = ["toll", "gate"].concat();
    let has_it =
        |text: &[u8]| text.to_ascii_lowercase().windows(old_name.len()).any(|w| w == old_name.as_bytes());
    let Some(files) = tracked() else { return };
    let mut lines = Vec::new();
    for file in files {
        assert!(!has_it(file.as_bytes()), "{file} has the old name");
        // A tracked file may be deleted in the working tree; the commit will say so.
        let text = std::fs::read(root().join(&file)).unwrap_or_default();
        let in_lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| has_it(line));
        lines.extend(in_lines.map(|(n, _)| format!("{file}:{}", n + 1)));
    }
    assert!(
        matches!(lines.as_slice(), [line] if line.starts_with("CHANGELOG.md:")),
        "the old name is only for the changelog, once: {lines:?}"
    );
}

#[test]
fn the_readme_opens_with_what_ratewright_is() {
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert_eq!(
        page.lines().next().unwrap(),
        "# Ratewright: exact rate limiting for HTTP APIs. A gateway, a decision service, Envoy's rate limit service \
         and a tower layer on one engine."
    );
}
