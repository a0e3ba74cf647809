use expect_test::{Expect, expect};

use crate::from_yaml::Limits;
use crate::source_file::SourceFile;

/// The errors of a file, and of a profile if there is one.
#[track_caller]
fn rejects(base: &str, profile: &str, expected: Expect) {
    let file = |path: &str, text: &str, is_profile| SourceFile {
        path: path.into(),
        text: text.to_owned(),
        is_profile,
    };
    let files = [file("t.yaml", base, false), file("p.yaml", profile, true)];
    let errors = Limits::read(&files, &|_| None).map(drop);
    expected.assert_eq(&errors.map_or_else(|errors| errors.to_string(), |()| "valid".to_owned()));
}

#[test]
fn a_profile_lists_each_policy_and_route_once() {
    rejects(
        "policies: [{name: a, quota: {rate: 1/s}}]\n",
        "policies:\n- {name: a, quota: {rate: 2/s}}\n- {name: b, quota: {rate: 1/s}}\n- {name: a, mode: shadow}\n- {name: b, mode: off}\n",
        expect![[r#"
            p.yaml:4:10: duplicate policy "a", also listed in line 2 of this profile; a profile may change each policy only once, merge both into one item
            p.yaml:5:10: duplicate policy "b", also listed in line 3 of this profile; a profile may change each policy only once, merge both into one item"#]],
    );
    rejects(
        "routes: [{id: r, match: {path: /a}, upstream: http://a}]\n",
        "routes:\n- {id: r, upstream: http://b}\n- {id: r, upstream: http://c}\n",
        expect![[
            r#"p.yaml:3:8: duplicate route "r", also listed in line 2 of this profile; a profile may change each route only once, merge both into one item"#
        ]],
    );
}

#[test]
fn a_method_has_one_cost() {
    rejects(
        "policies:\n- {name: a, quota: {rate: 9/s}, cost: {get: 3, POST: 2, GET: 1}}\n",
        "",
        expect![
            "t.yaml:2:62: policies.a.cost has two costs for one method, get and GET (case is ignored); remove one"
        ],
    );
    rejects(
        "policies:\n- name: a\n  quota: {rate: 9/s}\n  cost:\n    Get: 1\n    GET: 1\n    gEt: 1\n",
        "",
        expect![[r#"
            t.yaml:6:10: policies.a.cost has two costs for one method, Get and GET (case is ignored); remove one
            t.yaml:7:10: policies.a.cost has two costs for one method, Get and gEt (case is ignored); remove one"#]],
    );
}

#[test]
fn a_path_in_place_of_a_method_has_an_error_of_its_own() {
    rejects(
        "policies: [{name: a, quota: {rate: 9/s}, cost: {/a: 1, /A: 2}}]\n",
        "",
        expect![[
            r#"t.yaml:1:60: policies.a.cost has "/A", which is not a method; for a cost by path write cost: {path: {"/A": 2}}"#
        ]],
    );
}

#[test]
fn a_header_has_one_condition_whatever_its_case() {
    rejects(
        "policies:\n- {name: a, quota: {rate: 9/s}, when: {'header:x-a': 1, 'header:X-A': 2}}\n",
        "",
        expect![[
            r#"t.yaml:2:71: policies.a.when has the same header twice, as "header:x-a" and "header:X-A" (header names are case-insensitive); write it once, with a list of patterns"#
        ]],
    );
    rejects(
        "policies:\n- name: a\n  quota: {rate: 9/s}\n  overrides:\n  - {mode: off, match: {'header:X-A': 1, 'header:X-a': 2}}\n",
        "",
        expect![[
            r#"t.yaml:5:56: policies.a.overrides[0].match has the same header twice, as "header:X-A" and "header:X-a" (header names are case-insensitive); write it once, with a list of patterns"#
        ]],
    );
    // Names of cookies and parameters are case-sensitive.
    rejects(
        "policies: [{name: a, quota: {rate: 9/s}, when: {'cookie:a': 1, 'cookie:A': 2, 'query:a': 1, 'query:A': 2}}]\n",
        "",
        expect!["valid"],
    );
}

#[test]
fn each_repeated_match_names_the_first_override() {
    rejects(
        "policies:\n- name: a\n  quota: {rate: 9/s}\n  overrides:\n  - {match: {user: x}, mode: off}\n  - {match: {user: x}, mode: shadow}\n  - {match: {user: x}, mode: off}\n",
        "",
        expect![[r#"
            t.yaml:6:5: policies.a has an override with the same match as the override in line 5; this one never applies, remove it
            t.yaml:7:5: policies.a has an override with the same match as the override in line 5; this one never applies, remove it"#]],
    );
}

#[test]
fn a_key_has_each_attribute_once() {
    rejects(
        "policies:\n- {name: a, quota: {rate: 9/s}, by: ['header:X-A', 'header:x-a']}\n- {name: b, quota: {rate: 9/s}, by: [ip, path, ip]}\n\
         - {name: c, quota: {rate: 9/s}, by: {first_of: ['header:X-A', ip, 'header:x-a']}}\n",
        "",
        expect![[r#"
            t.yaml:2:52: policies.a.by has header:x-a twice (header names are case-insensitive); remove one
            t.yaml:3:48: policies.b.by has ip twice; remove one
            t.yaml:4:67: policies.c.by.first_of has header:x-a twice (header names are case-insensitive); remove one"#]],
    );
    rejects(
        "policies: [{name: a, quota: {rate: 9/s}, by: [ip, {first_of: [path, ip]}]}]\n",
        "",
        expect!["valid"],
    );
}
