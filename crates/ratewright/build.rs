//! Tells the program which commit it is built from, for `ratewright --version`.
//!
//! The commit is the variable RATEWRIGHT_COMMIT if that is set (for builds without git: an image, a tarball), or else what git
//! says, or else `unknown`. The script runs again only when HEAD moves. It does not tell whether files were modified: cargo
//! would not run it again for each of them, so the mark would often be wrong.
//!
//! Debug builds do not ask git. They are mostly built from modified files, so a commit would mislead; and after each commit the
//! crate and its tests would be compiled again, which takes minutes.

use std::path::Path;
use std::process::Command;

/// Digits of a commit's id that are shown.
const N_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RATEWRIGHT_COMMIT");
    let profile = variable("PROFILE").unwrap_or_default();
    let of_git = || if profile == "debug" { None } else { git_commit() };
    let commit = named_commit().or_else(of_git).unwrap_or_else(|| "unknown".to_owned());
    // Not RATEWRIGHT_…: `cargo run` hands these to the program, which would take RATEWRIGHT_PROFILE for its --profile.
    println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=BUILD_PROFILE={profile}");
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "a build script reads the environment of the build")]
    std::env::var(name).ok()
}

/// The commit that the environment names.
fn named_commit() -> Option<String> {
    let commit = variable("RATEWRIGHT_COMMIT")?;
    let is_id = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| commit.chars().take(N_DIGITS).collect())
}

/// The commit that is checked out. Nothing, if this file is not in git: then the repository is somebody else's.
fn git_commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // Of these, HEAD changes with the branch, its log with each commit. Without a log the branch's own file tells.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]).unwrap_or_default();
    for name in ["HEAD", "logs/HEAD", "packed-refs", &branch] {
        // A file that does not exist would make cargo run this at every build.
        let path = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).is_file());
        path.inspect(|path| println!("cargo::rerun-if-changed={path}"));
    }
    git(&["rev-parse", &format!("--short={N_DIGITS}"), "HEAD"])
}

/// What git prints, if it succeeds.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| printed.trim().to_owned())
}
