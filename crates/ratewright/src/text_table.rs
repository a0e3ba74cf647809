//! Tables for a terminal: columns as wide as their cells, numbers aligned to the right.

use std::fmt;

use ratewright_telemetry::escape_hidden;

/// Rows with a header.
pub(crate) struct TextTable<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> TextTable<N> {
    pub(crate) fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| escape_hidden(&cell)));
    }
}

impl<const N: usize> fmt::Display for TextTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<&[String]> = self.rows.iter().map(<[_; N]>::as_slice).collect();
        write_rows(f, &rows)
    }
}

/// Writes rows of any width: not compiled once for each.
fn write_rows(f: &mut fmt::Formatter<'_>, rows: &[&[String]]) -> fmt::Result {
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let is_number = |n: usize| rows.iter().skip(1).all(|row| row[n].bytes().all(|b| b.is_ascii_digit()));
    let n_columns = rows.first().map_or(0, |row| row.len());
    let columns: Vec<_> = (0..n_columns).map(|n| (width(n), is_number(n))).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, (width, is_number)) in row.iter().zip(&columns) {
            let gap = " ".repeat(width - cell.chars().count());
            let parts = if *is_number { [&gap, cell] } else { [cell, &gap] };
            line.extend(parts.into_iter().map(String::as_str));
            line.push_str("  ");
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn columns_are_as_wide_as_needed_and_numbers_are_aligned_right() {
        let mut table = TextTable::new(["N", "WHO", "WAIT"]);
        table.row(["7".to_owned(), "ünique".to_owned(), "1 s".to_owned()]);
        table.row(["1234".to_owned(), "\x1b[31mred\n".to_owned(), String::new()]);
        expect![[r#"
               N  WHO              WAIT
               7  ünique           1 s
            1234  \u{1b}[31mred\n
        "#]]
        .assert_eq(&table.to_string());
    }
}
