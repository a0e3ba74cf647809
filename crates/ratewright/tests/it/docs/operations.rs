//! The pages on production and on Kubernetes.

use expect_test::expect_file;
use ratewright_lab::Prometheus;
use tempfile::TempDir;

use super::transcript::{Stage, replay};
use super::{Site, files, page, replaced};
use crate::packages::{has, root};
use crate::process::Ratewright;

const KUBERNETES: &str = "guides/kubernetes.md";

/// D7, E2, E4, E6: each command on the page is run, in order. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn d7_e2_e4_e6_the_page_on_operations_shows_what_an_operator_sees() {
    let page = page("operations/production.md");
    let folder = TempDir::new().unwrap();
    let site = Site::start(folder.path());
    let common = Ratewright::start(&replaced(files(&page)[0], "127.0.0.1:3000", &site.1));
    let made: String = sections(&page)
        .map(|section| match section.lines().next() {
            Some("## Watching") => replay_monitoring(section),
            Some("## Roll back") => replay_rollback(section),
            _ => replay(section, &Stage::new(&common, common.file().parent().unwrap())),
        })
        .collect();
    expect_file!["../../../../../docs/operations/production.md"].assert_eq(&made);
}

/// D7, E2: each command on the page is run in the root of the repository. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn d7_e2_the_page_on_kubernetes_shows_what_the_commands_print() {
    if !has("kubectl") {
        return;
    }
    let ratewright = Ratewright::start("");
    let made = replay(&page(KUBERNETES), &Stage::new(&ratewright, &root()));
    expect_file!["../../../../../docs/guides/kubernetes.md"].assert_eq(&made);
}

/// With a real Prometheus.
fn replay_monitoring(section: &str) -> String {
    let (files, folder) = (files(section), TempDir::new().unwrap());
    let [scrapes, policies] = &files[..] else { panic!("{} files", files.len()) };
    assert!(scrapes.contains("job_name: ratewright"), "{scrapes}");
    let ratewright = Ratewright::start(policies);
    let prometheus = Prometheus::scraping(&ratewright.admin, "/metrics");
    let mut stage = Stage::new(&ratewright, folder.path());
    stage.addresses.push(("127.0.0.1:9090", prometheus.address()));
    replay(section, &stage)
}

fn replay_rollback(section: &str) -> String {
    let ratewright = Ratewright::start(files(section)[0]);
    replay(section, &Stage::new(&ratewright, ratewright.file().parent().unwrap()))
}

/// The parts of a page, each with its heading.
fn sections(page: &str) -> impl Iterator<Item = &str> {
    let starts = page.match_indices("\n## ").map(|(at, _)| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(starts).chain([page.len()]).collect();
    (1..starts.len()).map(move |n| page.get(starts[n - 1]..starts[n]).unwrap())
}
