use std::collections::HashSet;

use proptest::prelude::*;

use super::super::test_reports::{full_report, hostile_report, quiet_report};
use super::super::{PolicyReport, Timeline};
use super::*;

#[test]
fn a_page_is_well_formed_with_and_without_content() {
    for report in [full_report(), quiet_report(), Report::default()] {
        assert_eq!(problem_of(&report.to_html("Report")), None);
    }
}

#[test]
fn a_page_loads_nothing_and_runs_nothing() {
    let page = full_report().to_html("Report");
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    for part in
        ["<script", "<link", "<img", "<iframe", "http://", "https://", "src=", "url(", "@import", "onload"]
    {
        assert!(!page.contains(part), "{part} is in the page");
    }
}

#[test]
fn every_part_of_a_report_is_shown() {
    let page = full_report().to_html("Report of <today>");
    for part in [
        "<h1>Report of &lt;today&gt;</h1>",
        "Simulation: no request was really denied.",
        "<dt>Denied</dt><dd class=\"value some\">1,204</dd><dd class=\"detail\">0.035% of requests</dd>",
        "0.046% of 81,220 clients",
        "<a href=\"#policy-0\">login</a>",
        "<h2 id=\"policy-0\">Policy login</h2>",
        "not simulated",
        "Newly denied: 520 requests from 14 clients",
        "Denied in the simulation only",
        "access.log.1:88102",
        "User-Agent",
        "\\u{1b}[2J",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
}

#[test]
fn a_quiet_report_says_so() {
    assert!(quiet_report().to_html("Report").contains("No request was denied."));
    assert!(Report::default().to_html("Report").contains("No request was replayed."));
}

#[test]
fn hostile_names_are_text() {
    for name in [
        "<script>alert(1)</script>",
        "\"><svg onload=alert(1)>",
        "'--><style>",
        "\x1b[2J",
        "\u{202e}&lt;",
        "]]>&",
    ] {
        let page = hostile_report(name).to_html(name);
        assert_eq!(problem_of(&page), None, "{name:?}");
        assert!(!page.contains("<script") && !page.contains("<svg onload"), "{name:?}");
    }
}

#[test]
fn the_size_is_bounded() {
    let timeline = Timeline { allowed: vec![7; 100_000], denied: vec![1; 100_000], ..full_report().timeline };
    let policies = vec![PolicyReport { timeline: timeline.clone(), ..full_report().policies[0].clone() }];
    let page = Report { timeline, policies, ..full_report() }.to_html("Report");
    assert!(page.len() < 100_000, "{}", page.len());
}

proptest! {
    /// Whatever a client sends, the page has the same tags, and no control characters but its own newlines.
    #[test]
    fn any_name_leaves_the_page_well_formed(name in any::<String>().prop_map(|name| name + "<b a='\">&")) {
        let page = hostile_report(&name).to_html(&name);
        prop_assert_eq!(problem_of(&page), None);
        prop_assert!(!page.chars().any(|c| c.is_control() && c != '\n'));
        prop_assert_eq!(page.matches('<').count(), hostile_report("x").to_html("x").matches('<').count());
    }
}

#[test]
fn the_checker_finds_problems() {
    let page = |body: &str| format!("<!DOCTYPE html>\n<html lang=\"en\">{body}</html>\n");
    assert_eq!(problem_of(&page("<p>a &amp; b</p><meta a=\"b\"><path d=\"x\"/>")), None);
    for body in [
        "<p>",
        "</p>",
        "<p></b></p>",
        "<p a=b></p>",
        "<p a=\"b\"c=\"d\"></p>",
        "<p a></p>",
        "a > b",
        "a & b",
        "&bad;",
    ] {
        assert_ne!(problem_of(&page(body)), None, "{body}");
    }
    assert_ne!(problem_of(&page("<p id=\"a\"></p><p id=\"a\"></p>")), None);
}

/// The first problem of a page, read strictly: every tag closed in order, attributes quoted, ids unique, `&`, `<` and `>`
/// escaped.
fn problem_of(page: &str) -> Option<String> {
    let body = page.strip_prefix("<!DOCTYPE html>\n")?;
    let (mut open, mut ids) = (Vec::new(), HashSet::new());
    let mut pieces = body.split('<');
    if pieces.next() != Some("") {
        return Some("text before the first tag".to_owned());
    }
    for piece in pieces {
        let Some((tag, text)) = piece.split_once('>') else {
            return Some(format!("tag without end: {piece}"));
        };
        if let Some(closed) = tag.strip_prefix('/') {
            if open.pop() != Some(closed) {
                return Some(format!("unexpected end of {closed}"));
            }
        } else {
            let (name, attributes) =
                tag.trim_end_matches('/').split_once(' ').unwrap_or((tag.trim_end_matches('/'), ""));
            if let Some(problem) = attribute_problem(attributes, &mut ids) {
                return Some(format!("{problem} in <{tag}>"));
            }
            if !tag.ends_with('/') && name != "meta" {
                open.push(name);
            }
        }
        let is_css = open.last() == Some(&"style");
        if !is_css && let Some(problem) = text_problem(text) {
            return Some(format!("{problem} in {text:?}"));
        }
    }
    open.pop().map(|tag| format!("{tag} is not closed"))
}

fn attribute_problem<'a>(attributes: &'a str, ids: &mut HashSet<&'a str>) -> Option<String> {
    let mut parts = attributes.split('"');
    let mut is_first = true;
    loop {
        let name = parts.next().unwrap_or("");
        let Some(value) = parts.next() else {
            return (!name.is_empty()).then(|| format!("{name:?} without a value"));
        };
        let bare = if is_first { Some(name) } else { name.strip_prefix(' ') };
        let is_name =
            |name: &str| name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') && !name.is_empty();
        match bare.and_then(|name| name.strip_suffix('=')) {
            Some("id") if !ids.insert(value) => return Some(format!("second id {value}")),
            Some(name) if is_name(name) => {}
            _ => return Some(format!("invalid attribute {name:?}")),
        }
        if let Some(problem) = text_problem(value) {
            return Some(problem);
        }
        is_first = false;
    }
}

fn text_problem(text: &str) -> Option<String> {
    let is_entity =
        |rest: &str| ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|name| rest.starts_with(name));
    if text.contains('>') {
        return Some("unescaped >".to_owned());
    }
    text.split('&').skip(1).find(|rest| !is_entity(rest)).map(|rest| format!("unescaped & before {rest:?}"))
}
