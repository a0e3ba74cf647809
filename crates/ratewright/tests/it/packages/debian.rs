//! The Debian package: `deploy/deb`, its files, its installation and removal, and the units for systemd.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use expect_test::expect;
use ratewright_lab::wait_until;
use tempfile::TempDir;

use super::{BINARY, has, is_root, on_other_ports, output_of, root, run, text_of};
use crate::process::Guarded;
use ratewright_lab::skip;

/// The package, made once for all tests.
static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian");
    let _ = std::fs::remove_dir_all(&folder);
    run(Command::new(root().join("deploy/deb")).arg(BINARY).arg(&folder).arg("--fast"));
    let made = std::fs::read_dir(&folder).unwrap().next().unwrap();
    made.unwrap().path()
});

fn has_cargo_deb() -> bool {
    let is_there = root().join("target/cargo-deb/bin/cargo-deb").exists();
    if !is_there {
        skip("cargo-deb is not installed; make deps installs it");
    }
    is_there && has("dpkg-deb")
}

#[test]
fn the_package_has_its_files_with_their_modes() {
    if !has_cargo_deb() {
        return;
    }
    let listed = run(Command::new("dpkg-deb").arg("--contents").arg(&*PACKAGE));
    let mut files: Vec<_> = listed
        .lines()
        .filter(|line| !line.starts_with('d') && !line.contains("/man1/ratewright-"))
        .map(|line| format!("{} {}\n", line.split(' ').next().unwrap(), line.rsplit(' ').next().unwrap()))
        .collect();
    files.sort_unstable();
    expect![[r#"
        -rw-r----- ./etc/default/ratewright
        -rw-r--r-- ./etc/ratewright/ratewright.yaml
        -rw-r--r-- ./lib/systemd/system/ratewright.service
        -rw-r--r-- ./lib/systemd/system/ratewright.socket
        -rw-r--r-- ./usr/lib/sysusers.d/ratewright.conf
        -rw-r--r-- ./usr/share/bash-completion/completions/ratewright
        -rw-r--r-- ./usr/share/doc/ratewright/README.md
        -rw-r--r-- ./usr/share/doc/ratewright/changelog.Debian.gz
        -rw-r--r-- ./usr/share/doc/ratewright/copyright
        -rw-r--r-- ./usr/share/doc/ratewright/licences.txt.gz
        -rw-r--r-- ./usr/share/fish/vendor_completions.d/ratewright.fish
        -rw-r--r-- ./usr/share/man/man1/ratewright.1.gz
        -rw-r--r-- ./usr/share/zsh/vendor-completions/_ratewright
        -rwxr-xr-x ./usr/bin/ratewright
    "#]]
    .assert_eq(&files.concat());
    assert!(listed.contains("./usr/share/man/man1/ratewright-health.1.gz"), "{listed}");
    let conffiles = run(Command::new("dpkg-deb").args(["--info"]).arg(&*PACKAGE).arg("conffiles"));
    let mut conffiles: Vec<_> = conffiles.lines().collect();
    conffiles.sort_unstable();
    assert_eq!(conffiles, ["/etc/default/ratewright", "/etc/ratewright/ratewright.yaml"]);
    let depends = run(Command::new("dpkg-deb").arg("--field").arg(&*PACKAGE).arg("Depends"));
    assert!(depends.contains("libc6 (>= ") && depends.contains("systemd-sysusers"), "{depends}");
}

/// The comments of the configuration say what to remove; what is left then is valid.
#[test]
fn the_configuration_is_valid_with_all_its_examples() {
    let folder = TempDir::new().unwrap();
    let text = text_of("deploy/debian/ratewright.yaml");
    let (head, body) = text.split_once("\nlisten:\n").unwrap();
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') || rest.starts_with("  ") => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    let body: String = body.lines().map(uncommented).collect();
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, format!("{head}\nlisten:\n{body}")).unwrap();
    let meaning =
        run(Command::new(BINARY).arg("check").arg(&file).env("RATEWRIGHT_TOKEN", "a-token-for-tests"));
    for part in ["buckets in Redis", "per-client  50 at once", "route app: /** to http://127.0.0.1:3000"] {
        assert!(meaning.contains(part), "{part} is not in {meaning}");
    }
}

/// Every path in the page's table of files is in the package, but for the one that systemd makes.
#[test]
fn the_page_on_installation_names_files_of_the_package() {
    if !has_cargo_deb() {
        return;
    }
    let listed = run(Command::new("dpkg-deb").arg("--contents").arg(&*PACKAGE));
    let page = text_of("docs/operations/install.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `/")?.split('`').next());
    let paths: Vec<_> = rows.filter(|path| !path.starts_with("run/")).collect();
    assert_eq!(paths.len(), 5, "{paths:?}");
    for path in paths {
        assert!(
            listed.lines().any(|line| line.ends_with(&format!(" ./{path}"))),
            "/{path} is not in the package"
        );
    }
}

