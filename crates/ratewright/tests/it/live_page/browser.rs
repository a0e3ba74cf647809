//! The page in Chromium: runs the tests of `tests/browser`.

use std::path::Path;
use std::time::Duration;

use ratewright_lab::{foreign, output_within, skip, skip_here};

#[test]
fn the_page_works_in_a_browser() {
    if !Path::new("/usr/bin/chromium").exists() {
        return skip("Chromium is not installed; `make deps` installs it");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = ["page.test.mjs", "curl.test.mjs", "other_sites.test.mjs"]
        .map(|name| folder.join("tests/browser").join(name));
    let mut command = foreign(folder.join("../../.ci/node"));
    // Without a terminal, Node 20 would write TAP.
    command
        .args(["node", "--test", "--test-reporter=spec"])
        .args(scripts)
        .env("RATEWRIGHT", env!("CARGO_BIN_EXE_ratewright"));
    let output = output_within(Duration::from_secs(110), &mut command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    // What node skipped: indented below its `describe`.
    out.lines().map(str::trim_start).filter(|line| line.starts_with('\u{fe63}')).for_each(skip_here);
}
