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
//!   whether the request is allowed at all is the application's affair. Policies that count by user count the address instead.
//! - A request with several interpretations has one fact for each: a path, a cookie that comes twice, a method that a header
//!   overrides. It falls under the policies of every reading, and is exempt only if every reading is.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use ratewright_core::{Attribute, AttributeName, Select, Timestamp};
use smallvec::SmallVec;

use crate::address::{self, Proxies};
use crate::jwt::{self, Claims, TokenError, Verifier, bearer};
use crate::known::{BodyLength, Known, Verified};
use crate::parts::{self, VALUE_MAX, Values};
use crate::path::{self, Case};
use crate::problem::Problem;

/// The headers by which a client asks an upstream to take another method than the one it sent.
pub static METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// Whom to believe.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Which proxies tell the truth about whom they forward.
    pub proxies: Proxies,
    /// How many bits of an IPv6 address make one client.
    pub ipv6_prefix: u8,
    /// Whether paths differ by case.
    pub case: Case,
    /// What happens to a path that could be read in more than one way.
    pub ambiguous_paths: AmbiguousPaths,
    /// The token that names the user.
    pub token: Option<TokenUser>,
    /// The header by which trusted proxies name the user.
    pub user_header: Option<HeaderName>,
}

/// What happens to a path that could be read in more than one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AmbiguousPaths {
    /// It falls under the policies of every reading.
    #[default]
    Count,
    /// The request is answered with 400.
    Reject,
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
    /// What the token says, if somebody needed it.
    pub token: Option<Arc<Verified>>,
    /// Whether an attribute is there several times.
    has_readings: bool,
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
            ambiguous_paths: AmbiguousPaths::default(),
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
    identify_known(request, &Known::of(peer), rules, needs, now)
}

/// The same, where an earlier stage has found out some of it.
pub fn identify_known<'a>(
    request: &'a Parts,
    known: &Known,
    rules: &Rules,
    needs: &'a [AttributeName<String>],
    now: Timestamp,
) -> Facts<'a> {
    let peer = known.peer;
    let address = known.client(&request.headers, &rules.proxies);
    let mut facts = Facts { address: Some(address), token: known.token.clone(), ..Facts::default() };
    facts.tell(AttributeName::Ip, address::client(address, rules.ipv6_prefix));
    facts.tell_method(request.method.as_str());
    match request.uri.path() {
        path if known.has_normal_path => {
            let shorter = path.strip_suffix('/').filter(|shorter| !shorter.is_empty());
            facts.put(AttributeName::Path, Cow::Borrowed(shorter.unwrap_or(path)));
        }
        path => facts.tell_path(path, rules),
    }
    let verified = needs.iter().any(is_by_token).then(|| facts.verify(request, rules, now));
    let token = verified.as_ref().map_or(&Token::None, |verified| &verified.token);
    for name in needs {
        match name {
            AttributeName::Method => facts.tell_overriding_methods(request),
            AttributeName::User => facts.tell_all(name, user(request, peer, rules, token)),
            AttributeName::Claim(claim) => facts.tell_all(name, token.values(claim)),
            AttributeName::Host => {
                let target = request.uri.authority().map(|authority| authority.as_str());
                let lines = request.headers.get_all(http::header::HOST).iter().map(HeaderValue::as_bytes);
                facts.tell_all(name, parts::hosts(target, lines));
            }
            AttributeName::Header(header) if header == "content-length" => {
                match known.body.unwrap_or_else(|| BodyLength::of(request)) {
                    BodyLength::Bytes(length) => facts.tell(name.as_deref(), length.to_string()),
                    BodyLength::NotMetered => facts.tell(name.as_deref(), u32::MAX.to_string()),
                    BodyLength::Unknown => facts.put(name.as_deref(), Cow::Borrowed(Attribute::UNREADABLE)),
                }
            }
            AttributeName::Header(header) => {
                if let Ok(header) = HeaderName::from_bytes(header.as_bytes()) {
                    facts.tell_all(name, parts::header(&request.headers, &header));
                }
            }
            AttributeName::Cookie(cookie) => facts.tell_all(name, parts::cookie(&request.headers, cookie)),
            AttributeName::Param(param) => {
                let mut values = Values::default();
                parts::param(request.uri.query().unwrap_or_default(), param, &mut values);
                facts.tell_all(name, values);
            }
            // Told already, or not for a request to say.
            AttributeName::Ip
            | AttributeName::Path
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Named(_) => {}
        }
    }
    facts
}

/// What a request's token says.
#[derive(Debug)]
pub enum Token {
    /// The request has no token.
    None,
    /// There is one that names nobody.
    Refused,
    /// There is a genuine one.
    Genuine(Claims),
}

/// True if only a token tells the attribute.
pub fn is_by_token(name: &AttributeName<String>) -> bool {
    matches!(name, AttributeName::User | AttributeName::Claim(_))
}

impl Token {
    /// Whose token it is. One that does not say so cannot be read.
    pub fn user<'a>(&self, rules: &Rules) -> Values<'a> {
        let mut values = rules.token.as_ref().map(|user| self.values(&user.claim)).unwrap_or_default();
        values.is_unreadable |= values.readable.is_empty() && matches!(self, Self::Genuine(_));
        values
    }

    /// The values of a claim. Of a token that is refused they cannot be read.
    pub fn values<'a>(&self, claim: &str) -> Values<'a> {
        let mut values = Values::default();
        match self {
            Self::None => {}
            Self::Refused => values.is_unreadable = true,
            Self::Genuine(claims) => {
                if let Some(text) = claims.text(claim) {
                    values.add(Some(Cow::Owned(text.into_owned())));
                }
            }
        }
        values
    }
}

