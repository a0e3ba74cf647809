//! The files that a reader of a page would have: those that the page shows, certificates, the example log and the examples.

use std::os::unix::fs::symlink;
use std::path::Path;

use ratewright_lab::{output, write_certificates};

use super::markdown::blocks;
use crate::packages::root;
use crate::process::command;

/// Names of certificates and keys on the pages, and the lab's file for each.
const CERTIFICATES: [(&str, &str); 3] =
    [("cert.pem", "server.pem"), ("key.pem", "server.key"), ("clients.pem", "ca.pem")];

/// Writes the files of a page into a folder. A block whose first line is a comment with a name, `# limits.yaml`, is a file of
/// that name; a file that is already there stays.
pub(super) fn write_files(page: &str, folder: &Path) {
    for block in blocks(page).iter().filter(|block| block.language.starts_with('y')) {
        let first = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
        let is_name = |name: &&str| {
            [".yaml", ".yml"].iter().any(|end| name.ends_with(end)) && !name.contains(['/', ' '])
        };
        if let Some(name) = first.filter(is_name).filter(|name| !folder.join(name).exists()) {
            std::fs::write(folder.join(name), block.text).unwrap();
        }
    }
    write_certificates(folder);
    for (name, file) in CERTIFICATES {
        std::fs::copy(folder.join(file), folder.join(name)).unwrap();
    }
    std::fs::copy(root().join("examples/logs/access.log"), folder.join("access.log")).unwrap();
    symlink(root().join("examples"), folder.join("examples")).unwrap();
}

/// What `ratewright check` says against a policy file, in a folder with the files of its page.
pub(super) fn objection_of_check(file: &str, folder: &Path, more: &[&str]) -> Option<String> {
    let path = folder.join("checked.yaml");
    std::fs::write(&path, file.replace("/etc/ratewright/", &format!("{}/", folder.display()))).unwrap();
    let mut check = command(&["check", "checked.yaml"]);
    for name in ["JWT_SECRET", "RATEWRIGHT_TOKEN", "REDIS_PASSWORD"] {
        check.env(name, "a-value-for-tests-long-enough-for-HS256");
    }
    let output = output(check.args(more).current_dir(folder));
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}
