//! What `/openapi.json` says, held against what the program does: schemathesis makes requests of it, sound and unsound
//! ones, and looks at each answer.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process::Ratewright;

/// Some requests are allowed, some denied, and some cannot be counted.
const POLICIES: &str = "
api: {defaults: {token_bucket: {rate: 5/s, burst: 5}, fixed_window: {rate: 5/s}}}
policies:
- {name: all, quota: {rate: 10/s, burst: 10}}
- {name: login, by: ip, quota: [{rate: 1/6s, burst: 10}, {name: minute, algorithm: sliding_window, rate: 10/min}]}
- {name: strict, when: {path: '/**'}, by: 'header:X-Api-Key', missing: deny, quota: {rate: 1/h}}
";

/// All that it checks, except that what fits the schema is accepted: a schema cannot say which policies there are, that two
/// parameters exclude each other, or what a receipt holds.
#[test]
fn the_program_does_what_its_description_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let program = root.join("target/venv/bin/schemathesis");
    assert!(program.exists(), "schemathesis is missing; `make deps` installs it");
    let (ratewright, folder) = (Ratewright::start(POLICIES), TempDir::new().unwrap());
    let output = Command::new(program)
        .args(["run", &format!("http://{}/openapi.json", ratewright.address), "--no-color", "--seed", "17"])
        .args(["--max-examples", "60", "--request-timeout", "10", "--suppress-health-check", "all"])
        .args(["--exclude-checks", "positive_data_acceptance", "--continue-on-failure"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.contains("Tested: 8"), "all calls are described: {report}");
    for verdict in ["allowed", "denied"] {
        let series = format!(
            r#"ratewright_decisions_total{{policy="all",verdict="{verdict}",basis="local",mode="enforce"}}"#
        );
        assert!(ratewright.metric(&series) > 0.0, "some are {verdict}");
    }
    let refused =
        r#"ratewright_decisions_total{policy="strict",verdict="denied",basis="none",mode="enforce"}"#;
    assert!(ratewright.metric(refused) > 0.0, "some cannot be counted");
}
