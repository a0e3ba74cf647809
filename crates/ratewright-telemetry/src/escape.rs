//! Escapes characters that a reader does not see, or that change how the text around them is shown. Clients choose
//! their paths and names, so these could hold commands for the operator's terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text with control, bidirectional and invisible characters as escapes, such as `\n` and `\u{202e}`.
pub fn escape_hidden(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(&mut shown, c));
    shown
}

/// A text with its hidden characters as escapes, but for ASCII control characters: those that give it lines and colours stay.
pub fn escape_hidden_in_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| if c.is_ascii() { shown.push(c) } else { push_visible(&mut shown, c) });
    shown
}

/// JSON, or a part of a string in JSON, with its hidden characters as escapes, such as `\u202e`. Newlines between values stay.
pub fn escape_hidden_in_json(json: &str) -> Cow<'_, str> {
    escape_in_json(json, |c| is_hidden(c) && c != '\n')
}

/// The same with escapes for all characters but visible ASCII.
pub fn ascii_json(json: &str) -> Cow<'_, str> {
    if json.bytes().all(|byte| byte.is_ascii() && byte != b'\x7f') {
        return Cow::Borrowed(json); // as nearly always
    }
    escape_in_json(json, |c| !c.is_ascii() || c == '\x7f')
}

fn escape_in_json(json: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !json.contains(&is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() * 2);
    for c in json.chars() {
        if !is_escaped(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _infallible = write!(escaped, "\\u{unit:04x}");
        }
    }
    Cow::Owned(escaped)
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
        assert!(!escape_hidden_in_lines(&all).chars().any(|c| is_hidden(c) && !c.is_ascii()));
    }

    #[test]
    fn lines_and_colours_stay() {
        let line = "\x1b[32m INFO\x1b[0m path=/a\u{202e}\u{2028}grüße\u{e0041}\n";
        assert_eq!(
            escape_hidden_in_lines(line),
            "\x1b[32m INFO\x1b[0m path=/a\\u{202e}\\u{2028}grüße\\u{e0041}\n"
        );
    }

    #[test]
    fn json_is_escaped_and_means_the_same() {
        assert_eq!(ascii_json(r#"{"a":"b\n"}"#), r#"{"a":"b\n"}"#);
        let line = "\"p01, …\u{2028}\u{202e}\u{feff}\u{7f}grü\u{e0041}\"\n";
        let shown = "\"p01, …\\u2028\\u202e\\ufeff\\u007fgrü\\udb40\\udc41\"\n";
        assert_eq!(escape_hidden_in_json(line), shown);
        let json = "\"\u{2028}\u{202e}\u{feff}\u{7f}grü\u{e0041}\"";
        assert_eq!(ascii_json(json), r#""\u2028\u202e\ufeff\u007fgr\u00fc\udb40\udc41""#);
    }
}
