//! `ratewright convert`: turns the configuration of another rate limiter into a policy file.
//!
//! The policy file goes to standard output, warnings go to standard error. A setting that has no equivalent is named in both: a
//! limit must not disappear unnoticed.

mod policy_file_draft;
mod spring;

use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ratewright_telemetry::escape_hidden;

use crate::cli::{ConvertArgs, ConvertCommand, SpringArgs};
use crate::config::{ConfigError, SourceFile};

/// Larger than any configuration file; a device such as /dev/zero is not read for ever.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The path that means standard input, and its name in messages.
const STDIN: &str = "-";
const STDIN_NAME: &str = "standard input";

/// A converted file.
struct Conversion {
    /// The policy file.
    text: String,
    /// Settings that have no equivalent, or that need a look.
    warnings: Vec<ConfigError>,
    /// Remarks on the whole file.
    notes: Vec<String>,
}

/// Converts a configuration, and prints the policy file.
pub(crate) fn convert(args: &ConvertArgs) -> ExitCode {
    let ConvertCommand::Spring(args) = &args.from;
    match of_spring(args) {
        Ok(Conversion { text, warnings, notes }) => {
            let warnings = warnings.iter().map(|warning| format!("warning: {warning}\n"));
            let remarks = warnings
                .chain(notes.iter().map(|note| format!("note: {}\n", escape_hidden(note))))
                .collect::<String>();
            // A reader such as `head` may have seen enough.
            let _ = io::stderr().write_all(remarks.as_bytes());
            crate::print(&text);
            ExitCode::SUCCESS
        }
        Err(errors) => crate::report_errors(&errors),
    }
}

/// Reads and converts Spring's files. Later files override earlier ones.
fn of_spring(args: &SpringArgs) -> Result<Conversion, Vec<ConfigError>> {
    let files = args.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>();
    spring::convert(&files.map_err(|error| vec![error])?, args.profile.as_deref())
}

/// Reads a file, or standard input.
fn read(path: &Path) -> Result<SourceFile, ConfigError> {
    let is_stdin = path.as_os_str() == STDIN;
    let name = if is_stdin { PathBuf::from(STDIN_NAME) } else { path.to_owned() };
    let bytes = if is_stdin { at_most(io::stdin()) } else { std::fs::File::open(path).and_then(at_most) };
    let problem = match bytes {
        Err(error) => format!("cannot read the file: {error}; check the path"),
        Ok(bytes) if bytes.len() as u64 > BYTES_MAX => {
            format!("file exceeds {BYTES_MAX} bytes; is this the configuration of an application?")
        }
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => return Ok(SourceFile { path: name, text, is_profile: false }),
            Err(_) => "file is not UTF-8; save it as UTF-8".to_owned(),
        },
    };
    Err(ConfigError::of_file(name, problem))
}

/// The bytes of a file, up to one more than allowed.
fn at_most(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
