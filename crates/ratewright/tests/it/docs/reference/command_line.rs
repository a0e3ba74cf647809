//! `docs/reference/command-line.md`: the help of every command, as tables.
//!
//! The help is a text for terminals. Its sections are separated by lines such as `Options:`; an entry begins with two to six
//! spaces, and its text is indented by more:
//!
//! ```text
//!   -c, --config <FILE>
//!           Policy file in YAML, or a folder of them [env: RATEWRIGHT_CONFIG]
//! ```

use std::collections::BTreeMap;

use super::{assert_page, code, paragraph, sentence, table, with_reference};
use crate::process::run;

/// The help of one command.
struct Help {
    /// The words after `ratewright`.
    command: Vec<String>,
    about: Vec<String>,
    usage: String,
    /// The sections after the usage: title and text.
    sections: Vec<(String, String)>,
}

/// An argument, an option, a command or an exit status, with its text.
struct Entry {
    name: String,
    text: String,
}

impl Help {
    /// Asks the program.
    fn of(command: Vec<String>) -> Self {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = run(&arguments);
        assert!(output.status.success(), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (about, rest) = text.split_once("Usage: ").unwrap();
        let (usage, rest) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let mut sections = Vec::<(String, String)>::new();
        for line in rest.lines() {
            match line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
                Some(title) => sections.push((title.to_owned(), String::new())),
                None => sections.last_mut().expect("a title").1 += &format!("{line}\n"),
            }
        }
        let about = about.split("\n\n").map(str::to_owned).filter(|text| !text.trim().is_empty()).collect();
        let usage = usage.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
        Self { command, about, usage, sections }
    }

    fn entries(&self, title: &str) -> Vec<Entry> {
        let section = self.sections.iter().find(|(name, _)| name == title);
        section.map_or_else(Vec::new, |(_, text)| entries(text))
    }

    fn name(&self) -> String {
        ["ratewright".to_owned()]
            .iter()
            .chain(&self.command)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// This command and those below it, except `help`.
    fn with_subcommands(self) -> Vec<Self> {
        let names =
            self.entries("Commands").into_iter().map(|entry| entry.name).filter(|name| name != "help");
        let below: Vec<_> = names
            .flat_map(|name| Self::of([self.command.as_slice(), &[name]].concat()).with_subcommands())
            .collect();
        std::iter::once(self).chain(below).collect()
    }

    fn render(&self) -> String {
        let mut made = format!("## {}\n\n", self.name());
        made.extend(self.about.iter().map(|text| paragraph(&sentence(text))));
        made += &format!("```text\n{}```\n\n", self.usage);
        for (title, text) in &self.sections {
            made += &self.render_section(title, text);
        }
        made
    }

    fn render_section(&self, title: &str, text: &str) -> String {
        let rows = || entries(text).into_iter().filter(|entry| !entry.is_help());
        match title {
            "Commands" => {
                let link = |entry: Entry| {
                    let anchor = format!("{}-{}", self.name().replace(' ', "-"), entry.name);
                    [format!("[`{}`](#{anchor})", entry.name), sentence(&entry.text)]
                };
                table(["command", "what it does"], rows().filter(|entry| entry.name != "help").map(link))
            }
            "Exit status" => table(
                ["exit status", "meaning"],
                rows().map(|entry| [code(&entry.name), sentence(&entry.text)]),
            ),
            "Arguments" => table(["argument", "meaning"], rows().map(Entry::into_row)),
            "Options" if rows().next().is_none() => String::new(),
            "Examples" => block("sh", title, text),
            "A policy file" => block("yaml", title, text),
            _ if text.lines().any(|line| line.trim_start().starts_with('-')) => {
                table(["option", "meaning"], rows().map(Entry::into_row))
            }
            _ => block("text", title, text),
        }
    }
}

impl Entry {
    fn is_help(&self) -> bool {
        self.name == "-h, --help"
    }

    /// The name, and the text with `[default: …]` and `[env: …]` in words.
    fn into_row(self) -> [String; 2] {
        let (mut text, mut remarks) = (self.text, Vec::new());
        for (mark, words) in
            [("[default: ", "Default"), ("[env: ", "Variable"), ("[possible values: ", "Values")]
        {
            let Some((before, rest)) = text.split_once(mark) else { continue };
            let (value, after) = rest.split_once(']').unwrap();
            let value = value.trim_end_matches('=');
            let is_word = !value.contains(' ');
            remarks.push(format!("{words}: {}.", if is_word { code(value) } else { value.to_owned() }));
            text = format!("{before}{after}");
        }
        remarks.insert(0, sentence(&text));
        [code(&self.name), remarks.join(" ")]
    }
}

fn block(language: &str, title: &str, text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    format!("{title}:\n\n```{language}\n{}\n```\n\n", lines.join("\n"))
}

/// Entries are indented by two spaces, or six for a long option without a short one; their texts by ten, or on the same line.
fn entries(section: &str) -> Vec<Entry> {
    let mut found = Vec::<Entry>::new();
    for line in section.lines().filter(|line| !line.trim().is_empty()) {
        let text = line.trim_start();
        if line.len() - text.len() < 10 {
            let (name, text) = text.split_once("  ").unwrap_or((text, ""));
            found.push(Entry { name: name.to_owned(), text: text.trim().to_owned() });
        } else if let Some(entry) = found.last_mut() {
            entry.text = if entry.text.is_empty() {
                text.to_owned()
            } else {
                format!("{} {text}", sentence_before(&entry.text, text))
            };
        }
    }
    found
}

/// A paragraph of an entry ends with a full stop if another sentence follows.
fn sentence_before(text: &str, next: &str) -> String {
    if next.starts_with('[') { text.to_owned() } else { sentence(text) }
}

/// The variables that options name, with the commands that have them.
fn variables(commands: &[Help]) -> String {
    let mut found = BTreeMap::<String, (String, Vec<String>)>::new();
    for command in commands {
        for Entry { name, text } in command.entries("Options") {
            let variable = text.split_once("[env: ").and_then(|(_, rest)| rest.split_once(']'));
            let Some((variable, _)) = variable else { continue };
            let option = name.split(' ').find(|word| word.starts_with("--")).unwrap().to_owned();
            let of = found.entry(variable.trim_end_matches('=').to_owned()).or_insert((option, Vec::new()));
            of.1.push(command.command.join(" "));
        }
    }
    let rows = found.into_iter().map(|(variable, (option, mut commands))| {
        commands.retain(|command| !command.is_empty());
        [
            code(&variable),
            code(&option),
            commands.iter().map(|command| code(command)).collect::<Vec<_>>().join(", "),
        ]
    });
    format!("## Environment variables\n\n{}", table(["variable", "stands for", "commands"], rows))
}

#[test]
fn the_page_on_the_command_line_is_the_help_of_every_command() {
    let commands = Help::of(Vec::new()).with_subcommands();
    assert!(commands.len() > 12, "{} commands", commands.len());
    let made: String = commands.iter().map(Help::render).collect();
    let reference = format!("{made}{}", variables(&commands));
    assert_page("command-line.md", &with_reference("command-line.md", &reference));
}
