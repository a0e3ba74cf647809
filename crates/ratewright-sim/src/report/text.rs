//! A report as text for a terminal of about 100 columns, the most important first.

use super::client_row::ClientRow;
use ratewright_telemetry::escape_hidden;

use super::escape::{shortened, wrapped};
use super::number::{counted, grouped, part_of, share};
use super::report_table::Align::{Left, Right};
use super::report_table::ReportTable;
use super::sparkline::sparkline;
use super::timeline::peak;
use super::{
    ComparisonReport, DecisionDifference, DeniedClient, LogReport, LoggedDecisionsReport, Period,
    PolicyReport, Report, RequestSummary, Timeline, UnreadableLine, time,
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
        text.extend(self.logged_decisions.as_ref().map(logged_section));
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
        lines.extend(self.not_simulated_in_words().iter().flat_map(|remark| wrapped(remark, WIDTH)));
        lines.extend(self.not_replayed_in_words());
        lines.extend(self.status_429_in_words().iter().flat_map(|remark| wrapped(remark, WIDTH)));
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// `denied 1,204 of 3,401,200 requests (0.035%) and 37 of 81,220 clients (0.046%)`.
    pub(super) fn denied_in_words(&self) -> String {
        if self.denied == 0 {
            let applies = self.policies.iter().any(|policy| policy.requests > 0);
            let why = if applies { "" } else { ": no policy applied to any request" };
            return format!("no request was denied{why}");
        }
        let requests = part_of(self.denied, self.requests, "request");
        format!("denied {requests} and {}", part_of(self.clients_denied, self.clients, "client"))
    }

    /// The policies that were not simulated, if there are some: the totals are without them.
    pub(super) fn not_simulated_in_words(&self) -> Option<String> {
        let names = self.policies.iter().filter(|policy| !policy.is_simulated);
        let names: Vec<_> = names.map(|policy| shortened(&policy.policy)).collect();
        (!names.is_empty()).then(|| format!("not simulated: {}", names.join(", ")))
    }

    /// The lines that were not replayed, if there are some.
    pub(super) fn not_replayed_in_words(&self) -> Option<String> {
        not_replayed(self.lines, [self.unreadable, self.lines_without_request, self.out_of_order])
    }

    /// Why requests with status 429 in the log weaken the report, if there are some.
    pub(super) fn status_429_in_words(&self) -> Option<String> {
        let requests = part_of(self.status_429, self.requests, "request");
        (self.status_429 > 0).then(|| {
            format!(
                "responses with status 429 in the log: {requests}; without them, these clients might have sent more \
                 requests"
            )
        })
    }
}

/// `99 lines read; not replayed: 12 unreadable, 3 without a request`, without the zeros.
///
/// The counts: unreadable, not a request, out of order.
pub(super) fn not_replayed(lines: u64, counts: [u64; 3]) -> Option<String> {
    let kinds = ["unreadable", "without a request", "too far out of order"];
    let parts = counts.into_iter().zip(kinds).filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, kind)| format!("{} {kind}", grouped(n))).collect();
    (!parts.is_empty())
        .then(|| format!("{} read; not replayed: {}", counted(lines, "line"), parts.join(", ")))
}

/// `2026-02-10 00:00:00 to 23:59:59 UTC`.
pub(super) fn period_in_words(period: Period) -> String {
    format!("{} UTC", time::range(period.from, period.to))
}

/// `2026-02-10 08:20:11 10.0.0.7 POST /login`.
pub(super) fn request_in_words(request: &RequestSummary) -> String {
    let RequestSummary { at, client, method, path } = request;
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
            let mode = "not simulated".to_owned();
            table.row([name, mode, limit, none(), none(), none(), none(), none(), none()]);
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
        text.push_str(&denied_table(&policy.most_denied));
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

/// `login (shadow, by ip) would have denied 12 of 3,000 requests (0.40%) and 3 of 40 clients (7.5%)`.
pub(super) fn policy_in_words(policy: &PolicyReport) -> String {
    let name = shortened(&policy.policy);
    if !policy.is_simulated {
        return format!("{name} was not simulated");
    }
    if policy.denied == 0 {
        return format!("{name} would have denied no request");
    }
    let shadow = if policy.mode == "shadow" { "shadow, " } else { "" };
    let requests = part_of(policy.denied, policy.requests, "request");
    let clients = part_of(policy.clients_denied, policy.clients, "client");
    format!("{name} ({shadow}{}) would have denied {requests} and {clients}", by_in_words(&policy.by))
}

/// `by ip, path`, or that all requests share a bucket.
pub(super) fn by_in_words(by: &[String]) -> String {
    if by.is_empty() {
        return "one bucket for all requests".to_owned();
    }
    format!("by {}", escape_hidden(&by.join(", ")))
}

/// The denied clients.
pub(super) fn denied_table(clients: &[DeniedClient]) -> String {
    client_table(clients.iter().map(ClientRow::from), ["DENIED", "FIRST DENIED (UTC)", "LAST DENIED (UTC)"])
}

/// The clients. The columns: counted requests, the first and the last of them.
fn client_table<'a>(clients: impl Iterator<Item = ClientRow<'a>>, columns: [&str; 3]) -> String {
    let [counted, first, last] = columns;
    let mut table = ReportTable::new([
        ("CLIENT", Left),
        (counted, Right),
        ("REQUESTS", Right),
        (first, Left),
        (last, Left),
    ]);
    let mut is_empty = true;
    for ClientRow { client, counted, requests, times } in clients {
        let [first, last] = times.map(time::seconds);
        table.row([shortened(client), grouped(counted), grouped(requests), first, last]);
        is_empty = false;
    }
    if is_empty { String::new() } else { table.to_string() }
}

