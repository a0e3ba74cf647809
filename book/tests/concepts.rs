//! The pages in docs/concepts: their numbers are the engine's, and the tests that they name exist.

use std::path::Path;

use ratewright_book::plots::first_hour::{self, HOUR};
use ratewright_book::plots::window_edge::{self, Traffic};
use ratewright_core::Micros;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder of the repository")
}

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect(path)
}

/// The tables of the guide are calculated by the engine in a test of the program.
#[test]
fn the_worked_examples_are_those_of_the_guide() {
    let (concepts, guide) = (page("docs/concepts/algorithms.md"), page("docs/guides/rate-limiting.md"));
    let examples: Vec<_> = concepts.split("\nQuota: ").skip(1).collect();
    assert_eq!(examples.len(), 6, "an example for each algorithm, and for a bucket that refills in steps");
    for example in examples {
        let example = example.splitn(3, "\n\n").take(2).collect::<Vec<_>>().join("\n\n");
        assert!(guide.contains(&format!("\nQuota: {example}\n\n")), "not in rate-limiting.md: {example}");
    }
}

#[test]
fn the_pages_name_the_figures_numbers() {
    let algorithms = page("docs/concepts/algorithms.md");
    let runs = window_edge::runs();
    for run in runs.iter().filter(|run| run.traffic == Traffic::TwoBursts) {
        let keeps_trying = |other: &&window_edge::Run| {
            other.algorithm == run.algorithm && other.traffic == Traffic::KeepsTrying
        };
        let other = runs.iter().find(keeps_trying).unwrap();
        let row = format!(
            "| `{}` | {} | {} |",
            run.algorithm.name(),
            run.most_in_a_minute(),
            other.most_in_a_minute()
        );
        assert!(algorithms.contains(&row), "docs/concepts/algorithms.md lacks {row}");
    }
    let choosing = page("docs/concepts/choosing-an-algorithm.md");
    for (run, quota) in first_hour::runs().iter().zip([
        "`{ rate: 100/h }`",
        "`{ rate: 100/h, burst: 20 }`",
        "`{ algorithm: sliding_window, rate: 100/h }`",
        "`{ rate: 100/h, burst: 20 }` and the sliding window",
    ]) {
        let (at_once, in_hour) = (run.n_allowed_before(Micros::new(1)), run.n_allowed_before(HOUR));
        let row = format!("| {quota} | {at_once} | {in_hour}");
        assert!(choosing.contains(&row), "docs/concepts/choosing-an-algorithm.md lacks {row}");
    }
}

/// Names of tests have at least three underscores, or end with `_agree`.
#[test]
fn the_tests_and_files_that_the_pages_name_exist() {
    let tests = root().join("crates/ratewright-store/tests/it");
    let files = std::fs::read_dir(tests).unwrap().map(|entry| entry.unwrap().path());
    let code: String =
        files.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let mut n_named = 0;
    for name in ["atomic-step", "algorithms", "choosing-an-algorithm", "exactness", "without-redis"] {
        let page = page(&format!("docs/concepts/{name}.md"));
        for line in page.lines() {
            for quoted in line.split('`').skip(1).step_by(2) {
                let is_test = quoted.matches('_').count() >= 3 || quoted.ends_with("_agree");
                if is_test && quoted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
                {
                    n_named += 1;
                    let is_there = code.contains(&format!("fn {quoted}("))
                        || code.contains(&format!("    {quoted}: Algorithm::"));
                    assert!(is_there, "{name}.md names {quoted}, which is not a test of the store");
                }
                if quoted.starts_with("crates/") {
                    assert!(root().join(quoted).exists(), "{name}.md names {quoted}");
                }
            }
        }
    }
    assert!(n_named > 15, "{n_named} tests");
}
