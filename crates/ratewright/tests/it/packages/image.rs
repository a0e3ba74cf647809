//! The image and the compose file. Tests have no container engine: they assemble the files of the final stage as the
//! Dockerfile does, with the libraries of its base image, and run the program with that folder as its root.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ratewright_lab::{Prometheus, output, wait_until, without_environment};
use serde_json::Value;
use tempfile::TempDir;

use super::{BINARY, is_root, on_other_ports, output_of, python_tool, root, run, text_of};
use crate::process::{Guarded, Ratewright};

/// The final stage of the Dockerfile: its instructions with their arguments, continued lines joined.
fn final_stage() -> Vec<(String, String)> {
    let text = text_of("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let all: Vec<_> = lines.map(|line| line.split_once(' ').unwrap()).collect();
    let start = all.iter().rposition(|(name, _)| *name == "FROM").unwrap();
    all[start..].iter().map(|(name, rest)| ((*name).to_owned(), rest.trim().to_owned())).collect()
}

/// The only argument of an instruction.
fn instruction(name: &str) -> String {
    let stage = final_stage();
    let found: Vec<_> = stage.iter().filter(|(known, _)| known == name).collect();
    let [(_, argument)] = &found[..] else { panic!("{name} stands there {} times", found.len()) };
    argument.clone()
}

/// The words of an instruction in its exec form. A shell would be needed for the other form.
fn exec_form(argument: &str) -> Vec<String> {
    serde_json::from_str(argument).unwrap_or_else(|_| panic!("not in exec form: {argument}"))
}

/// Does what one COPY says.
fn copy(argument: &str, folder: &Path) {
    let words: Vec<_> = argument.split_whitespace().collect();
    let (from_build, words) = match words[0].strip_prefix("--from=") {
        Some(stage) => (Some(stage), &words[1..]),
        None => (None, &words[..]),
    };
    let (target, sources) = words.split_last().unwrap();
    for source in sources {
        let (path, mode) = match from_build {
            Some(stage) => {
                assert_eq!((stage, *source), ("build", "/ratewright"), "the build stage makes one file");
                (PathBuf::from(BINARY), 0o755)
            }
            None => (root().join(source), 0o644),
        };
        let mut to = folder.join(target.trim_start_matches('/'));
        if target.ends_with('/') {
            to.push(Path::new(source).file_name().unwrap());
        }
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&path, &to).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Puts the libraries of the base image into a root folder.
fn add_libraries(folder: &Path) {
    for word in run(Command::new("ldd").arg(BINARY)).split_whitespace().filter(|word| word.starts_with('/')) {
        let to = folder.join(word.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(word, to).unwrap();
    }
}

#[test]
fn the_image_runs_without_root_and_without_a_shell() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, argument) in final_stage() {
        if name == "COPY" {
            copy(&argument, folder.path());
        }
    }
    add_libraries(folder.path());
    let admin = on_other_ports(&folder.path().join("etc/ratewright/ratewright.yaml"));
    let user = instruction("USER");
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "USER {user}");
    let in_image = |words: &[String]| {
        let mut chroot = Command::new("chroot");
        without_environment(&mut chroot).arg(format!("--userspec={user}")).arg(folder.path()).args(words);
        chroot.env("PATH", "/usr/sbin:/usr/bin").env("RATEWRIGHT_ADMIN", &admin);
        chroot.stdout(Stdio::null()).stderr(Stdio::piped());
        chroot
    };
    let started = [exec_form(&instruction("ENTRYPOINT")), exec_form(&instruction("CMD"))].concat();
    let mut running = Guarded(in_image(&started).spawn().unwrap());
    let health = instruction("HEALTHCHECK");
    let health = exec_form(health.split_once(" CMD ").unwrap().1);
    wait_until("the program in the image is healthy", || {
        assert!(running.0.try_wait().unwrap().is_none(), "it ended");
        output(&mut in_image(&health)).status.success()
    });
}

