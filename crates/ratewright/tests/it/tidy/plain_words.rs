//! Comments, messages, type names and pages in plain words.
//!
//! Some constructions make a sentence hard to read or to search for: "is told" hides who reports, "is none" and "is no X" replace a
//! plain "missing" or "not a", and a clause as a subject ("Who asks …") hides the client, the caller or the operator.

use std::collections::BTreeMap;

use super::root;
use super::rust_text::{Prose, prose};
use crate::packages::tracked;

/// Sentences that may stay: the file, a part of the text, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "crates/ratewright/tests/it/tidy/plain_words.rs",
    "Some constructions make a sentence hard to read",
    "the head of this file quotes them",
)];

/// The hard constructions in a text.
fn hard_words(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = |n: usize| -> &str {
        words.get(n).map_or("", |word| word.trim_matches(|c: char| !c.is_alphanumeric()))
    };
    let is_cut = |n: usize| words.get(n).is_none_or(|word| word.ends_with(|c: char| !c.is_alphanumeric()));
    // A word in backticks or quotes is a name, not part of the sentence.
    let is_quoted =
        |n: usize| words.get(n).is_some_and(|word| word.starts_with(|c: char| !c.is_alphanumeric()));
    let mut found = Vec::new();
    for n in 0..words.len() {
        let (word, next) = (plain(n), plain(n + 1));
        let is_told = ["is", "are", "was", "were"].contains(&word) && next == "told";
        let is_none = word == "is" && next == "none";
        let is_no = word == "is" && next == "no" && !is_cut(n + 1) && is_noun(plain(n + 2));
        let is_no =
            is_no && !n.checked_sub(1).is_some_and(|before| plain(before).eq_ignore_ascii_case("there"));
        if !is_cut(n) && !is_quoted(n + 1) && (is_told || is_none || is_no) {
            found.push(format!("{word} {next} {}", plain(n + 2)));
        }
        if ["Who", "Whoever"].contains(&word)
            && !next.is_empty()
            && begins_sentence(&words, n)
            && !is_question(&words, n)
        {
            found.push(format!("{word} {next} …"));
        }
    }
    found
}

fn is_noun(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word != "longer"
}

fn begins_sentence(words: &[&str], n: usize) -> bool {
    let before = n.checked_sub(1).and_then(|before| words.get(before));
    before.is_none_or(|word| word.ends_with(['.', '!', '?', ':', '-', '*', '|']))
}

/// True if the sentence from a word on ends with a question mark.
fn is_question(words: &[&str], n: usize) -> bool {
    let end = words.iter().skip(n).find(|word| word.ends_with(['.', '!', '?', ':', '|']));
    end.is_some_and(|word| word.ends_with('?'))
}

fn is_listed(file: &str) -> bool {
    let is_generated = file.contains("/generated/");
    file.ends_with(".rs") && !is_generated
}

#[test]
fn comments_and_strings_have_plain_words() {
    let Some(files) = tracked() else { return };
    let (mut hard, mut n_used) = (Vec::new(), BTreeMap::new());
    for file in files.iter().filter(|file| is_listed(file)) {
        // A tracked file may be deleted in the working tree; the commit will say so.
        let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        for Prose { line, text } in prose(&source) {
            let exception = EXCEPTIONS.iter().find(|(path, part, _)| path == file && text.contains(part));
            match (hard_words(&text).as_slice(), exception) {
                ([], _) => {}
                (_, Some((_, part, _))) => *n_used.entry(*part).or_insert(0) += 1,
                (found, None) => hard.push(format!("{file}:{line}: {}: {text}", found.join(", "))),
            }
        }
    }
    assert!(
        hard.is_empty(),
        "rewrite these sentences with a concrete subject and a plain verb:\n{}",
        hard.join("\n")
    );
    let unused = EXCEPTIONS.iter().find(|(_, part, _)| !n_used.contains_key(part));
    assert!(unused.is_none(), "this exception is not needed any more: {unused:?}");
}

/// Private vocabulary: a listener or an entrypoint has its name.
const NOT_ON_PAGES: [&str; 2] = [" door ", " doors "];

