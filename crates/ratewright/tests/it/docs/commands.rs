//! Shell commands that are not run, because they install something, stay in the foreground, need Docker or take long.

use std::process::Command;

use ratewright_lab::output;

use crate::packages::{root, text_of};
use crate::process::run;

/// Checks that the commands are well-formed, and that their make targets, tests and options exist.
pub(super) fn check_shell(text: &str) -> Result<(), String> {
    let parsed = output(Command::new("bash").args(["-n", "-c", text]));
    if !parsed.status.success() {
        return Err(String::from_utf8_lossy(&parsed.stderr).into_owned());
    }
    let text = text.replace("\\\n", " ");
    for line in text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim()) {
        for command in line.split(['|', ';']).flat_map(|part| part.split("&&")) {
            let words: Vec<&str> =
                command.split_whitespace().skip_while(|word| is_assignment(word)).collect();
            check_command(&words).map_err(|objection| format!("{command}: {objection}"))?;
        }
    }
    Ok(())
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

fn check_command(words: &[&str]) -> Result<(), String> {
    let holds = |is_right: bool, objection: &str| if is_right { Ok(()) } else { Err(objection.to_owned()) };
    match words {
        ["make", targets @ ..] => targets.iter().filter(|word| !is_assignment(word)).try_for_each(|target| {
            holds(text_of("Makefile").contains(&format!("\n{target}:")), "the Makefile has no such target")
        }),
        ["cargo", "test", "-p", package, "--test", "it", filter] => {
            let file = filter.trim_end_matches(['"', ':']).replace("::", "/");
            let file = root().join(format!("crates/{package}/tests/it/{file}.rs"));
            holds(file.is_file(), "the test does not exist")
        }
        ["cargo", "test", "-p", package, ..] => {
            holds(root().join("crates").join(package).is_dir(), "the crate does not exist")
        }
        ["cargo", "install", "--path", path, ..] => {
            holds(root().join(path).is_dir(), "the crate does not exist")
        }
        ["cargo", "run", "--release", "--", rest @ ..] | ["ratewright", rest @ ..] => check_options(rest),
        ["sudo", rest @ ..] if !rest.is_empty() => check_command(rest),
        _ => Ok(()),
    }
}

/// Checks that a command of the program has these options.
fn check_options(words: &[&str]) -> Result<(), String> {
    let is_name = |word: &&&str| !word.starts_with('-') && word.chars().all(|c| c.is_ascii_lowercase());
    let mut command: Vec<&str> = words.iter().take_while(is_name).copied().collect();
    let help = loop {
        let asked = run(&[&command[..], &["--help"]].concat());
        match (asked.status.success(), command.len()) {
            (true, _) => break String::from_utf8(asked.stdout).unwrap(),
            (false, 0 | 1) => return Err(format!("the program has no command {command:?}")),
            (false, _) => command.pop(),
        };
    };
    let known = |option: &str| {
        help.split(|c: char| c.is_whitespace() || c == ',' || c == '[' || c == '=').any(|word| word == option)
    };
    for option in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
        let option = option.split('=').next().unwrap_or_default();
        if !known(option) {
            return Err(format!("{} has no option {option}", command.join(" ")));
        }
    }
    Ok(())
}

#[test]
fn commands_with_mistakes_are_found() {
    for right in [
        "make test",
        "ratewright check a.yaml",
        "FOO=1 ratewright serve -c a.yaml",
        "ratewright suggest access.log | head",
    ] {
        assert_eq!(check_shell(right), Ok(()), "{right}");
    }
    for wrong in [
        "make tests",
        "ratewright chek a.yaml",
        "ratewright check --profil x",
        "cargo test -p ratewright --test it nothing::",
        "if",
    ] {
        assert!(check_shell(wrong).is_err(), "{wrong}");
    }
}
