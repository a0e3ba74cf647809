//! The commands that start no listener: `check`, `schema` and `--help`.

use std::path::Path;
use std::process::Output;

use expect_test::{Expect, expect};
use ratewright_lab::{PATIENCE, output, output_of};

use crate::process::{command, run_in};

/// Runs the program in a folder with these files, and checks its output and exit status.
#[track_caller]
fn check(files: &[(&str, &str)], args: &[&str], expected: Expect) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    expected.assert_eq(&printed(&run_in(folder.path(), args)));
}

fn printed(output: &Output) -> String {
    // Some lines of the help end with blanks, which editors take away.
    let line = |line: &str| line.trim_end().to_owned() + "\n";
    let text = |bytes: &[u8]| str::from_utf8(bytes).unwrap().lines().map(line).collect::<String>();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{out}{err}exit {}", output.status.code().unwrap())
}

const LOGIN: (&str, &str) = (
    "login.yaml",
    "policies:\n- {name: login, by: ip, when: {path: '**/login**'}, quota: {rate: 1/6s, burst: 10}, retry_after: 60s}\n",
);

#[test]
fn check_describes_a_file() {
    check(
        &[LOGIN],
        &["check", "login.yaml"],
        expect![[r#"
            login.yaml is valid; buckets in memory
              login  10 at once, then 1 every 6 s, for each client address; on **/login**; retry after at least 60 s
              never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            exit 0"#]],
    );
    check(
        &[],
        &["check"],
        expect![[r#"
            no file: defaults; buckets in memory
              no policies: only keys that callers name are limited, by the defaults
            exit 0"#]],
    );
}

#[test]
fn check_explains_rules_for_envoy() {
    let rules = (
        "r.yaml",
        "domain: shop\ndescriptors: [{key: client, rate_limit: {unit: minute, requests_per_unit: 5}}]\n",
    );
    check(
        &[rules],
        &["check", "r.yaml"],
        expect![[r#"
        r.yaml is valid; rules for Envoy, to be named in envoy.files
          envoy domain shop; all descriptors of a request are charged, or none:
            client  5 in each 60 s by the clock, for each attribute client
        exit 0"#]],
    );
}

#[test]
fn check_takes_several_files_and_a_profile_of_each() {
    let files =
        [LOGIN, ("login.off.yaml", "enabled: false\n"), ("b/b.yaml", ""), ("b/off/b.yaml", "log: {}\n")];
    check(
        &files,
        &["check", "login.yaml", "b", "--profile", "off"],
        expect![[r#"
            login.yaml with profile off is valid; buckets in memory
              enabled is false: every request passes, uncounted
              login  off: 10 at once, then 1 every 6 s, for each client address; on **/login**; retry after at least 60 s
              never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            b with profile off is valid; buckets in memory
              no policies: only keys that callers name are limited, by the defaults
            exit 0"#]],
    );
}

#[test]
fn check_reports_all_errors_and_exits_with_2() {
    let files = [("a.yaml", "policies:\n- {name: a, quota: {rate: soon}}\nlog: {level: loud}\n"), LOGIN];
    check(
        &files,
        &["check", "a.yaml", "login.yaml", "none.yaml"],
        expect![[r#"
            login.yaml is valid; buckets in memory
              login  10 at once, then 1 every 6 s, for each client address; on **/login**; retry after at least 60 s
              never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            error: a.yaml:2:27: policies.a.quota.rate is "soon"; a rate is units/time, for example 10/s, 1/6s or 250/min
              |
            2 | - {name: a, quota: {rate: soon}}
              |                           ^
            error: a.yaml:3:14: log.level is "loud"; use one of off, error, warn, info, debug, trace
              |
            3 | log: {level: loud}
              |              ^
            error: none.yaml: cannot read the file: No such file or directory (os error 2); check the path
            exit 2"#]],
    );
    check(
        &[],
        &["check", "--profile", "x"],
        expect![[r#"
            error: defaults: --profile x needs a policy file; add -c FILE
            exit 2"#]],
    );
}

#[test]
fn the_schema_is_json_and_the_reference_is_markdown() {
    let output = run_in(Path::new("."), &["schema"]);
    assert!(output.status.success());
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["title"], "Ratewright policy file");
    assert!(schema["properties"]["policies"].is_object());
    let output = run_in(Path::new("."), &["schema", "--reference"]);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("### `policies.quota`"));
}

/// The short form is for programs, the long one for bug reports.
#[test]
fn the_version_has_a_short_and_a_long_form() {
    let version = |flag| String::from_utf8(run_in(Path::new("."), &[flag]).stdout).unwrap();
    let short = format!("ratewright {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(version("-V"), format!("{short}\n"));
    let (commit, profile) = (env!("BUILD_COMMIT"), env!("BUILD_PROFILE"));
    let features = if cfg!(feature = "otel") { "otel" } else { "none" };
    let long = format!("{short} (commit {commit}, features: {features}, profile: {profile})\n");
    assert_eq!(version("--version"), long);
}

#[test]
fn help_has_exit_codes_and_examples() {
    check(
        &[],
        &["check", "--help"],
        expect![[r#"
            Validate policy files, and describe their limits in words

            It starts and sends nothing. Variables come from the environment, as for `serve`. It also checks the files that a policy file names: certificates, keys, and rules for Envoy. Rules for Envoy can also be checked by themselves.

            Usage: ratewright check [OPTIONS] [FILE]...

            Arguments:
              [FILE]...
                      Policy files in YAML, or folders of them, each checked by itself; if none is given, the defaults [env: RATEWRIGHT_CONFIG]

            Options:
              -c, --config <FILE>
                      The same as FILE

                  --profile <NAME>
                      Merge the profile's file over each: ratewright.NAME.yaml over ratewright.yaml

                      [env: RATEWRIGHT_PROFILE=]

              -h, --help
                      Print help (see a summary with '-h')

            Exit status:
              0  all files are valid; each policy is described on standard output
              2  an option or a file is invalid; every error is on standard error, with its position

            Examples:
              ratewright check ratewright.yaml
              ratewright check ratewright.yaml --profile production
              ratewright check /etc/ratewright && systemctl reload ratewright
            exit 0"#]],
    );
    check(
        &[],
        &["schema", "--help"],
        expect![[r#"
            Print the JSON Schema of the policy file, for editors, or of a report

            Usage: ratewright schema [OPTIONS]

            Options:
                  --reference  Print a reference in Markdown instead
                  --simulate   Print the schema of `simulate --json` instead
                  --suggest    Print the schema of `suggest --json` instead
              -h, --help       Print help

            Exit status:
              0  the schema is on standard output

            Examples:
              ratewright schema > ratewright.schema.json
              ratewright schema --reference | less
              ratewright schema --simulate > report.schema.json

            An editor with a YAML language server reads the schema if the file begins with
              # yaml-language-server: $schema=ratewright.schema.json
            exit 0"#]],
    );
}

#[test]
fn output_to_a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), LOGIN.1).unwrap();
    std::fs::write(folder.path().join("b.yaml"), LOGIN.1.replace("burst: 10", "burst: 20")).unwrap();
    let diff = || {
        let mut command = command(&["diff", "a.yaml", "b.yaml"]);
        command.current_dir(folder.path());
        command
    };
    let on_full = output_of(diff().stdout(full).spawn().unwrap(), PATIENCE);
    assert_eq!(on_full.status.code(), Some(2));
    let error = String::from_utf8(on_full.stderr).unwrap();
    assert!(error.contains("cannot write to standard output"), "{error}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = output_of(diff().stdout(writer).spawn().unwrap(), PATIENCE);
    assert_eq!(closed.status.code(), output(&mut diff()).status.code());
}
