//! `ratewright diff`: what another policy file changes, and for which requests.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::cli::DiffArgs;
use crate::config::{Change, Config, ConfigError, Source, changes};

/// Compares two policy files. The exit status is that of `diff`: 0 without differences, 1 with some, 2 on errors.
pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    if args.old == args.new && args.old == Path::new("-") {
        eprintln!("error: OLD and NEW are both standard input; use a file for one of them");
        return ExitCode::from(crate::EXIT_USAGE);
    }
    let read = |path: &Path| {
        if path == Path::new("-") {
            return of_standard_input();
        }
        let source = Source { path: Some(path.to_owned()), profile: args.profile.clone() };
        Config::read(&source, &crate::environment)
    };
    let (old, new) = match (read(&args.old), read(&args.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (old, new) => {
            let errors: Vec<ConfigError> = old.err().into_iter().chain(new.err()).flatten().collect();
            return crate::report_errors(&errors);
        }
    };
    new.warnings.iter().for_each(|warning| eprintln!("warning: {warning:#}"));
    let changes = changes(&old.contents(), &new.contents());
    crate::print(&if args.json {
        format!("{}\n", json!({ "changes": changes.iter().map(Change::to_json).collect::<Vec<_>>() }))
    } else {
        in_lines(&changes)
    });
    ExitCode::from(u8::from(!changes.is_empty()))
}

/// The policy file on standard input. It has no profile: profiles are files beside the policy file.
fn of_standard_input() -> Result<Config, Vec<ConfigError>> {
    const NAME: &str = "standard input";
    let text = std::io::read_to_string(std::io::stdin());
    let text =
        text.map_err(|error| vec![ConfigError::of_file(NAME.into(), format!("cannot be read: {error}"))])?;
    Config::of_input(NAME, text, &crate::environment)
}

/// One line for each change, safe for a terminal.
pub(crate) fn in_lines(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "no difference\n".to_owned();
    }
    changes
        .iter()
        .map(|change| format!("{}\n", ratewright_telemetry::escape_hidden(&change.line())))
        .collect()
}
