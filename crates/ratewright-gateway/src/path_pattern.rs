//! Paths that a route serves, and which of two patterns is the more specific one.
//!
//! ```text
//!   /api/orders               exactly that
//!   /users/{id}/orders        {id} is one segment, and has something in it
//!   /api/*/items              * stays in a segment; it may be a part of one: /v*/items
//!   /api/orders/**            /api/orders and all below it
//! ```
//!
//! A template is a [`Pattern`] with `*` for each name in braces: which value stands there is the server's affair.
//!
//! Patterns are compared segment by segment from the left; the first difference decides. So the order does not depend on
//! the path that is asked for, and a list of patterns can be sorted once.
//!
//! ```text
//!   more specific ─────────────────────────────────────────────► less
//!   orders      v*       v**      {id} or *     the end     **
//!   all text    text and stars    any segment               anything
//!               the more text, the more specific
//! ```
//!
//! The end stands before `**` because `/a` is more specific than `/a/**`, and after all the others because of
//! `/**/a` and `/**/a/b` the longer one is.

use std::cmp::Reverse;

use ratewright_core::{Pattern, PatternError};
use ratewright_http::path::{Case, normalise};

/// A pattern for normal paths.
#[derive(Clone, Debug)]
pub struct PathPattern {
    text: Box<str>,
    pattern: Pattern,
    has_names: bool,
}

/// Why a text is no pattern for paths.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathPatternError {
    /// Every path begins with a slash.
    #[error("no path fits {text:?}; begin with / or **")]
    Rootless {
        /// The pattern.
        text: String,
    },
    /// Normal paths have no such.
    #[error(
        "no path fits {text:?}, since paths are compared without empty segments and without a / at the end; leave it out"
    )]
    Empty {
        /// The pattern.
        text: String,
    },
    /// Paths are compared in their normal form.
    #[error("no path fits {segment:?}, since paths are compared in their normal form; write {normal:?}")]
    Unnormal {
        /// The segment.
        segment: String,
        /// What becomes of it in a path.
        normal: String,
    },
    /// A name in braces that is not a whole segment, or not one name.
    #[error("{segment:?} has braces that are not one name around a whole segment; write {{id}}, or use *")]
    Braces {
        /// The segment.
        segment: String,
    },
    /// It is no pattern at all.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// How specific one segment is; the smaller the more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Text,
    TextAndStar { n_text: Reverse<usize> },
    TextAndStars { n_text: Reverse<usize> },
    Segment,
    End,
    Anything,
}

/// How specific a pattern is; the smaller the more. The end is among the ranks; then the longer text comes first, then of
/// two that are alike the one that leaves `/` out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Specificity {
    ranks: Vec<Rank>,
    n_text: Reverse<usize>,
    is_named: Reverse<bool>,
}

impl PathPattern {
    /// The pattern that is written so, for paths that are compared in that way.
    ///
    /// # Errors
    /// If no normal path could fit it, or its braces or stars make no sense.
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

    /// The pattern that every path fits.
    pub(crate) fn anything() -> Self {
        Self::new("/**", Case::Sensitive).expect("two stars below the root are a pattern")
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What two patterns have in common that fit the same paths: the text, in which names do not differ, and whether it is only
    /// a name that keeps `/` out.
    pub(crate) fn identity(&self) -> (&str, bool) {
        (self.translated(), self.has_names && self.pattern.matches("/"))
    }

    fn translated(&self) -> &str {
        self.pattern.as_str()
    }

    /// True if it fits its own text only.
    pub(crate) fn is_exact(&self) -> bool {
        self.pattern.is_exact()
    }

    /// True if a normal path fits. Of normal paths only `/` has an empty segment, and a name stands for no such.
    pub fn matches(&self, path: &str) -> bool {
        self.pattern.matches(path) && !(self.has_names && path == "/")
    }

    /// The segments before the first one with a star, all of which a path must begin with.
    pub(crate) fn literal_segments(&self) -> impl Iterator<Item = &str> {
        segments(self.translated()).take_while(|segment| !segment.contains('*'))
    }

    pub(crate) fn specificity(&self) -> Specificity {
        let text = self.translated();
        let ranks = segments(text).map(Rank::of).chain([Rank::End]).collect();
        Specificity { ranks, n_text: Reverse(n_text(text)), is_named: Reverse(self.identity().1) }
    }

    /// What it is called in metrics: the part without stars at its end, so that `/api/orders/**` is `/api/orders`.
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

/// The segments of a normal path or of a pattern for such: none of `/`.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> {
    let below = path.strip_prefix('/').unwrap_or(path);
    below.split('/').filter(move |_| !below.is_empty())
}

/// Bytes that are no stars.
fn n_text(text: &str) -> usize {
    text.bytes().filter(|byte| *byte != b'*').count()
}

fn is_name(segment: &str) -> bool {
    let inside = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    inside.is_some_and(|name| !name.is_empty() && name.bytes().all(known))
}

/// A segment as it is compared with those of normal paths.
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
