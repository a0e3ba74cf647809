//! What the parser has to say, for people who write files and not programs.

use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

/// What is wrong, without the place, which stands before it already.
pub(crate) fn describe(error: &Error) -> String {
    let mut error = error;
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    if let Error::SerdeUnknownField { field, expected, .. } = error {
        return unknown(field, expected);
    }
    if let Error::DuplicateMappingKey { key, .. } = error {
        let name = key.as_deref().unwrap_or_default();
        return format!("the name {name:?} stands here twice; leave one of the two out");
    }
    if let Error::SerdeInvalidType { unexpected, expected, .. } = error {
        return format!("{expected} is expected here, not {}", found(unexpected));
    }
    if let Error::Unexpected { expected, .. } = error {
        return expected_kind(expected);
    }
    if let Error::MultipleDocuments { .. } = error {
        return "a second document begins here; a policy file is one, so leave the --- out".to_owned();
    }
    if let Error::UnknownAnchor { .. } = error {
        return "a text that begins with * needs quotes, as in \"**/login\"; without them it means a value with that &name, and there is none".to_owned();
    }
    let message = UserMessageFormatter.format_message(error);
    match advice(&message) {
        Some(advice) => advice.to_owned(),
        None => format!("this cannot be read as YAML: {message}"),
    }
}

/// What to do about a mistake that people make often, if this is one.
fn advice(message: &str) -> Option<&'static str> {
    if message.contains("found a tab") || message.contains("tab character") {
        return Some("a tab stands where only spaces may; indent with spaces");
    }
    let is_indentation = message.contains("did not find expected '-' indicator")
        || message.contains("did not find expected key")
        || message.contains("mapping values are not allowed");
    if is_indentation {
        return Some(
            "the indentation does not fit: items of one list, and names of one section, begin at the same column. \
             Align this line with those above that it belongs to",
        );
    }
    message
        .contains("unclosed bracket")
        .then_some("a bracket is opened here and not closed; close it with } or ]")
}

/// Of some names the one that a name looks most like, if it does.
pub(crate) fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &&&str| (strsim::jaro_winkler(name, other) * 1000.0).round();
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|best| likeness(best) >= 800.0).copied()
}

/// A name that is not known, with the one that it looks most like.
fn unknown(name: &str, known: &[&str]) -> String {
    if matches!(name, "domain" | "descriptors") && known.contains(&"policies") {
        return "this is a file of rules for Envoy, and no policy file; name it in one: envoy: {files: [FILE]}".to_owned();
    }
    if matches!(name, "rate" | "burst" | "algorithm" | "refill" | "leak" | "start")
        && known.contains(&"quota")
    {
        return format!(
            "{name} belongs to quota: write quota: {{{name}: …}}, or indent it further than the line quota:"
        );
    }
    unknown_name(&format!("there is no setting {name:?} here"), name, known)
}

/// What is wrong with a name, and then the one that it looks most like, and all that are known.
pub(super) fn unknown_name(problem: &str, name: &str, known: &[&str]) -> String {
    let known_names = known.join(", ");
    match closest(name, known) {
        Some(best) => format!("{problem}; did you mean {best}? Known are {known_names}"),
        None => format!("{problem}; known are {known_names}"),
    }
}

/// What stands there instead, as one writes it.
fn found(unexpected: &str) -> &str {
    match unexpected {
        "map" => "a section",
        "sequence" => "a list",
        _ => unexpected.trim_start_matches("string ").trim_start_matches("floating point "),
    }
}

/// What is expected, as one writes it.
fn expected_kind(kind: &str) -> String {
    let words = match kind {
        "mapping start" => "a section is expected here: lines of name: value, one step further in",
        "sequence start" => "a list is expected here: [a, b], or lines that begin with -",
        "string scalar" => "a single value is expected here, not a list and not a section",
        _ => return format!("{kind} is expected here"),
    };
    words.to_owned()
}
