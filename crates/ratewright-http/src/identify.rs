//! Turns a request into the attributes of a query: the client, and what it requests.
//!
//! ```text
//!   Parts, peer ──identify──► Facts ──attributes──► Query
//!                  rules: which identities to trust
//!                  needs: the attributes that the policies read
//! ```
//!
//! Only the attributes that policies need are determined: no token is verified unless a policy counts by user. The
//! address, the method and the path are always determined, because logs show them. A caller without a log, whose
//! policies need nothing but the address, uses [`Facts::of_client`] instead.
//!
//! # Laws
//! - A header that names a client or a user counts only if a trusted proxy sent it.
//! - A claim counts only if its token was verified. An invalid token is not an error here, because the application
//!   decides whether to accept the request; policies that count by user count the address instead.
//! - A request with several interpretations (an ambiguous path, a repeated cookie, a method override header) has one
//!   fact for each reading. It falls under the policies of every reading, and is exempt only if every reading is.

pub mod original_request;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use ratewright_core::Timestamp;
use ratewright_core::query::{Attribute, AttributeName, Select};
use smallvec::SmallVec;

use crate::address::{self, Proxies};
use crate::jwt::{self, Claims, TokenError, Verifier, bearer};
use crate::parts::{self, VALUE_MAX, Values};
use crate::path::{self, Case};
use crate::problem::Problem;
use crate::request_context::{BodyLength, RequestContext, VerifiedToken};

/// The headers with which a client asks the upstream to use another method than the one it sent.
pub static METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// Which identities to trust, and how to read paths.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IdentityRules {
    /// The proxies whose forwarding headers count.
    pub proxies: Proxies,
    /// How many bits of an IPv6 address identify one client.
    pub ipv6_prefix: u8,
    /// Whether paths differ by case.
    pub case: Case,
    /// What happens to an ambiguous path.
    pub ambiguous_paths: AmbiguousPaths,
    /// The token that names the user.
    pub token: Option<TokenUser>,
    /// The header in which trusted proxies name the user.
    pub user_header: Option<HeaderName>,
}

/// What happens to a path with more than one interpretation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum AmbiguousPaths {
    /// It falls under the policies of every reading.
    #[default]
    Count,
    /// The request gets 400.
    Reject,
}

/// A token that names the user.
#[derive(Clone, Debug)]
pub struct TokenUser {
    /// Verifies the token.
    pub verifier: Arc<Verifier>,
    /// The claim that holds the user's name.
    pub claim: String,
}

/// What is known about one request.
#[derive(Debug, Default)]
pub struct Facts<'a> {
    /// The client's full address.
    pub address: Option<IpAddr>,
    /// Why the request's token is invalid, if it has an invalid one.
    pub token_error: Option<TokenError>,
    /// Whether the path has more than one interpretation.
    pub is_ambiguous: bool,
    /// The verified token, if a policy needs it.
    pub token: Option<Arc<VerifiedToken>>,
    /// Whether the user comes from the header of a trusted proxy.
    pub is_user_by_header: bool,
    /// Whether an attribute has several values.
    has_readings: bool,
    values: SmallVec<[(AttributeName<&'a str>, Cow<'a, str>); 6]>,
}

/// The attributes of one query.
pub type Attributes<'a> = SmallVec<[Attribute<'a>; 6]>;

impl Default for IdentityRules {
    fn default() -> Self {
        Self {
            proxies: Proxies::default(),
            ipv6_prefix: 64,
            case: Case::Sensitive,
            ambiguous_paths: AmbiguousPaths::default(),
            token: None,
            user_header: None,
        }
    }
}

/// Setters, to be chained after `IdentityRules::default()`.
impl IdentityRules {
    /// Sets `proxies`: the proxies whose forwarding headers count.
    #[must_use]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Sets `ipv6_prefix`: how many bits of an IPv6 address identify one client.
    #[must_use]
    pub fn ipv6_prefix(mut self, ipv6_prefix: u8) -> Self {
        self.ipv6_prefix = ipv6_prefix;
        self
    }

    /// Sets `case`: whether paths differ by case.
    #[must_use]
    pub fn case(mut self, case: Case) -> Self {
        self.case = case;
        self
    }

