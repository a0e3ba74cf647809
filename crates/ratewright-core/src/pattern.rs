//! Patterns that values are compared with: `*` stays within a segment, `**` crosses them.
//!
//! ```text
//!   /api/orders          exactly that
//!   /api/*/items         one segment in between
//!   /api/orders/**       /api/orders and all below it
//!   /a/**/b              /a/b too: between two slashes ** may be nothing
//!   **/login**           anything that contains /login
//! ```
//!
//! The separator of segments depends on the value: a slash in a path, a dot in a host. A user's name has no segments,
//! so `*` and `**` mean the same there.
//!
//! A pattern is a small automaton, and its states are the positions in the pattern. All possible positions are followed
//! at once, so the work is at most the pattern's length times the value's length, whatever a client sends. Common
//! shapes need no automaton, and are compared as plain text.

use std::fmt;

/// A pattern for values.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    separator: Option<u8>,
    shape: Shape,
}

/// Why a text is not a valid pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// It would match nothing, since no value is empty.
    #[error("a pattern is empty; use ** to mean everything")]
    Empty,
    /// Too long to be walked.
    #[error("a pattern has {n} bytes; use at most {}", Pattern::LEN_MAX)]
    TooLong {
        /// How many.
        n: usize,
    },
    /// Three stars in a row have no meaning.
    #[error("{text:?} has more than two stars in a row; * stays in a segment, ** crosses segments")]
    Stars {
        /// The pattern.
        text: String,
    },
}

/// The shape of a pattern, for fast comparison. `Plain` is the part of its text that has no stars.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Shape {
    /// `**`
    Anything,
    /// `text`
    Exactly,
    /// `text/**`: the text, and what begins with it and a separator.
    Below(Plain),
    /// `text**`
    Prefix(Plain),
    /// `**text**`
    Containing(Plain),
    /// `**text/**`: what has the text in it, and there ends or has a separator.
    ContainingAbove(Plain),
    /// Anything else.
    Walk(Box<[Step]>),
}

/// Where the plain text begins and ends within a pattern.
type Plain = (u8, u8);

/// One position of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Byte(u8),
    /// `*`
    Star,
    /// `**`
    Stars,
}

/// A set of positions.
type Positions = [u64; Pattern::LEN_MAX / 64 + 1];

impl Pattern {
    /// The longest pattern, in bytes.
    pub const LEN_MAX: usize = 255;

    /// A pattern for values whose segments end at `separator`.
    ///
    /// # Errors
    /// If it is empty, too long, or has three stars in a row.
    pub fn new(text: &str, separator: Option<u8>) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > Self::LEN_MAX {
            return Err(PatternError::TooLong { n: text.len() });
        }
        if text.contains("***") {
            return Err(PatternError::Stars { text: text.to_owned() });
        }
        let steps = steps(text, separator);
        let shape = Shape::of(&steps, separator).unwrap_or(Shape::Walk(steps.into_boxed_slice()));
        Ok(Self { text: text.into(), separator, shape })
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if it certainly matches everything that the other pattern matches. May be false although it does.
    ///
    /// A star that matches a letter used in no pattern matches any text in its place. So it is enough to match the
    /// other pattern's text with that letter in place of each `*`, and with more segments than this pattern has stars
    /// in place of each `**`.
    pub fn includes(&self, other: &Self) -> bool {
        const LETTER: &str = "\u{1}";
        if self.separator != other.separator || self.text.contains(LETTER) || other.text.contains(LETTER) {
            return false;
        }
        let Some(separator) = self.separator.map(char::from) else {
            return self.matches(&other.text.replace("**", "*").replace('*', LETTER));
        };
        let segments = format!("{LETTER}{separator}").repeat(Self::LEN_MAX);
        let segments = segments.trim_end_matches(separator);
        // Stars that cross segments may also stand for nothing, together with a separator beside them.
        let nothing = other.text.replace(&format!("{separator}**"), "").replace("**", "");
        [segments, LETTER]
            .iter()
            .all(|many| self.matches(&other.text.replace("**", many).replace('*', LETTER)))
            && (nothing.is_empty() || nothing == *other.text || self.matches(&nothing.replace('*', LETTER)))
    }