/// EXPOSE names the ports that other machines reach, and the build has what the final stage copies.
#[test]
fn the_image_opens_the_gateway_only() {
    let file = text_of("deploy/docker/ratewright.yaml");
    let open: Vec<_> =
        file.lines().filter_map(|line| line.split_once("0.0.0.0:")).map(|(_, port)| port).collect();
    assert_eq!(open, [instruction("EXPOSE")]);
    let ignored = text_of(".dockerignore");
    for path in ["deploy/docker", "LICENSE-*", "crates", "Cargo.lock"] {
        assert!(ignored.lines().any(|line| line == format!("!{path}")), "{path} is not in the build");
    }
}

#[test]
fn hadolint_accepts_the_dockerfile() {
    let Some(mut hadolint) = python_tool("hadolint") else { return };
    let output = output(hadolint.args(["--failure-threshold", "style", "Dockerfile"]));
    assert!(output.status.success() && output_of(&output).is_empty(), "{}", output_of(&output));
}

#[test]
fn the_compose_file_follows_its_schema() {
    let Some(mut check) = python_tool("check-jsonschema") else { return };
    run(check.args(["--builtin-schema", "vendor.compose-spec", "docker-compose.yaml"]));
}

fn compose() -> Value {
    serde_saphyr::from_str(&text_of("docker-compose.yaml")).unwrap()
}

#[test]
fn every_service_is_pinned_hardened_and_monitored() {
    let compose = compose();
    for (name, service) in compose["services"].as_object().unwrap() {
        let of = |setting: &str| {
            if service[setting].is_null() { &service["<<"][setting] } else { &service[setting] }
        };
        let (_, tag) = service["image"].as_str().unwrap().rsplit_once(':').expect("a tag");
        assert!(
            tag.starts_with(|c: char| c.is_ascii_digit() || c == 'v') && tag.matches('.').count() == 2,
            "{name}: {tag}"
        );
        assert_eq!(*of("read_only"), Value::Bool(true), "{name}");
        assert_eq!(of("cap_drop")[0], "ALL", "{name}");
        assert_eq!(of("security_opt")[0], "no-new-privileges:true", "{name}");
        assert_eq!(service["healthcheck"]["test"][0], "CMD", "{name}");
        for port in service["ports"].as_array().into_iter().flatten() {
            assert!(
                port.as_str().unwrap().starts_with("127.0.0.1:"),
                "{name} opens {port} to other machines"
            );
        }
        for other in service["depends_on"].as_object().into_iter().flat_map(|others| others.keys()) {
            assert!(!compose["services"][other].is_null(), "{name} depends on {other}");
        }
        for mount in service["volumes"].as_array().into_iter().flatten() {
            let source = mount.as_str().unwrap().split(':').next().unwrap();
            let is_there = !source.starts_with('.') || root().join(source).exists();
            assert!(is_there, "{name} mounts {source}");
        }
    }
}

/// The services' names and ports are those that the mounted files use.
#[test]
fn the_mounted_files_fit_together() {
    let (compose, checked) = (
        compose(),
        run(Command::new(BINARY).args(["check", "deploy/compose/ratewright"]).current_dir(root())),
    );
    assert!(checked.contains("valid; buckets in Redis"), "{checked}");
    let file = text_of("deploy/compose/ratewright/ratewright.yaml");
    for (part, service) in [("redis://redis:6379", "redis"), ("http://app:8080", "app")] {
        assert!(file.contains(part) && !compose["services"][service].is_null(), "{part}");
    }
    assert_eq!(compose["services"]["prometheus"]["network_mode"], "service:ratewright");
    let opened = compose["services"]["ratewright"]["ports"].to_string();
    assert!(file.contains("gateway: 0.0.0.0:8000") && opened.contains(":8000:8000"), "{opened}");

    // Prometheus shares the network of the container, so its target is the admin listener on loopback.
    let scraped = text_of("deploy/compose/prometheus.yml");
    let target = scraped.split("targets: [\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(file.contains(&format!("admin: {target}")), "Prometheus scrapes {target}");
    let ratewright = Ratewright::start("");
    let prometheus = Prometheus::scraping(&ratewright.admin, "/metrics");
    wait_until("Prometheus scrapes without a token", || prometheus.target().0);
}
