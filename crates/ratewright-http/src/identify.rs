//! Who is asking, and for what: from a request to the attributes of a query.
//!
//! ```text
//!   Parts, peer ──identify──► Facts ──attributes──► Query
//!                  rules: whom to believe
//!                  needs: what the policies look at
//! ```
//!
//! Only what the policies need is found out: no token is verified if nobody counts by user. The address, the method and the
//! path are always told, since logs name them.
//!
//! # Laws
//! - A header that names a client or a user counts only if a trusted proxy sent it.
//! - A claim counts only out of a verified token. A token that is refused names nobody; it is not an error, because
//!   whether the request is allowed at all is the application's affair.
//! - A path that could be read in more than one way never makes a request exempt.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use ratewright_core::{Attribute, AttributeName, Select, Timestamp};
use smallvec::SmallVec;

use crate::address::{self, Proxies};
use crate::jwt::{Claims, TokenError, Verifier, bearer};
use crate::parts;
use crate::path::{self, Case};

/// The longest value that is looked at, in bytes. A longer one counts as missing, unless it is the path.
pub const VALUE_MAX: usize = 4_096;

/// Whom to believe.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Which proxies tell the truth about whom they forward.
    pub proxies: Proxies,
    /// How many bits of an IPv6 address make one client.
    pub ipv6_prefix: u8,
    /// Whether paths differ by case.
    pub case: Case,
    /// The token that names the user.
    pub token: Option<TokenUser>,
    /// The header by which trusted proxies name the user.
    pub user_header: Option<HeaderName>,
}

/// A token that names the user.
#[derive(Clone, Debug)]
pub struct TokenUser {
    /// Tells genuine tokens.
    pub verifier: Arc<Verifier>,
    /// The claim that is the user's name.
    pub claim: String,
}

/// What is known about one request.
#[derive(Debug, Default)]
pub struct Facts<'a> {
    /// The client's address, whole.
    pub address: Option<IpAddr>,
    /// Why the request's token names nobody, if it has one that does not.
    pub refused_token: Option<TokenError>,
    /// Whether the path could be read in more than one way.
    pub is_ambiguous: bool,
    values: SmallVec<[(AttributeName<&'a str>, Cow<'a, str>); 6]>,
}

/// The attributes of one query.
pub type Attributes<'a> = SmallVec<[Attribute<'a>; 6]>;

impl Default for Rules {
    fn default() -> Self {
        Self {
            proxies: Proxies::default(),
            ipv6_prefix: 64,
            case: Case::Sensitive,
            token: None,
            user_header: None,
        }
    }
}

/// Finds out what the policies need to know of a request that came from `peer`.
pub fn identify<'a>(
    request: &'a Parts,
    peer: IpAddr,
    rules: &Rules,
    needs: &'a [AttributeName<String>],
    now: Timestamp,
) -> Facts<'a> {
    let address = address::client_address(&request.headers, peer, &rules.proxies);
    let mut facts = Facts { address: Some(address), ..Facts::default() };
    facts.tell(AttributeName::Ip, address::client(address, rules.ipv6_prefix));
    facts.tell(AttributeName::Method, request.method.as_str());
    facts.tell_path(request.uri.path(), rules);
    let by_token =
        |name: &AttributeName<String>| matches!(name, AttributeName::User | AttributeName::Claim(_));
    let claims = if needs.iter().any(by_token) { facts.verify(request, rules, now) } else { None };
    for name in needs {
        if let Some(value) = find(name, request, peer, rules, claims.as_ref()) {
            facts.tell(name.as_deref(), value);
        }
    }
    facts
}

