//! The errors of forwarding. `ForwardError` has one `match` for statuses and one for texts; both are read here.

use super::super::source::{Source, texts, up_to_end};
use super::status_code;

/// An arm of a `match`: its patterns without `Self::`, and what they become.
struct Arm<'a> {
    patterns: Vec<&'a str>,
    becomes: &'a str,
}

/// The rows of `ForwardError`: status and text.
pub(super) fn problems(source: &Source) -> Vec<[String; 2]> {
    let [statuses, details] = ["fn status(", "fn render("].map(|function| arms(source.body(function)));
    let mut found = Vec::new();
    for Arm { patterns, becomes } in details {
        let detail = texts(becomes).into_iter().next().unwrap_or_else(|| panic!("{patterns:?} has no text"));
        for pattern in patterns {
            found.push([status_of(&statuses, pattern), source.readable(&detail)]);
        }
    }
    found
}

/// The arms of the first `match` of a function.
fn arms(function: &str) -> Vec<Arm<'_>> {
    let (_, body) = function.split_once("match self {").unwrap();
    let mut rest = up_to_end(body, "}");
    let mut found = Vec::new();
    while let Some((head, after)) = rest.split_once("=>") {
        let after = after.trim_start();
        let (inside, end) = after.strip_prefix('{').map_or((after, ","), |inside| (inside, "}"));
        let becomes = up_to_end(inside, end);
        let patterns =
            head.trim_start_matches(',').split('|').filter_map(|part| part.trim().strip_prefix("Self::"));
        found.push(Arm { patterns: patterns.collect(), becomes });
        rest = inside.get(becomes.len() + 1..).unwrap_or_default();
    }
    found
}

/// The status of a pattern, or else that of all values of its variant.
fn status_of(statuses: &[Arm<'_>], pattern: &str) -> String {
    let name = |pattern: &str| pattern.split(['(', ' ']).next().unwrap().to_owned();
    let exact = statuses.iter().find(|arm| arm.patterns.contains(&pattern));
    let general =
        || statuses.iter().rev().find(|arm| arm.patterns.iter().any(|known| name(known) == name(pattern)));
    let arm = exact.or_else(general).unwrap_or_else(|| panic!("{pattern} has no status"));
    status_code(arm.becomes.trim())
}
