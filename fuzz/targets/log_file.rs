//! Whatever a log file holds, compressed or not: it is an error, or every line of it is counted exactly once.
#![no_main]

use std::io::Cursor;
use std::sync::LazyLock;

use ratewright_core::query::AttributeName;
use ratewright_core::{Policies, Policy, Quota};
use ratewright_sim::{Log, SimulatedFile, SimulationSettings, simulate};

static POLICIES: LazyLock<Policies> = LazyLock::new(|| {
    let policy = Policy::new("per-ip", Quota::per_second(1)).expect("a valid name");
    Policies::new(vec![policy.by(&[AttributeName::Ip])]).expect("one policy")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let file = SimulatedFile::new("fuzz", POLICIES.clone());
    let mut settings = SimulationSettings::default();
    settings.n_bytes_max = 1 << 20;
    let logs = vec![Log::once("fuzz", None, Cursor::new(data.to_vec()))];
    let Ok(report) = simulate(file, None, logs, &settings, &mut |_| {}) else { return };
    let n_counted = report.requests + report.unreadable + report.lines_without_request + report.out_of_order;
    assert_eq!(report.lines, n_counted, "each line is counted once");
    assert_eq!(report.requests, report.allowed + report.denied);
    let text = report.to_text();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "no control characters on the terminal");
    let page = report.to_html("fuzz");
    assert!(!page.contains("<script"), "no script in the page");
});
