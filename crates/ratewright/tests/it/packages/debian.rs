//! The Debian package: `deploy/deb`, its files, its installation and removal, and the units for systemd.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use expect_test::expect;
use ratewright_lab::{foreign, output, wait, wait_until, without_settings};
use tempfile::TempDir;

use super::{BINARY, has, is_root, on_other_ports, output_of, root, run, text_of};
use crate::process::Guarded;

/// The package, made once for all tests.
static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian");
    let _ = std::fs::remove_dir_all(&folder);
    make(&mut Command::new(root().join("deploy/deb")), &folder)
});

/// Gives the package that `deploy/deb` makes in a folder, compressed little.
fn make(script: &mut Command, folder: &Path) -> PathBuf {
    let said = run(script.arg(BINARY).arg(folder).arg("-z1").env("SOURCE_DATE_EPOCH", "1700000000"));
    PathBuf::from(said.trim_end())
}

fn has_tools() -> bool {
    has("dpkg-deb") && has("dpkg-shlibdeps") && has("strip")
}

#[test]
fn the_package_has_its_files_with_their_modes() {
    if !has_tools() {
        return;
    }
    let listed = run(Command::new("dpkg-deb").arg("--contents").arg(&*PACKAGE).env("TZ", "UTC"));
    for line in listed.lines() {
        assert!(line.contains(" root/root ") && line.contains(" 2023-11-14 22:13 "), "{line}");
    }
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
    assert_eq!(conffiles, "/etc/default/ratewright\n/etc/ratewright/ratewright.yaml\n");
}

#[test]
fn the_package_says_what_it_is_and_needs() {
    if !has_tools() {
        return;
    }
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(&*PACKAGE).arg(name));
    let depends = field("Depends");
    assert!(depends.starts_with("libc6 (>= ") && depends.contains(", systemd | "), "{depends}");
    let size: u64 = field("Installed-Size").trim().parse().unwrap();
    assert!(size > 10_000, "{size} KiB");
    let architecture = field("Architecture");
    let varying = ["Architecture: ", "Depends: ", "Installed-Size: "];
    let all = run(Command::new("dpkg-deb").arg("--field").arg(&*PACKAGE));
    let fields: Vec<_> =
        all.split_inclusive('\n').filter(|line| !varying.iter().any(|name| line.starts_with(name))).collect();
    expect![[r#"
        Package: ratewright
        Version: 0.1.0-1
        Maintainer: Ratewright maintainers <maintainers@ratewright.invalid>
        Suggests: redis-server
        Section: net
        Priority: optional
        Description: Exact rate limiting for HTTP APIs
         A reverse proxy that limits requests by client, a decision service for programs
         and proxies of your own, and Envoy's rate limit service. Limits are in memory, or
         in Redis for several instances.
    "#]]
    .assert_eq(&fields.concat());
    let file = format!("ratewright_{}_{}.deb", field("Version").trim(), architecture.trim());
    assert_eq!(PACKAGE.file_name().unwrap(), &*file);
    let on_page = file.replace(architecture.trim(), "amd64");
    assert!(text_of("docs/operations/install.md").contains(&on_page), "{on_page} is not on the page");
}

/// Neither the folders, which may have spaces in their names, nor who may read new files make a difference.
#[test]
fn the_same_binary_makes_the_same_package() {
    if !has_tools() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("with spaces ").tempdir().unwrap();
    let mut script = Command::new("sh");
    script.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(root().join("deploy/deb"));
    let other = make(script.env("TMPDIR", folder.path()), &folder.path().join("made here"));
    assert!(std::fs::read(&*PACKAGE).unwrap() == std::fs::read(other).unwrap(), "the packages differ");
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
    if !has_tools() {
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
    if !has_tools() || !is_root() || !has("systemd-sysusers") || !has("deb-systemd-helper") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("var/lib/dpkg/info")).unwrap();
    std::fs::create_dir_all(path("var/lib/dpkg/updates")).unwrap();
    std::fs::write(path("var/lib/dpkg/status"), "").unwrap();
    dpkg(folder.path(), &["--install", PACKAGE.to_str().unwrap()]);
    assert_eq!(dpkg(folder.path(), &["--verify", "ratewright"]), "", "a file has another checksum");

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
    without_settings(&mut serve);
    serve.args(["serve", "-c"]).arg(&configuration).stdout(Stdio::null()).stderr(Stdio::null());
    serve.env("RUNTIME_DIRECTORY", folder.join("run")); // as the unit has it
    std::fs::create_dir(folder.join("run")).unwrap();
    let mut running = Guarded(serve.spawn().unwrap());
    wait_until("the installed program is ready", || {
        assert!(running.0.try_wait().unwrap().is_none(), "it ended");
        let mut health = Command::new(&program);
        output(without_settings(&mut health).args(["health", "--admin", &admin])).status.success()
    });
    let control = folder.join("run/control.sock");
    wait_until("it has a control socket", || control.exists());
    let said = run(Command::new(&program).args(["upgrade", "--control"]).arg(&control));
    let pid = said.split(' ').nth(1).unwrap();
    run(Command::new(&program).args(["health", "--admin", &admin]));
    run(Command::new("kill").arg(pid));
    let process = Path::new("/proc").join(pid);
    wait_until("the new one ends", || !process.exists());
    assert!(wait(&mut running.0).success());
}

/// The units, in a folder of their own, with a path of the program: a link, because a checkout's path may have spaces.
fn units() -> TempDir {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("ratewright");
    std::os::unix::fs::symlink(BINARY, &program).unwrap();
    let program = program.to_str().unwrap();
    for name in ["ratewright.service", "ratewright.socket"] {
        let text = std::fs::read_to_string(root().join("deploy/systemd").join(name)).unwrap();
        std::fs::write(folder.path().join(name), text.replace("/usr/bin/ratewright", program)).unwrap();
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
        let mut verify = foreign("systemd-analyze");
        verify.args(["verify", "--recursive-errors=yes"]).arg(folder.path().join(name));
        let output = output(verify.env("MANPATH", folder.path().join("man")));
        assert!(output.status.success() && output_of(&output).is_empty(), "{name}: {}", output_of(&output));
    }
}

#[test]
fn the_service_is_exposed_by_2_0_at_most() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = units();
    let mut security = foreign("systemd-analyze");
    security
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(folder.path().join("ratewright.service"));
    let output = output(&mut security);
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
