//! As the first process of a container, to which the kernel does not deliver signals that it does not handle, and which inherits
//! processes whose parents are gone.

use std::process::{Command, Stdio};

use ratewright_lab::{output, skip_here, wait, wait_until};
use tempfile::TempDir;

use crate::process::{Guarded, listen, program, program_by};

/// Starts the program as the first process of a namespace, and runs a script beside it, with the program's process id as this
/// machine sees it. The script's output, and the program's exit status.
fn as_pid_1(extra: &str, script: impl FnOnce(&str, &TempDir)) -> Option<i32> {
    let can = Command::new("unshare").args(["--pid", "--fork", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        skip_here("processes cannot be put into a namespace here");
        return None;
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let control = folder.path().join("control.sock");
    let listen = listen(&[("control", &format!("'{}'", control.display()))]);
    std::fs::write(&file, format!("{listen}policies: []\n{extra}")).unwrap();
    let mut command = program_by(&["unshare", "--pid", "--fork", "--kill-child"]);
    command.arg("serve").arg(&file);
    let mut unshare = Guarded(command.stderr(Stdio::null()).spawn().unwrap());
    wait_until("it serves", || control.exists());
    let children = output(Command::new("pgrep").args(["-P", &unshare.0.id().to_string()]));
    let pid = String::from_utf8(children.stdout).unwrap().trim().to_owned();
    script(&pid, &folder);
    wait(&mut unshare.0).code()
}

fn kill(signal: &str, pid: &str) {
    assert!(output(Command::new("kill").args(["-s", signal, pid])).status.success());
}

#[test]
fn the_first_process_of_a_container_stops_on_sigterm_with_status_0() {
    let status = as_pid_1("stop_delay: 0s\n", |pid, _| kill("TERM", pid));
    assert!(matches!(status, Some(0) | None), "{status:?}");
}

/// A second ctrl-c ends it at once, as elsewhere.
#[test]
fn the_first_process_of_a_container_can_be_interrupted() {
    let status = as_pid_1("stop_delay: 1h\n", |pid, folder| {
        kill("TERM", pid);
        wait_until("it stops", || !folder.path().join("control.sock").exists());
        wait_until("it ends", || {
            let _ = Command::new("kill").args(["-s", "INT", pid]).stderr(Stdio::null()).status();
            !std::path::Path::new("/proc").join(pid).exists()
        });
    });
    assert!(matches!(status, Some(130) | None), "{status:?}");
}

/// An orphan ends and must be waited for; else its entry in the process table stays for ever.
#[test]
fn the_first_process_of_a_container_waits_for_orphans() {
    let status = as_pid_1("stop_delay: 0s\n", |pid, _| {
        // A shell in the namespace leaves a child behind, whose new parent is the first process. It ends with its
        // input.
        let script = "exec 3<&0; (read -r line <&3 &)";
        let mut shell = Command::new("nsenter");
        let shell = shell.args(["--pid", "--target", pid, "sh", "-c", script]).stdin(Stdio::piped());
        let mut shell = Guarded(shell.spawn().unwrap());
        let input = shell.0.stdin.take();
        assert!(wait(&mut shell.0).success());
        let children = || {
            let listed = output(Command::new("ps").args(["-o", "stat=", "--ppid", pid]));
            String::from_utf8(listed.stdout).unwrap().trim().to_owned()
        };
        wait_until("the first process has the child", || !children().is_empty());
        drop(input);
        wait_until("no child is left", || children().is_empty());
        kill("TERM", pid);
    });
    assert!(matches!(status, Some(0) | None), "{status:?}");
}

/// The container would end with its first process, and take the new one along.
#[test]
fn the_first_process_of_a_container_is_not_upgraded() {
    let status = as_pid_1("stop_delay: 0s\n", |pid, folder| {
        let control = folder.path().join("control.sock");
        let upgrade = output(program().args(["upgrade", "--control"]).arg(control));
        let said = String::from_utf8_lossy(&upgrade.stderr);
        assert_eq!(upgrade.status.code(), Some(1), "{said}");
        assert!(said.contains("start a container with the new version instead"), "{said}");
        kill("TERM", pid);
    });
    assert!(matches!(status, Some(0) | None), "{status:?}");
}
