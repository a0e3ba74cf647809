//! Tables for a terminal: columns as wide as their cells, headers of one or two lines.

use std::fmt;

/// The side at which a column's cells are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows with a header, each indented by two spaces.
pub(super) struct ReportTable<const N: usize> {
    alignments: [Align; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> ReportTable<N> {
    /// A table with these columns. A newline in a name makes a header of two lines.
    pub(super) fn new(columns: [(&str, Align); N]) -> Self {
        let mut rows = Vec::new();
        if columns.iter().any(|(name, _)| name.contains('\n')) {
            rows.push(
                columns.map(|(name, _)| name.split_once('\n').map_or("", |(first, _)| first).to_owned()),
            );
        }
        rows.push(columns.map(|(name, _)| name.rsplit('\n').next().unwrap_or(name).to_owned()));
        Self { alignments: columns.map(|(_, align)| align), rows }
    }

    /// Adds a row. The cells are printable already.
    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }
}

impl<const N: usize> fmt::Display for ReportTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<&[String]> = self.rows.iter().map(<[_; N]>::as_slice).collect();
        write_rows(f, &self.alignments, &rows)
    }
}

/// Writes rows of any number of columns. Not generic over N, so it is compiled once.
fn write_rows(f: &mut fmt::Formatter<'_>, alignments: &[Align], rows: &[&[String]]) -> fmt::Result {
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..alignments.len()).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, (width, align)) in row.iter().zip(widths.iter().zip(alignments)) {
            let gap = " ".repeat(width - cell.chars().count());
            let parts = if *align == Align::Right { ["  ", &gap, cell] } else { ["  ", cell, &gap] };
            line.extend(parts);
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_aligned_below_headers_of_two_lines() {
        let mut table = ReportTable::new([
            ("CLIENT", Align::Left),
            ("CLIENTS\nDENIED", Align::Right),
            ("FIRST", Align::Left),
        ]);
        table.row(["ünique".to_owned(), "7".to_owned(), String::new()]);
        table.row(["10.0.0.7".to_owned(), "12,345".to_owned(), "08:00".to_owned()]);
        expect![[r#"
            table
                        CLIENTS
              CLIENT     DENIED  FIRST
              ünique          7
              10.0.0.7   12,345  08:00
        "#]]
        .assert_eq(&format!("table\n{table}"));
    }
}
