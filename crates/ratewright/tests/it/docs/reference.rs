//! The reference pages of the book. They are made from the program: its responses, its help, its keys in Redis, and its
//! sources. Each test compares a page; with UPDATE_EXPECT=1 it writes the page anew.
//!
//! ```text
//!   api, metrics, command-line, redis-keys    generated between two marks; the text around them is written by hand
//!   log-lines, problem-types                  tables: the last cell of a row is written by hand, the others are generated
//! ```

mod api;
mod command_line;
mod described_rows;
mod log_lines;
mod metrics;
mod problem_types;
mod redis_keys;
mod source;

use expect_test::expect_file;

use super::{BEGIN, END, page};
use crate::packages::root;

/// Compares a page of `docs/reference`, or writes it.
#[track_caller]
fn assert_page(name: &str, made: &str) {
    let is_free = |line: &&str| line.starts_with('|') || line.contains("](");
    let text = made.split("\n```").step_by(2).flat_map(str::lines).filter(|line| !is_free(line));
    let long = text.into_iter().find(|line| line.chars().count() > 120);
    assert_eq!(long, None, "{name}: a line of over 120 characters");
    expect_file![root().join("docs/reference").join(name)].assert_eq(made);
}

/// A page of `docs/reference` with this text between its marks.
fn with_reference(name: &str, reference: &str) -> String {
    let page = page(&format!("reference/{name}"));
    let (before, rest) = page.split_once(BEGIN).expect("a mark before the reference");
    let (_, after) = rest.split_once(END).expect("a mark after the reference");
    format!("{before}{BEGIN}\n{reference}{END}{after}")
}

/// A table, with an empty line after it.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: String = rows.into_iter().map(|cells| line(&cells)).collect();
    format!("{}|{}\n{rows}\n", line(&head.map(str::to_owned)), "---|".repeat(N))
}

/// A name or a text as code, in a cell of a table.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// A sentence in a cell: on one line, with a full stop.
fn sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let is_whole = text.is_empty() || text.ends_with(['.', ':', '?', '!']);
    if is_whole { text } else { text + "." }
}

/// A paragraph in lines of at most 120 characters, with an empty line after it.
fn paragraph(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let n_chars = word.chars().count();
        if width > 0 {
            let is_full = width + 1 + n_chars > 120;
            lines.push(if is_full { '\n' } else { ' ' });
            width = if is_full { 0 } else { width + 1 };
        }
        lines.push_str(word);
        width += n_chars;
    }
    lines + "\n\n"
}

#[test]
fn a_paragraph_is_wrapped_and_a_cell_is_not() {
    let words = "word ".repeat(40);
    assert_eq!(paragraph(&words).lines().map(str::len).collect::<Vec<_>>(), [119, 79, 0]);
    assert_eq!(sentence(" two\nlines "), "two lines.");
    assert_eq!(code("a|b"), "`a\\|b`");
}
