//! A suggestion as text for a terminal: the answer first, the policy to paste last.

use ratewright_telemetry::escape_hidden;

use super::super::escape::{printable_lines, shortened};
use super::super::number::{counted, grouped, part_of, share};
use super::super::report_table::Align::{Left, Right};
use super::super::report_table::ReportTable;
use super::super::sparkline::bar;
use super::super::text::{
    by_in_words, denied_table, logs_section, not_replayed, notes_section, period_in_words, unreadable_section,
};
use super::{BurstSuggestion, CurvePoint, Suggestion};

/// The longest table of rates.
const CURVE_MAX: usize = 20;
/// The length of the longest bar, in characters.
const BAR_MAX: usize = 30;

impl Suggestion {
    /// The suggestion as text for a terminal.
    ///
    /// Control and bidirectional characters of the logs are escaped, long names are cut.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if self.requests == 0 {
            text.push_str("no rate suggested: no request in the logs matches the policy\n");
            text.extend(self.log_summary());
        } else {
            if self.bursts.len() > 1 {
                text.push_str(&self.burst_table());
                text.push('\n');
            }
            text.push_str(&self.answers());
            text.push('\n');
            text.extend(self.log_summary());
            self.bursts.iter().for_each(|burst| text.push_str(&self.burst_section(burst)));
        }
        if self.logs.len() > 1 || self.unreadable > 0 {
            text.push_str(&logs_section(&self.logs));
        }
        text.push_str(&unreadable_section(&self.unreadable_lines, self.unreadable));
        text.push_str(&notes_section(&self.notes));
        text.extend(self.bursts.iter().filter_map(policy_section));
        text
    }

    /// One row for each burst.
    fn burst_table(&self) -> String {
        let columns = [
            ("BURST", Right),
            ("RATE", Right),
            ("DENIED", Right),
            ("SHARE", Right),
            ("CLIENTS\nDENIED", Right),
        ];
        let mut table = ReportTable::new(columns);
        for burst in &self.bursts {
            let Some(rate) = &burst.rate else {
                let none = || "–".to_owned();
                table.row([grouped(burst.burst.into()), "none".to_owned(), none(), none(), none()]);
                continue;
            };
            table.row([
                grouped(burst.burst.into()),
                shortened(rate),
                grouped(burst.denied),
                self.share(burst.denied, burst.clients_denied),
                grouped(burst.clients_denied),
            ]);
        }
        table.to_string()
    }

    /// One sentence for each burst.
    fn answers(&self) -> String {
        self.bursts.iter().map(|burst| self.answer(burst) + "\n").collect()
    }

    /// `12/min with burst 20 denies 340 of 412,000 requests (0.083%); 11/min would deny 0.12%.`
    fn answer(&self, burst: &BurstSuggestion) -> String {
        let n = grouped(burst.burst.into());
        let Some(rate) = &burst.rate else {
            let at_most = escape_hidden(&self.deny_at_most);
            let needed = burst.sufficient_burst.map_or_else(String::new, |sufficient| {
                format!("; burst {} or more is needed", grouped(sufficient.into()))
            });
            return format!("burst {n}: no rate keeps denials at or below {at_most} of {}{needed}", self.of);
        };
        let denied = if self.is_of_clients() {
            part_of(burst.clients_denied, self.clients, "client")
        } else {
            part_of(burst.denied, self.requests, "request")
        };
        let next = burst.next_lower.as_ref().map_or_else(
            || "this is the lowest rate that suggest tries".to_owned(),
            |next| {
                let share = self.share(next.denied, next.clients_denied);
                format!("{} would deny {share}", shortened(&next.rate))
            },
        );
        format!("{} with burst {n} denies {denied}; {next}.", shortened(rate))
    }

    /// The period and the clients, and the lines that were not replayed.
    fn log_summary(&self) -> Vec<String> {
        let period = self.period.map(period_in_words);
        let requests = period.map(|period| {
            let requests = counted(self.requests, "request");
            // A bucket for all requests has no clients.
            let clients = if self.by.is_empty() {
                String::new()
            } else {
                format!(" from {}", counted(self.clients, "client"))
            };
            format!("{requests}{clients} ({}), {period}\n", by_in_words(&self.by))
        });
        let lines =
            not_replayed(self.lines, [self.unreadable, self.lines_without_request, self.out_of_order]);
        let lines = lines.map(|lines| lines + "\n");
        requests.into_iter().chain(lines).collect()
    }

    /// The clients that the rate denies, and the rates that were tried.
    fn burst_section(&self, burst: &BurstSuggestion) -> String {
        let with = if self.bursts.len() > 1 {
            format!(" with burst {}", grouped(burst.burst.into()))
        } else {
            String::new()
        };
        let mut text = String::new();
        if !burst.most_denied.is_empty() {
            let rate =
                burst.rate.as_deref().map_or_else(String::new, |rate| format!(" at {}", shortened(rate)));
            let clients = denied_table(&burst.most_denied);
            text.push_str(&format!("\nmost denied clients{rate}{with}\n{clients}"));
        }
        if !burst.curve.is_empty() {
            text.push_str(&format!("\nrates tried{with}\n{}", self.curve_table(burst)));
        }
        text
    }

    fn curve_table(&self, burst: &BurstSuggestion) -> String {
        let columns = [
            ("", Left),
            ("RATE", Right),
            ("DENIED", Right),
            ("SHARE", Right),
            ("CLIENTS\nDENIED", Right),
            ("", Left),
        ];
        let mut table = ReportTable::new(columns);
        let measure =
            |point: &CurvePoint| if self.is_of_clients() { point.clients_denied } else { point.denied };
        let largest = burst.curve.iter().map(measure).max().unwrap_or(0);
        for point in shown_points(burst) {
            let is_chosen = burst.rate.as_ref() == Some(&point.rate);
            table.row([
                if is_chosen { "→" } else { "" }.to_owned(),
                shortened(&point.rate),
                grouped(point.denied),
                self.share(point.denied, point.clients_denied),
                grouped(point.clients_denied),
                bar(measure(point), largest, BAR_MAX),
            ]);
        }
        table.to_string()
    }

    /// The share that is compared with `deny_at_most`.
    fn share(&self, denied: u64, clients_denied: u64) -> String {
        if self.is_of_clients() { share(clients_denied, self.clients) } else { share(denied, self.requests) }
    }

    fn is_of_clients(&self) -> bool {
        self.of == "clients"
    }
}

/// At most 20 points of the curve: both ends, the chosen rate with its neighbours, and others at equal distances.
fn shown_points(burst: &BurstSuggestion) -> impl Iterator<Item = &CurvePoint> {
    let n = burst.curve.len();
    let chosen = burst.curve.iter().position(|point| burst.rate.as_ref() == Some(&point.rate));
    // Both ends and the neighbours of the chosen rate may come on top of the regular ones.
    let step = if n <= CURVE_MAX { 1 } else { n.div_ceil(CURVE_MAX - 4) };
    let is_shown = move |position: usize| {
        position.is_multiple_of(step)
            || position + 1 == n
            || chosen.is_some_and(|chosen| chosen.abs_diff(position) <= 1)
    };
    burst.curve.iter().enumerate().filter(move |(position, _)| is_shown(*position)).map(|(_, point)| point)
}

fn policy_section(burst: &BurstSuggestion) -> Option<String> {
    let policy = printable_lines(burst.policy.as_deref()?);
    Some(format!("\npolicy to paste (burst {})\n\n{policy}", grouped(burst.burst.into())))
}

#[cfg(test)]
mod tests;
