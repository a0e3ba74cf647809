//! The section `clients.user.jwt`: how tokens are verified. Only with the feature `jwt`, which adds a cryptography
//! library.

use std::sync::Arc;
use std::time::Duration;

use ratewright_http::identify::TokenUser;
use ratewright_http::jwt::{KeySet, TokenRules, Verifier};

use super::JwksUrl;
use crate::file;
use crate::raw_value::Position;
use crate::reader::Reader;
use crate::values::FileName;

/// The keys of tokens.
enum Keys {
    Here(KeySet),
    Fetched(JwksUrl),
}

impl Reader<'_> {
    /// How tokens are verified, and the url of their keys. None if the section is invalid.
    pub(super) fn jwt(&mut self, jwt: &file::Jwt) -> Option<(TokenUser, Option<JwksUrl>)> {
        const PATH: &str = "clients.user.jwt";
        let default = TokenRules::default();
        let rules = TokenRules::default()
            .algorithms(
                self.read_all(&format!("{PATH}.algorithms"), &jwt.algorithms).unwrap_or(default.algorithms),
            )
            .issuers(self.read_all(&format!("{PATH}.issuer"), &jwt.issuer).unwrap_or_default())
            .audiences(self.read_all(&format!("{PATH}.audience"), &jwt.audience).unwrap_or_default())
            .leeway(self.read_if(&format!("{PATH}.leeway"), &jwt.leeway).unwrap_or(default.leeway))
            .expiry(default.expiry);
        let claim = self.read_if(&format!("{PATH}.claim"), &jwt.claim).unwrap_or_else(|| "sub".to_owned());
        let refresh = self.read_if(&format!("{PATH}.refresh"), &jwt.refresh);
        let (keys, jwks) = match self.keys(jwt)? {
            Keys::Here(keys) => (keys, None),
            Keys::Fetched(mut jwks) => {
                jwks.refresh = refresh.map(|refresh| Duration::from(refresh).max(Duration::from_secs(1)));
                (KeySet::default(), Some(jwks))
            }
        };
        Some((TokenUser { verifier: Arc::new(Verifier::new(keys, rules)), claim }, jwks))
    }

    fn keys(&mut self, jwt: &file::Jwt) -> Option<Keys> {
        const PATH: &str = "clients.user.jwt";
        let positions = [
            jwt.secret.as_ref().and_then(|raw| raw.position),
            jwt.public_key.as_ref().and_then(|raw| raw.position),
            jwt.jwks.as_ref().and_then(|raw| raw.position),
        ];
        let n_given = [jwt.secret.is_some(), jwt.public_key.is_some(), jwt.jwks.is_some()]
            .iter()
            .filter(|is| **is)
            .count();
        if n_given != 1 {
            let position = positions
                .into_iter()
                .flatten()
                .last()
                .or(jwt.claim.as_ref().and_then(|claim| claim.position));
            let problem = if n_given == 0 {
                "has no key to verify tokens; set one of secret, public_key and jwks"
            } else {
                "has several keys to verify tokens; keep one of secret, public_key and jwks"
            };
            self.error(position, format!("{PATH} {problem}"));
            return None;
        }
        if let Some(raw) = &jwt.secret {
            let secret = self.read(&format!("{PATH}.secret"), raw)?;
            return self.key_set(
                &format!("{PATH}.secret"),
                raw.position,
                KeySet::secret(secret.0.as_bytes()),
            );
        }
        if let Some(raw) = &jwt.public_key {
            let pem = self.content(&format!("{PATH}.public_key"), raw)?;
            return self.key_set(&format!("{PATH}.public_key"), raw.position, KeySet::pem(&pem));
        }
        let raw = jwt.jwks.as_ref()?;
        let path = format!("{PATH}.jwks");
        let text = self.read(&path, raw)?;
        if text.contains("://") {
            return Some(Keys::Fetched(JwksUrl { url: text, refresh: None, position: raw.position }));
        }
        let json = self.content(&path, &raw.cast::<FileName>())?;
        self.key_set(&path, raw.position, KeySet::jwks(&json))
    }

    fn key_set(
        &mut self,
        path: &str,
        position: Option<Position>,
        keys: Result<KeySet, ratewright_http::jwt::KeyError>,
    ) -> Option<Keys> {
        keys.map_err(|error| self.error(position, format!("{path}: {error}"))).ok().map(Keys::Here)
    }
}
