//! The sources of the crates, as far as they run: without comments, tests and generated code. It finds calls, their arguments
//! and the texts in them; it does not parse Rust.

use std::path::{Path, PathBuf};

use crate::packages::root;
use crate::tidy::rust_text::{Token, token_at};

/// A source file.
pub(super) struct Source {
    /// Below the root of the repository.
    pub(super) path: String,
    pub(super) code: String,
}

/// A call of a function, a method or a macro.
pub(super) struct Call<'a> {
    /// Where it begins in the code.
    pub(super) at: usize,
    pub(super) arguments: Vec<&'a str>,
}

/// All sources of the crates.
pub(super) fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut files);
    }
    files.sort();
    files.iter().map(|path| Source::read(path)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test =
            ["tests", "tests.rs", "testing.rs", "fuzzing", "fuzzing.rs", "generated"].contains(&&*name);
        match path.is_dir() {
            _ if is_test => {}
            true => collect(&path, files),
            false if name.ends_with(".rs") => files.push(path),
            false => {}
        }
    }
}

impl Source {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        let code = without_comments(&text);
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        Self { path, code }
    }

    /// The calls of a name, such as `Problem::new` or `warn!`. Definitions are left out.
    pub(super) fn calls(&self, name: &str) -> Vec<Call<'_>> {
        let mut found = Vec::new();
        for (at, token) in tokens(&self.code) {
            let Token::Code(_) = token else { continue };
            let (before, rest) = self.code.split_at(at);
            let is_part_of_word =
                before.ends_with(|c: char| c.is_alphanumeric() || ['_', ':', '.'].contains(&c));
            let rest = rest.strip_prefix(name).and_then(|rest| rest.strip_prefix('('));
            if let Some(rest) = rest.filter(|_| !is_part_of_word && !before.ends_with("fn ")) {
                found.push(Call { at, arguments: arguments(rest) });
            }
        }
        found
    }

    /// What a variable is bound to by the nearest `let` above a place that is still in scope there.
    pub(super) fn bound(&self, name: &str, at: usize) -> Option<&str> {
        let binding = format!("let {name} =");
        let mut scopes = vec![None];
        for (place, token) in tokens(&self.code).take_while(|(place, _)| *place < at) {
            match token {
                Token::Code("{") => scopes.push(None),
                Token::Code("}") => drop(scopes.pop()),
                Token::Code(_) if self.code.split_at(place).1.starts_with(&binding) => {
                    *scopes.last_mut()? = Some(self.code.split_at(place + binding.len()).1);
                }
                Token::Code(_) | Token::Literal(_) | Token::Comment(_) => {}
            }
        }
        scopes.into_iter().rev().find_map(|bound| Some(up_to_end(bound?, ";")))
    }

    /// The body of a function, an enum or another item, by the words before its brace.
    pub(super) fn body(&self, item: &str) -> &str {
        let (_, rest) = self.code.split_once(item).unwrap_or_else(|| panic!("{} has no {item}", self.path));
        let (_, body) = rest.split_once('{').unwrap();
        up_to_end(body, "}")
    }

    /// A format string for readers: constants as their values, other values by their names in braces, or as `…`.
    pub(super) fn readable(&self, format: &str) -> String {
        let mut parts = format.split('{');
        let mut text = parts.next().unwrap().to_owned();
        for part in parts {
            let Some((value, rest)) = part.split_once('}') else { return format.to_owned() };
            let name = value.split(':').next().unwrap();
            text += &match name.chars().next() {
                Some('A'..='Z') => self.constant(name).unwrap_or_else(|| "…".to_owned()),
                Some('a'..='z') => format!("{{{name}}}"),
                _ => "…".to_owned(),
            };
            text += rest;
        }
        text
    }

    /// The value of a constant, if it is a text or a number.
    fn constant(&self, name: &str) -> Option<String> {
        let (_, rest) = self.code.split_once(&format!("const {name}: "))?;
        let value = up_to_end(rest.split_once('=')?.1, ";").trim();
        let number = value.replace('_', "");
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        if is_number {
            Some(number)
        } else {
            texts(value).into_iter().next().filter(|_| value.starts_with('"'))
        }
    }
}

/// The string literals in a piece of code, unescaped.
pub(super) fn texts(code: &str) -> Vec<String> {
    let literals = tokens(code).filter_map(|(_, token)| match token {
        Token::Literal(text) => Some(text),
        Token::Code(_) | Token::Comment(_) => None,
    });
    literals.map(unescaped).collect()
}

/// Splits arguments at commas, up to the closing bracket.
fn arguments(rest: &str) -> Vec<&str> {
    let mut rest = up_to_end(rest, ")");
    let mut found = Vec::new();
    while !rest.trim().is_empty() {
        let argument = up_to_end(rest, ",");
        found.push(argument.trim());
        rest = rest.get(argument.len() + 1..).unwrap_or_default();
    }
    found
}

/// The code before an end that is outside of all brackets.
pub(super) fn up_to_end<'a>(code: &'a str, end: &str) -> &'a str {
    let mut depth = 0;
    for (at, token) in tokens(code) {
        let Token::Code(text) = token else { continue };
        match text {
            _ if text == end && depth == 0 => return code.split_at(at).0,
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    code
}

fn tokens(code: &str) -> impl Iterator<Item = (usize, Token<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = code.get(at..).filter(|rest| !rest.is_empty())?;
        let (place, token) = (at, token_at(rest, code.split_at(at).0.chars().next_back()));
        let (Token::Comment(text) | Token::Literal(text) | Token::Code(text)) = &token;
        at += text.len();
        Some((place, token))
    })
}

fn without_comments(source: &str) -> String {
    let kept = tokens(source).map(|(_, token)| match token {
        Token::Comment(_) => "",
        Token::Literal(text) | Token::Code(text) => text,
    });
    kept.collect()
}

fn unescaped(literal: &str) -> String {
    let quoted = literal.trim_start_matches(['b', 'r']).trim_matches('#');
    let text = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(quoted);
    if literal.starts_with('r') {
        return text.to_owned();
    }
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap().to_owned();
    let joined = lines.fold(first, |text, line| text + line.trim_start());
    joined.replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\")
}

#[test]
fn calls_and_bindings_are_found() {
    let code = r##"
fn warn() {
    let why = format!("a, {b}");
    if x { let why = "inner"; }
    warn!(peer, cause = f(1, 2), "text in \
        two lines, {}: {error:#} \"quoted\"", error); // warn!("no")
    say("warn!(no)", why);
}
"##;
    let source = Source { path: String::new(), code: without_comments(code) };
    let calls = source.calls("warn!");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].arguments[..2], ["peer", "cause = f(1, 2)"]);
    assert_eq!(source.readable(&texts(calls[0].arguments[2])[0]), "text in two lines, …: {error} \"quoted\"");
    let say = source.calls("say");
    assert_eq!(source.bound("why", say[0].at), Some(" format!(\"a, {b}\")"));
    assert_eq!(source.bound("error", say[0].at), None);
}
