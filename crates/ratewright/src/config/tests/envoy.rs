//! Rules in the files of envoyproxy/ratelimit.

use std::path::Path;

use expect_test::{Expect, expect};
use ratewright_core::policy::Mode;
use tempfile::TempDir;

use super::super::*;
use crate::check::check as check_source;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// What a policy file with this section means, or everything that is wrong. `FOLDER` stands for where the files are.
#[track_caller]
fn check_section(files: &[(&str, &str)], text: &str, expected: Expect) {
    let folder = folder(files);
    let path = folder.path().to_str().unwrap();
    let shown = match Config::of_text(&text.replace("FOLDER", path)) {
        Ok(config) => explain(&config),
        Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
    };
    expected.assert_eq(&shown.replace(path, "FOLDER"));
}

/// What one file of rules means, or everything that is wrong.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let folder = folder(&[("r.yaml", text)]);
    let shown = match Config::of_envoy(&folder.path().join("r.yaml")) {
        Ok(config) => config.envoy.map(|envoy| explain_envoy(&envoy, &config.policies)).unwrap_or_default(),
        Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
    };
    expected.assert_eq(&shown.replace(&format!("{}/", folder.path().display()), ""));
}

#[test]
fn their_files_are_read_as_they_are() {
    check(
        "# a comment\ndomain: shop\ndescriptors:\n  - key: client\n    value: red\n    rate_limit: {unit: MINUTE, requests_per_unit: 10}\n  \
         - key: client\n    rate_limit:\n      unit: second\n      requests_per_unit: 5\n      name: each\n    shadow_mode: true\n  \
         - key: client\n    value: friend\n  - key: client\n    value: guest\n    rate_limit: {unlimited: true}\n  \
         - key: version\n    value: 1.10\n    rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: each}]}\n  \
         - key: path\n    value: /a/*\n    share_threshold: yes\n    detailed_metric: on\n    value_to_metric: false\n    metadata: {a: {b: [1, x]}}\n    descriptors:\n      \
         - key: method\n        quota_mode: true\n        record_mode: true\n        rate_limit: {unit: week, requests_per_unit: 7}\n      \
         - {key: foe, rate_limit: {unit: hour}}\n",
        expect![[r#"
            envoy domain shop; all descriptors of a request are charged, or none:
              client_red        10 in each 60 s by the clock, for all together
              client            shadow, never denies: 5 in each second by the clock, for each attribute client
              client_guest      no limit
              version_1.10      1 in each day by the clock, for all together; in metrics and logs envoy.shop.version_1.10..739b484e79e9b00a; in place of each
              path_/a/*.method  7 in each 7 d by the clock, for each attribute method; denies only if all in quota_mode do; counts requests over the limit too; in metrics and logs envoy.shop.path_-a--.method..dfe17f8da9c5e5d2
              path_/a/*.foe     none pass: 0 per hour
        "#]],
    );
}

#[test]
fn there_is_more_than_theirs_can_say() {
    check(
        "domain: shop\ndescriptors:\n- key: a\n  rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 3}\n\
         - key: b\n  rate_limit: {unit: second, requests_per_unit: 10, algorithm: token_bucket, burst: 50}\n\
         - key: c\n  rate_limit:\n  - {unit: second, requests_per_unit: 10}\n  - {unit: day, requests_per_unit: 1000, algorithm: sliding_window_counter}\n",
        expect![[r#"
            envoy domain shop; all descriptors of a request are charged, or none:
              a  3 in each 5 min by the clock, for each attribute a
              b  50 at once, then 10 every second, for each attribute b
              c  10 in each second by the clock, and about 1000 in any day, for each attribute c
        "#]],
    );
}

#[test]
fn errors_have_positions_and_the_words_of_envoyproxy() {
    check(
        "domain: ''\ndescriptors:\n- key: a\n  rate_limit: {unit: foo, requests_per_unit: many}\n- value: x\n  ratelimit: {}\n\
         - key: b\n  value: c\n- key: b_c\n- key: d\n  shadow_mode: perhaps\n  share_threshold: true\n  descriptors:\n  \
         - key: e\n    rate_limit: {unit: day, unlimited: true}\n  \
         - key: f\n    rate_limit: {unit: day, name: x, replaces: [{name: x}, {}]}\n",
        expect![[r#"
            r.yaml:1:9: config file cannot have empty domain
            r.yaml:4:22: invalid rate limit unit 'foo'; use second, minute, hour, day, week, month, year
            r.yaml:4:46: requests_per_unit is "many"; use a whole number from 0 to 4294967295
            r.yaml:5:3: descriptor has empty key
            r.yaml:6:3: config error, unknown key 'ratelimit'; did you mean rate_limit?
            r.yaml:9:8: duplicate descriptor composite key '.b_c'
            r.yaml:11:16: shadow_mode is "perhaps"; use true or false
            r.yaml:12:20: share_threshold can only be used with wildcard values (containing '*'), but found key 'd'
            r.yaml:15:24: should not specify rate limit unit when unlimited
            r.yaml:17:56: replaces should not contain name of same descriptor
            r.yaml:17:60: should not have an empty replaces entry
        "#]],
    );
    check(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, unit_multiplier: 0}\n- key: b\n  rate_limit: {unit: day, burst: 3}\n\
         - key: c\n  rate_limit: [{unit: day}, {unit: day}]\n- key: d\n  rate_limit: {unit: day, algorithm: magic}\n- key: e\n  metadata: x\n",
        expect![[r#"
            r.yaml:4:44: unit_multiplier 0 is out of range with unit day; use at least 1, and a window of at most 100 years
            r.yaml:6:34: fixed_window has no burst apart from its units; leave burst out, or use token_bucket
            r.yaml:8:29: duplicate limit: another limit of the descriptor has the same algorithm, unit and unit_multiplier; remove one
            r.yaml:10:38: algorithm is "magic"; use one of token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window
            r.yaml:12:13: metadata is not a section; write names and values: {team: payments}
        "#]],
    );
}

#[test]
fn unreadable_files_are_reported() {
    check(
        "domain: d\ndescriptors: [a]\n",
        expect![[r#"
        r.yaml:2:15: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "domain: d\n  descriptors: [\n",
        expect![[r#"
            r.yaml:2:14: inconsistent indentation: the items of a list, and the names of a section, begin at the same column. Align this line with those above it
        "#]],
    );
    check(
        "0.25: d\n",
        expect![[r#"
            r.yaml:1:1: config error, unknown key '0.25'; known: domain, key, value, descriptors, rate_limit, unit, requests_per_unit, unlimited, shadow_mode, quota_mode, name, replaces, detailed_metric, value_to_metric, share_threshold, metadata, algorithm, burst, unit_multiplier, record_mode
            r.yaml:1:1: config file cannot have empty domain
        "#]],
    );
    check(
        "",
        expect![[r#"
        r.yaml:1:1: config file cannot have empty domain
    "#]],
    );
    check(
        "domain: a\ndomain: b\n",
        expect![[r#"
        r.yaml:2:1: duplicate name "domain"; remove one
    "#]],
    );
    let deep = format!("domain: d\ndescriptors: {}\n", "[{key: a, descriptors: ".repeat(5000));
    let Err(errors) = crate::parse_envoy_rules(&deep) else { panic!("it has no end") };
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn misplaced_keys_are_ignored_and_reported() {
    check(
        "domain: d\nname: all\ndescriptors:\n- key: a\n  unit: day\n  rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}\n",
        expect![[r#"
            envoy domain d; all descriptors of a request are charged, or none:
              a  1 in each day by the clock, for each attribute a
            note: r.yaml:2:1: name has no effect at this level; remove it, or move it to the level it belongs to
            note: r.yaml:5:3: unit has no effect at this level; remove it, or move it to the level it belongs to
            note: r.yaml:6:49: shadow_mode has no effect at this level; remove it, or move it to the level it belongs to
        "#]],
    );
}

#[test]
fn a_variable_is_a_text_as_any_other() {
    check(
        "domain: d\ndescriptors: [{key: a, value: '${HOME}', rate_limit: {unit: day, requests_per_unit: 1}}]\n",
        expect![[r#"
            envoy domain d; all descriptors of a request are charged, or none:
              a_${HOME}  1 in each day by the clock, for all together; in metrics and logs envoy.d.a_--home-..dd1e47a49946e526
        "#]],
    );
}

const A: &str = "domain: a\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 1}}]\n";
const B: &str = "domain: b\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 2}}]\n";
const A_TOO: &str =
    "domain: a\ndescriptors: [{key: k}, {key: l, rate_limit: {unit: minute, requests_per_unit: 3}}]\n";

#[test]
fn of_a_folder_all_files_are_read_but_hidden_ones() {
    check_section(
        &[("b", B), ("a.yaml", A), ("..data", A), ("z.txt", "domain: z\n")],
        "envoy: {files: FOLDER, compat: strict, shadow_mode: true, quota_mode: true}\n",
        expect![[r#"
            envoy domain a; every descriptor is charged, whatever the others say; shadow, nobody is denied; denied only if all limits are used up:
              k  1 in each 60 s by the clock, for each attribute k
            envoy domain b; every descriptor is charged, whatever the others say; shadow, nobody is denied; denied only if all limits are used up:
              k  2 in each 60 s by the clock, for each attribute k
            envoy domain z; every descriptor is charged, whatever the others say; shadow, nobody is denied; denied only if all limits are used up:
        "#]],
    );
}

#[test]
fn a_domain_stands_in_one_file_unless_domains_are_merged() {
    let files = [("a", A), ("b", A_TOO)];
    check_section(
        &files,
        "envoy: {files: [FOLDER/a, FOLDER/b]}\n",
        expect![[r#"
            FOLDER/b:1:9: duplicate domain 'a' in config file; files of one domain need envoy.merge_domains
        "#]],
    );
    check_section(
        &files,
        "envoy: {files: [FOLDER], merge_domains: true}\n",
        expect![[r#"
        FOLDER/b:2:21: duplicate descriptor composite key 'a.k'
    "#]],
    );
    let merged = [
        ("a", A),
        ("b", "domain: a\ndescriptors: [{key: l, rate_limit: {unit: day, requests_per_unit: 3}}]\n"),
    ];
    check_section(
        &merged,
        "envoy: {files: [FOLDER], merge_domains: true}\n",
        expect![[r#"
        envoy domain a; all descriptors of a request are charged, or none:
          k  1 in each 60 s by the clock, for each attribute k
          l  3 in each day by the clock, for each attribute l
    "#]],
    );
}

#[test]
fn the_section_itself_is_checked() {
    check_section(
        &[],
        "envoy: {}\n",
        expect![[r#"
        t.yaml: envoy has no files; write files: [ratelimit.yaml], or a folder
    "#]],
    );
    check_section(&[], "envoy: {files: []}\n", expect![""]);
    check_section(
        &[],
        // A line for each: a temporary folder's name may be of any length.
        "envoy:\n  files:\n  - FOLDER/none\n  - FOLDER\n  compat: partly\n  merge_domains: 1\n",
        expect![[r#"
            t.yaml:3:5: envoy.files: cannot read FOLDER/none: No such file or directory (os error 2); use a file that Ratewright can read
            t.yaml:4:5: envoy.files: the folder FOLDER has no files
            t.yaml:5:11: envoy.compat is "partly"; use one of all_or_nothing, strict
            t.yaml:6:18: envoy.merge_domains is "1"; use true or false
        "#]],
    );
    check_section(
        &[],
        "envoy: {files: []}\npolicies: [{name: envoy.a.k, quota: {rate: 1/s}}]\n",
        expect![[r#"
            t.yaml:2:19: policies.envoy.a.k: names that begin with envoy. are reserved for the rules in envoy.files; use another name
        "#]],
    );
}

#[test]
fn the_rules_are_policies_like_others() {
    let folder = folder(&[("a", A)]);
    let read = |more: &str| {
        let text = format!("envoy: {{files: {}}}\n{more}", folder.path().display());
        Config::of_text(&text).unwrap_or_else(|errors| panic!("{errors:?}"))
    };
    let config = read("");
    let policy = config.policies.named("envoy.a.k").unwrap();
    assert_eq!((policy.mode(), policy.on_failure()), (Mode::Enforce, OnFailure::Local));
    assert_eq!(read("enabled: false\n").policies.named("envoy.a.k").unwrap().mode(), Mode::Off);
    let closed = read("store: {on_failure: closed}\n");
    assert_eq!(closed.policies.named("envoy.a.k").unwrap().on_failure(), OnFailure::Closed);
}

#[test]
fn the_files_are_followed_and_counters_keep_their_names() {
    let folder = folder(&[("a", A)]);
    let policy_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy_file.path(), format!("envoy: {{files: {}}}\n", folder.path().display())).unwrap();
    let source = Source { path: Some(policy_file.path().to_owned()), profile: None };
    let before = Config::read(&source, &|_| None).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert!(before.fingerprint.again(&source).ok() == Some(before.fingerprint.clone()));
    assert!(before.fingerprint.folders().any(|watched| watched == folder.path()));
    std::fs::write(folder.path().join("a"), A.replace("requests_per_unit: 1", "requests_per_unit: 9"))
        .unwrap();
    std::fs::write(folder.path().join("b"), B).unwrap();
    let mut texts = before.fingerprint.again(&source).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert!(texts != before.fingerprint);
    let after = Config::of(&mut texts, &|_| None).unwrap_or_else(|errors| panic!("{errors:?}"));
    let name = |config: &Config| config.policies.named("envoy.a.k").unwrap().limits()[0].name().clone();
    assert_eq!(name(&before), name(&after));
    assert!(after.policies.named("envoy.b.k").is_some(), "the new file is read");
    std::fs::remove_file(folder.path().join("b")).unwrap();
    assert!(after.fingerprint.again(&source).ok() != Some(after.fingerprint.clone()));
}

#[test]
fn such_a_file_can_be_checked_by_itself() {
    let folder = folder(&[
        ("a.yaml", A),
        ("json.yaml", r#"{"domain": "j", "descriptors": []}"#),
        ("broken.yaml", "domain: d\ndescriptors: [\n"),
        ("t.yaml", "policies: []\n"),
    ]);
    let shown = |path: &Path| {
        let source = Source { path: Some(path.to_owned()), profile: None };
        let shown = match check_source(&source, &|_| None) {
            Ok(checked) => checked.words,
            Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
        };
        shown.replace(&format!("{}/", folder.path().display()), "")
    };
    let all = ["a.yaml", "json.yaml", "broken.yaml", "t.yaml"].map(|name| shown(&folder.path().join(name)));
    expect![[r#"
        a.yaml is valid; rules for Envoy, to be named in envoy.files
          envoy domain a; all descriptors of a request are charged, or none:
            k  1 in each 60 s by the clock, for each attribute k
        json.yaml is valid; rules for Envoy, to be named in envoy.files
          envoy domain j; all descriptors of a request are charged, or none:
        broken.yaml:2:14: unclosed bracket; close it with } or ]
        t.yaml is valid; buckets in memory
          no policies: only keys that callers name are limited, by the defaults
    "#]]
    .assert_eq(&all.concat());
    let alone = tempfile::tempdir().unwrap();
    std::fs::write(alone.path().join("a.yaml"), A).unwrap();
    assert!(shown(alone.path()).contains("envoy domain a;"));
}

/// How connections are kept, or everything that is wrong with it.
#[track_caller]
fn check_kept(settings: &str, expected: Expect) {
    let folder = folder(&[("r.yaml", "domain: d\n")]);
    let text = format!("envoy: {{files: {}, {settings}}}\n", folder.path().join("r.yaml").display());
    let shown = match Config::of_text(&text) {
        Ok(config) => {
            let listening = config.envoy.unwrap().listening;
            let ratewright_rls::GrpcListenerSettings {
                keep_alive_every,
                keep_alive_within,
                age_max,
                drain_timeout,
                ..
            } = listening;
            format!(
                "{keep_alive_every:?} within {keep_alive_within:?}, until {age_max:?} and {drain_timeout:?}"
            )
        }
        Err(errors) => {
            // Where the folder's name ends is not the same twice.
            let problem =
                |error: &ConfigError| error.to_string().split(": ").skip(1).collect::<Vec<_>>().join(": ");
            errors.iter().map(problem).collect::<Vec<_>>().join("; ")
        }
    };
    expected.assert_eq(&shown);
}

#[test]
fn connections_are_kept_as_the_section_says() {
    check_kept("compat: strict", expect!["Some(60s) within 20s, until None and 10s"]);
    check_kept(
        "keep_alive: none, connection_age: 24h, connection_grace: 1h",
        expect!["None within 20s, until Some(86400s) and 3600s"],
    );
    check_kept(
        "keep_alive: 5s, keep_alive_timeout: 1s, connection_age: none",
        expect!["Some(5s) within 1s, until None and 10s"],
    );
    check_kept(
        "keep_alive: 0s, keep_alive_timeout: none, connection_age: 2d, connection_grace: soon",
        expect![[
            r#"envoy.keep_alive must be more than 0s and at most 1d; use for example 30s; envoy.keep_alive_timeout is "none"; use a whole number and us, ms, s, min, h or d: 5ms, 60s; envoy.connection_age must be more than 0s and at most 1d; use for example 30s; envoy.connection_grace is "soon"; use a whole number and us, ms, s, min, h or d: 5ms, 60s"#
        ]],
    );
}

#[test]
fn a_folder_with_one_file_of_rules_is_one_of_rules_and_no_policy_file_takes_them() {
    let shown = |files: &[(&str, &str)]| {
        let folder = folder(files);
        let source = Source { path: Some(folder.path().to_owned()), profile: None };
        let errors = check_source(&source, &|_| None).err().unwrap_or_default();
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        errors.join("\n").replace(folder.path().to_str().unwrap(), "FOLDER")
    };
    let missing = shown(&[("a.yaml", A), ("b.yaml", "domian: b\ndescriptors: []\n")]);
    expect![[r#"
        FOLDER/b.yaml:1:1: config error, unknown key 'domian'; did you mean domain?
        FOLDER/b.yaml:1:1: config file cannot have empty domain"#]]
    .assert_eq(&missing);
    let Err(errors) = Config::of_text(A) else { panic!("it has no policies") };
    expect!["t.yaml:1:1: this is an Envoy rule file, not a policy file; list it in a policy file: envoy: {files: [FILE]}"].assert_eq(&errors.iter().map(ToString::to_string).collect::<String>());
}
