//! Transcripts on a page, played again: commands after `$ `, going on where a line is indented by four, and what they print.

mod mask;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ratewright_lab::{output, wait_until, without_settings};

use crate::process::Ratewright;
pub(super) use mask::is_alike;

/// Where a page's commands are run.
pub(super) struct Stage<'a> {
    pub(super) ratewright: &'a Ratewright,
    pub(super) folder: &'a Path,
    /// Words as the page has them, and what they are in truth: addresses, and commands that need another address.
    pub(super) addresses: Vec<(&'static str, String)>,
    begun_at: Instant,
}

impl<'a> Stage<'a> {
    /// A program that a reader would have on the usual ports, in this folder.
    #[expect(
        clippy::disallowed_methods,
        reason = "values that count down may differ by the real time that passed"
    )]
    pub(super) fn new(ratewright: &'a Ratewright, folder: &'a Path) -> Self {
        let listeners = [
            ("127.0.0.1:8000", &ratewright.gateway),
            ("127.0.0.1:8080", &ratewright.address),
            ("127.0.0.1:8082", &ratewright.admin),
        ];
        let addresses = listeners.into_iter().map(|(written, real)| (written, real.clone()));
        Self { ratewright, folder, addresses: addresses.collect(), begun_at: Instant::now() }
    }

    /// How far a value that counts down may be off: the seconds since it began, rounded up. Twice, because a burst that is doubled
    /// meanwhile also doubles what has passed.
    fn n_seconds(&self) -> u64 {
        2 * (self.begun_at.elapsed().as_secs() + 1)
    }
}

/// The page with what its commands print now. What differs only by time stays as it is written.
pub(super) fn replay(page: &str, stage: &Stage<'_>) -> String {
    let mut made = String::new();
    let mut lines = page.lines().peekable();
    let mut is_transcript = false;
    while let Some(line) = lines.next() {
        made += &format!("{line}\n");
        is_transcript = line == "```console" || (is_transcript && line != "```");
        let Some(command) = line.strip_prefix("$ ").filter(|_| is_transcript) else { continue };
        let mut command = command.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with("    ")) {
            made += &format!("{more}\n");
            command += &format!("\n{more}");
        }
        let mut written = String::new();
        while let Some(more) = lines.next_if(|line| !line.starts_with("$ ") && *line != "```") {
            written += &format!("{more}\n");
        }
        let printed = run(&command, stage);
        made += if is_alike(&command, &written, &printed, stage.n_seconds()) { &written } else { &printed };
    }
    made
}

/// Ports of a reader's own. On the test machine they may be those of somebody else.
const USUAL_PORTS: [&str; 7] = [":3000", ":6379", ":8000", ":8080", ":8081", ":8082", ":9090"];

/// Runs a command as a reader would. After an edit of the policy file, waits until it is in force.
fn run(command: &str, stage: &Stage<'_>) -> String {
    let addresses = || stage.addresses.iter().filter(|(_, real)| !real.is_empty());
    let command =
        addresses().fold(command.to_owned(), |command, (written, real)| command.replace(written, real));
    let is_asked = |port: &&&str| {
        ["127.0.0.1", "localhost"].iter().any(|host| command.contains(&format!("{host}{port}")))
    };
    let usual = USUAL_PORTS.iter().find(is_asked);
    assert_eq!(usual, None, "this port would be asked: {command}");
    let n_reloads = || stage.ratewright.metric("ratewright_reloads_total");
    let before = n_reloads();
    let program = Path::new(env!("CARGO_BIN_EXE_ratewright"));
    #[expect(clippy::disallowed_methods, reason = "commands find what the test finds")]
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    without_settings(shell.args(["-c", &command]).current_dir(stage.folder));
    shell.env("HOME", stage.folder).env_remove("XDG_CONFIG_HOME"); // without the user's .curlrc
    shell.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
    let output = output(shell.env("RATEWRIGHT_ADMIN", format!("http://{}", stage.ratewright.admin)));
    let has_found = command.contains(" diff ") && output.status.code() == Some(1);
    assert!(output.status.success() || has_found, "{command}: {}", String::from_utf8_lossy(&output.stderr));
    if command.starts_with("sed -i") {
        wait_until("the edit is in force", || n_reloads() > before);
    }
    let printed = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    let printed = addresses().fold(printed, |printed, (written, real)| printed.replace(real, written));
    let end = if printed.is_empty() || printed.ends_with('\n') { "" } else { "\n" };
    printed + end
}