/// One attribute of a request.
fn find<'a>(
    name: &'a AttributeName<String>,
    request: &'a Parts,
    peer: IpAddr,
    rules: &Rules,
    claims: Option<&Claims>,
) -> Option<Cow<'a, str>> {
    match name {
        AttributeName::User => user(request, peer, rules, claims).map(Cow::Owned),
        AttributeName::Host => parts::host(request),
        AttributeName::Header(name) => {
            parts::header(&request.headers, &HeaderName::from_bytes(name.as_bytes()).ok()?).map(Cow::Borrowed)
        }
        AttributeName::Cookie(name) => parts::cookie(&request.headers, name).map(Cow::Borrowed),
        AttributeName::Param(name) => parts::param(request.uri.query()?, name),
        AttributeName::Claim(name) => claims?.text(name).map(|text| Cow::Owned(text.into_owned())),
        // Told already, or not for a request to say.
        AttributeName::Ip
        | AttributeName::Method
        | AttributeName::Path
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Named(_) => None,
    }
}

/// Who proved to be somebody: by a token, or by the word of a trusted proxy.
fn user(request: &Parts, peer: IpAddr, rules: &Rules, claims: Option<&Claims>) -> Option<String> {
    let named = rules.token.as_ref().zip(claims).and_then(|(token, claims)| claims.text(&token.claim));
    if let Some(named) = named {
        return Some(named.into_owned());
    }
    let header = rules.user_header.as_ref().filter(|_| rules.proxies.trust(peer))?;
    parts::header(&request.headers, header).filter(|user| !user.is_empty()).map(str::to_owned)
}

impl<'a> Facts<'a> {
    /// What somebody who may speak for the client says of it: the address, from which its bucket's name follows.
    pub fn tell_address(&mut self, address: IpAddr, rules: &Rules) {
        let address = address.to_canonical();
        self.address = Some(address);
        self.tell(AttributeName::Ip, address::client(address, rules.ipv6_prefix));
    }

    /// The path that is asked for, as it was written. However long: if it were missing, the policies on it would not apply.
    pub fn tell_path(&mut self, written: &'a str, rules: &Rules) {
        self.is_ambiguous = !path::is_plain(written);
        self.put(AttributeName::Path, path::normalise(written, rules.case));
    }

    /// The claims of the token in an `Authorization` field, if it is genuine.
    pub fn verify_authorization(
        &mut self,
        authorization: &str,
        rules: &Rules,
        now: Timestamp,
    ) -> Option<Claims> {
        let token = rules.token.as_ref()?;
        let (scheme, text) = authorization.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        token.verifier.verify(text.trim(), now).map_err(|error| self.refused_token = Some(error)).ok()
    }

    /// Adds a fact, in place of one that was told before. An empty value, or one that is too long, is none.
    pub fn tell(&mut self, name: AttributeName<&'a str>, value: impl Into<Cow<'a, str>>) {
        let value = value.into();
        if (1..=VALUE_MAX).contains(&value.len()) {
            self.put(name, value);
        }
    }

    /// The facts as attributes of a query.
    pub fn attributes(&self) -> Attributes<'_> {
        self.values.iter().map(|(name, value)| Attribute { name: *name, value }).collect()
    }

    /// The value of an attribute, if it is known.
    pub fn value(&self, name: AttributeName<&str>) -> Option<&str> {
        self.values.iter().find(|(known, _)| known.is(&name)).map(|(_, value)| value.as_ref())
    }

    /// Which policies may apply: those that cover the request, and these by name.
    pub fn select<'n>(&self, named: &'n [&'n str]) -> Select<'n> {
        if self.is_ambiguous { Select::CoveringAnyway(named) } else { Select::Covering(named) }
    }

    fn put(&mut self, name: AttributeName<&'a str>, value: Cow<'a, str>) {
        self.values.retain(|(known, _)| !known.is(&name));
        self.values.push((name, value));
    }

    fn verify(&mut self, request: &Parts, rules: &Rules, now: Timestamp) -> Option<Claims> {
        let token = bearer(&request.headers)?;
        let verified = rules.token.as_ref()?.verifier.verify(token, now);
        verified.map_err(|error| self.refused_token = Some(error)).ok()
    }
}

#[cfg(test)]
mod tests;
