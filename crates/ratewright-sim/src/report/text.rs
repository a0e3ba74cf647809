//! A report as text for a terminal of about 100 columns, the most important first.

use super::escape::{printable, shortened, wrapped};
use super::number::{counted, grouped, part_of, share};
use super::report_table::Align::{Left, Right};
use super::report_table::ReportTable;
use super::sparkline::sparkline;
use super::timeline::peak;
use super::{
    AgainstReport, DeniedClient, FirstDenial, LogReport, LoggedReport, Period, PolicyReport, Report,
    Timeline, UnreadableLine, time,
};

/// The width of a wrapped line.
const WIDTH: usize = 100;
/// The longest sparkline: a line has room for its two times as well.
const SPARKLINE_MAX: usize = 62;

impl Report {
    /// The report as text for a terminal.
    ///
    /// Control and bidirectional characters of the logs are escaped, long names and paths are cut.
    pub fn to_text(&self) -> String {
        let mut text = self.summary();
        text.push('\n');
        text.push_str(&policy_table(&self.policies));
        self.policies.iter().for_each(|policy| text.push_str(&policy_section(policy)));
        text.extend(self.against.as_ref().map(|against| against_section(against, self.denied)));
        text.extend(self.logged.as_ref().map(logged_section));
        text.push_str(&logs_section(&self.logs));
        text.push_str(&unreadable_section(&self.unreadable_lines, self.unreadable));
        text.push_str(&notes_section(&self.notes));
        text
    }

    /// How many requests in which period, and how many of them denied.
    fn summary(&self) -> String {
        let mut lines = Vec::new();
        match self.period {
            Some(period) if self.requests > 0 => {
                let requests = counted(self.requests, "request");
                lines.push(format!("{requests}, {}", period_in_words(period)));
                lines.push(self.denied_in_words());
                lines.push(format!("allowed {}", part_of(self.allowed, self.requests, "request")));
            }
            _ => lines.push("no request was replayed".to_owned()),
        }
        lines.extend(self.not_replayed_in_words());
        lines.extend(self.logged_429_in_words().iter().flat_map(|remark| wrapped(remark, WIDTH)));
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// `denied 1,204 of 3,401,200 requests (0.035 %), 37 of 81,220 clients (0.046 %)`.
    pub(super) fn denied_in_words(&self) -> String {
        if self.denied == 0 {
            return "no request was denied".to_owned();
        }
        let requests = part_of(self.denied, self.requests, "request");
        format!("denied {requests}, {}", part_of(self.clients_denied, self.clients, "client"))
    }

    /// The lines that were not replayed, if there are some.
    pub(super) fn not_replayed_in_words(&self) -> Option<String> {
        not_replayed(self.lines, [self.unreadable, self.not_requests, self.out_of_order])
    }

    /// Why requests with status 429 in the log weaken the report, if there are some.
    pub(super) fn logged_429_in_words(&self) -> Option<String> {
        let requests = part_of(self.logged_429, self.requests, "request");
        (self.logged_429 > 0).then(|| {
            format!(
                "status 429 in the log: {requests}; the log does not show the requests that these clients would \
                 have sent without it"
            )
        })
    }
}

/// `not replayed, of 99 lines: 12 unreadable, 3 without a request`, without the zeros.
///
/// The counts: unreadable, not a request, out of order.
pub(super) fn not_replayed(lines: u64, counts: [u64; 3]) -> Option<String> {
    let kinds = ["unreadable", "without a request", "more than a minute out of order"];
    let parts = counts.into_iter().zip(kinds).filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, kind)| format!("{} {kind}", grouped(n))).collect();
    (!parts.is_empty()).then(|| format!("not replayed, of {}: {}", counted(lines, "line"), parts.join(", ")))
}

/// `2026-02-10 00:00:00 to 23:59:59 UTC`.
pub(super) fn period_in_words(period: Period) -> String {
    format!("{} UTC", time::range(period.from, period.to))
}

