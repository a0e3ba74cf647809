//! The pages say what the program does.

mod transcript;

use std::path::Path;

use expect_test::expect_file;
use tempfile::TempDir;

use crate::process::{Tollgate, run};

const BEGIN: &str = "<!-- reference -->\n";
const END: &str = "<!-- end of reference -->\n";

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// With UPDATE_EXPECT=1 the page is written anew.
#[test]
fn the_page_on_configuration_has_the_reference_that_the_program_prints() {
    let output = run(&["schema", "--reference"]);
    let reference = String::from_utf8(output.stdout).unwrap();
    let page = page("configuration.md");
    let (before, rest) = page.split_once(BEGIN).expect("a place for the reference");
    let (_, after) = rest.split_once(END).expect("an end of the reference");
    let made = format!("{before}{BEGIN}\n{reference}{END}{after}");
    expect_file!["../../../../docs/configuration.md"].assert_eq(&made);
}

#[test]
fn every_file_on_the_page_on_configuration_is_sound() {
    let page = page("configuration.md");
    let files: Vec<_> = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(files.len() > 8, "{} files", files.len());
    for file in files {
        // There is no environment here.
        let file = file.replace("${JWT_SECRET}", "a secret for tests, long enough for HS256");
        assert_eq!(tollgate::understand(&file), Ok(()), "{file}");
    }
}

/// Each command on the page is run, in order. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn the_page_on_the_api_shows_what_the_program_answers() {
    let page = page("api.md");
    let file = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (tollgate, folder) = (Tollgate::start(file), TempDir::new().unwrap());
    let described = tollgate.ask("GET", "/openapi.json").json();
    for path in described["paths"].as_object().unwrap().keys() {
        assert!(page.contains(path), "the page does not show {path}");
    }
    expect_file!["../../../../docs/api.md"].assert_eq(&transcript::replay(&page, &tollgate, folder.path()));
}