/// Who proved to be somebody: by a token, or by the word of a trusted proxy.
fn user<'a>(request: &'a Parts, peer: IpAddr, rules: &Rules, token: &Token) -> Values<'a> {
    let by_token = token.user(rules);
    let header = rules.user_header.as_ref().filter(|_| rules.proxies.trust(peer));
    match header {
        Some(header) if by_token.readable.is_empty() => {
            let mut by_header = parts::header(&request.headers, header);
            by_header.is_unreadable |= by_header.readable.is_empty() && by_token.is_unreadable;
            by_header
        }
        _ => by_token,
    }
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
        let readings = path::readings(written, rules.case);
        self.is_ambiguous = readings.len() > 1;
        for (n, reading) in readings.into_iter().enumerate() {
            if n == 0 {
                self.put(AttributeName::Path, reading)
            } else {
                self.read(AttributeName::Path, reading)
            }
        }
    }

    /// The method, as it was written. Upstreams that ignore case read it in capitals.
    pub fn tell_method(&mut self, method: &'a str) {
        self.tell(AttributeName::Method, method);
        if method.len() <= VALUE_MAX && method.bytes().any(|byte| byte.is_ascii_lowercase()) {
            self.read(AttributeName::Method, Cow::Owned(method.to_ascii_uppercase()));
        }
    }

    /// The methods that a request asks for besides its own.
    fn tell_overriding_methods(&mut self, request: &Parts) {
        self.tell_other_methods(parts::overriding_methods(request));
    }

    /// Other methods that the upstream may take for the request's, in capitals: see [`parts::overriding_methods`].
    pub fn tell_other_methods(&mut self, values: Values<'a>) {
        for method in values.readable {
            self.read(AttributeName::Method, method);
        }
        if values.is_truncated {
            self.read(AttributeName::Method, Cow::Borrowed(Attribute::TOO_MANY));
        }
        if values.is_unreadable {
            self.read(AttributeName::Method, Cow::Borrowed(Attribute::UNREADABLE));
        }
    }

    /// All values of an attribute. An unreadable value is a fact too: an upstream may read it.
    pub fn tell_all(&mut self, name: &'a AttributeName<String>, values: Values<'a>) {
        let Values { readable, is_unreadable, is_repeated, is_truncated, .. } = values;
        let name = name.as_deref();
        let unreadable = is_unreadable.then_some(Cow::Borrowed(Attribute::UNREADABLE));
        let mut values = readable.into_iter().chain(unreadable);
        let Some(first) = values.next() else { return };
        self.put(name, first);
        values.for_each(|value| self.read(name, value));
        if is_repeated {
            self.read(name, Cow::Borrowed(Attribute::REPEATED));
        }
        if is_truncated {
            self.read(name, Cow::Borrowed(Attribute::TOO_MANY));
        }
    }

    /// What the token in an `Authorization` header says. Of several headers, nobody knows which one counts.
    pub fn verify_authorization<'h>(
        &mut self,
        lines: impl Iterator<Item = &'h [u8]>,
        rules: &Rules,
        now: Timestamp,
    ) -> Token {
        let verified = verify_token(bearer(lines), rules, now);
        self.refused_token = verified.refused;
        verified.token
    }

    /// Adds a fact, in place of one that was told before. An empty value is none, and one that is too long cannot be read.
    pub fn tell(&mut self, name: AttributeName<&'a str>, value: impl Into<Cow<'a, str>>) {
        match value.into() {
            value if value.is_empty() => {}
            value if value.len() <= VALUE_MAX => self.put(name, value),
            _ => self.put(name, Cow::Borrowed(Attribute::UNREADABLE)),
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

    /// Why the request is not decided on at all, if it is not.
    pub fn problem(&self, rules: &Rules) -> Option<Problem> {
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

    fn put(&mut self, name: AttributeName<&'a str>, value: Cow<'a, str>) {
        self.values.retain(|(known, _)| !known.is(&name));
        self.values.push((name, value));
    }

    /// Another reading of an attribute that is there already.
    fn read(&mut self, name: AttributeName<&'a str>, value: Cow<'a, str>) {
        if !self.values.iter().any(|(known, other)| known.is(&name) && *other == value) {
            self.has_readings = true;
            self.values.push((name, value));
        }
    }

    /// What the token says: it is verified once, however many stages ask.
    fn verify(&mut self, request: &Parts, rules: &Rules, now: Timestamp) -> Arc<Verified> {
        let lines = request.headers.get_all(http::header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        let verify = || Arc::new(verify_token(bearer(lines), rules, now));
        let verified = self.token.get_or_insert_with(verify).clone();
        self.refused_token = verified.refused;
        verified
    }
}

fn verify_token(token: Result<Option<&str>, TokenError>, rules: &Rules, now: Timestamp) -> Verified {
    let Some(by) = &rules.token else { return Verified { token: Token::None, refused: None } };
    let verified = match token {
        Ok(None) => return Verified { token: Token::None, refused: None },
        Ok(Some(token)) => {
            let mut verified = jwt::spellings(token).into_iter().map(|token| by.verifier.verify(&token, now));
            let first = verified.next().unwrap_or(Err(TokenError::Unreadable));
            first.or_else(|error| verified.next().unwrap_or(Err(error)))
        }
        Err(error) => Err(error),
    };
    match verified {
        Ok(claims) => Verified { token: Token::Genuine(claims), refused: None },
        Err(error) => Verified { token: Token::Refused, refused: Some(error) },
    }
}

#[cfg(test)]
mod tests;
