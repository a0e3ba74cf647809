//! Splits Rust source into code and prose: the comments, and the texts of string literals.

/// A comment, of one or several lines, or a string literal.
#[derive(Debug, PartialEq)]
pub(super) struct Prose {
    /// The line on which it begins, from 1.
    pub(super) line: usize,
    /// Its text in one line, without comment marks and quotes.
    pub(super) text: String,
}

/// What the scanner finds at a position.
pub(crate) enum Token<'a> {
    Comment(&'a str),
    Literal(&'a str),
    Code(&'a str),
}

/// The prose of a source file. Consecutive comment lines are one text, up to an empty comment line.
pub(super) fn prose(source: &str) -> Vec<Prose> {
    let (mut found, mut at) = (Vec::<Prose>::new(), 0);
    // The end of the last comment, if only one line break follows it so far.
    let mut comment_end = None;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let token = token_at(rest, source.get(..at).and_then(|before| before.chars().next_back()));
        let (text, length) = match token {
            Token::Comment(text) => (Some(text.trim_start_matches(['/', '!']).trim()), text.len()),
            Token::Literal(text) => (Some(text), text.len()),
            Token::Code(text) => (None, text.len()),
        };
        if let Some(text) = text {
            let line = source.get(..at).unwrap_or_default().matches('\n').count() + 1;
            let is_comment = matches!(token, Token::Comment(_));
            let continues = comment_end.is_some_and(|end| {
                let between = source.get(end..at).unwrap_or_default();
                is_comment && between.trim().is_empty() && between.matches('\n').count() == 1
            });
            let text = text.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
            let is_empty = text.is_empty();
            match found.last_mut().filter(|_| continues && !is_empty) {
                Some(last) => last.text = format!("{} {text}", last.text).trim().to_owned(),
                None => found.push(Prose { line, text }),
            }
            comment_end = (is_comment && !is_empty).then_some(at + length);
        }
        at += length;
    }
    found.retain(|prose| !prose.text.is_empty());
    found
}

/// The token at the beginning of `rest`, which comes after the character `before`.
pub(crate) fn token_at(rest: &str, before: Option<char>) -> Token<'_> {
    let is_in_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let up_to = |end: usize| rest.get(..end).unwrap_or(rest);
    if rest.starts_with("//") {
        return Token::Comment(up_to(rest.find('\n').unwrap_or(rest.len())));
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r');
    if let Some(raw) = raw.filter(|_| !is_in_name) {
        let n_hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(body) = raw.get(n_hashes..).and_then(|raw| raw.strip_prefix('"')) {
            let end = format!("\"{}", "#".repeat(n_hashes));
            let length = body.find(&end).map_or(body.len(), |at| at + end.len());
            return Token::Literal(up_to(rest.len() - body.len() + length));
        }
    }
    if rest.starts_with('"') {
        let mut is_escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, c)| {
            let is_end = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            is_end
        });
        return Token::Literal(up_to(end.map_or(rest.len(), |(at, _)| at + 1)));
    }
    if let Some(char) = rest.strip_prefix('\'') {
        // A character, unless it is a lifetime.
        let after_escape =
            char.strip_prefix('\\').and_then(|char| char.get(1..)?.find('\'').map(|at| at + 4));
        let plain =
            char.chars().next().filter(|c| char.get(c.len_utf8()..).is_some_and(|c| c.starts_with('\'')));
        if let Some(end) = after_escape.or(plain.map(|c| c.len_utf8() + 2)) {
            return Token::Code(up_to(end));
        }
    }
    Token::Code(up_to(rest.chars().next().map_or(0, char::len_utf8)))
}

#[test]
fn comments_and_strings_are_found_and_code_is_not() {
    let source = r##"
//! A head
//! of two lines.
//!
//! Another paragraph.
fn code<'a>(x: &'a str) -> char {
    let text = "a \"quoted\" \
                text"; // a remark
    let raw = r#"raw "text""#;
    if x == text { '"' } else { '\'' }
}
"##;
    let found = prose(source);
    let texts: Vec<_> = found.iter().map(|prose| (prose.line, prose.text.as_str())).collect();
    assert_eq!(
        texts,
        [
            (2, "A head of two lines."),
            (5, "Another paragraph."),
            (7, r#""a \"quoted\" text""#),
            (8, "a remark"),
            (9, r##"r#"raw "text""#"##),
        ]
    );
}
