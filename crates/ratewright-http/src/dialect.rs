//! What doors that speak HTTP go by: whom to believe, and what answers carry.
//!
//! All of it is replaced at once when the policy file changes; a request sees one whole state of it.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::fields::FieldStyle;
use crate::identify::{Facts, Rules};
use crate::jwt::TokenError;
use crate::problem::Problem;

/// Whom to believe, and what answers carry.
pub struct Dialect {
    /// Whom to believe.
    pub rules: Rules,
    /// Which fields answers carry.
    pub fields: FieldStyle,
    /// The type of a denial, a URI in which `{name}` stands for the policy.
    pub problem_type: String,
    /// Is told when a token was signed with a key that is not known: there may be a newer set of keys.
    pub unknown_key: Option<Box<dyn Fn() + Send + Sync>>,
}

/// The dialect in force, shared by all who speak it.
pub type SharedDialect = Arc<ArcSwap<Dialect>>;

impl Dialect {
    /// A dialect that can be replaced while it is spoken.
    pub fn shared(self) -> SharedDialect {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// Looks at why a token named nobody.
    pub fn heed(&self, facts: &Facts<'_>) {
        if let (Some(TokenError::UnknownKey), Some(tell)) = (&facts.refused_token, &self.unknown_key) {
            tell();
        }
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            fields: FieldStyle::default(),
            problem_type: Problem::BLANK.to_owned(),
            unknown_key: None,
        }
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialect")
            .field("rules", &self.rules)
            .field("fields", &self.fields)
            .field("problem_type", &self.problem_type)
            .finish_non_exhaustive()
    }
}