/// The paragraphs of a Markdown page, each with its line, without code.
fn paragraphs(page: &str) -> Vec<Prose> {
    let (mut found, mut is_code, mut is_open) = (Vec::<Prose>::new(), false, false);
    for (n, line) in page.lines().enumerate() {
        let text = line.trim();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !text.is_empty();
        let begins = text.starts_with(['#', '|', '-', '*']);
        match found.last_mut().filter(|_| is_prose && is_open && !begins) {
            Some(last) => last.text = format!("{} {text}", last.text),
            None if is_prose => found.push(Prose { line: n + 1, text: text.to_owned() }),
            None => {}
        }
        is_open = is_prose;
    }
    for Prose { text, .. } in &mut found {
        // A name in backticks is not part of the sentence.
        let words = text.split('`').enumerate().map(|(n, part)| if n % 2 == 0 { part } else { "`X`" });
        *text = words.collect();
    }
    found
}

/// The hard constructions in a paragraph of a page.
fn hard_words_on_page(text: &str) -> Vec<String> {
    let plain: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let plain = format!(" {} ", plain.to_lowercase());
    let more =
        NOT_ON_PAGES.iter().filter(|words| plain.contains(**words)).map(|words| words.trim().to_owned());
    hard_words(text).into_iter().chain(more).collect()
}

#[test]
fn pages_have_plain_words() {
    let Some(files) = tracked() else { return };
    let mut hard = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        let page = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        for Prose { line, text } in paragraphs(&page) {
            let found = hard_words_on_page(&text);
            if !found.is_empty() {
                hard.push(format!("{file}:{line}: {}: {text}", found.join(", ")));
            }
        }
    }
    assert!(
        hard.is_empty(),
        "rewrite these sentences with a concrete subject and a plain verb:\n{}",
        hard.join("\n")
    );
}

#[test]
fn hard_constructions_on_pages_are_found_and_code_is_not_read() {
    let found = |page: &str| -> Vec<usize> {
        let paragraphs = paragraphs(page);
        let hard = paragraphs.iter().filter(|prose| !hard_words_on_page(&prose.text).is_empty());
        hard.map(|prose| prose.line).collect()
    };
    let told = ["is", "told"].join(" ");
    assert_eq!(found(&format!("A.\n\nThe client\n{told}.\n\n- One door.\n| of | a door |\n")), [3, 6, 7]);
    assert_eq!(
        found(&format!("`{told}`, indoors, of all, which\n\n```text\nThe client {told}.\n```\n")),
        [0_usize; 0]
    );
}

#[test]
fn hard_constructions_are_found_and_others_are_not() {
    // Joined here, so that this file passes its own check.
    let found = |words: &[&str]| hard_words(&words.join(" ")).len();
    assert_eq!(found(&["The client", "is", "told"]), 1);
    assert_eq!(found(&["They", "were", "told."]), 1);
    assert_eq!(found(&["because there", "is", "none."]), 1);
    assert_eq!(found(&["It", "is", "no", "policy"]), 1);
    assert_eq!(found(&["Fine.", "Who", "asks waits"]), 1);
    assert_eq!(found(&["\"Whoever", "asks\""]), 1);
    assert_eq!(found(&["Fine.", "Who", "is denied, and by which policy?"]), 0);
    assert_eq!(found(&["There is no policy; it is no longer there; the answer is no."]), 0);
    assert_eq!(found(&["`told` is a name, is: told, the clients who ask, and one who is not"]), 0);
}

/// The folder of the program's sources.
const PROGRAM: &str = "crates/ratewright/src/";

/// The types that a source file defines outside of its tests.
fn type_names(source: &str) -> impl Iterator<Item = &str> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) => {
                rest.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.1)).unwrap_or(rest)
            }
            None => line,
        };
        let line = line.trim_start();
        let name =
            ["struct ", "enum ", "trait ", "union "].iter().find_map(|kind| line.strip_prefix(kind))?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

/// One name has one meaning: a reader who knows `Policy` or `Limit` of the model must not meet another one in the program.
#[test]
fn no_type_of_the_program_has_the_name_of_another_type() {
    let Some(files) = tracked() else { return };
    let mut defined = BTreeMap::<String, Vec<String>>::new();
    let is_source =
        |file: &&String| file.contains("/src/") && file.starts_with("crates/") && file.ends_with(".rs");
    let is_test =
        |file: &str| file.contains("/tests/") || file.ends_with("/tests.rs") || file.contains("/generated/");
    for file in files.iter().filter(is_source).filter(|file| !is_test(file)) {
        let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        for name in type_names(&source) {
            defined.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    let is_checked = |file: &String| file.starts_with(PROGRAM);
    let repeated: Vec<_> =
        defined.iter().filter(|(_, files)| files.len() > 1 && files.iter().any(is_checked)).collect();
    assert!(repeated.is_empty(), "give one of these types another name: {repeated:#?}");
}
