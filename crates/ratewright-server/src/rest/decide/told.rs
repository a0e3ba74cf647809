//! What a trusted caller tells of its client's request: the same facts that a door finds out which sees the client itself,
//! and by the same functions, so that both mean the same bucket.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ratewright_core::{AttributeName, Timestamp};
use ratewright_http::address::{Origin, client_address};
use ratewright_http::parts::NameMatch;
use ratewright_http::path::{Case, normalise};
use ratewright_http::{
    AmbiguousPaths, Facts, METHOD_OVERRIDES, Problem, Rules, Token, Values, explain, given_id_in,
    is_by_token, parts,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::explain::KnownAttribute;
use super::openapi;
use crate::settings::Settings;

/// The longest path that is decided on, in bytes.
const PATH_MAX: usize = 8_192;

/// What is known about a request.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Told<'a> {
    /// The client's address.
    #[schemars(schema_with = "openapi::address")]
    ip: Option<IpAddr>,
    /// In place of `ip`: the address of the connection. The client's address then follows from it and the forwarding headers, as in the
    /// gateway: `X-Forwarded-For` counts if the peer is in `clients.trusted_proxies`.
    #[schemars(schema_with = "openapi::address")]
    peer: Option<IpAddr>,
    /// Who the client proved to be.
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    /// The path, with or without the query.
    #[serde(borrow)]
    path: Option<Cow<'a, str>>,
    #[serde(borrow)]
    host: Option<Cow<'a, str>>,
    #[serde(borrow)]
    route: Option<Cow<'a, str>>,
    /// Headers: a text, or a list if the request has several of a name. A bearer token in `Authorization` is verified.
    #[serde(borrow)]
    headers: Table<'a>,
    #[serde(borrow)]
    cookies: Table<'a>,
    #[serde(borrow)]
    query: Table<'a>,
    #[serde(borrow)]
    claims: Table<'a>,
    /// Anything else, for policies that count by `attribute:NAME`.
    #[serde(borrow)]
    other: Table<'a>,
}

/// Names and their values, in the order of the request body. A name may come twice: JSON leaves open which one counts, so both do.
#[derive(Debug, Default)]
struct Table<'a>(Vec<(Cow<'a, str>, OneOrMany<'a>)>);