/// `2026-02-10 08:20:11 10.0.0.7 POST /login`.
pub(super) fn request_in_words(request: &FirstDenial) -> String {
    let FirstDenial { at, client, method, path } = request;
    format!("{} {} {} {}", time::seconds(*at), shortened(client), shortened(method), shortened(path))
}

fn policy_table(policies: &[PolicyReport]) -> String {
    if policies.is_empty() {
        return "the policy file has no policies\n".to_owned();
    }
    let mut table = ReportTable::new([
        ("POLICY", Left),
        ("MODE", Left),
        ("LIMIT", Left),
        ("REQUESTS", Right),
        ("DENIED", Right),
        ("SHARE", Right),
        ("CLIENTS\nDENIED", Right),
        ("NEAR\nMISSES", Right),
        ("FIRST\nDENIAL", Left),
    ]);
    for policy in policies {
        let [name, mode, limit] = [&policy.policy, policy.mode, &policy.limit].map(shortened);
        if !policy.is_simulated {
            let none = || "–".to_owned();
            table.row([
                name,
                mode,
                limit,
                none(),
                none(),
                none(),
                none(),
                none(),
                "not simulated".to_owned(),
            ]);
            continue;
        }
        table.row([
            name,
            mode,
            limit,
            grouped(policy.requests),
            grouped(policy.denied),
            share(policy.denied, policy.requests),
            grouped(policy.clients_denied),
            grouped(policy.near_misses),
            policy.first_denial.as_ref().map_or_else(|| "–".to_owned(), |first| time::minutes(first.at)),
        ]);
    }
    table.to_string()
}

/// The clients, the timeline and the notes of a policy with denials or notes.
fn policy_section(policy: &PolicyReport) -> String {
    if policy.denied == 0 && policy.notes.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}", list_item(&policy_in_words(policy), ""));
    if policy.denied > 0 {
        text.push_str(&client_table(&policy.most_denied, "DENIED"));
        text.extend(
            policy
                .first_denial
                .as_ref()
                .map(|first| format!("  first denial: {}\n", request_in_words(first))),
        );
        text.push_str(&timeline_lines(&policy.timeline));
    }
    policy.notes.iter().for_each(|note| text.push_str(&list_item(&format!("note: {note}"), "  ")));
    text
}

/// `login (shadow) would have denied 12 of 3,000 requests (0.40 %), 3 of 40 clients (7.5 %), counted by ip`.
pub(super) fn policy_in_words(policy: &PolicyReport) -> String {
    let name = shortened(&policy.policy);
    let did = match (policy.is_simulated, policy.denied, policy.mode) {
        (false, ..) => return format!("{name} was not simulated"),
        (_, 0, _) => return format!("{name} denied no request"),
        (.., "shadow") => "(shadow) would have denied",
        _ => "denied",
    };
    let requests = part_of(policy.denied, policy.requests, "request");
    let clients = part_of(policy.clients_denied, policy.clients, "client");
    format!("{name} {did} {requests}, {clients}, counted {}", by_in_words(&policy.by))
}

/// `by ip, path`, or that all requests count together.
pub(super) fn by_in_words(by: &[String]) -> String {
    if by.is_empty() { "all together".to_owned() } else { format!("by {}", printable(&by.join(", "))) }
}

/// The clients; `counted` is the name of the column of denied requests.
pub(super) fn client_table(clients: &[DeniedClient], counted: &str) -> String {
    if clients.is_empty() {
        return String::new();
    }
    let columns =
        [("CLIENT", Left), (counted, Right), ("OF REQUESTS", Right), ("FIRST", Left), ("LAST", Left)];
    let mut table = ReportTable::new(columns);
    for DeniedClient { client, requests, denied, first, last } in clients {
        let [first, last] = [first, last].map(|at| time::seconds(*at));
        table.row([shortened(client), grouped(*denied), grouped(*requests), first, last]);
    }
    table.to_string()
}