/// Runs dpkg on a folder in place of the system. The maintainer scripts run on this machine, with DPKG_ROOT.
fn dpkg(folder: &Path, args: &[&str]) -> String {
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", folder.display())).args(["--force-script-chrootless", "--force-depends"]);
    run(dpkg.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn files_in(folder: &Path) -> Vec<String> {
    let found = run(Command::new("find").args([".", "!", "-type", "d"]).current_dir(folder));
    let is_ours = |line: &&str| !line.starts_with("./var/lib/dpkg/");
    let mut files: Vec<_> = found.lines().filter(is_ours).map(str::to_owned).collect();
    files.sort_unstable();
    files
}

#[test]
fn the_package_installs_runs_and_is_purged() {
    if !has_cargo_deb() || !is_root() || !has("systemd-sysusers") || !has("deb-systemd-helper") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("var/lib/dpkg/info")).unwrap();
    std::fs::create_dir_all(path("var/lib/dpkg/updates")).unwrap();
    std::fs::write(path("var/lib/dpkg/status"), "").unwrap();
    dpkg(folder.path(), &["--install", PACKAGE.to_str().unwrap()]);

    let users = std::fs::read_to_string(path("etc/passwd")).unwrap();
    assert!(
        users.lines().any(|line| line.starts_with("ratewright:x:") && line.ends_with("nologin")),
        "{users}"
    );
    let wanted = path("etc/systemd/system/multi-user.target.wants/ratewright.service");
    assert!(wanted.is_symlink(), "the service is enabled");
    assert!(!path("etc/systemd/system/sockets.target.wants").exists(), "the socket is not");
    runs(folder.path());

    dpkg(folder.path(), &["--purge", "ratewright"]);
    let users = ["etc/passwd", "etc/group"].map(|file| std::fs::read_to_string(path(file)).unwrap());
    assert_eq!(users.concat(), "", "no user is left");
    let left: Vec<_> =
        files_in(folder.path()).into_iter().filter(|file| file.contains("ratewright")).collect();
    assert_eq!(left, [""; 0], "files are left");
}

/// Starts the installed program on the installed configuration, and replaces it as a newer package would.
fn runs(folder: &Path) {
    let program = folder.join("usr/bin/ratewright");
    let configuration = folder.join("etc/ratewright");
    run(Command::new(&program).arg("check").arg(&configuration));
    let admin = on_other_ports(&configuration.join("ratewright.yaml"));
    let mut serve = Command::new(&program);
    serve.args(["serve", "-c"]).arg(&configuration).stdout(Stdio::null()).stderr(Stdio::null());
    serve.env("RUNTIME_DIRECTORY", folder.join("run")); // as the unit has it
    std::fs::create_dir(folder.join("run")).unwrap();
    let mut running = Guarded(serve.spawn().unwrap());
    wait_until("the installed program is ready", || {
        assert!(running.0.try_wait().unwrap().is_none(), "it ended");
        Command::new(&program).args(["health", "--admin", &admin]).output().unwrap().status.success()
    });
    let control = folder.join("run/control.sock");
    wait_until("it has a control socket", || control.exists());
    let said = run(Command::new(&program).args(["upgrade", "--control"]).arg(&control));
    let pid = said.split(' ').nth(1).unwrap();
    run(Command::new(&program).args(["health", "--admin", &admin]));
    run(Command::new("kill").arg(pid));
    let process = Path::new("/proc").join(pid);
    wait_until("the new one ends", || !process.exists());
    assert!(running.0.wait().unwrap().success());
}

/// The units, in a folder of their own, with the program's path as it is here.
fn units() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in ["ratewright.service", "ratewright.socket"] {
        let text = std::fs::read_to_string(root().join("deploy/systemd").join(name)).unwrap();
        std::fs::write(folder.path().join(name), text.replace("/usr/bin/ratewright", BINARY)).unwrap();
    }
    run(Command::new(BINARY).args(["man", "--folder"]).arg(folder.path().join("man/man1")));
    folder
}

#[test]
fn systemd_analyze_accepts_the_units() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = units();
    for name in ["ratewright.service", "ratewright.socket"] {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--recursive-errors=yes"]).arg(folder.path().join(name));
        let output = verify.env("MANPATH", folder.path().join("man")).output().unwrap();
        assert!(output.status.success() && output_of(&output).is_empty(), "{name}: {}", output_of(&output));
    }
}

#[test]
fn the_service_is_exposed_by_2_0_at_most() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = units();
    let mut security = Command::new("systemd-analyze");
    security
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(folder.path().join("ratewright.service"));
    let output = security.output().unwrap();
    let exposure = output_of(&output);
    assert!(output.status.success(), "{exposure}");
    assert!(exposure.contains("Overall exposure level for ratewright.service: 1."), "{exposure}");
}

#[test]
fn the_service_may_drain_and_may_start_its_successor() {
    let unit = std::fs::read_to_string(root().join("deploy/systemd/ratewright.service")).unwrap();
    let value = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("the unit has no {name}"))
    };
    let seconds: u32 = value("TimeoutStopSec").trim_end_matches('s').parse().unwrap();
    assert!(seconds > 5 + 20, "longer than stop_delay and drain_timeout");
    assert_eq!(["Type", "NotifyAccess"].map(value), ["notify", "all"]);
    assert_eq!(value("ExecStart"), "/usr/bin/ratewright serve -c /etc/ratewright");
    assert!(!unit.contains("NoExecPaths"), "the program starts its successor");
}
