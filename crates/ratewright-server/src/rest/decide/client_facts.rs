//! The client's request as an authorized caller describes it. The facts are derived by the same functions as in
//! entrypoints that see the client itself, so that both use the same bucket.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ratewright_core::Timestamp;
use ratewright_core::query::AttributeName;
use ratewright_http::address::{AddressOrigin, client_address};
use ratewright_http::correlation::given_id_in;
use ratewright_http::identify::{AmbiguousPaths, METHOD_OVERRIDES, RequestToken, is_by_token};
use ratewright_http::parts::NameMatch;
use ratewright_http::parts::Values;
use ratewright_http::path::{Case, normalise};
use ratewright_http::{Facts, IdentityRules, Problem, explain, parts};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::explain::KnownAttribute;
use crate::settings::ServerSettings;

/// The longest accepted path, in bytes.
const PATH_MAX: usize = 8_192;

/// What is known about a request.
#[derive(Debug, Default, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(in crate::rest) struct ClientFacts<'a> {
    /// The client's address.
    #[cfg_attr(test, schemars(schema_with = "crate::rest::openapi::address"))]
    ip: Option<IpAddr>,
    /// In place of `ip`: the address of the connection. Ratewright then finds the client's address as the gateway does. It
    /// reads the forwarding headers, and the header of `clients.user.header`, only if this address is in
    /// `clients.trusted_proxies`.
    #[cfg_attr(test, schemars(schema_with = "crate::rest::openapi::address"))]
    peer: Option<IpAddr>,
    /// The authenticated user.
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    /// The method.
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    /// The path, with or without the query.
    #[serde(borrow)]
    path: Option<Cow<'a, str>>,
    /// The host.
    #[serde(borrow)]
    host: Option<Cow<'a, str>>,
    /// The route, if you have routes.
    #[serde(borrow)]
    route: Option<Cow<'a, str>>,
    /// Headers: a text, or a list if a header is repeated. A bearer token in `Authorization` is verified.
    #[serde(borrow)]
    headers: AttributeTable<'a>,
    /// Cookies.
    #[serde(borrow)]
    cookies: AttributeTable<'a>,
    /// Parameters of the query.
    #[serde(borrow)]
    query: AttributeTable<'a>,
    /// Claims of a verified token.
    #[serde(borrow)]
    claims: AttributeTable<'a>,
    /// Anything else, for policies that count by `attribute:NAME`.
    #[serde(borrow)]
    other: AttributeTable<'a>,
}

/// Names and their values, in the order of the request body. A repeated name counts with all its values, because JSON does
/// not define which one counts.
#[derive(Debug, Default)]
struct AttributeTable<'a>(Vec<(Cow<'a, str>, OneOrMany<'a>)>);

impl<'a> AttributeTable<'a> {
    /// All values under a name.
    fn of(&self, name: &str) -> impl Iterator<Item = &OneOrMany<'a>> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, values)| values)
    }

    /// Adds the values of a cookie or parameter. Values of names that only some upstreams read as this name are candidates.
    fn add_named(&'a self, is_named: impl Fn(&[u8]) -> NameMatch, values: &mut Values<'a>) {
        for (found, given) in &self.0 {
            match is_named(found.as_bytes()) {
                NameMatch::Same => add_all(values, given),
                NameMatch::Ambiguous => {
                    for value in given.as_slice() {
                        values.add_candidate(Some(Cow::Borrowed(value)));
                    }
                }
                NameMatch::Different => {}
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AttributeTable<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor;

        impl<'de> Visitor<'de> for TableVisitor {
            type Value = AttributeTable<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with their values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<Cow<'de, str>, OneOrMany<'de>>()? {
                    entries.push(entry);
                }
                Ok(AttributeTable(entries))
            }
        }

        deserializer.deserialize_map(TableVisitor)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for AttributeTable<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("AttributeTable")
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        std::collections::BTreeMap::<String, OneOrMany<'_>>::json_schema(generator)
    }
}