/// The denials over time, in two lines.
fn timeline_lines(timeline: &Timeline) -> String {
    let timeline = timeline.merged(SPARKLINE_MAX);
    let Some((position, denied)) = peak(&timeline.denied).filter(|_| timeline.is_drawable()) else {
        return String::new();
    };
    let [from, to] = [0, timeline.n_intervals()].map(|n| time::minutes(timeline.start_of(n)));
    let step = time::duration(timeline.step_seconds);
    let at = time::minutes(timeline.start_of(position));
    format!(
        "  denials per {step}, at most {} from {at}\n  {from} {} {to}\n",
        grouped(denied),
        sparkline(&timeline.denied)
    )
}

fn against_section(against: &AgainstReport, denied: u64) -> String {
    let file = shortened(&against.file);
    let mut text = format!("\ncompared with {file}\n");
    if against.newly_denied == 0 && against.newly_allowed == 0 {
        text.push_str("  both files decide the same for every request\n");
        return text;
    }
    text.push_str(&format!(
        "  denied: {} instead of {}\n",
        grouped(denied),
        counted(against.denied, "request")
    ));
    let sides = [
        ("newly denied", against.newly_denied, against.clients_losing, &against.losing_most),
        ("newly allowed", against.newly_allowed, against.clients_gaining, &against.gaining_most),
    ];
    for (change, requests, clients, most) in sides {
        let [requests, clients] = [counted(requests, "request"), counted(clients, "client")];
        text.push_str(&format!("  {change}: {requests} of {clients}\n"));
        text.push_str(&client_table(most, &change.to_uppercase()));
    }
    text
}

fn logged_section(logged: &LoggedReport) -> String {
    let requests = counted(logged.requests, "request");
    let mut text = format!("\ncompared with the decisions in the log\n  decisions in the log: {requests}, ");
    text.push_str(&format!("{} denied\n", grouped(logged.denied)));
    if logged.only_logged == 0 && logged.only_simulated == 0 {
        text.push_str("  the simulation decides the same for each of them\n");
        return text;
    }
    text.push_str(&format!("  denied in the log only: {}\n", counted(logged.only_logged, "request")));
    text.push_str(&format!(
        "  denied in the simulation only: {}\n",
        counted(logged.only_simulated, "request")
    ));
    let first = logged.first_difference.as_ref();
    text.extend(first.map(|first| format!("  first difference: {}\n", request_in_words(first))));
    text
}

pub(super) fn logs_section(logs: &[LogReport]) -> String {
    if logs.is_empty() {
        return String::new();
    }
    let mut table =
        ReportTable::new([("LOG", Left), ("FORMAT", Left), ("LINES", Right), ("UNREADABLE", Right)]);
    for LogReport { log, format, lines, unreadable, .. } in logs {
        table.row([shortened(log), shortened(format), grouped(*lines), grouped(*unreadable)]);
    }
    format!("\nlogs\n{table}")
}

pub(super) fn unreadable_section(lines: &[UnreadableLine], unreadable: u64) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("\nunreadable lines, the first {} of {}\n", lines.len(), grouped(unreadable));
    for UnreadableLine { log, line, why, text: beginning } in lines {
        let beginning = shortened(beginning);
        text.push_str(&format!("  {}:{line}: {}: {beginning}\n", shortened(log), printable(why)));
    }
    text
}

pub(super) fn notes_section(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let notes: String = notes.iter().map(|note| list_item(&format!("- {note}"), "  ")).collect();
    format!("\nnotes\n{notes}")
}

/// A wrapped text whose further lines are indented by two spaces more.
fn list_item(text: &str, indent: &str) -> String {
    let lines = wrapped(text, WIDTH - 2 * indent.len());
    let indented = lines.iter().enumerate().map(|(n, line)| {
        let hanging = if n > 0 { "  " } else { "" };
        format!("{indent}{hanging}{line}\n")
    });
    indented.collect()
}

#[cfg(test)]
mod tests;
