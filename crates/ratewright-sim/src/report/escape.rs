//! Escapes text from logs. A client chooses its path and its name, so both may hold commands for the operator's
//! terminal, markup, or characters that reverse or hide the text around them.

use ratewright_telemetry::{escape_hidden, push_visible};

/// The longest name or path in a report, in characters.
const SHORT_MAX: usize = 60;

/// A text of several lines, printable; newlines stay.
pub(super) fn printable_lines(text: &str) -> String {
    text.lines().flat_map(|line| [escape_hidden(line), "\n".to_owned()]).collect()
}

/// A printable text, cut to 60 characters. An escape is never cut in half.
pub(super) fn shortened(text: &str) -> String {
    let (mut shown, mut n_shown) = (String::new(), 0);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let mut piece = String::new();
        push_visible(&mut piece, c);
        let n_piece = piece.chars().count();
        let is_last = rest.as_str().is_empty();
        if n_shown + n_piece + usize::from(!is_last) > SHORT_MAX {
            shown.push('…');
            break;
        }
        shown.push_str(&piece);
        n_shown += n_piece;
    }
    shown
}

/// A printable text, escaped for an element or a quoted attribute of HTML.
pub(super) fn html(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in escape_hidden(text).chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            _ => shown.push(c),
        }
    }
    shown
}

/// A printable text, broken into lines at spaces. A word longer than a line gets a line of its own.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let text = escape_hidden(text);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_cut_between_escapes() {
        assert_eq!(shortened(&"a".repeat(60)), "a".repeat(60));
        assert_eq!(shortened(&"a".repeat(61)), format!("{}…", "a".repeat(59)));
        assert_eq!(
            shortened(&format!("{}\x1b{}", "a".repeat(55), "b".repeat(9))),
            format!("{}…", "a".repeat(55))
        );
    }

    #[test]
    fn markup_is_escaped() {
        expect!["&quot;&gt;&lt;svg onload=&#39;x&#39;&gt;&amp;amp;"]
            .assert_eq(&html("\"><svg onload='x'>&amp;"));
    }

    #[test]
    fn lines_break_at_spaces() {
        expect!["one two|three|four-and-more|five"]
            .assert_eq(&wrapped("one two three four-and-more five", 8).join("|"));
    }

    proptest! {
        #[test]
        fn a_shortened_text_is_short(text: String) {
            prop_assert!(shortened(&text).chars().count() <= SHORT_MAX);
        }
    }
}