    /// Sets `ambiguous_paths`: what happens to an ambiguous path.
    #[must_use]
    pub fn ambiguous_paths(mut self, ambiguous_paths: AmbiguousPaths) -> Self {
        self.ambiguous_paths = ambiguous_paths;
        self
    }

    /// Sets `token`: the token that names the user.
    #[must_use]
    pub fn token(mut self, token: Option<TokenUser>) -> Self {
        self.token = token;
        self
    }

    /// Sets `user_header`: the header in which trusted proxies name the user.
    #[must_use]
    pub fn user_header(mut self, user_header: Option<HeaderName>) -> Self {
        self.user_header = user_header;
        self
    }
}

/// Determines the attributes that policies need of a request from `peer`.
pub fn identify<'a>(
    request: &'a Parts,
    peer: IpAddr,
    rules: &IdentityRules,
    needs: &'a [AttributeName<String>],
    now: Timestamp,
) -> Facts<'a> {
    identify_with_context(request, &RequestContext::of(peer), rules, needs, now)
}

/// Does the same, reusing what earlier stages know.
pub fn identify_with_context<'a>(
    request: &'a Parts,
    known: &RequestContext,
    rules: &IdentityRules,
    needs: &'a [AttributeName<String>],
    now: Timestamp,
) -> Facts<'a> {
    let address = known.client(&request.headers, &rules.proxies);
    let mut facts = Facts { address: Some(address), token: known.token.clone(), ..Facts::default() };
    facts.set(AttributeName::Ip, address::client(address, rules.ipv6_prefix));
    facts.set_method(request.method.as_str());
    match request.uri.path() {
        path if known.has_normal_path => {
            let shorter = path.strip_suffix('/').filter(|shorter| !shorter.is_empty());
            facts.replace(AttributeName::Path, Cow::Borrowed(shorter.unwrap_or(path)));
        }
        path => facts.set_path(path, rules),
    }
    let verified = needs.iter().any(is_by_token).then(|| facts.verify(request, rules, now));
    let token = verified.as_ref().map_or(&RequestToken::None, |verified| &verified.token);
    for name in needs {
        match name {
            AttributeName::Method => facts.set_overriding_methods(request),
            AttributeName::User => {
                let is_trusted = known.is_trusted_proxy || rules.proxies.trust(known.peer);
                let by_header = |header: &_| is_trusted.then(|| parts::header(&request.headers, header));
                let (user, is_by_header) = token.user(rules, by_header);
                facts.is_user_by_header = is_by_header;
                facts.set_all(name, user);
            }
            AttributeName::Claim(claim) => facts.set_all(name, token.values(claim)),
            AttributeName::Host => {
                let target = request.uri.authority().map(|authority| authority.as_str());
                let lines = request.headers.get_all(http::header::HOST).iter().map(HeaderValue::as_bytes);
                facts.set_all(name, parts::hosts(target, lines));
            }
            AttributeName::Header(header) if header == "content-length" => {
                match known.body.unwrap_or_else(|| BodyLength::of(request)) {
                    BodyLength::Bytes(length) => facts.set(name.as_deref(), length.to_string()),
                    BodyLength::NotMetered => facts.set(name.as_deref(), u32::MAX.to_string()),
                    BodyLength::Unknown => {
                        facts.replace(name.as_deref(), Cow::Borrowed(Attribute::UNREADABLE))
                    }
                }
            }
            AttributeName::Header(header) => {
                if let Ok(header) = HeaderName::from_bytes(header.as_bytes()) {
                    facts.set_all(name, parts::header(&request.headers, &header));
                }
            }
            AttributeName::Cookie(cookie) => facts.set_all(name, parts::cookie(&request.headers, cookie)),
            AttributeName::Param(param) => {
                let mut values = Values::default();
                parts::param(request.uri.query().unwrap_or_default(), param, &mut values);
                facts.set_all(name, values);
            }
            // Set above, or not part of a request.
            AttributeName::Ip
            | AttributeName::Path
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Named(_) => {}
        }
    }
    facts
}

/// A request's token.
#[derive(Debug)]
pub enum RequestToken {
    /// The request has no token.
    None,
    /// The token is invalid.
    Invalid,
    /// The token is valid.
    Valid(Claims),
}

/// True if the attribute comes from a token.
pub fn is_by_token(name: &AttributeName<String>) -> bool {
    matches!(name, AttributeName::User | AttributeName::Claim(_))
}

