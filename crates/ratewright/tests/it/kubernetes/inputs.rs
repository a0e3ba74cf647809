//! The inputs of `ratewright check --deployment`: files, folders, standard input, and errors for everything else.

use std::path::Path;

use tempfile::TempDir;

use super::check::checked;
use super::{PRODUCTION, documents, rendered};
use crate::process::run_in;

/// What the command says of a folder with these files, and how it ends.
fn checked_folder(files: &[(&str, &str)]) -> (String, Option<i32>) {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join("manifests").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let output = run_in(folder.path(), &["check", "--deployment", "manifests"]);
    (String::from_utf8([output.stdout, output.stderr].concat()).unwrap(), output.status.code())
}

/// A folder in a GitOps repository: a file for each object, in folders, beside files that are no manifests.
#[test]
fn manifests_may_be_many_files_one_file_json_or_a_list() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let expected = checked(&text, &[]);
    assert_eq!(expected.1, Some(0), "{}", expected.0);
    let files: Vec<_> = text
        .split("\n---\n")
        .enumerate()
        .map(|(n, document)| (format!("{}/{n}.{}", n % 3, if n % 2 == 0 { "yaml" } else { "yml" }), document))
        .collect();
    let mut files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    files.extend([("values.yaml", "image: x\n"), (".hidden/x.yaml", "a: [\n"), ("README.md", "a: [\n")]);
    assert_eq!(checked_folder(&files), expected);
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": documents(&text)});
    for json in [list.to_string(), format!("{list:#}")] {
        assert_eq!(checked(&json, &[]), expected);
        assert_eq!(checked_folder(&[("all.json", &json)]), expected);
    }
}

#[test]
fn a_folder_that_must_be_rendered_is_rejected_with_the_command() {
    for (name, command) in [("kustomization.yaml", "kubectl kustomize"), ("Chart.yaml", "helm template")] {
        let file = format!("overlays/production/{name}");
        let (printed, code) =
            checked_folder(&[(&file, "a: b\n"), ("overlays/production/x.yaml", "{{ if }}\n")]);
        let expected = format!(
            "error: manifests/overlays/production: folder contains {name}, so its manifests must be rendered first; \
             run: {command} manifests/overlays/production | ratewright check --deployment -\n"
        );
        assert_eq!((printed, code), (expected, Some(2)));
    }
}

#[test]
fn unreadable_input_is_reported_with_its_position() {
    let bomb: String = (0..9)
        .map(|n| {
            let item = if n == 0 { "x".to_owned() } else { format!("*a{}", n - 1) };
            format!("a{n}: &a{n} [{}]\n", [item.as_str(); 9].join(","))
        })
        .collect();
    for (text, expected) in [
        (String::new(), "error: -: no workload runs Ratewright (0 objects read)"),
        ("a: b\n---\n- c\n".to_owned(), "error: -: no workload runs Ratewright (0 objects read)"),
        ("kind: Secret\ndata: {a: b\n".to_owned(), "error: stdin:2:"),
        ("kind: A\n---\nkind: [\n".to_owned(), "error: stdin:"),
        ("kind: A\nkind: B\n".to_owned(), "error: stdin:2:1: duplicate name \"kind\"; remove one"),
        ("[".repeat(100_000), "error: stdin:1:"),
        (bomb, "error: stdin:"),
    ] {
        let (printed, code) = checked(&text, &[]);
        assert!(printed.starts_with(expected), "{:?}: {printed}", text.get(..40).unwrap_or(&text));
        assert_eq!((printed.lines().count(), code), (1, Some(2)), "{printed}");
    }
    let run = |path: &str| run_in(Path::new("/"), &["check", "--deployment", path]);
    for (path, expected) in [
        ("/nowhere", "error: /nowhere: cannot read the file"),
        ("/dev/zero", "error: /dev/zero: manifests exceed 67108864 bytes"),
    ] {
        let output = run(path);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(printed.starts_with(expected) && output.status.code() == Some(2), "{printed}");
    }
    let (printed, code) = checked_folder(&[("notes.txt", "")]);
    assert_eq!(printed, "error: manifests: folder contains no *.yaml, *.yml or *.json\n");
    assert_eq!(code, Some(2));
}

#[test]
fn invalid_expectations_are_reported() {
    let Some(text) = rendered(PRODUCTION) else { return };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("expect.yaml");
    for (expect, expected) in [
        ("scalling: {}\n", "expect.yaml:1:11: unknown expectation \"scalling\"; use scaling, policies"),
        (
            "scaling: {ratewright: {cpus: 1}}\n",
            "unknown expectation \"cpus\"; use cpu, sustained, replicas, scale_up_at",
        ),
        (
            "scaling: {ratewright: {sustained: soon}}\n",
            "invalid sustained: use a duration, for example 2min or 120s",
        ),
        (
            "scaling: {ratewright: {replicas: many}}\n",
            "invalid replicas: use a number or a range, for example 2..10",
        ),
        ("scaling: {ratewright: {scale_up_at: all}}\n", "invalid scale_up_at: use a percentage"),
        ("scaling: {nobody: {cpu: 1}}\n", "Deployment nobody not found in these manifests"),
        ("policies: {per-ip: often}\n", "invalid expected rate \"often\"; a rate is units/time"),
        ("", "file is empty"),
        ("a: b\n---\nc: d\n", "second document in the file"),
    ] {
        std::fs::write(&file, expect).unwrap();
        let (printed, code) = checked(&text, &["--expect", file.to_str().unwrap()]);
        assert!(printed.contains(expected), "{expect:?}: {printed}");
        assert_eq!(code, Some(2));
    }
}

/// A value of the environment may be a secret, though it should not stand there; and so may any line that cannot be read.
#[test]
fn values_of_variables_are_not_shown() {
    let deployment = "kind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [\n\
         {image: ratewright, args: [serve], env: [{name: A, value: hidden}]}\n]}}}\n";
    let (printed, code) = checked(deployment, &[]);
    assert_eq!(
        printed,
        "error: stdin:4:1: Deployment a has no policy file; add args: [serve, -c, /etc/ratewright]\n"
    );
    assert_eq!(code, Some(2));
    let (printed, code) = checked("kind: Secret\nstringData: {password: hidden\n", &[]);
    assert!(!printed.contains("hidden") && code == Some(2), "{printed}");
}
