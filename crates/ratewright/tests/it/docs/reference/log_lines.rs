//! `docs/reference/log-lines.md`: the messages that the sources log at the levels error, warn and info.

use super::described_rows::DescribedRows;
use super::source::{Call, Source, sources, texts};
use super::{assert_page, code, page};

const ROWS: DescribedRows =
    DescribedRows { head: &["level", "message", "fields", "meaning, and what to do"], key: 1 };

/// Values that are whole messages: the file, the value, and the functions that make it.
const MADE_BY: [(&str, &str, &str); 2] = [
    ("crates/ratewright/src/reload.rs", "why", "fn dropped("),
    ("crates/ratewright/src/reload.rs", "why", "fn words("),
];

/// Level, message and fields of each message in a file.
fn messages(source: &Source) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for level in ["error", "warn", "info"] {
        let short = source.calls(&format!("{level}!"));
        for call in short.iter().chain(&source.calls(&format!("tracing::{level}!"))) {
            let fields: Vec<_> =
                call.arguments.iter().take_while(|argument| !argument.starts_with('"')).collect();
            let names: Vec<_> = fields.iter().map(|field| code(field_name(field))).collect();
            for message in message_texts(source, call, fields.len()) {
                found.push(vec![level.to_uppercase(), code(&message), or_dash(&names.join(", "))]);
            }
        }
    }
    found
}

/// `%peer`, `?keys`, `cause = %error`.
fn field_name(field: &str) -> &str {
    field.split('=').next().unwrap().trim().trim_start_matches(['%', '?'])
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "–".to_owned() } else { text.to_owned() }
}

/// The message of a call. If it is one value only, the texts that the value can have, as far as the file says them.
fn message_texts(source: &Source, call: &Call<'_>, at: usize) -> Vec<String> {
    let format = &texts(call.arguments[at])[0];
    let is_value = format.starts_with('{') && format.ends_with('}') && format.matches('{').count() == 1;
    let name = format.trim_matches(['{', '}']).split(':').next().unwrap();
    let elsewhere = MADE_BY.iter().filter(|(path, value, _)| *path == source.path && *value == name);
    let values = match call.arguments.get(at + 1) {
        _ if !is_value => Vec::new(),
        Some(value) => texts(value),
        None => match source.bound(name, call.at) {
            Some(bound) => texts(bound),
            None => elsewhere
                .flat_map(|(_, _, function)| texts(source.body(function)))
                .filter(|text| is_message(text))
                .collect(),
        },
    };
    let values = if values.is_empty() { vec![format.clone()] } else { values };
    values.iter().map(|text| source.readable(text)).collect()
}

/// True for a text with its subject in front: `policy file rejected: …`.
fn is_message(text: &str) -> bool {
    text.contains(": ") && !text.starts_with(|c: char| c.is_uppercase()) && text.len() > 40
}

#[test]
fn the_page_on_log_lines_has_every_message() {
    let rows: Vec<_> = sources().iter().flat_map(messages).collect();
    assert!(rows.len() > 40, "{} messages", rows.len());
    let made = ROWS.refresh(&page("reference/log-lines.md"), &rows);
    assert_page("log-lines.md", &made);
    ROWS.assert_described(&made);
}
