//! Path patterns of routes, and which of two patterns is more specific.
//!
//! ```text
//!   /api/orders               exactly this path
//!   /users/{id}/orders        {id} is one segment that is not empty
//!   /api/*/items              * stays within a segment, possibly a part of one: /v*/items
//!   /api/orders/**            /api/orders and everything below it
//! ```
//!
//! A template is a [`Pattern`] with `*` for each name in braces: the gateway ignores the values.
//!
//! Patterns are compared segment by segment from the left; the first difference decides. So the order does not depend
//! on the requested path, and a list of patterns is sorted once.
//!
//! ```text
//!   more specific ─────────────────────────────────────────────► less
//!   orders      v*       v**      {id} or *     the end     **
//!   all text    text and stars    any segment               anything
//!               the more text, the more specific
//! ```
//!
//! The end precedes `**` because `/a` is more specific than `/a/**`. It follows all the others because `/**/a/b` is
//! more specific than `/**/a`.

use std::cmp::Reverse;

use ratewright_core::policy::{Pattern, PatternError};
use ratewright_http::path::{Case, normalise};

/// A pattern for normalized paths.
#[derive(Clone, Debug)]
pub struct PathPattern {
    text: Box<str>,
    pattern: Pattern,
    has_names: bool,
}

/// Why a path pattern is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathPatternError {
    /// Every path starts with a slash.
    #[error("path pattern {text:?} matches no path; start with / or **")]
    Rootless {
        /// The pattern.
        text: String,
    },
    /// Normalized paths have no empty segments.
    #[error(
        "path pattern {text:?} matches no path: paths are matched without empty segments and without a / at the end; leave it out"
    )]
    Empty {
        /// The pattern.
        text: String,
    },
    /// Paths are matched in normalized form.
    #[error(
        "path segment {segment:?} matches no path: paths are matched in normalized form; write {normal:?}"
    )]
    Unnormal {
        /// The segment.
        segment: String,
        /// The segment in a normalized path.
        normal: String,
    },
    /// Braces that do not enclose one name, or not a whole segment.
    #[error("path segment {segment:?} has invalid braces; write {{id}} for a whole segment, or use *")]
    Braces {
        /// The segment.
        segment: String,
    },
    /// Invalid stars.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// How specific one segment is; smaller is more specific.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Text,
    TextAndStar { n_text: Reverse<usize> },
    TextAndStars { n_text: Reverse<usize> },
    Segment,
    End,
    Anything,
}

/// How specific a pattern is; smaller is more specific. Ranks come first, then longer text, then the pattern that
/// excludes `/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Specificity {
    ranks: Vec<Rank>,
    n_text: Reverse<usize>,
    is_named: Reverse<bool>,
}

impl PathPattern {
    /// Parses a pattern, for paths compared with this case rule.
    ///
    /// # Errors
    /// If it matches no normalized path, or its braces or stars are invalid.
    pub fn new(text: &str, case: Case) -> Result<Self, PathPatternError> {
        if !text.starts_with('/') && !text.starts_with("**") {
            return Err(PathPatternError::Rootless { text: text.to_owned() });
        }
        if text != "/" && (text.ends_with('/') || text.contains("//")) {
            return Err(PathPatternError::Empty { text: text.to_owned() });
        }
        let translated = text.split('/').map(|segment| translated(segment, case));
        let translated = translated.collect::<Result<Vec<_>, _>>()?.join("/");
        let pattern = Pattern::new(&translated, Some(b'/'))?;
        Ok(Self { text: text.into(), pattern, has_names: text.contains('{') })
    }

    /// The pattern that matches every path.
    pub(crate) fn anything() -> Self {
        Self::new("/**", Case::Sensitive).expect("two stars below the root are a pattern")
    }

    /// As configured.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Equal for two patterns that match the same paths: the text without names, and whether a name alone excludes `/`.
    pub(crate) fn identity(&self) -> (&str, bool) {
        (self.translated(), self.has_names && self.pattern.matches("/"))
    }

    fn translated(&self) -> &str {
        self.pattern.as_str()
    }

    /// True if it matches only its own text.
    pub(crate) fn is_exact(&self) -> bool {
        self.pattern.is_exact()
    }

    /// True if it matches a normalized path. Among these only `/` has an empty segment, which a name does not match.
    pub fn matches(&self, path: &str) -> bool {
        self.pattern.matches(path) && !(self.has_names && path == "/")
    }

    /// The segments before the first star.
    pub(crate) fn literal_segments(&self) -> impl Iterator<Item = &str> {
        segments(self.translated()).take_while(|segment| !segment.contains('*'))
    }

    pub(crate) fn specificity(&self) -> Specificity {
        let text = self.translated();
        let ranks = segments(text).map(Rank::of).chain([Rank::End]).collect();
        Specificity { ranks, n_text: Reverse(n_text(text)), is_named: Reverse(self.identity().1) }
    }

    /// The label in metrics: the pattern without stars at its end. `/api/orders/**` becomes `/api/orders`.
    pub(crate) fn label(&self) -> &str {
        match self.text.trim_end_matches(['*', '/']) {
            "" => "/",
            label => label,
        }
    }
}

impl Rank {
    fn of(segment: &str) -> Self {
        let n_text = Reverse(n_text(segment));
        match segment {
            "**" => Self::Anything,
            "*" => Self::Segment,
            _ if segment.contains("**") => Self::TextAndStars { n_text },
            _ if segment.contains('*') => Self::TextAndStar { n_text },
            _ => Self::Text,
        }
    }
}

/// The segments of a normalized path or pattern. `/` has none.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> {
    let below = path.strip_prefix('/').unwrap_or(path);
    below.split('/').filter(move |_| !below.is_empty())
}

/// The number of bytes that are not stars.
fn n_text(text: &str) -> usize {
    text.bytes().filter(|byte| *byte != b'*').count()
}

fn is_name(segment: &str) -> bool {
    let inside = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    inside.is_some_and(|name| !name.is_empty() && name.bytes().all(known))
}

/// A segment as it is compared with those of normalized paths.
fn translated(segment: &str, case: Case) -> Result<String, PathPatternError> {
    if segment.contains(['{', '}']) {
        let braces = || PathPatternError::Braces { segment: segment.to_owned() };
        return is_name(segment).then(|| "*".to_owned()).ok_or_else(braces);
    }
    let whole = format!("/{segment}");
    let normal = normalise(&whole, Case::Sensitive);
    if normal != whole {
        let normal = normal.trim_start_matches('/').to_owned();
        return Err(PathPatternError::Unnormal { segment: segment.to_owned(), normal });
    }
    let folded = normalise(&whole, case);
    Ok(folded.trim_start_matches('/').to_owned())
}

#[cfg(test)]
mod tests;
