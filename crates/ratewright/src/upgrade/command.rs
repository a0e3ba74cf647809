//! `ratewright upgrade`: asks a running process to let this program replace it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use super::{DONE, FAILED, LINE_MAX, MESSAGE_UPGRADE, connect_to, one_line};
use crate::cli::UpgradeArgs;

/// There is no running process, or it cannot be reached.
const UNREACHABLE: u8 = 3;

/// Time for the running process to say how it went. The new one has a minute to become ready.
const RESULT_TIMEOUT: Duration = Duration::from_secs(90);

/// Replaces the running process, and says how it went.
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
            crate::print(&format!("process {pid} serves now; the old one finishes its requests and ends\n"));
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
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let program = program.to_str().filter(|program| !program.contains('\n'));
    let program = program.context("program path is not UTF-8 or contains a newline; move the program")?;
    stream.write_all(format!("{MESSAGE_UPGRADE}{program}\n").as_bytes())?;
    stream.set_read_timeout(Some(RESULT_TIMEOUT))?;
    let mut said = String::new();
    let read = BufReader::new(stream.take(LINE_MAX)).read_line(&mut said);
    read.context("the running process does not answer; see its log")?;
    let said = one_line(said.trim_end());
    if let Some(why) = said.strip_prefix(FAILED) {
        bail!("upgrade failed, the old process keeps serving: {why}");
    }
    let pid = said.strip_prefix(DONE);
    Ok(pid
        .context("control connection closed without a result; see the log of the running process")?
        .to_owned())
}
