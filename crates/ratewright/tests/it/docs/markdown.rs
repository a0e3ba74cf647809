//! What a page consists of: headings, fenced blocks, and text with words in backticks.

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) language: &'a str,
    pub(super) text: &'a str,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table<'a> {
    /// The text before it.
    pub(super) before: &'a str,
    pub(super) rows: Vec<Vec<&'a str>>,
}

/// The fenced blocks of a page.
pub(super) fn blocks(page: &str) -> Vec<Block<'_>> {
    let inside = page.split("\n```").skip(1).step_by(2);
    inside
        .map(|inside| {
            let (language, text) = inside.split_once('\n').unwrap();
            Block { language, text }
        })
        .collect()
}

/// The headings of a page, each with its number of `#`.
pub(super) fn headings(page: &str) -> Vec<(usize, &str)> {
    let lines = paragraphs(page).into_iter().filter(|text| text.starts_with('#'));
    lines
        .map(|text| (text.len() - text.trim_start_matches('#').len(), text.trim_start_matches(['#', ' '])))
        .collect()
}

/// The text outside of blocks, by paragraphs; each row of a table is one.
pub(super) fn paragraphs(page: &str) -> Vec<&str> {
    let outside = page.split("\n```").step_by(2);
    outside
        .flat_map(|text| text.split("\n\n"))
        .flat_map(rows_or_whole)
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect()
}

fn rows_or_whole(text: &str) -> Vec<&str> {
    let text = text.trim_matches('\n');
    if text.starts_with('|') || text.starts_with('#') { text.lines().collect() } else { vec![text] }
}

/// What stands in backticks.
pub(super) fn quoted(paragraph: &str) -> Vec<String> {
    paragraph.split('`').skip(1).step_by(2).map(|text| text.replace("\\|", "|").replace('\n', " ")).collect()
}

/// The tables of a page, without their heads.
pub(super) fn tables(page: &str) -> Vec<Table<'_>> {
    let parts: Vec<&str> = page.split("\n\n").collect();
    let pairs = parts.windows(2).filter(|pair| pair[1].trim_start().starts_with('|'));
    pairs
        .map(|pair| {
            let rows = pair[1]
                .trim()
                .lines()
                .skip(2)
                .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect());
            Table { before: pair[0], rows: rows.collect() }
        })
        .collect()
}
