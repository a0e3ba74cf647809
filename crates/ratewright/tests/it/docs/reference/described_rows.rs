//! Tables whose first cells come from the program, and whose last cell is written by hand.
//!
//! A row is found again by one of its cells, so a table may be in any order and under any heading. Rows that the program no
//! longer has are removed. New ones come under a heading at the end, until somebody describes them and moves them.

use std::collections::BTreeMap;

const NEW: &str = "## Not described yet";

/// The tables of a page.
pub(super) struct DescribedRows {
    /// The titles of all columns.
    pub(super) head: &'static [&'static str],
    /// The column that identifies a row.
    pub(super) key: usize,
}

impl DescribedRows {
    /// The page with these rows, which have no description yet. An empty cell keeps what the page says.
    pub(super) fn refresh(&self, page: &str, rows: &[Vec<String>]) -> String {
        let mut missing = BTreeMap::new();
        for row in rows {
            let other = missing.insert(row[self.key].as_str(), row);
            assert!(other.is_none_or(|other| other == row), "{row:?} is there twice, with different cells");
        }
        let (described, _) = page.split_once(NEW).unwrap_or((page, ""));
        let head = format!("| {} |", self.head.join(" | "));
        let mut made = String::new();
        let mut lines = described.trim_end().lines();
        while let Some(line) = lines.next() {
            made += &format!("{line}\n");
            if line != head {
                continue;
            }
            made += &format!("{}\n", lines.next().expect("a line below the titles"));
            let rows = lines.by_ref().take_while(|line| !line.is_empty());
            made.extend(rows.filter_map(|line| self.refresh_row(line, &mut missing)));
            made.push('\n');
        }
        let mut made = format!("{}\n", made.trim_end());
        if !missing.is_empty() {
            made += &format!("\n{NEW}\n\n{head}\n|{}\n", "---|".repeat(self.head.len()));
            let empty = |row: &[String]| "  |".repeat(self.head.len() - row.len());
            made.extend(missing.values().map(|row| format!("| {} |{}\n", row.join(" | "), empty(row))));
        }
        made
    }

    /// A row with new cells and its old description. Nothing, if the program does not have it.
    fn refresh_row(&self, line: &str, missing: &mut BTreeMap<&str, &Vec<String>>) -> Option<String> {
        let old = cells(line);
        let row = missing.remove(old[self.key].as_str())?;
        let new = row.iter().zip(&old).map(|(new, old)| if new.is_empty() { old } else { new });
        let cells: Vec<_> = new.chain(old.get(row.len()..).unwrap_or_default()).map(String::as_str).collect();
        Some(format!("| {} |\n", cells.join(" | ")))
    }

    /// Fails if a row has no description.
    #[track_caller]
    pub(super) fn assert_described(&self, page: &str) {
        let is_row = |line: &&str| line.starts_with("| ") && cells(line).len() == self.head.len();
        let bare: Vec<_> =
            page.lines().filter(is_row).filter(|row| cells(row).contains(&String::new())).collect();
        assert!(bare.is_empty(), "describe these rows, each under its heading:\n{}", bare.join("\n"));
        assert!(!page.contains(NEW), "move the new rows under their headings");
    }
}

/// The cells of a row. A bar within a cell is escaped.
fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{1}";
    let line = line.replace("\\|", BAR);
    let inside = line.trim_end().trim_start_matches('|').strip_suffix('|').unwrap_or(&line);
    inside.split('|').map(|cell| cell.trim().replace(BAR, "\\|")).collect()
}

#[test]
fn descriptions_stay_gone_rows_leave_and_new_rows_are_to_be_described() {
    let rows = DescribedRows { head: &["level", "message", "meaning"], key: 1 };
    let page = "# Page\n\n| level | message | meaning |\n|---|---|---|\n| INFO | a | the first |\n| INFO | gone | … |\n\nText.\n";
    let of = |level: &str, message: &str| vec![level.to_owned(), message.to_owned()];
    let made = rows.refresh(page, &[of("WARN", "a"), of("INFO", "b\\|c")]);
    assert!(made.contains("| WARN | a | the first |\n\nText.\n\n## Not described yet\n"), "{made}");
    assert!(made.contains("| INFO | b\\|c |  |\n") && !made.contains("gone"), "{made}");
    assert_eq!(rows.refresh(&made, &[of("WARN", "a"), of("INFO", "b\\|c")]), made);
}
