use expect_test::{Expect, expect};

use crate::error::ConfigError;
use crate::from_yaml::Limits;
use crate::raw_value::{Position, RawValue};
use crate::reader::Reader;
use crate::referenced_files::{FileKind, FileReader};
use crate::source_file::SourceFile;
use crate::values::FileName;

/// The errors of a text in which `${V}` has a value.
#[track_caller]
fn rejects(text: &str, value: &str, expected: Expect) {
    let files = [SourceFile { path: "t.yaml".into(), text: text.to_owned(), is_profile: false }];
    let variable = |name: &str| (name == "V").then(|| value.to_owned());
    let errors = Limits::read(&files, &variable).map(drop).unwrap_err();
    expected.assert_eq(&errors.to_string());
}

/// Paths, hosts, methods, routes and names are compared in forms of their own.
#[test]
fn errors_show_a_variable_as_written() {
    let when = |when: &str| format!("policies: [{{name: a, quota: {{rate: 1/s}}, when: {{{when}}}}}]");
    rejects(
        "exempt: {paths: '${V}'}",
        "S3cret",
        expect![[r#"t.yaml:1:17: exempt.paths is "${V}", which matches no path; begin with / or **"#]],
    );
    rejects(
        "exempt: {paths: ['/a/${V}', '${V:-/b}']}",
        "^S3cret***",
        expect![[r#"
        t.yaml:1:18: exempt.paths: "/a/${V}" has more than two stars in a row; * stays in a segment, ** crosses segments
        t.yaml:1:29: exempt.paths is "${V:-/b}"; patterns are not regular expressions: * stands for any text within a segment, ** for any text. Write a list for alternatives: [/a/**, /b/**]"#]],
    );
    rejects(
        "exempt: {paths: '/${V}'}",
        "S3cret***",
        expect![[
            r#"t.yaml:1:17: exempt.paths: "/${V}" has more than two stars in a row; * stays in a segment, ** crosses segments"#
        ]],
    );
    rejects(
        "exempt: {methods: '${V}'}",
        "S3 cret",
        expect![[
            r#"t.yaml:1:19: exempt.methods is "${V}", which is not a method; use GET, POST or another one"#
        ]],
    );
    rejects(
        "exempt: {clients: '${V}'}",
        "10.11.12.13/8",
        expect![[
            r#"t.yaml:1:19: exempt.clients is "${V}"; use a network or an address, for example 10.0.0.0/8 or 192.0.2.7"#
        ]],
    );
    rejects(
        &when("ip: '${V}'"),
        "S3cret",
        expect![[
            r#"t.yaml:1:53: policies.a.when.ip is "${V}"; use a network or an address, for example 10.0.0.0/8 or 192.0.2.7"#
        ]],
    );
    rejects(
        &when("method: '${V}'"),
        "PSOT",
        expect![[
            r#"t.yaml:1:57: policies.a.when.method is "${V}", which is not a method; did you mean POST?"#
        ]],
    );
    rejects(
        "policies: [{name: a, quota: {rate: '${V}'}}]",
        "S3cret/s",
        expect![[
            r#"t.yaml:1:36: policies.a.quota.rate is "${V}"; a rate is units/time, for example 10/s, 1/6s or 250/min"#
        ]],
    );
    rejects(
        "policies: [{name: a, quota: {rate: 1/s}, by: '${V}'}]",
        "X-S3cret",
        expect![[
            r#"t.yaml:1:46: policies.a.by is "${V}"; for the header of that name write header:${V}; otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME"#
        ]],
    );
    rejects(
        "policies: [{name: a, quota: {rate: 1/s}, by: '${V}'}]",
        "header: X-S3cret",
        expect![[
            r#"t.yaml:1:46: policies.a.by is "${V}"; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME"#
        ]],
    );
    rejects(
        "policies: [{name: a, quota: {rate: 1/s, burst: '${V}'}}]",
        "5000MB",
        expect![[r#"t.yaml:1:48: policies.a.quota.burst is "${V}"; ${V} is too large; use at most 4095MB"#]],
    );
    rejects(
        "policies: [{name: '${V}', quota: {rate: 1/s}}, {name: '${V}', quota: {rate: 1/s}}]",
        "s3cret",
        expect![[r#"t.yaml:1:55: duplicate policy name "${V}", also used in line 1; rename one"#]],
    );
}

/// Warnings too, also where they advise what to write.
#[test]
fn warnings_show_a_variable_as_written() {
    for (setting, value) in [
        ("path: '/a/${V}'", "S3cret/"),
        ("path: '/a/${V}/'", "S3cret"),
        ("path: '/a/${V}'", "S3cret?x"),
        ("path: '/a/${V}'", "S3cret/.*"),
        ("path: '/a/${V}'", "S3cret/:id"),
        ("path: '/a/${V}'", "S3cret%41"),
        ("host: '${V}'", "S3cret:80"),
        ("method: '${V}'", "S3CRET"),
    ] {
        let text = format!("policies: [{{name: a, quota: {{rate: 1/s}}, when: {{{setting}}}}}]");
        let files = [SourceFile { path: "t.yaml".into(), text, is_profile: false }];
        let variable = |_: &str| Some(value.to_owned());
        let limits = Limits::read(&files, &variable).unwrap();
        assert!(!limits.warnings.is_empty(), "{setting}");
        for warning in limits.warnings {
            let warning = warning.to_string();
            assert!(warning.contains("${V}") && !warning.to_lowercase().contains("s3cret"), "{warning}");
        }
    }
}

/// A folder that lacks every file.
struct Unreadable;

impl FileReader for Unreadable {
    fn read(&mut self, path: &std::path::Path, _: FileKind) -> Result<Vec<u8>, String> {
        Err(format!("cannot read {}: no such file", path.display()))
    }
    fn list(&mut self, _: &std::path::Path) -> Result<Option<Vec<std::path::PathBuf>>, String> {
        Ok(None)
    }
}

#[test]
fn a_file_name_is_shown_as_written() {
    let mut referenced = Unreadable;
    let mut reader = Reader::new(&[], &mut referenced, &|_| Some("s3cret".to_owned()));
    let mut name = RawValue::<FileName>::without_position("/run/${FOLDER}/key.pem");
    name.position = Some(Position { file: 0, line: 1, column: 1 });
    assert!(reader.content("listen.tls.key", &name).is_none());
    let shown: Vec<_> = reader.errors.iter().map(ConfigError::to_string).collect();
    assert_eq!(shown, ["defaults:1:1: listen.tls.key: cannot read /run/${FOLDER}/key.pem: no such file"]);
}

/// Too short to be a secret, and a part of many words.
#[test]
fn a_short_value_is_not_replaced_in_the_advice() {
    rejects(
        "policies: [{name: a, quota: {rate: 1/s, burst: '${V}'}}]",
        "0",
        expect![[
            r#"t.yaml:1:48: policies.a.quota.burst is "${V}"; a burst of 0 would deny everything. Use at least 1"#
        ]],
    );
}

#[test]
fn a_value_that_is_a_part_of_a_name_or_of_another_value_is_replaced_once() {
    let expansions = [("name", "${NAME}"), ("filename", "${OTHER}"), ("a \"b\" c", "${THIRD:-x}")];
    let expansions = expansions.map(|(value, written)| (value.to_owned(), written.to_owned()));
    let shown = super::as_written("t is \"${NAME}\", ü NAME filename/name \"a \\\"b\\\" c\"", &expansions);
    assert_eq!(shown, "t is \"${NAME}\", ü ${NAME} ${OTHER}/${NAME} \"${THIRD:-x}\"");
}
