//! Bars made of block characters: a sparkline, and a horizontal bar.

const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const WIDTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// One character for each count. The lowest block is 0 and nothing else, so that a single denial is visible.
pub(super) fn sparkline(counts: &[u64]) -> String {
    let largest = u128::from(counts.iter().copied().max().unwrap_or(0).max(1));
    let block = |count: &u64| {
        let level = (u128::from(*count) * 7).div_ceil(largest);
        HEIGHTS[usize::try_from(level).unwrap_or(7).min(7)]
    };
    counts.iter().map(block).collect()
}

/// A bar of at most `width` characters, in eighths of one, rounded up: only 0 has no bar.
pub(super) fn bar(count: u64, largest: u64, width: usize) -> String {
    let eighths = (u128::from(count) * 8 * width as u128).div_ceil(u128::from(largest.max(1)));
    let eighths = usize::try_from(eighths).unwrap_or(usize::MAX).min(8 * width);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend((eighths % 8).checked_sub(1).map(|rest| WIDTHS[rest]));
    bar
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn only_zero_is_the_lowest_block() {
        expect!["▁▂▂▃▅█▁"].assert_eq(&sparkline(&[0, 1, 100, 200, 500, 1_000, 0]));
        expect!["▁▁"].assert_eq(&sparkline(&[0, 0]));
        expect![""].assert_eq(&sparkline(&[]));
        expect!["██"].assert_eq(&sparkline(&[u64::MAX, u64::MAX]));
    }

    #[test]
    fn bars_are_in_eighths() {
        let bars = [0, 1, 500, 999, 1_000, 2_000].map(|n| bar(n, 1_000, 3)).join("|");
        expect!["|▏|█▌|███|███|███"].assert_eq(&bars);
    }
}
