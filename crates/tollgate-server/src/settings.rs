//! What doors go by: whom to believe, who may ask, what answers carry.
//!
//! All of it is replaced at once when the policy file changes; a request sees one whole state of it.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_http::jwt::TokenError;
use tollgate_http::{Facts, FieldStyle, Problem, Rules};

use crate::access::Access;

/// What doors go by.
pub struct Settings {
    /// Whom to believe.
    pub rules: Rules,
    /// Who may ask.
    pub access: Access,
    /// Which fields answers carry.
    pub fields: FieldStyle,
    /// The type of a denial, a URI in which `{name}` stands for the policy.
    pub problem_type: String,
    /// Is told when a token was signed with a key that is not known: there may be a newer set of keys.
    pub unknown_key: Option<Box<dyn Fn() + Send + Sync>>,
}

/// The settings in force, shared by all doors.
pub type SharedSettings = Arc<ArcSwap<Settings>>;

impl Settings {
    /// Settings that can be replaced while doors are open.
    pub fn shared(self) -> SharedSettings {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// Looks at why a token named nobody.
    pub(crate) fn heed(&self, facts: &Facts<'_>) {
        if let (Some(TokenError::UnknownKey), Some(tell)) = (&facts.refused_token, &self.unknown_key) {
            tell();
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            access: Access::default(),
            fields: FieldStyle::default(),
            problem_type: Problem::BLANK.to_owned(),
            unknown_key: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rules", &self.rules)
            .field("access", &self.access)
            .field("fields", &self.fields)
            .field("problem_type", &self.problem_type)
            .finish_non_exhaustive()
    }
}
