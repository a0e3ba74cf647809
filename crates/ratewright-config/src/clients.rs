//! The `clients` section: how clients are identified, and which proxies are trusted.

#[cfg(feature = "jwt")]
mod jwt;

use std::time::Duration;

use ratewright_http::IdentityRules;
use ratewright_http::address::{Forwarding, Proxies};
#[cfg(not(feature = "jwt"))]
use ratewright_http::identify::TokenUser;

use crate::file;
use crate::raw_value::{Position, RawValue};
use crate::reader::Reader;

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
            let problem = "clients.user.header is read only from trusted proxies, but clients.trusted_proxies is empty; set it";
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

    /// Rejects the section: ignoring it would count users by their addresses.
    #[cfg(not(feature = "jwt"))]
    fn jwt(&mut self, jwt: &file::Jwt) -> Option<(TokenUser, Option<JwksUrl>)> {
        let problem =
            "clients.user.jwt is not supported by this program; enable the feature jwt of ratewright-config";
        let key = [
            jwt.secret.as_ref().and_then(|raw| raw.position),
            jwt.public_key.as_ref().and_then(|raw| raw.position),
            jwt.jwks.as_ref().and_then(|raw| raw.position),
        ];
        self.error(key.into_iter().flatten().next(), problem.to_owned());
        None
    }
}

#[cfg(test)]
#[cfg(not(feature = "jwt"))]
mod tests {
    use crate::reader::Reader;
    use crate::referenced_files::NoFiles;
    use crate::source_file::SourceFile;

    #[test]
    fn without_the_feature_a_token_section_is_an_error() {
        let text = "clients: {user: {jwt: {secret: 0123456789abcdef0123456789abcdef}}}\n".to_owned();
        let files = [SourceFile { path: "a.yaml".into(), text, is_profile: false }];
        let (mut no_files, environment) = (NoFiles, |_: &str| None);
        let mut reader = Reader::new(&files, &mut no_files, &environment);
        let file = reader.merged_file().unwrap();
        let settings = reader.clients(file.clients.unwrap());
        assert!(settings.rules.token.is_none());
        let errors: Vec<_> = reader.errors.iter().map(ToString::to_string).collect();
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.starts_with("a.yaml:1:") && error.contains("enable the feature jwt"), "{error}");
        assert!(!error.contains("0123"), "{error}");
    }
}
