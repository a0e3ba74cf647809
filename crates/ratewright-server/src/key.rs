//! A key as operators read and write it: the values that a policy counts by, joined by `|`.
//!
//! ```text
//!   orders|10.0.0.1        two values
//!   a%7Cb|100%25           the values a|b and 100%
//! ```
//!
//! A `|`, a `%`, a brace or a control character within a value is percent-encoded as in Redis, so that no value looks
//! like two, and a key can be copied from a response into a request. Parsing decodes every percent-encoding, because
//! keys in Redis have more of it.

use std::fmt;

use percent_encoding::percent_decode_str;

/// Writes a value into a key.
pub(crate) struct Escaped<W>(pub(crate) W);

impl<W: fmt::Write> fmt::Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(is_escaped) {
            let plain = piece.trim_end_matches(is_escaped);
            self.0.write_str(plain)?;
            for byte in &piece.as_bytes()[plain.len()..] {
                write!(self.0, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// True for separators, the braces of a Redis Cluster hash tag, and control characters.
fn is_escaped(c: char) -> bool {
    matches!(c, '|' | '%' | '{' | '}') || c.is_control()
}

/// The values of a key with `n_values` parts. A single value may contain a plain `|`. `None` if a value is not UTF-8.
pub(crate) fn values(key: &str, n_values: usize) -> Option<Vec<String>> {
    if n_values == 1 { Some(vec![value(key)?]) } else { key.split('|').map(value).collect() }
}

/// Decodes a value. `None` if it is not UTF-8.
pub(crate) fn value(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write as _;

    fn written(values: &[String]) -> String {
        let mut key = String::new();
        for (n, value) in values.iter().enumerate() {
            key.push_str(if n == 0 { "" } else { "|" });
            write!(Escaped(&mut key), "{value}").unwrap();
        }
        key
    }

    proptest! {
        /// Written keys parse back, so two different keys are never written alike.
        #[test]
        fn written_keys_parse_back(values in prop::collection::vec("[a|%{}27C5\u{1b}\u{85}\\PC]{0,8}", 1..4)) {
            prop_assert_eq!(super::values(&written(&values), values.len()), Some(values));
        }
    }

    #[test]
    fn only_ambiguous_characters_are_escaped() {
        let values = ["a|b", "100%", "é /:@", "{tag}", "\u{1b}[31m"].map(str::to_owned);
        assert_eq!(written(&values), "a%7Cb|100%25|é /:@|%7Btag%7D|%1B[31m");
        assert_eq!(super::values("caf%C3%A9|100%", 2), Some(vec!["café".to_owned(), "100%".to_owned()]));
        assert_eq!(super::values("a|b", 1), Some(vec!["a|b".to_owned()]));
        assert_eq!(super::values("%ff", 1), None);
    }
}
