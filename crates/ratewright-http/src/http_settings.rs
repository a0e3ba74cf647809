//! Settings of all HTTP entrypoints: which identities to trust, and what responses carry.
//!
//! A reload replaces all of them at once.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::headers::HeaderStyle;
use crate::identify::{Facts, IdentityRules};
use crate::jwt::TokenError;
use crate::problem::Problem;

/// Which identities to trust, and what responses carry.
#[non_exhaustive]
#[derive(Clone)]
pub struct HttpSettings {
    /// Which identities to trust.
    pub rules: IdentityRules,
    /// Which rate limit headers responses carry.
    pub headers: HeaderStyle,
    /// The type of a denial, a URI in which `{name}` stands for the policy.
    pub problem_type: String,
    /// Called when a token was signed with an unknown key: a newer key set may exist.
    pub unknown_key: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// The current HTTP settings, shared by all entrypoints.
pub type SharedHttpSettings = Arc<ArcSwap<HttpSettings>>;

impl HttpSettings {
    /// These settings, replaceable while they are in use.
    pub fn shared(self) -> SharedHttpSettings {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// Calls `unknown_key` if the request's token was signed with an unknown key.
    pub fn report_unknown_key(&self, facts: &Facts<'_>) {
        if let (Some(TokenError::UnknownKey), Some(report)) = (&facts.token_error, &self.unknown_key) {
            report();
        }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            rules: IdentityRules::default(),
            headers: HeaderStyle::default(),
            problem_type: Problem::BLANK.to_owned(),
            unknown_key: None,
        }
    }
}

/// Setters, to be chained after `HttpSettings::default()`.
impl HttpSettings {
    /// Sets `rules`: which identities to trust.
    #[must_use]
    pub fn rules(mut self, rules: IdentityRules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets `headers`: which rate limit headers responses carry.
    #[must_use]
    pub fn headers(mut self, headers: HeaderStyle) -> Self {
        self.headers = headers;
        self
    }

    /// Sets `problem_type`: the type of a denial, a URI in which `{name}` stands for the policy.
    #[must_use]
    pub fn problem_type(mut self, problem_type: impl Into<String>) -> Self {
        self.problem_type = problem_type.into();
        self
    }

    /// Sets `unknown_key`: called when a token was signed with an unknown key: a newer key set may exist.
    #[must_use]
    pub fn unknown_key(mut self, unknown_key: Option<Arc<dyn Fn() + Send + Sync>>) -> Self {
        self.unknown_key = unknown_key;
        self
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("rules", &self.rules)
            .field("headers", &self.headers)
            .field("problem_type", &self.problem_type)
            .finish_non_exhaustive()
    }
}
