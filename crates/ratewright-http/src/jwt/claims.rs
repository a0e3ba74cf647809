//! The claims of a verified token.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use ratewright_core::Timestamp;
use serde_json::{Map, Value};

use super::{Expiry, TokenError, TokenRules};

/// The claims of a verified token. `Debug` prints their names only, because the values are personal data.
#[derive(Clone, PartialEq, Eq)]
pub struct Claims(Map<String, Value>);

impl Claims {
    pub(super) fn new(claims: Map<String, Value>) -> Self {
        Self(claims)
    }

    /// A claim as text: a non-empty string, a number, true or false. A dot selects a member of an object (`realm.plan`),
    /// unless a claim has this whole name (`https://example.com/plan`).
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        match find(&self.0, name)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(true) => Some(Cow::Borrowed("true")),
            Value::Bool(false) => Some(Cow::Borrowed("false")),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Checks the claims against the rules.
    pub(super) fn check(&self, rules: &TokenRules, now: Timestamp) -> Result<(), TokenError> {
        match self.moment("exp")? {
            None if rules.expiry == Expiry::Required => return Err(TokenError::Claim { claim: "exp" }),
            Some(expires_at) if now >= expires_at + rules.leeway => return Err(TokenError::Expired),
            Some(_) | None => {}
        }
        if self.moment("nbf")?.is_some_and(|valid_at| now + rules.leeway < valid_at) {
            return Err(TokenError::NotYet);
        }
        if !rules.issuers.is_empty() && !self.0.get("iss").is_some_and(|iss| is_one_of(iss, &rules.issuers)) {
            return Err(TokenError::Claim { claim: "iss" });
        }
        if !rules.audiences.is_empty() && !self.is_for(&rules.audiences) {
            return Err(TokenError::Claim { claim: "aud" });
        }
        Ok(())
    }

    /// A time claim, in seconds since the epoch. Any other type is an error.
    fn moment(&self, claim: &'static str) -> Result<Option<Timestamp>, TokenError> {
        let Some(value) = self.0.get(claim) else { return Ok(None) };
        let whole = value.as_u64().map(Duration::from_secs);
        let since_epoch = whole.or_else(|| Duration::try_from_secs_f64(value.as_f64()?).ok());
        let micros = since_epoch.ok_or(TokenError::Claim { claim })?.as_micros();
        Ok(Some(Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))))
    }

    /// `aud` is one audience or a list of them.
    fn is_for(&self, audiences: &[String]) -> bool {
        match self.0.get("aud") {
            Some(Value::Array(list)) => list.iter().any(|audience| is_one_of(audience, audiences)),
            Some(audience) => is_one_of(audience, audiences),
            None => false,
        }
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn is_one_of(value: &Value, accepted: &[String]) -> bool {
    value.as_str().is_some_and(|text| accepted.iter().any(|one| one == text))
}

/// Tries the whole name first; then each dot may select a member of an object.
fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        let mut steps = name.match_indices('.');
        steps.find_map(|(dot, _)| find(claims.get(name.get(..dot)?)?.as_object()?, name.get(dot + 1..)?))
    })
}