impl RequestToken {
    /// The authenticated user: from the token, or from the header in which a trusted proxy names the user. A valid token
    /// without the claim is unreadable. `by_header` returns the header's values if the peer is trusted. The result is true
    /// if the user comes from the header.
    pub fn user<'a>(
        &self,
        rules: &IdentityRules,
        by_header: impl FnOnce(&HeaderName) -> Option<Values<'a>>,
    ) -> (Values<'a>, bool) {
        let mut by_token = rules.token.as_ref().map(|user| self.values(&user.claim)).unwrap_or_default();
        by_token.is_unreadable |= by_token.readable.is_empty() && matches!(self, Self::Valid(_));
        if !by_token.readable.is_empty() {
            return (by_token, false);
        }
        let Some(mut by_header) = rules.user_header.as_ref().and_then(by_header) else {
            return (by_token, false);
        };
        let is_by_header = !by_header.readable.is_empty() || by_header.is_unreadable;
        by_header.is_unreadable |= !is_by_header && by_token.is_unreadable;
        (by_header, is_by_header)
    }

    /// The values of a claim. In an invalid token they are unreadable.
    pub fn values<'a>(&self, claim: &str) -> Values<'a> {
        let mut values = Values::default();
        match self {
            Self::None => {}
            Self::Invalid => values.is_unreadable = true,
            Self::Valid(claims) => {
                if let Some(text) = claims.text(claim) {
                    values.add(Some(Cow::Owned(text.into_owned())));
                }
            }
        }
        values
    }
}

impl<'a> Facts<'a> {
    /// Only the client, under its name in bucket keys.
    pub fn of_client(address: IpAddr, name: &'a str) -> Self {
        let mut facts = Self { address: Some(address), ..Self::default() };
        facts.values.push((AttributeName::Ip, Cow::Borrowed(name)));
        facts
    }

    /// Sets the client's address, from which the bucket's name follows.
    pub fn set_address(&mut self, address: IpAddr, rules: &IdentityRules) {
        let address = address.to_canonical();
        self.address = Some(address);
        self.set(AttributeName::Ip, address::client(address, rules.ipv6_prefix));
    }

    /// Sets the path as the client wrote it, of any length: without a path, its policies would not apply.
    pub fn set_path(&mut self, written: &'a str, rules: &IdentityRules) {
        let readings = path::readings(written, rules.case);
        self.is_ambiguous = readings.len() > 1;
        for (n, reading) in readings.into_iter().enumerate() {
            if n == 0 {
                self.replace(AttributeName::Path, reading)
            } else {
                self.add_reading(AttributeName::Path, reading)
            }
        }
    }

    /// Sets the method as the client wrote it. Upstreams that ignore case read it in capitals.
    pub fn set_method(&mut self, method: &'a str) {
        self.set(AttributeName::Method, method);
        if method.len() <= VALUE_MAX && method.bytes().any(|byte| byte.is_ascii_lowercase()) {
            self.add_reading(AttributeName::Method, Cow::Owned(method.to_ascii_uppercase()));
        }
    }

    /// Adds the methods that override headers and parameters ask for.
    fn set_overriding_methods(&mut self, request: &Parts) {
        self.set_other_methods(parts::overriding_methods(request));
    }

    /// Adds methods that the upstream may use instead, in capitals: see [`parts::overriding_methods`].
    pub fn set_other_methods(&mut self, values: Values<'a>) {
        for method in values.readable {
            self.add_reading(AttributeName::Method, method);
        }
        if values.is_truncated {
            self.add_reading(AttributeName::Method, Cow::Borrowed(Attribute::TOO_MANY));
        }
        if values.is_unreadable {
            self.add_reading(AttributeName::Method, Cow::Borrowed(Attribute::UNREADABLE));
        }
    }

    /// Sets all values of an attribute. An unreadable value counts too: an upstream may be able to read it.
    pub fn set_all(&mut self, name: &'a AttributeName<String>, values: Values<'a>) {
        let Values { readable, is_unreadable, is_repeated, is_truncated, .. } = values;
        let name = name.as_deref();
        let unreadable = is_unreadable.then_some(Cow::Borrowed(Attribute::UNREADABLE));
        let mut values = readable.into_iter().chain(unreadable);
        let Some(first) = values.next() else { return };
        self.replace(name, first);
        values.for_each(|value| self.add_reading(name, value));
        if is_repeated {
            self.add_reading(name, Cow::Borrowed(Attribute::REPEATED));
        }
        if is_truncated {
            self.add_reading(name, Cow::Borrowed(Attribute::TOO_MANY));
        }
    }

