//! The commit that a build reports: `build.rs`, compiled alone and run in several folders. The date that packages
//! carry: `deploy/commit-date`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use super::{GIT_VARIABLES, has_git, root, run};

static BUILD_SCRIPT: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    run(Command::new("rustc").args(["--edition", "2024", "-o"]).arg(&program).arg(source));
    program
});

/// What the build script prints in a folder: the commit, and the files whose change makes it run again.
fn built_in(folder: &Path, variables: &[(&str, &str)]) -> (String, Vec<PathBuf>) {
    let mut script = Command::new(&*BUILD_SCRIPT);
    script.current_dir(folder).env_remove("RATEWRIGHT_COMMIT").env("PROFILE", "release");
    GIT_VARIABLES.iter().for_each(|name| _ = script.env_remove(name));
    // The repository is the folder's own, not one around it.
    script.env("GIT_CEILING_DIRECTORIES", std::env::temp_dir()).envs(variables.iter().copied());
    let printed = run(&mut script);
    let values = |key: &str| -> Vec<String> {
        let values = printed.lines().filter_map(|line| line.strip_prefix("cargo::")?.strip_prefix(key));
        values.map(str::to_owned).collect()
    };
    let watched = values("rerun-if-changed=").iter().map(|path| folder.join(path)).collect();
    (values("rustc-env=BUILD_COMMIT=").concat(), watched)
}

fn git(folder: &Path, args: &[&str]) -> String {
    let mut git = super::git();
    git.args(["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]);
    run(git.args(args).current_dir(folder)).trim().to_owned()
}

/// A repository with one commit.
fn repository() -> TempDir {
    let folder = TempDir::new().unwrap();
    git(folder.path(), &["init", "--quiet"]);
    std::fs::write(folder.path().join("build.rs"), "").unwrap();
    git(folder.path(), &["add", "build.rs"]);
    git(folder.path(), &["commit", "--quiet", "-m", "first"]);
    folder
}

fn head(folder: &Path) -> String {
    git(folder, &["rev-parse", "--short=12", "HEAD"])
}

#[test]
fn the_commit_is_that_of_the_checkout_and_of_a_worktree() {
    if !has_git() {
        return;
    }
    let (main, other) = (repository(), TempDir::new().unwrap());
    let worktree = other.path().join("worktree");
    git(main.path(), &["worktree", "add", "--quiet", "-b", "other", worktree.to_str().unwrap()]);
    for folder in [main.path(), &worktree] {
        let (commit, watched) = built_in(folder, &[]);
        assert_eq!(commit, head(folder));
        assert!(watched.len() > 2 && watched.iter().all(|path| path.exists()), "{watched:?}");
        let texts = || watched.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
        let before = texts();
        git(folder, &["commit", "--quiet", "--allow-empty", "-m", "another"]);
        assert_ne!(texts(), before, "a commit changes none of the files that cargo watches: {watched:?}");
        assert_eq!(built_in(folder, &[]).0, head(folder));
    }
}

#[test]
fn without_git_the_commit_is_named_by_the_environment_or_unknown() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("build.rs"), "").unwrap();
    assert_eq!(built_in(folder.path(), &[]).0, "unknown");
    assert_eq!(built_in(folder.path(), &[("PATH", "")]).0, "unknown", "there is no git");
    let named = ("RATEWRIGHT_COMMIT", "0123456789abcdef0123456789abcdef01234567");
    assert_eq!(built_in(folder.path(), &[named]).0, "0123456789ab");
    assert_eq!(built_in(folder.path(), &[("RATEWRIGHT_COMMIT", "a b\n")]).0, "unknown");
}

/// Sources that were unpacked in somebody else's repository are not of its commit.
#[test]
fn a_parent_repository_is_ignored() {
    if !has_git() {
        return;
    }
    let folder = repository();
    let inner = folder.path().join("vendor");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("build.rs"), "").unwrap();
    assert_eq!(built_in(&inner, &[]).0, "unknown");
}

#[test]
fn debug_builds_do_not_ask_git() {
    if !has_git() {
        return;
    }
    let folder = repository();
    let (commit, watched) = built_in(folder.path(), &[("PROFILE", "debug")]);
    assert_eq!((commit.as_str(), watched.len()), ("unknown", 1));
}

#[test]
fn packages_have_the_date_of_the_commit_or_of_the_changelog() {
    let has_git = has_git();
    let folder = if has_git { repository() } else { TempDir::new().unwrap() };
    let deploy = folder.path().join("deploy");
    std::fs::create_dir_all(deploy.join("debian")).unwrap();
    std::fs::copy(root().join("deploy/commit-date"), deploy.join("commit-date")).unwrap();
    let entries = ["Tue, 14 Nov 2023 23:13:20 +0100", "Mon, 13 Nov 2023 00:00:00 +0000"].map(|date| {
        format!("a (1-1) unstable; urgency=medium\n\n  * It -- changed.\n\n -- A <a@example.com>  {date}\n")
    });
    std::fs::write(deploy.join("debian/changelog"), entries.join("\n")).unwrap();
    let date = |epoch: Option<&str>| {
        let mut script = Command::new("bash");
        script.arg(deploy.join("commit-date")).env_remove("SOURCE_DATE_EPOCH");
        run(script.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch)))).trim().to_owned()
    };
    assert_eq!(date(None), "1700000000", "these files are not of the repository around them");
    assert_eq!(date(Some("1")), "1");
    if !has_git {
        return;
    }
    git(folder.path(), &["add", "deploy"]);
    git(folder.path(), &["commit", "--quiet", "-m", "second"]);
    assert_eq!(date(None), git(folder.path(), &["log", "-1", "--format=%ct"]));
}
