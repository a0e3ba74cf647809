//! The tarball: `deploy/dist`.

use std::path::Path;
use std::process::Command;

use expect_test::expect;
use tempfile::TempDir;

use super::{BINARY, root, run};

fn make(folder: &Path) -> String {
    let mut dist = Command::new(root().join("deploy/dist"));
    // A binary that is not optimised is large.
    let name = run(dist.arg(BINARY).arg(folder).arg("--fast").env("SOURCE_DATE_EPOCH", "1700000000"));
    name.trim().to_owned()
}

#[test]
fn the_tarball_has_the_program_its_pages_and_licences_and_runs() {
    let folder = TempDir::new().unwrap();
    let name = make(folder.path());
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet"])
        .arg(format!("{name}.sha256"))
        .current_dir(&folder));
    let listed = run(Command::new("tar").args(["--list", "--gzip", "--file", &name]));
    let (top, _) = listed.split_once("/\n").unwrap();
    let names: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix(top)).collect();
    for name in [
        "/CHANGELOG.md",
        "/LICENCES-OF-CRATES.txt",
        "/LICENSE-APACHE",
        "/LICENSE-MIT",
        "/README.md",
        "/completions/_ratewright",
        "/completions/ratewright",
        "/completions/ratewright.fish",
        "/docs/operations/install.md",
        "/examples/ratewright.yaml",
        "/man/ratewright-health.1",
        "/man/ratewright.1",
        "/ratewright",
        "/systemd/ratewright.service",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:#?}");
    }
    let details = run(Command::new("tar").args([
        "--list",
        "--verbose",
        "--numeric-owner",
        "--utc",
        "--full-time",
        "--gzip",
        "--file",
        &name,
    ]));
    for line in details.lines() {
        assert!(line.contains(" 0/0 ") && line.contains(" 2023-11-14 22:13:20 "), "{line}");
    }

    run(Command::new("tar").args(["--extract", "--gzip", "--file", &name]).current_dir(&folder));
    let unpacked = folder.path().join(top);
    let version = run(Command::new(unpacked.join("ratewright")).arg("-V"));
    assert_eq!(version, format!("ratewright {}\n", env!("CARGO_PKG_VERSION")));
    let meaning =
        run(Command::new("./ratewright").args(["check", "examples/ratewright.yaml"]).current_dir(&unpacked));
    expect![[r#"
        examples/ratewright.yaml is valid; buckets in memory
          no policies: only keys that callers name are limited, by the defaults
    "#]]
    .assert_eq(&meaning);
}

#[test]
fn the_same_binary_makes_the_same_tarball() {
    let folders = [(); 2].map(|()| TempDir::new().unwrap());
    let [first, second] = folders.each_ref().map(|folder| std::fs::read(make(folder.path())).unwrap());
    assert!(first == second, "the tarballs differ");
}
