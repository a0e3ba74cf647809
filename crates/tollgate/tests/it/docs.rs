//! The pages say what the program does.

use std::path::Path;

use expect_test::expect_file;

use crate::process::run;

const BEGIN: &str = "<!-- reference -->\n";
const END: &str = "<!-- end of reference -->\n";

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

/// With UPDATE_EXPECT=1 the page is written anew.
#[test]
fn the_page_on_configuration_has_the_reference_that_the_program_prints() {
    let output = run(&["schema", "--reference"]);
    let reference = String::from_utf8(output.stdout).unwrap();
    let page = page();
    let (before, rest) = page.split_once(BEGIN).expect("a place for the reference");
    let (_, after) = rest.split_once(END).expect("an end of the reference");
    let made = format!("{before}{BEGIN}\n{reference}{END}{after}");
    expect_file!["../../../../docs/configuration.md"].assert_eq(&made);
}

#[test]
fn every_file_on_the_page_on_configuration_is_sound() {
    let page = page();
    let files: Vec<_> = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(files.len() > 8, "{} files", files.len());
    for file in files {
        assert_eq!(tollgate::understand(file), Ok(()), "{file}");
    }
}
