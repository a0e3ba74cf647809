//! `ratewright upgrade`: asks a running process to let this program replace it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::{ASKS_FOR_UPGRADE, DONE, FAILED};
use crate::cli::UpgradeArgs;

/// Replaces the running process, and says how it went.
pub(crate) fn upgrade(args: &UpgradeArgs) -> ExitCode {
    match replace(args) {
        Ok(pid) => {
            crate::print(&format!("process {pid} serves now; the old one finishes its requests and ends\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The new process's id.
fn replace(UpgradeArgs { control }: &UpgradeArgs) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let program = program.to_str().filter(|program| !program.contains('\n'));
    let program = program.context("the path of this program is no text; move it")?;
    let mut stream = UnixStream::connect(control).with_context(|| {
        format!(
            "cannot reach a running process at {}; is it running, as the same user, and is that its listen.control?",
            control.display()
        )
    })?;
    stream.write_all(format!("{ASKS_FOR_UPGRADE}{program}\n").as_bytes())?;
    let mut said = String::new();
    BufReader::new(stream).read_line(&mut said)?;
    let said = said.trim_end();
    if let Some(why) = said.strip_prefix(FAILED) {
        bail!("not upgraded, and the running process goes on: {why}");
    }
    let pid = said.strip_prefix(DONE);
    Ok(pid.context("the running process ended, or closed the connection; see its log")?.to_owned())
}