    /// True if it has no stars, and matches its own text only.
    pub fn is_exact(&self) -> bool {
        self.shape == Shape::Exactly
    }

    /// True if it matches this text only.
    pub(crate) fn is_just(&self, text: &str) -> bool {
        self.is_exact() && &*self.text == text
    }

    /// True if the value fits.
    #[inline]
    pub fn matches(&self, value: &str) -> bool {
        let ends = |rest: &str| rest.is_empty() || rest.as_bytes().first().copied() == self.separator;
        match &self.shape {
            Shape::Anything => true,
            Shape::Exactly => value == &*self.text,
            Shape::Below(text) => value.strip_prefix(self.plain(*text)).is_some_and(ends),
            Shape::Prefix(text) => value.starts_with(self.plain(*text)),
            Shape::Containing(text) => value.contains(self.plain(*text)),
            Shape::ContainingAbove((start, end)) => {
                // The separator stands after the text in the pattern too.
                value.contains(self.plain((*start, end + 1))) || value.ends_with(self.plain((*start, *end)))
            }
            Shape::Walk(steps) => walk(steps, self.separator, value.as_bytes()),
        }
    }

    fn plain(&self, (start, end): Plain) -> &str {
        self.text.get(usize::from(start)..usize::from(end)).unwrap_or_default()
    }

    /// The longest text that every matching value contains, once a separator is added at the value's end. May be empty.
    pub fn literal(&self) -> &str {
        self.text.split('*').max_by_key(|text| text.len()).unwrap_or_default()
    }
}

fn steps(text: &str, separator: Option<u8>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        match (byte, steps.last()) {
            (b'*', Some(Step::Star)) => {
                steps.pop();
                steps.push(Step::Stars);
            }
            (b'*', Some(Step::Stars)) => {}
            (b'*', _) if separator.is_none() => steps.push(Step::Stars),
            (b'*', _) => steps.push(Step::Star),
            (byte, _) => steps.push(Step::Byte(byte)),
        }
    }
    steps
}

/// True for the separator before a `**` that fills whole segments: both together may be nothing.
fn is_optional(steps: &[Step], separator: Option<u8>, at: usize) -> bool {
    let is_separator = |step: Option<&Step>| match (step, separator) {
        (Some(Step::Byte(byte)), Some(separator)) => *byte == separator,
        _ => false,
    };
    is_separator(steps.get(at))
        && steps.get(at + 1) == Some(&Step::Stars)
        && (at + 2 == steps.len() || is_separator(steps.get(at + 2)))
}

impl Shape {
    /// The shape of a pattern that needs no walk.
    fn of(steps: &[Step], separator: Option<u8>) -> Option<Self> {
        if is_plain(steps) {
            return Some(Self::Exactly);
        }
        let (before_last, [Step::Stars]) = steps.split_at_checked(steps.len().checked_sub(1)?)? else {
            return None;
        };
        let Some((last, above)) = before_last.split_last() else { return Some(Self::Anything) };
        let is_below = matches!(last, Step::Byte(byte) if Some(*byte) == separator);
        let text = if is_below { above } else { before_last };
        match text {
            [Step::Stars, text @ ..] if is_plain(text) && is_below => {
                Some(Self::ContainingAbove(plain(2, text)?))
            }
            [Step::Stars, text @ ..] if is_plain(text) => Some(Self::Containing(plain(2, text)?)),
            text if is_plain(text) && is_below => Some(Self::Below(plain(0, text)?)),
            text if is_plain(text) => Some(Self::Prefix(plain(0, text)?)),
            _ => None,
        }
    }
}

