//! Tables in HTML: a caption, headers with a scope, a region that scrolls on a narrow screen.

use super::super::DeniedClient;
use super::super::escape::{html, shortened};
use super::super::number::grouped;
use super::super::time;

/// A table under construction.
pub(super) struct Table {
    markup: String,
    classes: Vec<&'static str>,
}

impl Table {
    /// A table with these columns: name and class.
    pub(super) fn new(caption: &str, columns: &[(&str, &'static str)]) -> Self {
        let caption = html(caption);
        let head: String = columns
            .iter()
            .map(|(name, class)| format!("<th scope=\"col\" class=\"{class}\">{}</th>", html(name)))
            .collect();
        let markup = format!(
            "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">\n<table>\n\
             <caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        );
        Self { markup, classes: columns.iter().map(|(_, class)| *class).collect() }
    }

    /// Adds a row of markup. The first cell is the row's header.
    pub(super) fn row(&mut self, cells: &[String]) {
        self.markup.push_str("<tr>");
        for (n, (cell, class)) in cells.iter().zip(&self.classes).enumerate() {
            let (tag, scope) = if n == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
            self.markup.push_str(&format!("<{tag}{scope} class=\"{class}\">{cell}</{tag}>"));
        }
        self.markup.push_str("</tr>\n");
    }

    /// The finished table.
    pub(super) fn end(self) -> String {
        self.markup + "</tbody>\n</table>\n</div>\n"
    }
}

/// The clients; `counted` is the name of the column of denied requests.
pub(super) fn client_table(caption: &str, counted: &str, clients: &[DeniedClient]) -> String {
    if clients.is_empty() {
        return String::new();
    }
    let mut table = Table::new(
        caption,
        &[
            ("Client", "name"),
            (counted, "number"),
            ("Of requests", "number"),
            ("First (UTC)", "time"),
            ("Last (UTC)", "time"),
        ],
    );
    for DeniedClient { client, requests, denied, first, last } in clients {
        table.row(&[
            code(client),
            grouped(*denied),
            grouped(*requests),
            time::seconds(*first),
            time::seconds(*last),
        ]);
    }
    table.end()
}

/// A name from a log, cut and escaped.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", html(&shortened(text)))
}
