//! The law of all parsers of log lines: whatever a line contains, it is a request with clean texts and a time in range,
//! or it is not; and the lines before it change nothing.

use ratewright_sim::Format;
use ratewright_sim::format::{Line, Parser};

/// The first microsecond of 2201.
const TIME_END: u64 = 7_289_654_400_000_000;

/// Checks the lines of a log. The header line is the first that is not a comment.
pub fn check(format: &Format, has_header: bool, log: &[u8]) {
    let mut lines = log.split(|byte| *byte == b'\n').take(64);
    let header = if has_header { lines.find(|line| !line.starts_with(b"#")) } else { None };
    let parser = || {
        let mut parser = format.parser();
        if let Some(header) = header {
            let _ = parser.parse(header);
        }
        parser
    };
    let mut warm: Parser = parser();
    for line in lines {
        let parsed = warm.parse(line);
        assert_eq!(parsed, parser().parse(line), "the lines before a line changed its meaning");
        assert_eq!(parsed, warm.parse(line), "the same line has two meanings");
        if let Ok(line) = &parsed {
            check_record(line);
        }
    }
    let _ = Format::detect(log);
}

fn check_record(line: &Line<'_>) {
    let Line::Request(record) = line else { return };
    let optional = [&record.forwarded_for, &record.host, &record.user, &record.route];
    let texts = optional.into_iter().flatten().chain([&record.method, &record.target]);
    let policy = record.decision.iter().flat_map(|decision| &decision.policy);
    let values = record.attributes.iter().map(|(_, value)| value);
    for text in texts.chain(policy).chain(values) {
        assert!(!text.contains(|char: char| char.is_ascii_control()), "control character in {text:?}");
    }
    for (name, _) in &record.attributes {
        assert!(!name.to_string().contains('\0'), "NUL in the name {name}");
    }
    assert!(record.at.as_micros() < TIME_END, "time out of range");
    assert!(record.target.is_empty() || record.target.starts_with('/'), "target {:?}", record.target);
    assert!(record.status.is_none_or(|status| (100..1_000).contains(&status)), "status {:?}", record.status);
}