/// True if there are no stars among them.
fn is_plain(steps: &[Step]) -> bool {
    steps.iter().all(|step| matches!(step, Step::Byte(_)))
}

fn plain(start: u8, text: &[Step]) -> Option<Plain> {
    Some((start, start.checked_add(u8::try_from(text.len()).ok()?)?))
}

/// Walks all possible positions through a value at once.
fn walk(steps: &[Step], separator: Option<u8>, value: &[u8]) -> bool {
    let mut here = Positions::default();
    reach(steps, separator, 0, &mut here);
    for &byte in value {
        let mut next = Positions::default();
        for (word, &bits) in here.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let at = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                match steps.get(at) {
                    Some(Step::Byte(expected)) if *expected == byte => {
                        reach(steps, separator, at + 1, &mut next)
                    }
                    Some(Step::Star) if separator != Some(byte) => reach(steps, separator, at, &mut next),
                    Some(Step::Stars) => reach(steps, separator, at, &mut next),
                    Some(Step::Byte(_) | Step::Star) | None => {}
                }
            }
        }
        if next == Positions::default() {
            return false;
        }
        here = next;
    }
    here[steps.len() / 64] & (1 << (steps.len() % 64)) != 0
}

/// Adds a position, and those that it leads to without a byte.
fn reach(steps: &[Step], separator: Option<u8>, at: usize, positions: &mut Positions) {
    let (word, bit) = (at / 64, 1 << (at % 64));
    if positions[word] & bit != 0 {
        return;
    }
    positions[word] |= bit;
    match steps.get(at) {
        Some(Step::Star | Step::Stars) => reach(steps, separator, at + 1, positions),
        Some(Step::Byte(_)) if is_optional(steps, separator, at) => {
            reach(steps, separator, at + 2, positions)
        }
        Some(Step::Byte(_)) | None => {}
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, fits: &[&str], others: &[&str]) {
        let pattern = Pattern::new(pattern, Some(b'/')).unwrap();
        fits.iter().for_each(|value| assert!(pattern.matches(value), "{pattern:?} {value}"));
        others.iter().for_each(|value| assert!(!pattern.matches(value), "{pattern:?} {value}"));
    }

    #[test]
    fn one_star_stays_in_a_segment_and_two_cross_them() {
        check("/a/*/c", &["/a/b/c", "/a//c"], &["/a/c", "/a/b/b/c", "/a/b/c/"]);
        check("/a/**/c", &["/a/c", "/a/b/c", "/a/b/b/c"], &["/a", "/ac", "/a/b", "/x/a/c"]);
        check("/a/b*", &["/a/b", "/a/bc"], &["/a/b/c", "/a/c"]);
        check("/**", &["/", "/a", "/a/b"], &[]);
        check("**", &["", "/", "x"], &[]);
        check("/*", &["/", "/a"], &["/a/b"]);
        check("/*/x/**", &["/a/x", "/a/x/y"], &["/x", "/a/xy"]);
    }

    proptest::proptest! {
        /// A pattern that includes another matches all that the other does.
        #[test]
        fn included_patterns_match_less(
            one in "(/|\\*{1,2}|[ab]){1,6}",
            other in "(/|\\*{1,2}|[ab]){1,6}",
            value in "[/ab]{0,7}",
        ) {
            let pattern = |text: &str| Pattern::new(text, Some(b'/'));
            if let (Ok(one), Ok(other)) = (pattern(&one), pattern(&other))
                && one.includes(&other)
                && other.matches(&value)
            {
                proptest::prop_assert!(one.matches(&value), "{:?} {:?} {}", one, other, value);
            }
        }
    }

    #[test]
    fn patterns_include_narrower_ones() {
        for (one, other, expected) in [
            ("/**", "/a/*", true),
            ("/a/**", "/a", true),
            ("/a/**", "/a/b/**", true),
            ("**/login**", "/api/login", true),
            ("/a/*", "/a/**", false),
            ("/a/*/**", "/a/**", false),
            ("/a/b", "/a/*", false),
            ("/a/**", "/a/**", true),
        ] {
            let [one, other] = [one, other].map(|text| Pattern::new(text, Some(b'/')).unwrap());
            assert_eq!(one.includes(&other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn b3_b4_the_patterns_of_the_seeds() {
        check("**/login**", &["/login", "/api/login", "/api/v1/login/x", "/loginx"], &["/log", "/blogin"]);
        check("/actuator/**", &["/actuator/x", "/actuator", "/actuator/"], &["/actuators", "/x/actuator/y"]);
        check("/health**", &["/health", "/healthz", "/health/live"], &["/heal", "/x/health"]);
    }

    #[test]
    fn values_without_segments_have_one_kind_of_star() {
        let pattern = Pattern::new("batch-*", None).unwrap();
        assert!(pattern.matches("batch-a/b") && !pattern.matches("xbatch-"));
    }

    #[test]
    fn the_literal_is_in_every_value_that_fits() {
        let literal = |text| Pattern::new(text, Some(b'/')).unwrap().literal().to_owned();
        assert_eq!(literal("**/login**"), "/login");
        assert_eq!(literal("/actuator/**"), "/actuator/");
        assert_eq!(literal("/a/**/bcd/*"), "/bcd/");
        assert_eq!((literal("/**"), literal("**")), ("/".to_owned(), String::new()));
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        assert_eq!(Pattern::new("", None), Err(PatternError::Empty));
        assert!(matches!(Pattern::new("/a***", None), Err(PatternError::Stars { .. })));
        assert!(matches!(Pattern::new(&"x".repeat(256), None), Err(PatternError::TooLong { n: 256 })));
        assert!(Pattern::new(&"x".repeat(255), None).unwrap().matches(&"x".repeat(255)));
        let mut longest = "x*".repeat(127);
        longest.push('y');
        assert!(Pattern::new(&longest, Some(b'/')).unwrap().matches(&"xy".repeat(127)));
    }

    /// The meaning, written as plainly as possible.
    fn plainly(steps: &[Step], value: &[u8], separator: Option<u8>) -> bool {
        let Some((step, rest)) = steps.split_first() else { return value.is_empty() };
        if is_optional(steps, separator, 0) && plainly(&steps[2..], value, separator) {
            return true;
        }
        match step {
            Step::Byte(byte) => value.first() == Some(byte) && plainly(rest, &value[1..], separator),
            Step::Star | Step::Stars => {
                let end = match step {
                    Step::Star => value.iter().position(|b| Some(*b) == separator).unwrap_or(value.len()),
                    Step::Stars | Step::Byte(_) => value.len(),
                };
                (0..=end).any(|n| plainly(rest, &value[n..], separator))
            }
        }
    }

    /// Every pattern and every value of a few letters: all shapes mean what the plain form means.
    #[test]
    fn every_short_pattern_means_what_it_says() {
        let values = texts(&["a", "b", "/"], 5);
        for pattern in texts(&["a", "/", "*", "**"], 5) {
            let Ok(compiled) = Pattern::new(&pattern, Some(b'/')) else { continue };
            let steps = steps(&pattern, Some(b'/'));
            let literal = compiled.literal();
            for value in &values {
                let expected = plainly(&steps, value.as_bytes(), Some(b'/'));
                assert_eq!(compiled.matches(value), expected, "{pattern} {value}");
                assert_eq!(walk(&steps, Some(b'/'), value.as_bytes()), expected, "{pattern} {value}");
                assert!(!expected || format!("{value}/").contains(literal), "{pattern} {value} {literal}");
            }
        }
    }

    fn texts(letters: &[&str], len_max: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut start = 0;
        for _ in 0..len_max {
            let end = all.len();
            for n in start..end {
                all.extend(letters.iter().map(|letter| format!("{}{letter}", all[n])).collect::<Vec<_>>());
            }
            start = end;
        }
        all
    }
}
