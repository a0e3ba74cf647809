//! Errors of the YAML parser, in words for people who write policy files.

use std::borrow::Cow;

use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

/// Describes an error without its position, which is printed before it.
pub(crate) fn describe(error: &Error) -> String {
    let mut error = error;
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    if let Error::SerdeUnknownField { field, expected, .. } = error {
        return unknown(field, expected);
    }
    if let Error::DuplicateMappingKey { key, .. } = error {
        let name = shown_name(key.as_deref().unwrap_or_default());
        return format!("duplicate name {name:?}; remove one");
    }
    if let Error::SerdeInvalidType { unexpected, expected, .. } = error {
        return format!("{expected} is expected here, not {}", found(unexpected));
    }
    if let Error::Unexpected { expected, .. } = error {
        return expected_kind(expected);
    }
    if let Error::MultipleDocuments { .. } = error {
        return "second YAML document; a policy file has one, so remove the ---".to_owned();
    }
    if let Error::UnknownAnchor { .. } = error {
        return "a text that begins with * needs quotes, as in \"**/login\"; without quotes it is a YAML alias, and no anchor has that name".to_owned();
    }
    let message = UserMessageFormatter.format_message(error);
    match advice(&message) {
        Some(advice) => advice.to_owned(),
        None => format!("invalid YAML: {message}"),
    }
}

/// Advice for a common mistake, if the message is of one.
fn advice(message: &str) -> Option<&'static str> {
    if message.contains("found a tab") || message.contains("tab character") {
        return Some("tab in the indentation; indent with spaces");
    }
    let is_indentation = message.contains("did not find expected '-' indicator")
        || message.contains("did not find expected key")
        || message.contains("mapping values are not allowed");
    if is_indentation {
        return Some(
            "inconsistent indentation: the items of a list, and the names of a section, begin at the same column. \
             Align this line with those above it",
        );
    }
    message.contains("unclosed bracket").then_some("unclosed bracket; close it with } or ]")
}

/// The known name that is most similar to a name, if one is similar enough.
pub fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &&&str| (strsim::jaro_winkler(name, other) * 1000.0).round();
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|best| likeness(best) >= 800.0).copied()
}

/// Describes an unknown setting, with the most similar known one.
fn unknown(name: &str, known: &[&str]) -> String {
    if matches!(name, "domain" | "descriptors") && known.contains(&"policies") {
        return "this is an Envoy rule file, not a policy file; list it in a policy file: envoy: {files: [FILE]}".to_owned();
    }
    if matches!(name, "rate" | "burst" | "algorithm" | "refill" | "leak" | "start")
        && known.contains(&"quota")
    {
        return format!(
            "{name} is a setting of quota; write quota: {{{name}: …}}, or indent this line below quota:"
        );
    }
    let has_secrets = known.iter().any(|known| SECRET_SETTINGS.contains(known));
    let shown = if has_secrets { shown_name(name) } else { name.into() };
    unknown_name(&format!("unknown setting {shown:?}"), name, known)
}

/// Settings that are secrets, or sections that have some.
const SECRET_SETTINGS: [&str; 8] = ["api", "jwt", "nodes", "redis", "secret", "sentinel", "tokens", "url"];

/// An unknown name, without what may be a secret: `{tokens:x}` without a space is one name, and so is a secret in the wrong place.
fn shown_name(name: &str) -> Cow<'_, str> {
    const WORD_MAX: usize = 32;
    let (word, value) = name.split_once(':').map_or((name, None), |(word, value)| (word, Some(value)));
    let is_word =
        word.len() <= WORD_MAX && word.bytes().all(|b| b.is_ascii_alphabetic() || b"_-.".contains(&b));
    match (is_word, value) {
        (true, None) => Cow::Borrowed(name),
        (true, Some(_)) => Cow::Owned(format!("{word}:…")),
        (false, _) => Cow::Borrowed("…"),
    }
}

/// A problem with a name, followed by the most similar known name and all known names.
pub fn unknown_name(problem: &str, name: &str, known: &[&str]) -> String {
    let known_names = known.join(", ");
    match closest(name, known) {
        Some(best) => format!("{problem}; did you mean {best}? Known: {known_names}"),
        None => format!("{problem}; known: {known_names}"),
    }
}

/// The kind of value that was found.
fn found(unexpected: &str) -> &str {
    match unexpected {
        "map" => "a section",
        "sequence" => "a list",
        _ => unexpected.trim_start_matches("string ").trim_start_matches("floating point "),
    }
}

/// The kind of value that is expected, with an example.
fn expected_kind(kind: &str) -> String {
    let words = match kind {
        "mapping start" => {
            "a section is expected here: lines of name: value, indented further than the line above"
        }
        "sequence start" => "a list is expected here: [a, b], or lines that begin with -",
        "string scalar" => "a single value is expected here, not a list and not a section",
        _ => return format!("{kind} is expected here"),
    };
    words.to_owned()
}
