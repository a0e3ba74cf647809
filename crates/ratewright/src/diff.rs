//! `ratewright diff`: what another policy file changes, and for whom.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::cli::DiffArgs;
use crate::config::{Change, Config, ConfigError, Source, changes};

/// Compares two policy files, and tells whether they mean the same as `diff` does.
pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    if args.old == args.new && args.old == Path::new("-") {
        eprintln!("error: standard input is one file; name the other");
        return ExitCode::from(crate::MISUSED);
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
            return crate::complain(&errors);
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

/// The file on standard input. A profile stands beside a file, so there is none.
fn of_standard_input() -> Result<Config, Vec<ConfigError>> {
    const NAME: &str = "standard input";
    let text = std::io::read_to_string(std::io::stdin());
    let text =
        text.map_err(|error| vec![ConfigError::of_file(NAME.into(), format!("cannot be read: {error}"))])?;
    Config::of_input(NAME, text, &crate::environment)
}

/// A line for each change. Texts of the file go to a terminal.
pub(crate) fn in_lines(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "no difference\n".to_owned();
    }
    changes.iter().map(|change| format!("{}\n", crate::admin::plain(&change.line()))).collect()
}