    /// Verifies the token in an `Authorization` header. Several such headers are an error.
    pub fn verify_authorization<'h>(
        &mut self,
        lines: impl Iterator<Item = &'h [u8]>,
        rules: &IdentityRules,
        now: Timestamp,
    ) -> RequestToken {
        let verified = verify_token(bearer(lines), rules, now);
        self.token_error = verified.refused;
        verified.token
    }

    /// Sets an attribute, replacing earlier values. An empty value is ignored; one that is too long is unreadable.
    pub fn set(&mut self, name: AttributeName<&'a str>, value: impl Into<Cow<'a, str>>) {
        match value.into() {
            value if value.is_empty() => {}
            value if value.len() <= VALUE_MAX => self.replace(name, value),
            _ => self.replace(name, Cow::Borrowed(Attribute::UNREADABLE)),
        }
    }

    /// The facts as attributes of a query.
    pub fn attributes(&self) -> Attributes<'_> {
        self.values.iter().map(|(name, value)| Attribute { name: *name, value }).collect()
    }

    /// The value of an attribute, if it is known.
    pub fn value(&self, name: AttributeName<&str>) -> Option<&str> {
        let known = self.values.iter().find(|(known, _)| known.is(&name)).map(|(_, value)| value.as_ref());
        known.filter(|value| !value.starts_with('\0'))
    }

    /// Why the request is rejected without a decision, if it is.
    pub fn problem(&self, rules: &IdentityRules) -> Option<Problem> {
        let rejects = rules.ambiguous_paths == AmbiguousPaths::Reject && self.is_ambiguous;
        rejects.then(|| {
            let path = utf8_percent_encode(self.value(AttributeName::Path).unwrap_or_default(), CONTROLS);
            let detail =
                format!("path is ambiguous: upstreams may interpret it differently; send {path} instead");
            Problem::new(StatusCode::BAD_REQUEST, detail).about("path")
        })
    }

    /// Which policies may apply: those that cover the request, and these by name.
    pub fn select<'n>(&self, named: &'n [&'n str]) -> Select<'n> {
        if self.has_readings { Select::CoveringReadings(named) } else { Select::Covering(named) }
    }

    fn replace(&mut self, name: AttributeName<&'a str>, value: Cow<'a, str>) {
        self.values.retain(|(known, _)| !known.is(&name));
        self.values.push((name, value));
    }

    /// Adds another reading of an attribute.
    fn add_reading(&mut self, name: AttributeName<&'a str>, value: Cow<'a, str>) {
        if !self.values.iter().any(|(known, other)| known.is(&name) && *other == value) {
            self.has_readings = true;
            self.values.push((name, value));
        }
    }

    /// The verified token. It is verified once, even if several stages need it.
    fn verify(&mut self, request: &Parts, rules: &IdentityRules, now: Timestamp) -> Arc<VerifiedToken> {
        let lines = request.headers.get_all(http::header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        let verify = || Arc::new(verify_token(bearer(lines), rules, now));
        let verified = self.token.get_or_insert_with(verify).clone();
        self.token_error = verified.refused;
        verified
    }
}

fn verify_token(
    token: Result<Option<&str>, TokenError>,
    rules: &IdentityRules,
    now: Timestamp,
) -> VerifiedToken {
    let Some(by) = &rules.token else { return VerifiedToken { token: RequestToken::None, refused: None } };
    let verified = match token {
        Ok(None) => return VerifiedToken { token: RequestToken::None, refused: None },
        Ok(Some(token)) => {
            let mut verified = jwt::spellings(token).into_iter().map(|token| by.verifier.verify(&token, now));
            let first = verified.next().unwrap_or(Err(TokenError::Unreadable));
            first.or_else(|error| verified.next().unwrap_or(Err(error)))
        }
        Err(error) => Err(error),
    };
    match verified {
        Ok(claims) => VerifiedToken { token: RequestToken::Valid(claims), refused: None },
        Err(error) => VerifiedToken { token: RequestToken::Invalid, refused: Some(error) },
    }
}

#[cfg(test)]
#[cfg(feature = "jwt")]
mod tests;
