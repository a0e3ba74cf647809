//! The house rules that a machine can check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::Table;

/// Who may depend on whom, among our own. Development dependencies count too.
const ARROWS: [(&str, &[&str]); 13] = [
    ("tollgate-core", &[]),
    ("tollgate-store", &["tollgate-core", "tollgate-lab"]),
    ("tollgate-http", &["tollgate-core"]),
    ("tollgate-envoy", &["tollgate-core"]),
    ("tollgate-listen", &[]),
    ("tollgate-server", &["tollgate-core", "tollgate-http", "tollgate-listen", "tollgate-store"]),
    ("tollgate-tower", &["tollgate-core", "tollgate-http", "tollgate-store"]),
    ("tollgate-grpc", &["tollgate-core", "tollgate-envoy", "tollgate-listen", "tollgate-store"]),
    ("tollgate-example-axum", &["tollgate-core", "tollgate-http", "tollgate-store", "tollgate-tower"]),
    (
        "tollgate-gateway",
        &[
            "tollgate-core",
            "tollgate-http",
            "tollgate-lab",
            "tollgate-listen",
            "tollgate-store",
            "tollgate-tower",
        ],
    ),
    (
        "tollgate",
        &[
            "tollgate-core",
            "tollgate-envoy",
            "tollgate-gateway",
            "tollgate-grpc",
            "tollgate-http",
            "tollgate-lab",
            "tollgate-listen",
            "tollgate-server",
            "tollgate-store",
            "tollgate-tower",
        ],
    ),
    ("tollgate-bench", &["tollgate-core", "tollgate-grpc", "tollgate-lab", "tollgate-store"]),
    ("tollgate-lab", &[]),
];

/// All that the model may see of others: no I/O, no clock, no wire.
const IN_CORE: [&str; 7] =
    ["aho-corasick", "arc-swap", "ipnet", "siphasher", "smallvec", "thiserror", "expect-test"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The names of each crate's dependencies.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    crates
        .chain(["bench", "lab", "examples/axum"].map(|folder| root().join(folder)))
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
        for ours in dependencies.iter().filter(|name| name.starts_with("tollgate")) {
            assert!(allowed.contains(&ours.as_str()), "{name} must not depend on {ours}");
        }
    }
}

#[test]
fn the_model_sees_no_io_no_clock_and_no_wire() {
    for seen in &dependencies()["tollgate-core"] {
        assert!(IN_CORE.contains(&seen.as_str()), "tollgate-core must not depend on {seen}");
    }
}

#[test]
fn the_rules_of_envoy_see_no_wire_and_no_file() {
    let manifest: Table =
        std::fs::read_to_string(root().join("crates/tollgate-envoy/Cargo.toml")).unwrap().parse().unwrap();
    let seen: Vec<_> = manifest["dependencies"].as_table().unwrap().keys().collect();
    assert_eq!(seen, ["smallvec", "thiserror", "tollgate-core"]);
}

#[test]
fn the_layer_has_no_store_and_no_server() {
    let manifest: Table =
        std::fs::read_to_string(root().join("crates/tollgate-tower/Cargo.toml")).unwrap().parse().unwrap();
    for name in manifest["dependencies"].as_table().unwrap().keys() {
        assert!(
            !["tollgate-store", "hyper", "axum", "redis"].contains(&name.as_str()),
            "it must not depend on {name}"
        );
    }
}

#[test]
fn the_architecture_page_names_every_crate_and_only_paths_that_exist() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for name in dependencies().keys() {
        assert!(page.contains(name.as_str()), "ARCHITECTURE.md does not name {name}");
    }
    let quoted = page.split('`').skip(1).step_by(2);
    for path in quoted.filter(|text| text.contains('/') && (text.ends_with(".rs") || text.ends_with('/'))) {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which does not exist");
    }
}

#[test]
fn no_file_speaks_of_the_machine_it_was_written_on() {
    let home = std::env::home_dir().unwrap_or_default();
    let (root, home) = (root().display().to_string(), home.display().to_string());
    for file in
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "bench/README.md"]
    {
        let text = std::fs::read_to_string(Path::new(&root).join(file)).unwrap();
        assert!(
            !text.contains(&root) && (home.len() < 2 || !text.contains(&home)),
            "{file} names a path of this machine"
        );
    }
}
