//! Man pages and completions, read by man, bash, fish and zsh.

use std::process::Command;

use ratewright_lab::output;
use tempfile::TempDir;

use super::{BINARY, has, output_of, run};

#[test]
fn man_reads_every_page_without_a_warning_and_shows_the_examples() {
    if !has("man") {
        return;
    }
    let folder = TempDir::new().unwrap();
    run(Command::new(BINARY).args(["man", "--folder"]).arg(folder.path()));
    let pages: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 12, "{pages:?}");
    for page in &pages {
        // Examples are not wrapped, and some are long.
        let mut man = Command::new("man");
        man.args(["--warnings", "--local-file"]).arg(page);
        let man = output(man.envs([("MANWIDTH", "200"), ("LC_ALL", "C.UTF-8"), ("MAN_KEEP_FORMATTING", "")]));
        assert!(man.status.success() && man.stderr.is_empty(), "{}: {}", page.display(), output_of(&man));
    }
    let shown = run(Command::new("man")
        .arg("-l")
        .arg(folder.path().join("ratewright-health.1"))
        .env("LC_ALL", "C.UTF-8"));
    let has_line = |part: &str| shown.lines().any(|line| line.trim() == part);
    for line in [
        "EXIT STATUS",
        "0  the instance is ready; with --live, alive",
        "EXAMPLES",
        "ratewright health --live",
    ] {
        assert!(has_line(line), "{line:?} is not a line of its own in {shown}");
    }
    assert!(shown.contains("RATEWRIGHT_ADMIN"), "{shown}");
    assert!(!shown.contains("EXTRA"), "{shown}");
}

#[test]
fn one_page_goes_to_standard_output_and_a_folder_that_cannot_be_written_is_reported() {
    let page = run(Command::new(BINARY).arg("man"));
    assert!(page.starts_with(".TH \"RATEWRIGHT\" \"1\""), "{page}");
    let output = output(Command::new(BINARY).args(["man", "--folder", "/dev/null/man"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_of(&output).starts_with("error: cannot write to /dev/null/man: "),
        "{}",
        output_of(&output)
    );
}

fn script(shell: &str, folder: &TempDir) -> String {
    let path = folder.path().join(shell);
    std::fs::write(&path, run(Command::new(BINARY).args(["completions", shell]))).unwrap();
    path.display().to_string()
}

#[test]
fn bash_completes_a_command() {
    if !has("bash") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let asks = "set -u; source \"$0\"; COMP_WORDS=(ratewright hea); COMP_CWORD=1; COMP_LINE='ratewright hea'; COMP_POINT=14; \
                _ratewright ratewright hea ratewright; echo \"${COMPREPLY[@]}\"";
    let printed = run(Command::new("bash").args(["--norc", "-c", asks]).arg(script("bash", &folder)));
    assert_eq!(printed.trim(), "health");
}

#[test]
fn fish_completes_a_command() {
    if !has("fish") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let asks = "source $argv[1]; complete --do-complete 'ratewright hea'";
    let mut fish = Command::new("fish");
    fish.args(["--no-config", "-c", asks]).arg(script("fish", &folder));
    let printed = run(fish.env("HOME", folder.path()));
    assert_eq!(printed.split('\t').next(), Some("health"), "{printed}");
}

/// zsh completes for terminals only, so a terminal asks it.
#[test]
fn zsh_completes_a_command() {
    if !has("zsh") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let asks = r#"
        zmodload zsh/zpty
        shown=
        wait_for() {
            for _ in {1..800}; do
                if zpty -rt terminal part; then shown+=$part; else sleep 0.05; fi
                [[ $shown == *$1* ]] && return 0
            done
            print -r -- "no $1 in: ${(V)shown}"
            exit 1
        }
        zpty -b terminal 'zsh -f -i'
        zpty -w terminal "autoload -Uz compinit; compinit -u -D; source ${(q)0}; echo load''ed"
        wait_for loaded
        zpty -w -n terminal $'ratewright hea\t'
        wait_for 'ratewright health'
        zpty -d terminal
    "#;
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", asks]).arg(script("zsh", &folder)).env("HOME", folder.path());
    run(&mut zsh);
}
