//! Tables in HTML: a caption, headers with a scope, a region that scrolls on a narrow screen.

use super::super::client_row::ClientRow;
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

/// The clients. The columns: counted requests, the first and the last of them.
pub(super) fn client_table<'a>(
    caption: &str,
    columns: [&str; 3],
    clients: impl Iterator<Item = ClientRow<'a>>,
) -> String {
    let [counted, first, last] = columns;
    let mut table = Table::new(
        caption,
        &[("Client", "name"), (counted, "number"), ("Requests", "number"), (first, "time"), (last, "time")],
    );
    let mut is_empty = true;
    for ClientRow { client, counted, requests, times } in clients {
        let [first, last] = times.map(time::seconds);
        table.row(&[code(client), grouped(counted), grouped(requests), first, last]);
        is_empty = false;
    }
    if is_empty { String::new() } else { table.end() }
}

/// A name from a log, cut and escaped.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", html(&shortened(text)))
}
