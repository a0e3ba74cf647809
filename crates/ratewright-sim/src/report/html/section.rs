//! The sections of the page below the summary.

use super::super::client_row::ClientRow;
use super::super::escape::{html, shortened};
use super::super::number::{grouped, share};
use super::super::svg::{Bars, Chart, small_chart};
use super::super::text::{
    changed_in_words, denied_by_both_in_words, difference_in_words, policy_in_words, request_in_words,
};
use super::super::timeline::peak;
use super::super::{
    ComparisonReport, LogReport, LoggedDecisionsReport, PolicyReport, Timeline, UnreadableLine, time,
};
use super::sentence;
use super::table::{Table, client_table, code};

/// Maximum intervals in a chart.
const INTERVALS_MAX: usize = 400;
/// Maximum intervals in a chart of the table.
const SMALL_INTERVALS_MAX: usize = 60;

/// A chart with its caption.
pub(super) fn chart_figure(id: &str, timeline: &Timeline, bars: Bars) -> String {
    let timeline = &timeline.merged(INTERVALS_MAX);
    let description = chart_in_words(timeline, bars);
    let title = if bars == Bars::Stacked { "Requests over time" } else { "Denied requests over time" };
    let chart = Chart { id: &format!("chart-{id}"), title, description: &description, timeline, bars };
    let key = match bars {
        Bars::Stacked => {
            "<span class=\"key allowed\"></span>allowed<span class=\"key denied\"></span>denied (stacked)"
        }
        Bars::Denied => "",
    };
    format!(
        "<figure>\n<figcaption>{}{key}</figcaption>\n\
         <div class=\"scroll\" role=\"region\" aria-label=\"{title}\" tabindex=\"0\">\n{}</div>\n</figure>\n",
        html(&description),
        chart.to_svg(),
    )
}

/// `Denied requests per 10 min interval (times in UTC). Peak: 198 at 2026-02-10 08:20.`
fn chart_in_words(timeline: &Timeline, bars: Bars) -> String {
    let counts: Vec<u64> = match bars {
        Bars::Stacked => (0..timeline.n_intervals())
            .map(|n| timeline.interval(n))
            .map(|(allowed, denied)| allowed.saturating_add(denied))
            .collect(),
        Bars::Denied => timeline.denied.clone(),
    };
    let (position, largest) = peak(&counts).unwrap_or((0, 0));
    let requests = if bars == Bars::Stacked { "Requests" } else { "Denied requests" };
    let step = time::duration(timeline.interval_seconds);
    let at = timeline.start_in_words(position);
    format!("{requests} per {step} interval (times in UTC). Peak: {} at {at}.", grouped(largest))
}

/// The table of policies.
pub(super) fn policies(policies: &[PolicyReport]) -> String {
    if policies.is_empty() {
        return "<h2>Policies</h2>\n<p>The policy file has no policies.</p>\n".to_owned();
    }
    let mut table = Table::new(
        "Policies, in file order",
        &[
            ("Policy", "name"),
            ("Mode", "mode"),
            ("Limit", "limit"),
            ("Requests", "number"),
            ("Denied", "number"),
            ("Share", "number"),
            ("Clients denied", "number"),
            ("Near misses", "number"),
            ("First denial (UTC)", "time"),
            ("Denials over time", "drawing"),
        ],
    );
    policies.iter().enumerate().for_each(|(n, policy)| table.row(&policy_row(n, policy)));
    let near = "A near miss is an allowed request that left less than 20% of a limit.";
    format!("<h2>Policies</h2>\n{}<p class=\"quiet\">{near}</p>\n", table.end())
}

fn policy_row(n: usize, policy: &PolicyReport) -> [String; 10] {
    let name = html(&shortened(&policy.policy));
    let name = if has_section(policy) { format!("<a href=\"#policy-{n}\">{name}</a>") } else { name };
    let [mode, limit] = [policy.mode, &policy.limit].map(|text| html(&shortened(text)));
    let none = || "–".to_owned();
    if !policy.is_simulated {
        let not = "not simulated".to_owned();
        return [name, not, limit, none(), none(), none(), none(), none(), none(), none()];
    }
    let chart = if policy.denied > 0 && policy.timeline.is_drawable() {
        let timeline = policy.timeline.merged(SMALL_INTERVALS_MAX);
        small_chart(&timeline, &chart_in_words(&timeline, Bars::Denied))
    } else {
        none()
    };
    [
        name,
        mode,
        limit,
        grouped(policy.requests),
        grouped(policy.denied),
        html(&share(policy.denied, policy.requests)),
        grouped(policy.clients_denied),
        grouped(policy.near_misses),
        policy.first_denial.as_ref().map_or_else(none, |first| time::minutes(first.at)),
        chart,
    ]
}

