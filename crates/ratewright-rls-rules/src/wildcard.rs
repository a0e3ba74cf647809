//! Wildcards: a `*` matches any text, also an empty one; every other character matches itself.

/// A pattern with at least one `*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wildcard {
    /// The text before the first `*`.
    prefix: Box<[u8]>,
    /// The text after the last `*`.
    suffix: Box<[u8]>,
    /// The texts between, except empty ones.
    middle: Vec<Box<[u8]>>,
}

impl Wildcard {
    /// The pattern, if the text has a `*`.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|piece| !piece.is_empty());
        Some(Self {
            prefix: prefix.as_bytes().into(),
            suffix: suffix.as_bytes().into(),
            middle: middle.map(|piece| piece.as_bytes().into()).collect(),
        })
    }

    /// True if the whole text matches. The first occurrence of each piece is taken: a later one leaves less for the
    /// others.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let rest = text.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.suffix));
        let Some(mut rest) = rest else { return false };
        for piece in &self.middle {
            let Some(at) = rest.windows(piece.len()).position(|window| window == &**piece) else {
                return false;
            };
            rest = &rest[at + piece.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text_anywhere() {
        for (pattern, matching, others) in [
            ("a*", &["a", "ab", "a*"][..], &["", "ba"][..]),
            ("*a", &["a", "ba"], &["", "ab"]),
            ("*", &["", "x"], &[]),
            ("**", &["", "x"], &[]),
            ("a*a", &["aa", "aba"], &["a", "ab"]),
            ("a*b*c", &["abc", "a1b2c", "abbc"], &["acb", "ac", "ab"]),
            ("a*bc*bc", &["abcbc", "abcxbc"], &["abc", "abcb"]),
            ("ü*", &["ü", "üx"], &["u"]),
        ] {
            let wildcard = Wildcard::new(pattern).unwrap();
            matching.iter().for_each(|text| assert!(wildcard.matches(text.as_bytes()), "{pattern} {text}"));
            others.iter().for_each(|text| assert!(!wildcard.matches(text.as_bytes()), "{pattern} {text}"));
        }
        assert_eq!(Wildcard::new("plain"), None);
    }
}
