//! A report as one HTML file: no script, no other file, light and dark, for a phone and for paper.
//!
//! Every text passes through `escape::html`; a Content-Security-Policy forbids scripts in case one does not.

mod section;
mod table;

use self::section::{against, chart_figure, logged, logs, notes, policies, policy, unreadable};
use super::Report;
use super::escape::html;
use super::number::{grouped, share};
use super::svg::Bars;
use super::text::period_in_words;

const STYLE: &str = include_str!("html/style.css");

impl Report {
    /// The report as an HTML page with this title.
    ///
    /// Control and bidirectional characters of the logs are shown as `\u{..}`, long names and paths are cut.
    pub fn to_html(&self, title: &str) -> String {
        let mut page = head(title);
        page.push_str(&format!(
            "<header>\n<h1>{}</h1>\n<p>Simulation: no request was really denied.</p>\n{}</header>\n<main>\n",
            html(title),
            self.html_summary()
        ));
        if self.requests > 0 {
            page.push_str(&self.html_timeline());
        }
        page.push_str(&policies(&self.policies));
        let sections = self.policies.iter().enumerate().map(|(n, one)| policy(n, one));
        sections.for_each(|section| page.push_str(&section));
        page.extend(self.against.as_ref().map(|one| against(one, self.denied)));
        page.extend(self.logged_decisions.as_ref().map(logged));
        page.push_str(&logs(&self.logs));
        page.push_str(&unreadable(&self.unreadable_lines, self.unreadable));
        page.push_str(&notes(&self.notes));
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    /// The period, and the most important numbers.
    fn html_summary(&self) -> String {
        let remarks = self.not_simulated_in_words().into_iter().chain(self.not_replayed_in_words());
        let remarks = remarks.chain(self.status_429_in_words());
        let remarks: String = remarks.map(|remark| paragraph(&remark)).collect();
        let Some(period) = self.period.filter(|_| self.requests > 0) else {
            return format!("<p>No request was replayed.</p>\n{remarks}");
        };
        let quiet = if self.denied == 0 { paragraph(&self.denied_in_words()) } else { String::new() };
        let of_requests = |part: u64| format!("{} of requests", share(part, self.requests));
        let of_clients =
            format!("{} of {} clients", share(self.clients_denied, self.clients), grouped(self.clients));
        let denied = if self.denied > 0 { "value some" } else { "value" };
        let figures = [
            figure("value", "Requests", self.requests, &format!("from {} clients", grouped(self.clients))),
            figure("value", "Allowed", self.allowed, &of_requests(self.allowed)),
            figure(denied, "Denied", self.denied, &of_requests(self.denied)),
            figure(denied, "Clients denied", self.clients_denied, &of_clients),
        ];
        format!(
            "<p class=\"quiet\">{}</p>\n{quiet}<dl class=\"figures\">\n{}</dl>\n{remarks}",
            html(&period_in_words(period)),
            figures.concat(),
        )
    }

    /// All requests over time, and the denied ones on a scale of their own.
    fn html_timeline(&self) -> String {
        if !self.timeline.is_drawable() {
            return String::new();
        }
        let all = chart_figure("all", &self.timeline, Bars::Stacked);
        let denied = if self.denied > 0 {
            chart_figure("denied", &self.timeline, Bars::Denied)
        } else {
            String::new()
        };
        format!("<h2>Requests over time</h2>\n{all}{denied}")
    }
}

fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        html(title)
    )
}

/// A number with its name, and what it is a part of.
fn figure(class: &str, name: &str, value: u64, detail: &str) -> String {
    format!(
        "<div><dt>{name}</dt><dd class=\"{class}\">{}</dd><dd class=\"detail\">{}</dd></div>\n",
        grouped(value),
        html(detail)
    )
}

/// A text of the report as a paragraph.
fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", html(&sentence(text)))
}

/// A text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

#[cfg(test)]
mod tests;
