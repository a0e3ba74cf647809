//! The page in Chromium: runs the tests of `tests/browser`.

use std::path::Path;
use std::process::Command;

use ratewright_lab::skip;

#[test]
fn the_page_works_in_a_browser() {
    if !Path::new("/usr/bin/chromium").exists() {
        return skip("Chromium is not installed; `make deps` installs it");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scripts = ["page.test.mjs", "curl.test.mjs"].map(|name| folder.join("tests/browser").join(name));
    let mut command = Command::new(folder.join("../../.ci/node"));
    command.args(["node", "--test"]).args(scripts).env("RATEWRIGHT", env!("CARGO_BIN_EXE_ratewright"));
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}
