//! What `check`, `remaining` and `reset` ask about: one bucket, or those of one policy.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::Guard;
use axum::extract::Request;
use http::StatusCode;
use http_body::Body as _;
use ratewright_core::{
    Algorithm, Ask, Attribute, AttributeName, Basis, Decision, Entrypoint, Key, Limiter, Micros, Observe,
    Part, Policies, Policy, Query, RequestId, Select, Store, Timestamp, Value,
};
use ratewright_http::{Problem, address, identify};
use smallvec::SmallVec;

use super::params::{Accepts, Params, Which};
use super::{entrust, peer};
use crate::key::{self, Escaped};
use crate::settings::Settings;
use crate::url::{bad, no_policy, quoted};

/// What is asked, once parameters and caller are understood.
pub(super) struct Asked<'a> {
    pub(super) which: &'a Which<'a>,
    /// The bucket, in words.
    pub(super) key: Cow<'a, str>,
    pub(super) permits: NonZeroU32,
    /// The policy that is asked, and no other.
    policy: [&'a str; 1],
    /// What names the bucket of a policy. An ad hoc key names itself.
    attributes: Named<'a>,
    /// The address that the bucket is of, where the policy has other terms for some: of a network the first.
    address: Option<IpAddr>,
}

/// Attributes, most of them borrowed from the request and the rule set.
type Named<'a> = SmallVec<[(AttributeName<&'a str>, Cow<'a, str>); 1]>;

impl<'a> Asked<'a> {
    /// What a request asks, and of which key.
    pub(super) fn understand(
        request: &Request,
        params: &'a Params<'a>,
        accepts: Accepts,
        settings: &Settings,
        policies: &'a Policies,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        if request.body().size_hint().exact() != Some(0) {
            let detail = "this call takes its parameters in the URL; send no body";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        let Params { which, key, permits } = params;
        let key = key.as_deref();
        if accepts == Accepts::NamedKey && key.is_none() {
            return Self::nameless(which, policies);
        }
        if key.is_some() {
            entrust(request, settings, "key", "leave it out to ask about yourself")?;
        }
        let (key, attributes, address) = match which {
            Which::AdHoc(_) => {
                let key = match key {
                    // The admin door shows keys as they are written, and so it is asked for them.
                    Some(key) if accepts == Accepts::NamedKey => {
                        key::value(key).map(Cow::Owned).ok_or_else(|| not_utf8(key))?
                    }
                    Some(key) => Cow::Borrowed(key),
                    None => {
                        let (rules, peer) = (&settings.dialect.rules, peer(request)?);
                        let client = address::client_address(request.headers(), peer, &rules.proxies);
                        Cow::Owned(address::client(client, rules.ipv6_prefix))
                    }
                };
                (key, Named::new(), None)
            }
            Which::Policy(name) => {
                let policy = policy(policies, name)?;
                match key {
                    Some(key) => {
                        let attributes = of_key(policy, key, accepts)?;
                        let attributes = with_networks(attributes, settings.dialect.rules.ipv6_prefix);
                        let has_others = policy.overrides().next().is_some();
                        let address = if has_others { address_in(&attributes) } else { None };
                        (Cow::Borrowed(key), attributes, address)
                    }
                    None => {
                        let (attributes, address) = of_caller(policy, policies, request, settings, now)?;
                        (Cow::Owned(written(policy, &attributes)?), attributes, address)
                    }
                }
            }
        };
        Ok(Self { which, key, permits: *permits, policy: [which.policy()], attributes, address })
    }

    /// Without a key only the one bucket of a policy for everybody can be meant.
    fn nameless(which: &'a Which<'a>, policies: &Policies) -> Result<Self, Problem> {
        let missing = |parts: String| bad("key", format!("key is missing; it is made of {parts}"));
        let Which::Policy(name) = which else { return Err(missing("1 to 1024 characters".to_owned())) };
        let policy = policy(policies, name)?;
        if !policy.partition().is_empty() {
            return Err(missing(parts(policy)));
        }
        let (key, permits, attributes) = (Cow::Borrowed(""), NonZeroU32::MIN, Named::new());
        Ok(Self { which, key, permits, policy: [which.policy()], attributes, address: None })
    }

