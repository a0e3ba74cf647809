//! Transcripts on a page, played again: commands after `$ `, going on where a line is indented by four, and what they print.

use std::path::Path;
use std::process::Command;

use ratewright_lab::wait_until;

use crate::process::Ratewright;

/// Where a page's commands are run.
pub(super) struct Stage<'a> {
    pub(super) ratewright: &'a Ratewright,
    pub(super) folder: &'a Path,
    /// Addresses as the page has them, and where they are in truth.
    pub(super) addresses: Vec<(&'static str, String)>,
}

impl<'a> Stage<'a> {
    /// A program that a reader would have on the usual ports, in this folder.
    pub(super) fn new(ratewright: &'a Ratewright, folder: &'a Path) -> Self {
        let doors = [
            ("127.0.0.1:8000", &ratewright.gateway),
            ("127.0.0.1:8080", &ratewright.address),
            ("127.0.0.1:8082", &ratewright.admin),
        ];
        let addresses = doors.into_iter().map(|(written, real)| (written, real.clone()));
        Self { ratewright, folder, addresses: addresses.collect() }
    }
}

/// The page with what its commands print now. What differs only by the time of day, and by how long it took to get there,
/// stays as it is written.
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
        made += if is_alike(&written, &printed) { &written } else { &printed };
    }
    made
}

/// Runs a command as a reader would. After an edit of the policy file, waits until it is in force.
fn run(command: &str, stage: &Stage<'_>) -> String {
    let addresses = stage.addresses.iter().filter(|(_, real)| !real.is_empty());
    let command =
        addresses.fold(command.to_owned(), |command, (written, real)| command.replace(written, real));
    let n_reloads = || stage.ratewright.metric("ratewright_reloads_total");
    let before = n_reloads();
    let program = Path::new(env!("CARGO_BIN_EXE_ratewright"));
    #[expect(clippy::disallowed_methods, reason = "commands find what the test finds")]
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &command])
        .current_dir(stage.folder)
        .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
        .env("RATEWRIGHT_ADMIN", format!("http://{}", stage.ratewright.admin))
        .output()
        .unwrap();
    let has_found = command.contains(" diff ") && output.status.code() == Some(1);
    assert!(output.status.success() || has_found, "{command}: {}", String::from_utf8_lossy(&output.stderr));
    if command.starts_with("sed -i") {
        wait_until("the edit is in force", || n_reloads() > before);
    }
    let printed = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    let end = if printed.is_empty() || printed.ends_with('\n') { "" } else { "\n" };
    printed + end
}

/// A figure, or what stands between figures.
#[derive(Debug)]
enum Piece {
    Figure(u64),
    Words(String),
}

/// True if the texts differ by time at most: of the day, or seconds that passed.
fn is_alike(written: &str, printed: &str) -> bool {
    let (written, printed) = (pieces(written), pieces(printed));
    let is_alike = |pair: (&Piece, &Piece)| match pair {
        (Piece::Words(written), Piece::Words(printed)) => written == printed,
        (Piece::Figure(written), Piece::Figure(printed)) => {
            let is_time_of_day = *written > 1_000_000_000 && *printed > 1_000_000_000;
            let passed = written.abs_diff(*printed);
            passed == 0 || is_time_of_day || (*written.min(printed) >= 30 && passed < 30)
        }
        (Piece::Words(_), Piece::Figure(_)) | (Piece::Figure(_), Piece::Words(_)) => false,
    };
    written.len() == printed.len() && written.iter().zip(&printed).all(is_alike)
}

/// Takes a text apart. Dates, versions and ids that are made are left out.
fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let made = ["date: ", "last-modified: ", "server: ", "x-correlation-id: "];
    let is_made = |line: &&str| made.iter().any(|name| line.starts_with(name));
    for line in text.lines().filter(|line| !is_made(line)) {
        let line = line.split_once("\"timestamp\": ").map_or(line, |(before, _)| before);
        let line = line.split_once("\"correlationId\":\"").map_or(line, |(before, _)| before);
        for piece in line.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let n_digits = piece.trim_end_matches(|c: char| !c.is_ascii_digit()).len();
            let (digits, words) = piece.split_at(n_digits);
            pieces.extend(digits.parse().ok().map(Piece::Figure));
            pieces.push(Piece::Words(words.to_owned()));
        }
    }
    pieces
}
