//! `docs/reference/problem-types.md`: the errors that Ratewright itself responds with.
//!
//! The program has no list of them. The sources make each one by a call such as `Problem::new(STATUS, detail)`, so the page
//! has a row for every text that reaches one of these calls. Calls whose text comes from elsewhere are in [`PASSED_ON`];
//! [`ERRORS`] and [`FUNCTIONS`] have their texts.

mod forwarding;

use http::StatusCode;
use serde_json::Value;

use super::described_rows::DescribedRows;
use super::source::{Source, sources, texts};
use super::{assert_page, code, page};
use crate::docs::{BEGIN, END};
use crate::process::{Answer, Ratewright};

const PAGE: &str = "problem-types.md";
const ROWS: DescribedRows = DescribedRows { head: &["status", "detail", "when, and what to do"], key: 1 };

/// Functions that make an error: the name, the status if it is always the same, and the position of the text.
const MAKERS: [(&str, &str, usize); 14] = [
    ("Problem::new", "", 1),
    ("Rejection::new", "", 1),
    ("Rejection::bad_request", "400", 0),
    ("Self::bad_request", "400", 0),
    ("bad_request", "400", 0),
    ("bad", "400", 1),
    ("invalid", "400", 0),
    ("Status::cancelled", "`CANCELLED`", 0),
    ("Status::deadline_exceeded", "`DEADLINE_EXCEEDED`", 0),
    ("Status::internal", "`INTERNAL`", 0),
    ("Status::invalid_argument", "`INVALID_ARGUMENT`", 0),
    ("Status::resource_exhausted", "`RESOURCE_EXHAUSTED`", 0),
    ("Status::unimplemented", "`UNIMPLEMENTED`", 0),
    ("Status::unknown", "`UNKNOWN`", 0),
];

/// Calls whose text is an argument of their function, or comes from one of the next two lists.
const PASSED_ON: [(&str, &str); 10] = [
    ("crates/ratewright-gateway/src/routing.rs", "detail"),
    ("crates/ratewright-gateway/src/routing.rs", "error.to_string()"),
    ("crates/ratewright-gateway/src/routing.rs", "framing.to_string()"),
    ("crates/ratewright-http/src/identify/original_request.rs", "detail"),
    ("crates/ratewright-rls/src/service.rs", "refusal.to_string()"),
    ("crates/ratewright-rls/src/unary.rs", "error.to_string()"),
    ("crates/ratewright-server/src/admin/simulate.rs", "detail"),
    ("crates/ratewright-server/src/rest/decide.rs", "detail"),
    ("crates/ratewright-server/src/url.rs", "detail"),
    ("crates/ratewright-server/src/url.rs", "unknown_policy_detail(name, policies)"),
];

/// Errors with their texts: the file, the type, and the status.
const ERRORS: [(&str, &str, &str); 5] = [
    ("crates/ratewright-gateway/src/headers/framing.rs", "enum FramingError", "400"),
    ("crates/ratewright-gateway/src/headers/identity.rs", "enum IdentityError", "400"),
    ("crates/ratewright-gateway/src/target.rs", "enum TargetError", "400"),
    ("crates/ratewright-gateway/src/cors/preflight.rs", "enum PreflightError", "403"),
    ("crates/ratewright-rls/src/rls.rs", "enum Refusal", "`UNKNOWN`"),
];

/// Functions that return texts: the file, the function, and the status, which the page names if it differs by text.
const FUNCTIONS: [(&str, &str, &str); 5] = [
    ("crates/ratewright-http/src/problem.rs", "fn detail(decision", "429"),
    ("crates/ratewright-http/src/problem.rs", "fn uncountable(", ""),
    ("crates/ratewright-http/src/problem.rs", "fn unparsed(", ""),
    ("crates/ratewright-server/src/url.rs", "fn unknown_policy_detail(", ""),
    ("crates/ratewright-gateway/src/routing.rs", "fn check_overrides", "400"),
];

/// A policy that denies the second request, and one that cannot count requests without a key.
const DENYING: &str = "
problem: {type: 'https://example.com/problems/{name}'}
policies:
- {name: login, when: {path: /login}, by: ip, quota: {rate: 1/min, burst: 1}, retry_after: 2min}
- {name: partners, when: {path: '/partners/**'}, by: 'header:X-Api-Key', missing: deny, quota: {rate: 100/min}}
routes:
- {id: login, match: {path: /login}, upstream: 'http://127.0.0.1:1'}
- {id: partners, match: {path: '/partners/**'}, upstream: 'http://127.0.0.1:1'}
";

/// A file's rows: the status, and the text.
fn problems(source: &Source, passed_on: &mut Vec<(String, String)>) -> Vec<[String; 2]> {
    let mut found = Vec::new();
    for (maker, status, at) in MAKERS {
        for call in source.calls(maker) {
            let argument = call.arguments[at];
            let status = if status.is_empty() { status_code(call.arguments[0]) } else { status.to_owned() };
            let bound = source.bound(argument, call.at).unwrap_or(argument);
            let details = sentences(source, bound, call.at);
            if details.is_empty() {
                passed_on.push((source.path.clone(), argument.to_owned()));
            }
            found.extend(details.into_iter().map(|detail| [status.clone(), detail]));
        }
    }
    found
}