    /// How the key stands, in the buckets of all overrides too.
    pub(super) async fn look<S, O>(&self, limiter: &Limiter<S, O>, policies: &Arc<Policies>) -> Decision
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let policies = Guard::from_inner(Arc::clone(policies));
        let attributes = self.attributes();
        let select = Select::EveryBucket(self.policy[0]);
        limiter.decide_under(policies, &Query { select, ..self.query(&attributes, Ask::Look(0)) }).await
    }

    /// Asks under the rule set that it was understood by. `id` is the caller's, for the log.
    pub(super) async fn decide<S, O>(
        &self,
        limiter: &Limiter<S, O>,
        policies: &Arc<Policies>,
        ask: Ask,
        id: &dyn RequestId,
    ) -> Decision
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let policies = Guard::from_inner(Arc::clone(policies));
        let attributes = self.attributes();
        limiter.decide_under(policies, &Query { id: Some(id), ..self.query(&attributes, ask) }).await
    }

    pub(super) async fn reset<S, O>(&self, limiter: &Limiter<S, O>, policies: &Policies) -> Basis
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        limiter.reset_under(policies, &self.query(&self.attributes(), Ask::Look(0))).await
    }

    /// Nobody can wait here.
    fn query<'q>(&'q self, attributes: &'q [Attribute<'q>], ask: Ask) -> Query<'q> {
        let (select, address) = (Select::Named(&self.policy), self.address);
        Query {
            select,
            attributes,
            address,
            ask,
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Rest,
        }
    }

    /// The attributes that name the bucket.
    pub(super) fn attributes(&self) -> SmallVec<[Attribute<'_>; 2]> {
        match self.which {
            Which::AdHoc(_) => {
                SmallVec::from_iter([Attribute { name: AttributeName::Key, value: &self.key }])
            }
            Which::Policy(_) => {
                self.attributes.iter().map(|(name, value)| Attribute { name: *name, value }).collect()
            }
        }
    }
}

fn address_in(attributes: &Named<'_>) -> Option<IpAddr> {
    let (_, ip) = attributes.iter().find(|(name, _)| *name == AttributeName::Ip)?;
    ip.split('/').next()?.parse().ok()
}

/// The policy of that name.
fn policy<'a>(policies: &'a Policies, name: &str) -> Result<&'a Policy, Problem> {
    let is_ad_hoc = Algorithm::named(name).is_some();
    policies.named(name).filter(|_| !is_ad_hoc).ok_or_else(|| no_policy(name))
}

/// The attributes that a key of a policy stands for: one value for each part of its partition, joined by `|`. A single value
/// stands for itself, but for those who copied it from where keys are shown.
fn of_key<'a>(policy: &'a Policy, key: &'a str, accepts: Accepts) -> Result<Named<'a>, Problem> {
    let (name, n_parts) = (policy.name(), policy.partition().len());
    let misfit = || {
        let detail = if n_parts == 0 {
            format!("policy {name} has one bucket for everybody; leave key out")
        } else {
            format!("key {} does not fit policy {name}; it is made of {}", quoted(key), parts(policy))
        };
        bad("key", detail)
    };
    let limit = policy.limits().first().filter(|_| n_parts > 0).ok_or_else(misfit)?;
    if n_parts == 1 && accepts != Accepts::NamedKey {
        let attributes = limit.name().attributes(&[key]).ok_or_else(misfit)?;
        return Ok(attributes.into_iter().map(|told| (told.name, Cow::Borrowed(told.value))).collect());
    }
    let values = key::values(key, n_parts).ok_or_else(|| not_utf8(key))?;
    let values = stand_ins(policy, key, values);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let attributes = limit.name().attributes(&values).ok_or_else(misfit)?;
    if let Some(hidden) = attributes.iter().find(|told| accepts == Accepts::NamedKey && is_digest(told)) {
        let value = hidden.value.rsplit('#').next().unwrap_or_default();
        let detail = format!(
            "key {} stands for a value that is not shown; ask with the value itself, of which printf %s VALUE | sha256sum begins with {value}",
            quoted(key)
        );
        return Err(bad("key", detail));
    }
    let named = attributes.iter().filter_map(|told| {
        let names = policy.partition().iter().flat_map(|part| part.names()).map(AttributeName::as_deref);
        let name = names.chain([AttributeName::Ip]).find(|name| *name == told.name)?;
        Some((name, Cow::Owned(told.value.to_owned())))
    });
    Ok(named.collect())
}

