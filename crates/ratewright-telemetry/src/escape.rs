//! Escapes characters that a reader does not see, or that change how the text around them is shown. Clients choose
//! their paths and names, so these could hold commands for the operator's terminal.

/// A text with control, bidirectional and invisible characters as escapes, such as `\n` and `\u{202e}`.
pub fn escape_hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(&mut shown, c));
    shown
}

/// Appends a character, or its escape if it is hidden.
pub fn push_visible(shown: &mut String, c: char) {
    if is_hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
}

/// True for characters that a reader does not see, or that change how others are shown.
fn is_hidden(c: char) -> bool {
    let is_noncharacter = u32::from(c) & 0xFFFE == 0xFFFE;
    c.is_control()
        || is_noncharacter
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fdd0}'..='\u{fdef}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        let text = "\x1b[2J\n\x7f\u{9b}0m\u{202e}gpj.exe\u{200b}\u{2066}\u{feff} grüße \u{2028}日本";
        let shown = r"\u{1b}[2J\n\u{7f}\u{9b}0m\u{202e}gpj.exe\u{200b}\u{2066}\u{feff} grüße \u{2028}日本";
        assert_eq!(escape_hidden(text), shown);
    }

    #[test]
    fn no_hidden_character_is_left() {
        let all: String = ('\0'..=char::MAX).collect();
        assert!(!escape_hidden(&all).chars().any(is_hidden));
    }
}
