//! Patterns with stars. A star is any text, also none; everything else is itself.

/// A pattern with at least one star.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wildcard {
    /// What stands before the first star, and after the last.
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
    /// What stands between stars, without the empty ones.
    middle: Vec<Box<[u8]>>,
}

impl Wildcard {
    /// The pattern of a text, if it has a star.
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

    /// True if the whole text fits. Each piece is looked for where it comes first: a later place leaves less for the others.
    pub(crate) fn fits(&self, text: &[u8]) -> bool {
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
    fn a_star_is_any_text_anywhere_and_any_number_of_times() {
        for (pattern, fitting, others) in [
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
            fitting.iter().for_each(|text| assert!(wildcard.fits(text.as_bytes()), "{pattern} {text}"));
            others.iter().for_each(|text| assert!(!wildcard.fits(text.as_bytes()), "{pattern} {text}"));
        }
        assert_eq!(Wildcard::new("plain"), None);
    }
}