/// The number of `StatusCode::NOT_FOUND`. Empty for a variable.
fn status_code(path: &str) -> String {
    let name = path.strip_prefix("StatusCode::").unwrap_or_default();
    let is_it = |status: &StatusCode| {
        status.canonical_reason().is_some_and(|reason| reason.to_uppercase().replace(' ', "_") == name)
    };
    let found = (400..600).filter_map(|number| StatusCode::from_u16(number).ok()).find(is_it);
    found.map_or_else(String::new, |status| status.as_u16().to_string())
}

/// The sentences in a piece of code that stands at a place. A value with texts of its own is replaced by each of them.
fn sentences(source: &Source, code: &str, at: usize) -> Vec<String> {
    let mut found: Vec<_> =
        texts(code).into_iter().filter(|text| text.contains(' ') && text.len() > 8).collect();
    let names: Vec<String> = found.iter().flat_map(|text| placeholders(text)).collect();
    for name in names {
        let mut values = source.bound(&name, at).map(texts).unwrap_or_default();
        values.retain(|value| !value.ends_with('.')); // a whole sentence is returned by itself
        if values == ["", "s"] {
            values = vec!["s".to_owned()]; // a plural
        } else if values.is_empty() || !values.iter().all(|text| text.contains(' ') && text.len() > 2) {
            continue;
        }
        found.retain(|text| !values.contains(text));
        let place = format!("{{{name}}}");
        let replaced = found.iter().flat_map(|text| match text.contains(&place) {
            true => values.iter().map(|value| text.replace(&place, value)).collect(),
            false => vec![text.clone()],
        });
        found = replaced.collect();
    }
    found.iter().map(|text| source.readable(text)).filter(|text| !is_value(text)).collect()
}

fn placeholders(text: &str) -> Vec<String> {
    text.split('{').skip(1).filter_map(|rest| rest.split(['}', ':']).next()).map(str::to_owned).collect()
}

/// True if a text consists of values only.
fn is_value(text: &str) -> bool {
    let mut rest = text.to_owned();
    for name in placeholders(text) {
        rest = rest.replace(&format!("{{{name}}}"), "");
    }
    !rest.contains(|c: char| c.is_alphabetic())
}

/// All rows: a text with several statuses is one row.
fn rows() -> Vec<Vec<String>> {
    let (sources, mut passed_on) = (sources(), Vec::new());
    let serves = |source: &&Source| {
        ["http/", "gateway/", "server/", "tower/", "rls/"]
            .iter()
            .any(|part| source.path.contains(&format!("crates/ratewright-{part}")))
    };
    let mut found: Vec<_> =
        sources.iter().filter(serves).flat_map(|source| problems(source, &mut passed_on)).collect();
    passed_on.sort();
    passed_on.dedup();
    let expected: Vec<_> =
        PASSED_ON.iter().map(|(path, argument)| ((*path).to_owned(), (*argument).to_owned())).collect();
    assert_eq!(passed_on, expected, "calls with a text from elsewhere; list the place of the text as well");
    let file = |path: &str| {
        sources.iter().find(|source| source.path == path).unwrap_or_else(|| panic!("{path} is missing"))
    };
    for (path, item, status) in ERRORS.into_iter().chain(FUNCTIONS) {
        let source = file(path);
        let body = source.body(item);
        let end = source.code.find(body).unwrap() + body.len();
        found.extend(sentences(source, body, end).into_iter().map(|detail| [status.to_owned(), detail]));
    }
    found.extend(forwarding::problems(file("crates/ratewright-gateway/src/forward_error.rs")));
    merged(found)
}

fn merged(mut found: Vec<[String; 2]>) -> Vec<Vec<String>> {
    found.sort_by(|one, other| (&one[1], &one[0]).cmp(&(&other[1], &other[0])));
    found.dedup();
    let same = found.chunk_by(|one, other| one[1] == other[1]);
    same.map(|rows| {
        let statuses: Vec<_> =
            rows.iter().map(|row| row[0].as_str()).filter(|status| !status.is_empty()).collect();
        vec![statuses.join(", "), code(&rows[0][1])]
    })
    .collect()
}

/// Real responses of the gateway, with a time that stays.
fn examples() -> String {
    let ratewright = Ratewright::start(DENYING);
    let ask = |path: &str| ratewright.pass(path, &[("X-Correlation-Id", "4bf92f35")]);
    assert_eq!(ask("/login").status, 502, "allowed, but there is no upstream");
    let denied = ask("/login");
    assert_eq!((denied.status, &*denied.headers["retry-after"]), (429, "120"));
    let examples = [
        ("A request over its limit", denied),
        (
            "A request without the attribute that a policy counts by, with `missing: deny`",
            ask("/partners/orders"),
        ),
        ("A request that no route matches", ask("/nowhere")),
    ];
    examples.iter().map(|(title, answer)| format!("{title}:\n\n```json\n{}\n```\n\n", body(answer))).collect()
}

/// A body with one member on each line, in its own order.
fn body(answer: &Answer) -> String {
    let now = answer.json()["timestamp"].as_str().unwrap().to_owned();
    let text = answer.body.replace(&now, "2026-11-15T12:00:00.123Z");
    let text = text.trim_matches(['{', '}']).replace(",\"", ",\n  \"").replace("\":", "\": ");
    let text = format!("{{\n  {text}\n}}");
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    text
}

#[test]
fn the_page_on_problem_types_has_every_error() {
    let rows = rows();
    assert!(rows.len() > 60, "{} rows", rows.len());
    let made = ROWS.refresh(&page(&format!("reference/{PAGE}")), &rows);
    let (before, rest) = made.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let made = format!("{before}{BEGIN}\n{}{END}{after}", examples());
    assert_page(PAGE, &made);
    ROWS.assert_described(&made);
}