fn has_section(policy: &PolicyReport) -> bool {
    policy.denied > 0 || !policy.notes.is_empty()
}

/// The clients, the timeline and the notes of a policy with denials or notes.
pub(super) fn policy(n: usize, policy: &PolicyReport) -> String {
    if !has_section(policy) {
        return String::new();
    }
    let name = html(&shortened(&policy.policy));
    let mut section = format!(
        "<section>\n<h2 id=\"policy-{n}\">Policy {name}</h2>\n<p>{}.</p>\n",
        html(&policy_in_words(policy))
    );
    if policy.denied > 0 {
        let first = policy.first_denial.as_ref();
        section.extend(
            first.map(|first| {
                format!("<p>First denial: <code>{}</code></p>\n", html(&request_in_words(first)))
            }),
        );
        section.push_str(&client_table(
            "Most denied clients",
            ["Denied", "First denied (UTC)", "Last denied (UTC)"],
            policy.most_denied.iter().map(ClientRow::from),
        ));
        if policy.timeline.is_drawable() {
            section.push_str(&chart_figure(&format!("policy-{n}"), &policy.timeline, Bars::Denied));
        }
    }
    section.push_str(&list(&policy.notes));
    section + "</section>\n"
}

/// The requests that the new file newly denies, and those that it newly allows.
pub(super) fn against(against: &ComparisonReport, denied: u64) -> String {
    let heading = format!("<h2>Compared with {}</h2>\n", code(&against.file));
    if against.newly_denied == 0 && against.newly_allowed == 0 {
        return heading + "<p>No difference: both files make the same decision for every request.</p>\n";
    }
    let denied = sentence(&denied_by_both_in_words(against, denied));
    let newly_denied = changed_in_words(against.newly_denied, against.clients_newly_denied);
    let newly_allowed = changed_in_words(against.newly_allowed, against.clients_newly_allowed);
    format!(
        "{heading}<p>{}</p>\n<h3>Newly denied: {newly_denied}</h3>\n{}<h3>Newly allowed: {newly_allowed}</h3>\n{}",
        html(&denied),
        client_table(
            "Clients with the most newly denied requests",
            ["Newly denied", "First denied (UTC)", "Last denied (UTC)"],
            against.most_newly_denied.iter().map(ClientRow::from),
        ),
        client_table(
            "Clients with the most newly allowed requests",
            ["Newly allowed", "First (UTC)", "Last (UTC)"],
            against.most_newly_allowed.iter().map(ClientRow::from),
        ),
    )
}

/// The decisions in the log.
pub(super) fn logged(logged: &LoggedDecisionsReport) -> String {
    let mut table = Table::new(
        "Decisions in the log and in the simulation",
        &[("Decision", "name"), ("Requests", "number")],
    );
    let rows = [
        ("With a logged decision", logged.requests),
        ("Denied in the log", logged.denied),
        ("Denied in the log only", logged.denied_only_in_log),
        ("Denied in the simulation only", logged.denied_only_in_simulation),
    ];
    rows.into_iter().for_each(|(name, n)| table.row(&[name.to_owned(), grouped(n)]));
    let first = logged.first_difference.as_ref();
    let first = first.map_or_else(String::new, |first| {
        format!("<p>{}</p>\n", html(&sentence(&difference_in_words(first))))
    });
    format!("<h2>Compared with the decisions in the log</h2>\n{}{first}", table.end())
}

pub(super) fn logs(logs: &[LogReport]) -> String {
    if logs.is_empty() {
        return String::new();
    }
    let columns = [("Log", "name"), ("Format", ""), ("Lines", "number"), ("Unreadable", "number")];
    let mut table = Table::new("Logs, in the order in which they begin", &columns);
    for LogReport { log, format, lines, unreadable, .. } in logs {
        table.row(&[code(log), html(&shortened(format)), grouped(*lines), grouped(*unreadable)]);
    }
    format!("<h2>Logs</h2>\n{}", table.end())
}

pub(super) fn unreadable(lines: &[UnreadableLine], unreadable: u64) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let caption = format!("Showing {} of {}", lines.len(), grouped(unreadable));
    let mut table = Table::new(&caption, &[("Line", "name"), ("Reason", ""), ("Beginning of the line", "")]);
    for UnreadableLine { log, line, reason, text } in lines {
        let place = format!("{}:{line}", html(&shortened(log)));
        table.row(&[format!("<code>{place}</code>"), html(reason), code(text)]);
    }
    format!("<h2>Unreadable lines</h2>\n{}", table.end())
}

pub(super) fn notes(notes: &[String]) -> String {
    if notes.is_empty() { String::new() } else { format!("<h2>Notes</h2>\n{}", list(notes)) }
}

fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", html(note))).collect();
    format!("<ul>\n{items}</ul>\n")
}
