//! What a trusted caller tells of its client's request: the same facts that a door finds out which sees the client itself,
//! and by the same functions, so that both mean the same bucket.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use http::StatusCode;
use ratewright_core::{AttributeName, Timestamp};
use ratewright_http::jwt::Claims;
use ratewright_http::{Facts, Problem, Rules, parts};
use schemars::JsonSchema;
use serde::Deserialize;

use super::openapi;
use crate::settings::Settings;

/// The longest path that is decided on, in bytes.
const PATH_MAX: usize = 8_192;

/// What is known about a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Told<'a> {
    /// The client's address.
    #[schemars(schema_with = "openapi::address")]
    ip: Option<IpAddr>,
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
    /// Header fields. A bearer token in `Authorization` is verified.
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

type Table<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

impl Told<'_> {
    /// Refuses what nobody would send on. `place` says where the query stands.
    pub(super) fn check(&self, place: &str) -> Result<(), Problem> {
        let n_bytes = self.path.as_ref().map_or(0, |path| path.len());
        if n_bytes > PATH_MAX {
            let detail = format!("{place}the path has {n_bytes} bytes; use at most {PATH_MAX}");
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("path"));
        }
        Ok(())
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
        if let Some(address) = self.ip {
            facts.tell_address(address, rules);
        }
        if let Some(method) = &self.method {
            facts.tell(AttributeName::Method, method.to_ascii_uppercase());
        }
        if let Some((path, _)) = self.target() {
            facts.tell_path(path, rules);
        }
        let by_token =
            |name: &AttributeName<String>| matches!(name, AttributeName::User | AttributeName::Claim(_));
        let claims = match self.header("authorization").filter(|_| needs.iter().any(by_token)) {
            Some(authorization) => facts.verify_authorization(authorization, rules, now),
            None => None,
        };
        for name in needs {
            if let Some(value) = self.value(name, rules, claims.as_ref()) {
                facts.tell(name.as_deref(), value);
            }
        }
        facts
    }

    /// One attribute.
    fn value<'a>(
        &'a self,
        name: &'a AttributeName<String>,
        rules: &Rules,
        claims: Option<&Claims>,
    ) -> Option<Cow<'a, str>> {
        let claim = |name: &str| claims?.text(name).map(|text| Cow::Owned(text.into_owned()));
        match name {
            AttributeName::User => {
                let told = self.user.as_deref().map(Cow::Borrowed);
                told.or_else(|| claim(&rules.token.as_ref()?.claim))
            }
            AttributeName::Claim(name) => told(&self.claims, name).or_else(|| claim(name)),
            AttributeName::Host => parts::host_of(self.host.as_deref().or_else(|| self.header("host"))?),
            AttributeName::Route => self.route.as_deref().map(Cow::Borrowed),
            AttributeName::Header(name) => self.header(name).map(Cow::Borrowed),
            AttributeName::Cookie(name) => told(&self.cookies, name)
                .or_else(|| parts::cookie_in(self.header("cookie")?.as_bytes(), name).map(Cow::Borrowed)),
            AttributeName::Param(name) => {
                told(&self.query, name).or_else(|| parts::param(self.target()?.1, name))
            }
            AttributeName::Named(name) => told(&self.other, name),
            // Told already, or not for others to say.
            AttributeName::Ip | AttributeName::Method | AttributeName::Path | AttributeName::Key => None,
        }
    }

    /// The path, and the query that came with it.
    fn target(&self) -> Option<(&str, &str)> {
        let path = self.path.as_deref()?;
        Some(path.split_once('?').unwrap_or((path, "")))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| parts::text(value.as_bytes()))
    }
}

fn told<'a>(table: &'a Table<'_>, name: &str) -> Option<Cow<'a, str>> {
    table.get(name).map(|value| Cow::Borrowed(value.as_ref()))
}
