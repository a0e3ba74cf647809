//! `cargo run -p ratewright-book` builds the book into target/book, and reports broken links. `cargo run -p ratewright-book -- plots`
//! draws the figures of docs/concepts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to a terminal")]
fn main() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder of the repository");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => build(root),
        ["plots"] => ratewright_book::plots::write(root),
        _ => Err(anyhow::anyhow!("usage: ratewright-book [plots]")),
    };
    match done {
        Ok(files) => {
            files.iter().for_each(|file| println!("{}", file.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the book, and returns its first page. Problems are an error, one on each line.
fn build(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root.join("target/book");
    let problems = ratewright_book::build(root, &folder)?;
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\nerror: "));
    Ok(vec![folder.join("index.html")])
}
