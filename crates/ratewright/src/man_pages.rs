//! Man pages and shell completions, generated from the definition of the command line.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
use clap_complete::aot;
use clap_mangen::Man;

use crate::cli::{Cli, ManArgs, ShellName};

/// Prints the completions of a shell.
pub(crate) fn completions(shell: ShellName) -> ExitCode {
    let shell = match shell {
        ShellName::Bash => aot::Shell::Bash,
        ShellName::Fish => aot::Shell::Fish,
        ShellName::Zsh => aot::Shell::Zsh,
    };
    let mut script = Vec::new();
    aot::generate(shell, &mut Cli::command(), "ratewright", &mut script);
    crate::print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Prints the man page of the program, or writes the pages of all commands into a folder.
pub(crate) fn man(args: &ManArgs) -> ExitCode {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let done = match &args.folder {
        None => page(&program).map(|page| crate::print(&page)),
        Some(folder) => write_pages(&program, folder),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = args.folder.as_deref().unwrap_or(Path::new("")).display();
            eprintln!("error: cannot write to {folder}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the pages of a command and of those below it: `ratewright.1`, `ratewright-check.1`.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let name = Man::new(command.clone()).get_filename();
    std::fs::write(folder.join(name), page(command)?)?;
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.into_iter().try_for_each(|command| write_pages(command, folder))
}

/// The man page of one command. The headings of its help after the options become sections.
fn page(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut page = title(command).into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let page = String::from_utf8_lossy(&page);
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    Ok(format!("{page}{}{}", sections(&after_help), see_also(command)))
}

/// The first line of a page, without a date, so that builds are reproducible.
fn title(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or("ratewright").to_uppercase();
    format!(".TH \"{name}\" \"1\" \"\" \"ratewright {}\" \"Ratewright\"\n", env!("CARGO_PKG_VERSION"))
}

/// Turns headings such as `Examples:` into sections. Other lines stay unchanged.
fn sections(after_help: &str) -> String {
    let mut page = String::new();
    for paragraph in after_help.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let (heading, text) = match first.strip_suffix(':') {
            Some(heading) => (heading.to_uppercase(), rest),
            None => ("NOTES".to_owned(), paragraph),
        };
        page += &format!(".SH \"{heading}\"\n.nf\n");
        text.lines().for_each(|line| page += &format!("{}\n", escaped(line)));
        page += ".fi\n";
    }
    page
}

/// A reference to the parent command's page, or from the main page to that of `check`.
fn see_also(command: &Command) -> String {
    let name = command.get_display_name().unwrap_or_default();
    let parent = name.rsplit_once('-').map_or("ratewright-check", |(parent, _)| parent);
    format!(".SH \"SEE ALSO\"\n.BR {} (1)\n", escaped(parent))
}

/// Escapes a line for roff.
fn escaped(line: &str) -> String {
    let line = line
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('^', "\\(ha")
        .replace('~', "\\(ti");
    // In roff, a line that begins with a dot is a command.
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}
