//! Commands that are not run, because they install something, need Docker or take long; and links.

use std::process::Command;

use ratewright_lab::output;

use super::PAGES;
use crate::docs::markdown::{blocks, headings};
use crate::docs::page;
use crate::packages::{root, text_of};

/// D4: shell commands that are not run here are well-formed, and name packages, tests, targets and images that exist.
#[test]
fn d4_the_commands_for_tests_name_tests_that_exist() {
    let page = page(PAGES[0]);
    let (makefile, compose, workspace) =
        (text_of("Makefile"), text_of("docker-compose.yaml"), text_of("Cargo.toml"));
    let mut n_tests = 0;
    for block in blocks(&page).iter().filter(|block| block.language == "sh") {
        let parsed = output(Command::new("sh").args(["-n", "-c", block.text]));
        assert!(parsed.status.success(), "{}", block.text);
        for line in block.text.lines().map(|line| line.split(" #").next().unwrap().trim()) {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["make", target] => assert!(makefile.contains(&format!("\n{target}:")), "{line}"),
                ["cargo", "test", "-p", package] => {
                    assert!(root().join("crates").join(package).is_dir(), "{line}")
                }
                ["cargo", "test", "-p", package, "--test", "it", filter] => {
                    let file = format!(
                        "crates/{package}/tests/it/{}.rs",
                        filter.trim_end_matches("::").replace("::", "/")
                    );
                    assert!(root().join(file).is_file(), "{line}");
                    n_tests += 1;
                }
                ["docker", "run", .., image] if image.starts_with("redis:") => {
                    assert!(compose.contains(&format!("image: {image}\n")), "{line}");
                }
                ["docker", "run", .., image, "sh", "-c", "\\"] => {
                    let version = image.strip_prefix("rust:").unwrap();
                    assert!(workspace.contains(&format!("rust-version = \"{version}\"")), "{line}");
                }
                ["REDIS_URL=redis://127.0.0.1:6379", "ratewright", "serve", "-c", file] => {
                    assert!(text_of(file).contains("${REDIS_URL:-"), "{line}");
                }
                _ => assert!(
                    ["redis-server", "mkdir", "python3", "cargo", "ratewright", "\"apt-get"]
                        .contains(&words[0]),
                    "{line}"
                ),
            }
        }
    }
    assert!(n_tests > 4, "{n_tests} commands");
}

/// D8: links lead to files and headings that exist, from the README and the architecture page too.
#[test]
fn d8_link_targets_exist() {
    for name in PAGES {
        let page_text = page(name);
        for target in page_text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let text =
                if file.is_empty() { page_text.clone() } else { text_of(&format!("docs/guides/{file}")) };
            let anchors: Vec<_> = headings(&text).iter().map(|(_, heading)| anchor_of(heading)).collect();
            assert!(anchor.is_empty() || anchors.iter().any(|known| known == anchor), "{name}: {target}");
        }
        for from in ["README.md", "ARCHITECTURE.md"] {
            assert!(text_of(from).contains(&format!("(docs/{name})")), "{from} has no link to {name}");
        }
    }
}

/// What GitHub makes of a heading.
fn anchor_of(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.replace(' ', "-")
}