/// The denials over time, in two lines.
fn timeline_lines(timeline: &Timeline) -> String {
    let timeline = timeline.merged(SPARKLINE_MAX);
    let Some((position, denied)) = peak(&timeline.denied).filter(|_| timeline.is_drawable()) else {
        return String::new();
    };
    let [from, to] = [0, timeline.n_intervals()].map(|n| time::minutes(timeline.start_of(n)));
    let step = time::duration(timeline.interval_seconds);
    let at = timeline.start_in_words(position);
    format!(
        "  denied requests per {step} interval; peak {} at {at} UTC\n  {from} {} {to}\n",
        grouped(denied),
        sparkline(&timeline.denied)
    )
}

fn against_section(against: &ComparisonReport, denied: u64) -> String {
    let file = shortened(&against.file);
    let mut text = format!("\ncompared with {file}\n");
    if against.newly_denied == 0 && against.newly_allowed == 0 {
        text.push_str("  no difference: both files make the same decision for every request\n");
        return text;
    }
    text.push_str(&format!("  {}\n", denied_by_both_in_words(against, denied)));
    let denied = changed_in_words(against.newly_denied, against.clients_newly_denied);
    text.push_str(&format!("  newly denied: {denied}\n"));
    let columns = ["NEWLY DENIED", "FIRST DENIED (UTC)", "LAST DENIED (UTC)"];
    text.push_str(&client_table(against.most_newly_denied.iter().map(ClientRow::from), columns));
    let allowed = changed_in_words(against.newly_allowed, against.clients_newly_allowed);
    text.push_str(&format!("  newly allowed: {allowed}\n"));
    let columns = ["NEWLY ALLOWED", "FIRST (UTC)", "LAST (UTC)"];
    text.push_str(&client_table(against.most_newly_allowed.iter().map(ClientRow::from), columns));
    text
}

/// `denied: 173 requests (old.yaml: 223)`.
pub(super) fn denied_by_both_in_words(against: &ComparisonReport, denied: u64) -> String {
    let (file, before) = (shortened(&against.file), grouped(against.denied));
    format!("denied: {} ({file}: {before})", counted(denied, "request"))
}

/// `16 requests from 1 client`, or `none`.
pub(super) fn changed_in_words(requests: u64, clients: u64) -> String {
    if requests == 0 {
        return "none".to_owned();
    }
    format!("{} from {}", counted(requests, "request"), counted(clients, "client"))
}

fn logged_section(logged: &LoggedDecisionsReport) -> String {
    let [requests, denied] = [logged.requests, logged.denied].map(grouped);
    let mut text = "\ncompared with the decisions in the log\n".to_owned();
    text.push_str(&format!("  requests with a logged decision: {requests}, denied: {denied}\n"));
    if logged.denied_only_in_log == 0 && logged.denied_only_in_simulation == 0 {
        text.push_str("  no difference: the simulation makes the same decisions\n");
        return text;
    }
    text.push_str(&format!("  denied in the log only: {}\n", counted(logged.denied_only_in_log, "request")));
    text.push_str(&format!(
        "  denied in the simulation only: {}\n",
        counted(logged.denied_only_in_simulation, "request")
    ));
    let first = logged.first_difference.as_ref();
    text.extend(first.map(|first| list_item(&difference_in_words(first), "  ")));
    text
}

/// `first difference: denied in the log, allowed in the simulation: 2026-02-10 08:20:11 10.0.0.7 POST /login`.
pub(super) fn difference_in_words(first: &DecisionDifference) -> String {
    let decisions = if first.denied_in == "log" {
        "denied in the log, allowed in the simulation"
    } else {
        "allowed in the log, denied in the simulation"
    };
    format!("first difference: {decisions}: {}", request_in_words(&first.request))
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
    let mut text = format!("\nunreadable lines (showing {} of {})\n", lines.len(), grouped(unreadable));
    for UnreadableLine { log, line, reason, text: beginning } in lines {
        let beginning = shortened(beginning);
        text.push_str(&format!("  {}:{line}: {}: {beginning}\n", shortened(log), escape_hidden(reason)));
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