/// The attributes, with each address as its bucket is called: of IPv6 a network.
fn with_networks(mut attributes: Named<'_>, ipv6_prefix: u8) -> Named<'_> {
    for (name, value) in &mut attributes {
        if let (AttributeName::Ip, Ok(address)) = (&name, value.parse::<IpAddr>()) {
            *value = Cow::Owned(address::client(address, ipv6_prefix));
        }
    }
    attributes
}

/// The values, with those marked that are an address in place of what cannot be read: keys show them as `ip:…`, and a value of
/// such a text as `ip%3A…`.
fn stand_ins(policy: &Policy, key: &str, values: Vec<String>) -> Vec<String> {
    let written: Vec<&str> = if values.len() == 1 { vec![key] } else { key.split('|').collect() };
    let parts = policy.partition().iter().zip(written);
    let mark = |(value, (part, written)): (String, (&Part, &str))| {
        let is_address = part.may_be_unreadable() && written.starts_with("ip:");
        if is_address { Value::stand_in(value.trim_start_matches("ip:")) } else { value }
    };
    values.into_iter().zip(parts).map(mark).collect()
}

/// True for what the admin door shows in place of a value that may be a secret.
fn is_digest(told: &Attribute<'_>) -> bool {
    let may_be_secret =
        matches!(told.name, AttributeName::Header(_) | AttributeName::Cookie(_) | AttributeName::Param(_));
    let name = told.name.to_string();
    let value =
        told.value.strip_prefix(name.as_str()).map_or(told.value, |rest| rest.trim_start_matches(':'));
    let digits = value.strip_prefix('#').filter(|digits| [8, 32].contains(&digits.len()));
    may_be_secret && digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The key that these attributes make, as [`of_key`] takes it.
fn written(policy: &Policy, attributes: &Named<'_>) -> Result<String, Problem> {
    let attributes: SmallVec<[_; 4]> =
        attributes.iter().map(|(name, value)| Attribute { name: *name, value }).collect();
    let limit = policy.limits().first();
    let key = limit.and_then(|limit| Key::new(limit.name(), &attributes)).ok_or_else(|| {
        let name = policy.name();
        let detail = format!("policy {name} counts by something that this request does not have; give key");
        bad("key", detail)
    })?;
    let mut text = String::new();
    for (n, value) in key.values().enumerate() {
        // Writing to a text cannot fail.
        let _ = match (n, policy.partition().len()) {
            (0, 1) => write!(text, "{value}"),
            (0, _) => write!(Escaped(&mut text), "{value}"),
            _ => text.write_char('|').and_then(|()| write!(Escaped(&mut text), "{value}")),
        };
    }
    Ok(text)
}

fn not_utf8(key: &str) -> Problem {
    bad("key", format!("key {} is not UTF-8 where it is percent-encoded; write % as %25", quoted(key)))
}

/// What the keys of a policy are made of, in words.
fn parts(policy: &Policy) -> String {
    let part = |part: &Part| {
        let names: Vec<_> = part.names().map(|name| name.to_string()).collect();
        if names.len() == 1 { names.concat() } else { names.join(":… or ") + ":…" }
    };
    policy.partition().iter().map(part).collect::<Vec<_>>().join("|")
}

/// What the caller itself is: all that the policies look at, for some have other terms for some.
fn of_caller<'a>(
    policy: &Policy,
    policies: &'a Policies,
    request: &Request,
    settings: &Settings,
    now: Timestamp,
) -> Result<(Named<'a>, Option<IpAddr>), Problem> {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.headers.clone_from(request.headers());
    parts.method.clone_from(request.method());
    parts.uri.clone_from(request.uri());
    let facts = identify(&parts, peer(request)?, &settings.dialect.rules, policies.needs(), now);
    settings.dialect.heed(&facts);
    let always = [AttributeName::Ip, AttributeName::Method, AttributeName::Path];
    let needed = policies.needs().iter().map(AttributeName::as_deref).filter(|name| !always.contains(name));
    let known = facts.attributes();
    let mut named = Named::new();
    for name in always.into_iter().chain(needed) {
        let mut values = known.iter().filter(|fact| fact.name.is(&name)).map(|fact| fact.value);
        let Some(first) = values.next() else { continue };
        let counts = policy.partition().iter().flat_map(|part| part.names()).any(|counted| counted.is(&name));
        if counts && values.next().is_some() {
            let name = policy.name();
            let detail =
                format!("policy {name} cannot choose a key: this request has several values for it; set key");
            return Err(bad("key", detail));
        }
        named.push((name, Cow::Owned(first.to_owned())));
    }
    Ok((named, facts.address))
}
