//! Optional white space around header values: spaces and tabs, nothing else.

pub(crate) fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Trims spaces and tabs. Other white space stays, and makes a value invalid.
pub(crate) fn trimmed(value: &[u8]) -> &[u8] {
    let value = trimmed_end(value);
    let start = value.iter().position(|byte| !is_space(*byte)).unwrap_or(value.len());
    &value[start..]
}

/// Trims spaces and tabs at the end.
pub(crate) fn trimmed_end(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| !is_space(*byte)).map_or(0, |last| last + 1);
    &value[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_tabs_are_trimmed_and_nothing_else() {
        for (value, expected) in
            [("", ""), (" \t", ""), (" a b\t ", "a b"), ("\x0ca\r", "\x0ca\r"), ("a", "a")]
        {
            assert_eq!(trimmed(value.as_bytes()), expected.as_bytes(), "{value:?}");
        }
        assert_eq!(trimmed_end(b" a \t"), b" a");
    }
}
