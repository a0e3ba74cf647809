//! The policy file on the command line: as an argument, by `-c`, or none.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use ratewright_lab::{output, without_settings};

use crate::process::{Ratewright, command, listen, on_free_ports, run_in};

const POLICY: &str = "policies: [{name: login, by: ip, quota: {rate: 1/h}}]\n";

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The policy file can be an argument, with or without `-c`; both at once are an error.
#[test]
fn serve_takes_its_file_as_an_argument_or_by_an_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "limits.yaml", &on_free_ports(POLICY));
    for args in [&[file.as_str()][..], &["-c", &file], &["--config", &file]] {
        let ratewright = Ratewright::serve(args);
        assert!(ratewright.banner.contains(", 1 policy,"), "{args:?}: {}", ratewright.banner);
        assert!(!ratewright.log().iter().any(|line| line.contains("is ignored")), "{args:?}");
    }
    let both = run_in(folder.path(), &["serve", "limits.yaml", "-c", "limits.yaml"]);
    let error = String::from_utf8(both.stderr).unwrap();
    assert_eq!(both.status.code(), Some(2), "{error}");
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn check_takes_its_files_as_arguments_or_by_options() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "limits.yaml", POLICY);
    write(folder.path(), "wrong.yaml", "policies: [{name: login, quota: {rate: soon}}]\n");
    let check = |args: &[&str]| {
        let output = run_in(folder.path(), &[&["check"], args].concat());
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), out, err)
    };
    let (code, out, err) = check(&["limits.yaml"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("limits.yaml is valid") && out.contains("\n  login  "), "{out}");
    assert_eq!(check(&["-c", "limits.yaml"]), (code, out.clone(), err.clone()), "the same");
    assert_eq!(check(&["--config", "limits.yaml"]), (code, out.clone(), err), "the same");
    for args in [["wrong.yaml", ""], ["-c", "wrong.yaml"], ["limits.yaml", "-cwrong.yaml"]] {
        let args: Vec<_> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let (code, _, err) = check(&args);
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.starts_with("error: wrong.yaml:1:"), "{args:?}: {err}");
    }
}

/// Runs the program where it cannot open a socket: it ends after its first messages. Otherwise it would listen on its
/// default ports.
#[track_caller]
fn run_without_descriptors(folder: &Path, args: &[&str]) -> Output {
    // One for the libraries that it loads. The shell may have inherited more.
    let script = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n 4; exec "$@""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_ratewright")]).args(args).current_dir(folder);
    output(without_settings(&mut shell))
}

/// Otherwise the program would silently run with its defaults, without the limits of the file.
#[test]
fn an_unused_ratewright_yaml_in_the_working_folder_logs_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ratewright.yaml", &on_free_ports(POLICY));
    let hint = "ratewright.yaml in this folder is ignored; to use it: ratewright serve ratewright.yaml";
    for args in [&[][..], &["serve"]] {
        let output = run_without_descriptors(folder.path(), args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(hint) && error.contains("cannot start a thread"), "{args:?}: {error}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = format!("'{}'", taken.local_addr().unwrap());
    write(folder.path(), "other.yaml", &listen(&[("api", &taken_address)]));
    for (args, variable) in
        [(&["serve", "other.yaml"][..], ""), (&["-c", "other.yaml"], ""), (&["serve"], "other.yaml")]
    {
        let mut command = command(args);
        let output = output(command.env("RATEWRIGHT_CONFIG", variable).current_dir(folder.path()));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("is another program using it?"), "{args:?}: {error}");
        assert!(!error.contains("is ignored"), "{args:?}: {error}");
    }
    let hint = "ratewright.yaml in this folder is not checked; to check it: ratewright check ratewright.yaml";
    let checked = |args: &[&str]| String::from_utf8(run_in(folder.path(), args).stderr).unwrap();
    assert!(checked(&["check"]).contains(hint), "{}", checked(&["check"]));
    assert!(!checked(&["check", "ratewright.yaml"]).contains(hint));
    std::fs::remove_file(folder.path().join("ratewright.yaml")).unwrap();
    let error = String::from_utf8(run_without_descriptors(folder.path(), &["serve"]).stderr).unwrap();
    assert!(error.contains("cannot start a thread") && !error.contains("is ignored"), "{error}");
}
