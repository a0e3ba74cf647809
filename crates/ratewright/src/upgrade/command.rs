//! `ratewright upgrade`: asks a running process to start this program as its replacement.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use super::{DONE, FAILED, LINE_MAX, MESSAGE_UPGRADE, connect_to, one_line};
use crate::cli::UpgradeArgs;

/// Exit status: no running process could be reached.
const UNREACHABLE: u8 = 3;

/// How long to wait for the result. The new process has a minute to become ready.
const RESULT_TIMEOUT: Duration = Duration::from_secs(90);

/// Replaces the running process, and prints the result.
pub(crate) fn upgrade(args: &UpgradeArgs) -> ExitCode {
    let stream = match connect(args) {
        Ok(stream) => stream,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(UNREACHABLE);
        }
    };
    match replace(stream) {
        Ok(pid) => {
            crate::print(&format!("process {pid} serves now; the old process drains and ends\n"));
            ExitCode::SUCCESS
        }
        Err(error) => crate::fail(&error),
    }
}

fn connect(UpgradeArgs { control }: &UpgradeArgs) -> anyhow::Result<UnixStream> {
    connect_to(control).with_context(|| {
        format!(
            "cannot connect to control socket {}; check that Ratewright runs, that listen.control is this path, and that you are its user or root",
            control.display()
        )
    })
}

/// The new process's id.
fn replace(mut stream: UnixStream) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot read the path of this program")?;
    let program = program.to_str().filter(|program| !program.contains('\n'));
    let program = program.context("program path is not UTF-8 or contains a newline; move the program")?;
    stream.write_all(format!("{MESSAGE_UPGRADE}{program}\n").as_bytes())?;
    stream.set_read_timeout(Some(RESULT_TIMEOUT))?;
    let mut said = String::new();
    let read = BufReader::new(stream.take(LINE_MAX)).read_line(&mut said);
    read.context("no response from the running process; see its log")?;
    let said = one_line(said.trim_end());
    if let Some(why) = said.strip_prefix(FAILED) {
        bail!("upgrade failed, the old process keeps serving: {why}");
    }
    let pid = said.strip_prefix(DONE);
    Ok(pid
        .context("control connection closed without a result; see the log of the running process")?
        .to_owned())
}