impl<'a> Table<'a> {
    /// All values under a name.
    fn of(&self, name: &str) -> impl Iterator<Item = &OneOrMany<'a>> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, values)| values)
    }

    /// Adds the values under the name of a cookie or parameter. Of other names that upstreams may take for it, they are candidates.
    fn add_named(&'a self, is_named: impl Fn(&[u8]) -> NameMatch, values: &mut Values<'a>) {
        for (known, told) in &self.0 {
            match is_named(known.as_bytes()) {
                NameMatch::Same => add_all(values, told),
                NameMatch::Ambiguous => {
                    for value in told.as_slice() {
                        values.add_candidate(Some(Cow::Borrowed(value)));
                    }
                }
                NameMatch::Different => {}
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Table<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Table<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with their values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<Cow<'de, str>, OneOrMany<'de>>()? {
                    entries.push(entry);
                }
                Ok(Table(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for Table<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Table")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, OneOrMany<'_>>::json_schema(generator)
    }
}

/// One value, or all that a request has of a name.
#[derive(Debug, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum OneOrMany<'a> {
    One(Cow<'a, str>),
    Many(Vec<Cow<'a, str>>),
}

/// By hand, since the derived one does not say what it expects.
impl<'de: 'a, 'a> Deserialize<'de> for OneOrMany<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element::<Cow<'de, str>>()? {
                    values.push(value);
                }
                Ok(OneOrMany::Many(values))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl OneOrMany<'_> {
    fn as_slice(&self) -> &[Cow<'_, str>] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

impl Told<'_> {
    /// Refuses what nobody would send on. `place` says where the query stands.
    pub(super) fn check(&self, rules: &Rules, place: &str) -> Result<(), Problem> {
        if self.ip.is_some() && self.peer.is_some() {
            let detail = format!(
                "{place}attributes has ip and peer; the client's address follows from peer, so give one of the two"
            );
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("attributes"));
        }
        let n_bytes = self.path.as_ref().map_or(0, |path| path.len());
        if n_bytes > PATH_MAX {
            let detail = format!("{place}the path has {n_bytes} bytes; use at most {PATH_MAX}");
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("path"));
        }
        if rules.ambiguous_paths == AmbiguousPaths::Count {
            return Ok(()); // as most do
        }
        let mut facts = Facts::default();
        self.target().into_iter().for_each(|(path, _)| facts.tell_path(path, rules));
        facts.problem(rules).map_or(Ok(()), |problem| Err(problem.prefixed(place)))
    }

    /// The client's address.
    fn address(&self, rules: &Rules) -> Option<IpAddr> {
        let by_peer = |peer| client_address(&self.forwarding_headers(), peer, &rules.proxies);
        self.ip.or_else(|| self.peer.map(by_peer))
    }

    /// The headers by which proxies say for whom they ask.
    fn forwarding_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in ["x-forwarded-for", "x-real-ip", "forwarded"] {
            for line in self.header(name) {
                if let Ok(value) = HeaderValue::from_str(line) {
                    headers.append(HeaderName::from_static(name), value);
                }
            }
        }
        headers
    }

    /// The id of the client's request.
    pub(super) fn given_id(&self) -> Option<&str> {
        if self.headers.0.is_empty() { None } else { given_id_in(|name| self.header(name).next()) }
    }

    /// True if the caller names the route itself.
    pub(super) fn is_routed(&self) -> bool {
        self.route.is_some()
    }

    /// What comes of the host, the path and the method, as the gateway compares them.
    pub(super) fn place<T: Default>(&self, place: impl Fn(Option<&str>, &str, &str) -> T) -> T {
        let Some((path, _)) = self.target() else { return T::default() };
        let host = self.host.as_deref().or_else(|| self.header("host").next()).and_then(parts::host_of);
        let path = normalise(path, Case::Sensitive);
        place(host.as_deref(), &path, self.method.as_deref().unwrap_or("GET"))
    }

    /// Everything that is known, and where it comes from.
    pub(super) fn known(
        &self,
        facts: &Facts<'_>,
        needs: &[AttributeName<String>],
        settings: &Settings,
    ) -> Vec<KnownAttribute> {
        let always = [AttributeName::Ip, AttributeName::Method, AttributeName::Path];
        let others = needs.iter().map(AttributeName::as_deref).filter(|name| !always.contains(name));
        let names = always.into_iter().chain(others).filter(|name| *name != AttributeName::Key);
        let known = |name: AttributeName<&str>| {
            let from = self.origin(&name, facts, settings);
            KnownAttribute::of(name, facts, from)
        };
        names.map(known).collect()
    }

    /// Where an attribute comes from, or why it is missing.
    fn origin(&self, name: &AttributeName<&str>, facts: &Facts<'_>, settings: &Settings) -> String {
        let rules = &settings.dialect.rules;
        match name {
            AttributeName::Ip => match (self.ip, self.peer) {
                (Some(_), _) => "told by the caller".to_owned(),
                (None, Some(peer)) => {
                    Origin::of(&self.forwarding_headers(), peer, &rules.proxies).to_string()
                }
                (None, None) => "missing: give attributes.ip or attributes.peer".to_owned(),
            },
            AttributeName::User if self.user.is_some() => "told by the caller".to_owned(),
            AttributeName::Claim(claim) if self.claims.of(claim).next().is_some() => {
                "told by the caller".to_owned()
            }
            AttributeName::Route if self.route.is_some() => "told by the caller".to_owned(),
            AttributeName::User
            | AttributeName::Method
            | AttributeName::Path
            | AttributeName::Host
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Param(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => {
                let has_authorization = self.header("authorization").next().is_some();
                let sources = explain::IdentitySources { has_authorization, is_by_user_header: false };
                explain::origin(name, facts, rules, sources)
            }
        }
    }

    /// The facts that the policies need.
    pub(super) fn facts<'a>(
        &'a self,
        settings: &Settings,
        needs: &'a [AttributeName<String>],
        now: Timestamp,
    ) -> Facts<'a> {
        let rules = &settings.dialect.rules;
        let mut facts = Facts::default();
        if let Some(address) = self.address(rules) {
            facts.tell_address(address, rules);
        }
        if let Some(method) = &self.method {
            facts.tell_method(method);
        }
        if let Some((path, _)) = self.target() {
            facts.tell_path(path, rules);
        }
        let token = if needs.iter().any(is_by_token) {
            facts.verify_authorization(self.header("authorization").map(str::as_bytes), rules, now)
        } else {
            Token::None
        };
        for name in needs {
            if *name == AttributeName::Method {
                facts.tell_other_methods(self.other_methods());
            } else {
                facts.tell_all(name, self.values(name, rules, &token));
            }
        }
        facts
    }

    /// The values of one attribute.
    fn values<'a>(&'a self, name: &'a AttributeName<String>, rules: &Rules, token: &Token) -> Values<'a> {
        let mut values = Values::default();
        match name {
            AttributeName::User => match &self.user {
                Some(user) => values.add_told(user),
                None => return token.user(rules),
            },
            AttributeName::Claim(name) => {
                self.claims.of(name).for_each(|told| add_all(&mut values, told));
                if self.claims.of(name).next().is_none() {
                    return token.values(name);
                }
            }
            AttributeName::Route => {
                self.route.iter().for_each(|route| values.add_told(route));
            }
            AttributeName::Host => {
                let target = self.target_parts().and_then(|(authority, _)| authority);
                let named = self.host.as_deref().into_iter().chain(self.header("host"));
                return parts::hosts(target, named.map(str::as_bytes));
            }
            AttributeName::Header(name) if name == "content-length" => {
                // Nobody counts the body later, so a length that cannot be read is longer than any limit.
                let is_length =
                    |line: &str| line.len() <= 20 && line.bytes().all(|byte| byte.is_ascii_digit());
                let is_chunked = self.header("transfer-encoding").next().is_some();
                for line in self.header(name).map(str::trim_ascii) {
                    values.add(Some(Cow::Borrowed(if is_length(line) { line } else { "unreadable" })));
                }
                if is_chunked {
                    values.add(Some(Cow::Borrowed("chunked")));
                }
            }
            AttributeName::Header(name) => {
                let mut n_lines = 0;
                for line in self.header(name) {
                    if name == "authorization" {
                        parts::add_credentials(line, &mut values);
                    } else {
                        values.add_with_trimmed(line.trim_ascii().into());
                    }
                    n_lines += 1;
                }
                values.is_repeated = n_lines > 1;
            }
            AttributeName::Cookie(name) => {
                self.cookies.add_named(|known| NameMatch::of_cookie(known, name), &mut values);
                for line in self.header("cookie") {
                    parts::cookie_in(line.as_bytes(), name, &mut values);
                }
            }
            AttributeName::Param(name) => {
                self.query.add_named(|known| NameMatch::of(known, name), &mut values);
                self.queries().for_each(|query| parts::param(query, name, &mut values));
            }
            AttributeName::Named(name) => {
                self.other.of(name).for_each(|told| add_all(&mut values, told));
            }
            // Told already, or not for others to say.
            AttributeName::Ip | AttributeName::Method | AttributeName::Path | AttributeName::Key => {}
        }
        values
    }

    /// Methods that the request asks the upstream to take in place of its own.
    fn other_methods<'a>(&self) -> Values<'a> {
        let mut values = Values::default();
        let lines = METHOD_OVERRIDES.iter().flat_map(|name| self.header(name.as_str()));
        let is_method = |known: &str| NameMatch::of(known.as_bytes(), "_method") != NameMatch::Different;
        let told = self.query.0.iter().filter(|(known, _)| is_method(known));
        let told = told.flat_map(|(_, told)| told.as_slice()).map(AsRef::as_ref);
        lines.chain(told).for_each(|list: &str| parts::methods(list.as_bytes(), &mut values));
        self.queries().for_each(|query| parts::method_param(query, &mut values));
        values
    }

    /// Where upstreams look for parameters: after the question mark; after `#` too, if somebody sends one; and after `;` in the path.
    fn queries(&self) -> impl Iterator<Item = &str> {
        let told = self.path.as_deref().unwrap_or_default();
        let (path, query) = self.target().unwrap_or_default();
        let with_fragment = told.split_once('?').filter(|_| told.contains('#'));
        let others = [with_fragment, told.split_once('#'), path.split_once(';')];
        std::iter::once(query).chain(others.into_iter().flatten().map(|(_, after)| after))
    }

    /// The path, and the query that came with it, without a host in front and without what follows a `#`.
    fn target(&self) -> Option<(&str, &str)> {
        let (_, path) = self.target_parts()?;
        Some(path.split_once('?').unwrap_or((path, "")))
    }

    /// The authority in the target, if it has one, and the rest without a fragment.
    fn target_parts(&self) -> Option<(Option<&str>, &str)> {
        let told = self.path.as_deref()?;
        let told = told.split_once('#').map_or(told, |(told, _)| told);
        let absolute = told.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?']));
        Some(absolute.map_or((None, told), |(_, rest)| match rest.find(['/', '?']) {
            Some(at) => {
                let (authority, path) = rest.split_at(at);
                (Some(authority), path)
            }
            None => (Some(rest), "/"),
        }))
    }

    /// All lines of a header, in whichever case its name is told.
    fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.headers.0.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        found.flat_map(|(_, lines)| lines.as_slice()).map(AsRef::as_ref)
    }
}

fn add_all<'a>(values: &mut Values<'a>, told: &'a OneOrMany<'_>) {
    told.as_slice().iter().for_each(|value| values.add_told(value));
}
