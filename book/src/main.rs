//! `cargo run -p ratewright-book`: builds the book into target/book, and reports broken links.

use std::path::Path;
use std::process::ExitCode;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to a terminal")]
fn main() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder of the repository");
    let folder = root.join("target/book");
    match ratewright_book::build(root, &folder) {
        Ok(problems) if problems.is_empty() => {
            println!("{}", folder.join("index.html").display());
            ExitCode::SUCCESS
        }
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("error: {problem}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
