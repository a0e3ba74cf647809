//! The `clients` section: how clients are identified, and which proxies are trusted.

use std::sync::Arc;
use std::time::Duration;

use ratewright_http::IdentityRules;
use ratewright_http::address::{Forwarding, Proxies};
use ratewright_http::identify::TokenUser;
use ratewright_http::jwt::{KeySet, TokenRules, Verifier};

use crate::file;
use crate::raw_value::{Position, RawValue};
use crate::reader::Reader;
use crate::values::FileName;

/// How clients are identified.
#[expect(missing_debug_implementations, reason = "the url of the keys may hold a secret")]
pub struct ClientSettings {
    /// What identifies a client.
    pub rules: IdentityRules,
    /// The url of the token keys, if they are fetched.
    pub jwks: Option<JwksUrl>,
}

/// Where the keys of tokens are fetched from.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the url may hold a secret")]
pub struct JwksUrl {
    /// The url, not yet parsed.
    pub url: String,
    /// How often the keys are fetched again, if the file says so.
    pub refresh: Option<Duration>,
    /// The url's position.
    pub position: Option<Position>,
}

/// The keys of tokens.
enum Keys {
    Here(KeySet),
    Fetched(JwksUrl),
}

impl Reader<'_> {
    /// Reads the section `clients`.
    pub fn clients(&mut self, raw: file::Clients) -> ClientSettings {
        let trusted = self.read_all("clients.trusted_proxies", &raw.trusted_proxies).unwrap_or_default();
        let source =
            self.read_if("clients.forwarded_by", &raw.forwarded_by).unwrap_or(Forwarding::XForwardedFor);
        let user = raw.user.unwrap_or_default();
        let (token, jwks) = user.jwt.and_then(|jwt| self.jwt(&jwt)).unzip();
        let user_header = self.read_if("clients.user.header", &user.header);
        if let (Some(header), true) =
            (user.header.as_ref().filter(|_| user_header.is_some()), trusted.is_empty())
        {
            let problem = "clients.user.header is accepted from trusted proxies only, and the list is empty; set clients.trusted_proxies";
            self.error(header.position, problem.to_owned());
        }
        let case = self.read_if("clients.case", &raw.case).unwrap_or_default();
        let ambiguous_paths =
            self.read_if("clients.ambiguous_paths", &raw.ambiguous_paths).unwrap_or_default();
        let ipv6_prefix = self.ipv6_prefix(&raw.ipv6_prefix);
        let proxies = Proxies::default().trusted(trusted).source(source);
        let rules = IdentityRules::default()
            .proxies(proxies)
            .ipv6_prefix(ipv6_prefix)
            .case(case)
            .ambiguous_paths(ambiguous_paths)
            .token(token)
            .user_header(user_header);
        ClientSettings { rules, jwks: jwks.flatten() }
    }

    fn ipv6_prefix(&mut self, raw: &Option<RawValue<u32>>) -> u8 {
        let bits = self.read_if("clients.ipv6_prefix", raw).unwrap_or(64);
        match u8::try_from(bits) {
            Ok(bits @ 16..=128) => bits,
            _ => {
                let position = raw.as_ref().and_then(|raw| raw.position);
                self.error(
                    position,
                    format!("clients.ipv6_prefix is {bits}; use 16 to 128, for example 64 or 56"),
                );
                64
            }
        }
    }

    /// How tokens are verified, and the url of their keys. None if the section is invalid.
    fn jwt(&mut self, jwt: &file::Jwt) -> Option<(TokenUser, Option<JwksUrl>)> {
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
