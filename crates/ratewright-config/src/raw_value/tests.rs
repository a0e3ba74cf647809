use crate::file::{self, By, Cost, CostEntry, File, Listener, Upstream};
use crate::reader::Reader;
use crate::referenced_files::NoFiles;
use crate::source_file::SourceFile;

/// Scalars that YAML reads as numbers or truth values, and would print in another way; and some that it does not.
const SCALARS: [&str; 25] = [
    "0x10",
    "0X1F",
    "0o17",
    "010",
    "007",
    "1_000",
    "+5",
    "-5",
    "-0",
    "1.50",
    "1e3",
    "1E+3",
    ".5",
    "5.",
    ".inf",
    "-.NaN",
    "true",
    "True",
    "FALSE",
    "yes",
    "off",
    "1:30",
    "18446744073709551616",
    "2026-01-02",
    "1e999",
];

/// The file, as the parser gives it and as it is after merging.
fn parsed_and_merged(text: &str) -> [File; 2] {
    let files = [SourceFile { path: "t.yaml".into(), text: text.to_owned(), is_profile: false }];
    let mut referenced = NoFiles;
    let mut reader = Reader::new(&files, &mut referenced, &|_| None);
    let merged = reader.merged_file();
    assert!(reader.errors.is_empty(), "{text}: {:?}", reader.errors);
    [file::parse(text).unwrap(), merged.unwrap()]
}

#[track_caller]
fn check(text: &str, expected: &str, written: impl Fn(&File) -> Vec<String>) {
    for file in parsed_and_merged(text) {
        let written = written(&file);
        assert!(!written.is_empty() && written.iter().all(|one| one == expected), "{text}: {written:?}");
    }
}

/// All patterns in `when`, and all tokens.
fn listed(file: &File) -> Vec<String> {
    let when = file.policies.iter().flatten().filter_map(|policy| policy.value.when.as_ref());
    let patterns = when.flat_map(|when| when.0.values()).flat_map(|patterns| &patterns.items);
    let tokens = file.api.iter().flat_map(|api| &api.tokens).flat_map(|tokens| &tokens.items);
    patterns.map(|pattern| pattern.text.clone()).chain(tokens.map(|token| token.text.clone())).collect()
}

#[test]
fn a_scalar_alone_or_in_a_list_stays_as_written() {
    for scalar in SCALARS {
        for value in [
            "VALUE",
            "[VALUE]",
            "[ VALUE , VALUE]",
            "\n    - VALUE\n    - VALUE # comment",
            "'VALUE'",
            "\"VALUE\"",
        ] {
            let value = value.replace("VALUE", scalar);
            check(&format!("api:\n  tokens: {value}\n"), scalar, listed);
            check(&format!("policies:\n- when:\n   header:X-Tier: {value}\n"), scalar, listed);
        }
        check(&format!("policies: [{{when: {{'header:X-Tier': {scalar}}}}}]"), scalar, listed);
        check(
            &format!("policies: [{{when: {{'header:X-Tier': {scalar}, user: {scalar} }}}}]"),
            scalar,
            listed,
        );
        check(&format!("{{api: {{tokens: {scalar}}}}}"), scalar, listed);
    }
}

#[test]
fn a_scalar_stays_as_written_behind_an_alias_and_after_other_characters() {
    check("policies: [{when: {user: &a 0x10, 'header:X': *a}}]\napi: {tokens: *a}", "0x10", listed);
    check("policies: [&a {when: {user: 0x10}}, {<<: *a, name: b}]", "0x10", listed);
    check("\u{FEFF}# größer ✓\r\nproblem: {type: 'ü'}\r\napi:\r\n  tokens: 0x10\r\n", "0x10", listed);
    check("---\n# ünïcödé\napi: {tokens: 0x10}\n...\n", "0x10", listed);
    check("api: {tokens: !!str 0x10}", "0x10", listed);
}

/// Settings that are a text or something else.
#[test]
fn a_scalar_stays_as_written_where_a_section_may_be() {
    for scalar in SCALARS {
        check(&format!("listen: {{api: {scalar}, admin: {scalar}}}"), scalar, |file| {
            let listen = file.listen.as_ref().unwrap();
            let text = |listener: &Listener| match listener {
                Listener::Address(text) => text.clone(),
                Listener::Section(_) => panic!("a section"),
            };
            [&listen.api, &listen.admin].map(|one| text(&one.as_ref().unwrap().value)).into()
        });
        check(
            &format!(
                "policies: [{{by: {scalar}, cost: {scalar}}}, {{by: [{scalar}], cost: {{GET: {scalar}}}}}]"
            ),
            scalar,
            |file| {
                file.policies
                    .iter()
                    .flatten()
                    .flat_map(|policy| {
                        [
                            by(&policy.value.by.as_ref().unwrap().value),
                            cost(&policy.value.cost.as_ref().unwrap().value),
                        ]
                    })
                    .collect()
            },
        );
        check(&format!("routes: [{{upstream: {scalar}}}, {{upstream: [{scalar}]}}]"), scalar, |file| {
            file.routes
                .iter()
                .flatten()
                .map(|route| url(&route.value.upstream.as_ref().unwrap().value))
                .collect()
        });
    }
}

fn by(by: &By) -> String {
    match by {
        By::One(text) => text.clone(),
        By::All(parts) => self::by(&parts[0].value),
        By::FirstOf(_) => panic!("first_of"),
    }
}

fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Fixed(text) => text.clone(),
        Cost::Table(table) => match &table["GET"] {
            CostEntry::One(one) => one.text.clone(),
            CostEntry::Paths(_) => panic!("paths"),
        },
    }
}

fn url(upstream: &Upstream) -> String {
    match upstream {
        Upstream::Url(text) => text.clone(),
        Upstream::All(urls) => url(&urls[0].value),
        Upstream::Section(_) => panic!("a section"),
    }
}

/// The same as for a single value, which is not a text then.
#[test]
fn a_text_that_a_tag_makes_a_number_is_an_error() {
    for value in ["!!int '0x10'", "!!bool \"true\"", "!!float |\n     1\n"] {
        let error = file::parse(&format!("policies:\n- when:\n   user: {value}\n")).err().unwrap();
        assert_eq!(
            crate::yaml_errors::describe(&error),
            "invalid YAML: a tag such as !!int cannot be used here; remove it"
        );
        assert!(error.location().is_some(), "{value}");
    }
    for value in ["~", "null", "[~]", "[null]"] {
        assert!(file::parse(&format!("policies: [{{when: {{user: {value}}}}}]")).is_err(), "{value}");
    }
}