/// One value, or several of one name.
#[derive(Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged, inline))]
enum OneOrMany<'a> {
    One(Cow<'a, str>),
    Many(Vec<Cow<'a, str>>),
}

/// By hand, because the derived error does not say what is expected.
impl<'de: 'a, 'a> Deserialize<'de> for OneOrMany<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor;

        impl<'de> Visitor<'de> for OneOrManyVisitor {
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

        deserializer.deserialize_any(OneOrManyVisitor)
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

impl ClientFacts<'_> {
    /// Rejects invalid facts. `location` is the query's position in a batch.
    pub(in crate::rest) fn check(&self, rules: &IdentityRules, location: &str) -> Result<(), Problem> {
        if self.ip.is_some() && self.peer.is_some() {
            let detail = format!(
                "{location}attributes has both ip and peer; the client's address follows from peer, so send only one"
            );
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("attributes"));
        }
        let n_bytes = self.path.as_ref().map_or(0, |path| path.len());
        if n_bytes > PATH_MAX {
            let detail = format!("{location}path has {n_bytes} bytes; use at most {PATH_MAX}");
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("path"));
        }
        if rules.ambiguous_paths == AmbiguousPaths::Count {
            return Ok(()); // the usual case
        }
        let mut facts = Facts::default();
        self.target().into_iter().for_each(|(path, _)| facts.set_path(path, rules));
        facts.problem(rules).map_or(Ok(()), |problem| Err(problem.prefixed(location)))
    }

    /// The client's address.
    fn address(&self, rules: &IdentityRules) -> Option<IpAddr> {
        let by_peer = |peer| client_address(&self.forwarding_headers(), peer, &rules.proxies);
        self.ip.or_else(|| self.peer.map(by_peer))
    }

    /// The headers in which proxies name the client.
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

    /// Finds the route by host, path and method, as the gateway compares them.
    pub(super) fn find_route<T: Default>(&self, find: impl Fn(Option<&str>, &str, &str) -> T) -> T {
        let Some((path, _)) = self.target() else { return T::default() };
        let host = self.host.as_deref().or_else(|| self.header("host").next()).and_then(parts::host_of);
        let path = normalise(path, Case::Sensitive);
        find(host.as_deref(), &path, self.method.as_deref().unwrap_or("GET"))
    }

    /// All known attributes, and where they come from.
    pub(super) fn known_attributes(
        &self,
        facts: &Facts<'_>,
        needs: &[AttributeName<String>],
        settings: &ServerSettings,
    ) -> Vec<KnownAttribute> {
        let always = [AttributeName::Ip, AttributeName::Method, AttributeName::Path];
        let others = needs.iter().map(AttributeName::as_deref).filter(|name| !always.contains(name));
        let names = always.into_iter().chain(others).filter(|name| *name != AttributeName::Key);
        let found = |name: AttributeName<&str>| {
            let from = self.origin(&name, facts, settings);
            KnownAttribute::of(name, facts, from)
        };
        names.map(found).collect()
    }

    /// Where an attribute comes from, or why it is missing.
    fn origin(&self, name: &AttributeName<&str>, facts: &Facts<'_>, settings: &ServerSettings) -> String {
        let rules = &settings.http_settings.rules;
        match name {
            AttributeName::Ip => match (self.ip, self.peer) {
                (Some(_), _) => "from the caller".to_owned(),
                (None, Some(peer)) => {
                    AddressOrigin::of(&self.forwarding_headers(), peer, &rules.proxies).to_string()
                }
                (None, None) => {
                    "missing: pass --ip or --peer (attributes.ip or attributes.peer in the API)".to_owned()
                }
            },
            AttributeName::User if self.user.is_some() => "from the caller".to_owned(),
            AttributeName::User
                if facts.value(*name).is_none()
                    && self.peer.is_none()
                    && let Some(header) = &rules.user_header
                    && self.header(header.as_str()).next().is_some() =>
            {
                format!(
                    "missing: the {header} header names the user only if peer is set, and is a trusted proxy"
                )
            }
            AttributeName::Claim(claim) if self.claims.of(claim).next().is_some() => {
                "from the caller".to_owned()
            }
            AttributeName::Route if self.route.is_some() => "from the caller".to_owned(),
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
                let sources = explain::IdentitySources { has_authorization };
                explain::origin(name, facts, rules, sources)
            }
        }
    }

    /// The facts that the policies need.
    pub(in crate::rest) fn facts<'a>(
        &'a self,
        settings: &ServerSettings,
        needs: &'a [AttributeName<String>],
        now: Timestamp,
    ) -> Facts<'a> {
        let rules = &settings.http_settings.rules;
        let mut facts = Facts::default();
        if let Some(address) = self.address(rules) {
            facts.set_address(address, rules);
        }
        if let Some(method) = &self.method {
            facts.set_method(method);
        }
        if let Some((path, _)) = self.target() {
            facts.set_path(path, rules);
        }
        let token = if needs.iter().any(is_by_token) {
            facts.verify_authorization(self.header("authorization").map(str::as_bytes), rules, now)
        } else {
            RequestToken::None
        };
        for name in needs {
            if *name == AttributeName::Method {
                facts.set_other_methods(self.other_methods());
            } else if *name == AttributeName::User && self.user.is_none() {
                let (user, is_by_header) = token.user(rules, |header| self.trusted_header(header, rules));
                facts.is_user_by_header = is_by_header;
                facts.set_all(name, user);
            } else {
                facts.set_all(name, self.values(name, &token));
            }
        }
        facts
    }

    /// The values of one attribute.
    fn values<'a>(&'a self, name: &'a AttributeName<String>, token: &RequestToken) -> Values<'a> {
        let mut values = Values::default();
        match name {
            AttributeName::User => self.user.iter().for_each(|user| values.add_trusted(user)),
            AttributeName::Claim(name) => {
                self.claims.of(name).for_each(|given| add_all(&mut values, given));
                if self.claims.of(name).next().is_none() {
                    return token.values(name);
                }
            }
            AttributeName::Route => {
                self.route.iter().for_each(|route| values.add_trusted(route));
            }
            AttributeName::Host => {
                let target = self.target_parts().and_then(|(authority, _)| authority);
                let named = self.host.as_deref().into_iter().chain(self.header("host"));
                return parts::hosts(target, named.map(str::as_bytes));
            }
            AttributeName::Header(name) if name == "content-length" => {
                // The body is not metered later, so an unreadable length counts as longer than any limit.
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
            AttributeName::Header(name) => return self.header_values(name),
            AttributeName::Cookie(name) => {
                self.cookies.add_named(|found| NameMatch::of_cookie(found, name), &mut values);
                for line in self.header("cookie") {
                    parts::cookie_in(line.as_bytes(), name, &mut values);
                }
            }
            AttributeName::Param(name) => {
                self.query.add_named(|found| NameMatch::of(found, name), &mut values);
                self.queries().for_each(|query| parts::param(query, name, &mut values));
            }
            AttributeName::Named(name) => {
                self.other.of(name).for_each(|given| add_all(&mut values, given));
            }
            // Set above, or not part of a client's request.
            AttributeName::Ip | AttributeName::Method | AttributeName::Path | AttributeName::Key => {}
        }
        values
    }

    fn header_values(&self, name: &str) -> Values<'_> {
        let mut values = Values::default();
        for (n, line) in self.header(name).enumerate() {
            if name == "authorization" {
                parts::add_credentials(line, &mut values);
            } else {
                values.add_with_trimmed(line.trim_ascii().into());
            }
            values.is_repeated = n > 0;
        }
        values
    }

    /// The values of a header that counts only if the peer is a trusted proxy.
    fn trusted_header(&self, name: &HeaderName, rules: &IdentityRules) -> Option<Values<'_>> {
        self.peer.filter(|peer| rules.proxies.trust(*peer)).map(|_| self.header_values(name.as_str()))
    }

    /// Methods with which the request overrides its own.
    fn other_methods<'a>(&self) -> Values<'a> {
        let mut values = Values::default();
        let lines = METHOD_OVERRIDES.iter().flat_map(|name| self.header(name.as_str()));
        let is_method = |found: &str| NameMatch::of(found.as_bytes(), "_method") != NameMatch::Different;
        let given = self.query.0.iter().filter(|(found, _)| is_method(found));
        let given = given.flat_map(|(_, given)| given.as_slice()).map(AsRef::as_ref);
        lines.chain(given).for_each(|list: &str| parts::methods(list.as_bytes(), &mut values));
        self.queries().for_each(|query| parts::method_param(query, &mut values));
        values
    }

    /// Where upstreams find parameters: after `?`, after `#` if the client sends one, and after `;` in the path.
    fn queries(&self) -> impl Iterator<Item = &str> {
        let given = self.path.as_deref().unwrap_or_default();
        let (path, query) = self.target().unwrap_or_default();
        let with_fragment = given.split_once('?').filter(|_| given.contains('#'));
        let others = [with_fragment, given.split_once('#'), path.split_once(';')];
        std::iter::once(query).chain(others.into_iter().flatten().map(|(_, after)| after))
    }

    /// The path and the query, without a host and a fragment.
    fn target(&self) -> Option<(&str, &str)> {
        let (_, path) = self.target_parts()?;
        Some(path.split_once('?').unwrap_or((path, "")))
    }

    /// The authority in the target, if it has one, and the rest without a fragment.
    fn target_parts(&self) -> Option<(Option<&str>, &str)> {
        let given = self.path.as_deref()?;
        let given = given.split_once('#').map_or(given, |(given, _)| given);
        let absolute = given.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?']));
        Some(absolute.map_or((None, given), |(_, rest)| match rest.find(['/', '?']) {
            Some(at) => {
                let (authority, path) = rest.split_at(at);
                (Some(authority), path)
            }
            None => (Some(rest), "/"),
        }))
    }

    /// All lines of a header; its name ignores case.
    fn header<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let found = self.headers.0.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        found.flat_map(|(_, lines)| lines.as_slice()).map(AsRef::as_ref)
    }
}

fn add_all<'a>(values: &mut Values<'a>, given: &'a OneOrMany<'_>) {
    given.as_slice().iter().for_each(|value| values.add_trusted(value));
}
