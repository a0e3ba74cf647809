//! The target of `check`, `remaining` and `reset`: one bucket, or those of one policy.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::Request;
use http::StatusCode;
use http_body::Body as _;
use ratewright_core::decision::Observe;
use ratewright_core::policy::Part;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, RequestId, Select};
use ratewright_core::quota::Algorithm;
use ratewright_core::store::{Basis, Key, Value};
use ratewright_core::{Decision, Limiter, Micros, Policies, Policy, Query, Store, Timestamp};
use ratewright_http::{Problem, address, identify};
use smallvec::SmallVec;

use super::params::{AcceptedParams, Params, PolicyRef};
use super::peer;
use crate::access_control::Caller;
use crate::key::{self, Escaped};
use crate::settings::ServerSettings;
use crate::url::{bad, quoted, unknown_policy};

/// The policy and key that a call concerns.
pub(super) struct BucketTarget<'a> {
    pub(super) policy_ref: &'a PolicyRef<'a>,
    /// The key as text.
    pub(super) key: Cow<'a, str>,
    pub(super) permits: NonZeroU32,
    /// The policy's name, as `Select::Named` takes it.
    policy: [&'a str; 1],
    /// The attributes that name a policy's bucket. Empty for an ad hoc key.
    attributes: KeyAttributes<'a>,
    /// The address of the bucket, if the policy has overrides: for a network its first.
    address: Option<IpAddr>,
}

/// Attributes that name a bucket, most of them borrowed from the request and the rule set.
type KeyAttributes<'a> = SmallVec<[(AttributeName<&'a str>, Cow<'a, str>); 1]>;

impl<'a> BucketTarget<'a> {
    /// Finds the target of a request.
    pub(super) fn resolve(
        request: &Request,
        params: &'a Params<'a>,
        accepted: AcceptedParams,
        settings: &ServerSettings,
        policies: &'a Policies,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        if request.body().size_hint().exact() != Some(0) {
            let detail = "this call takes its parameters in the URL; send no body";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        let Params { policy_ref, key, permits } = params;
        let key = key.as_deref();
        if accepted == AcceptedParams::NamedKey && key.is_none() {
            return Self::without_key(policy_ref, policies);
        }
        if key.is_some() {
            let (caller, instead) = (Caller::of(request), "omit it to check your own address");
            match accepted {
                AcceptedParams::Permits => settings.access.authorize_spending(caller, "key", instead)?,
                AcceptedParams::Key | AcceptedParams::NamedKey => {
                    settings.access.authorize(caller, "key", instead)?
                }
            }
        }
        let (key, attributes, address) = match policy_ref {
            PolicyRef::AdHoc(_) => {
                let key = match key {
                    // The admin API shows keys encoded, so it takes them encoded.
                    Some(key) if accepted == AcceptedParams::NamedKey => {
                        key::value(key).map(Cow::Owned).ok_or_else(|| not_utf8(key))?
                    }
                    Some(key) => Cow::Borrowed(key),
                    None => {
                        let (rules, peer) = (&settings.http_settings.rules, peer(request)?);
                        let client = address::client_address(request.headers(), peer, &rules.proxies);
                        Cow::Owned(address::client(client, rules.ipv6_prefix))
                    }
                };
                (key, KeyAttributes::new(), None)
            }
            PolicyRef::Policy(name) => {
                let policy = policy(policies, name)?;
                match key {
                    Some(key) => {
                        let attributes = key_attributes(policy, key, accepted)?;
                        let attributes = with_networks(attributes, settings.http_settings.rules.ipv6_prefix);
                        let has_others = policy.overrides().next().is_some();
                        let address = if has_others { address_in(&attributes) } else { None };
                        (Cow::Borrowed(key), attributes, address)
                    }
                    None => {
                        let (attributes, address) =
                            caller_attributes(policy, policies, request, settings, now)?;
                        (Cow::Owned(key_text(policy, &attributes)?), attributes, address)
                    }
                }
            }
        };
        Ok(Self { policy_ref, key, permits: *permits, policy: [policy_ref.policy()], attributes, address })
    }

    /// Without a key, the target can only be a policy with one bucket for all clients.
    fn without_key(policy_ref: &'a PolicyRef<'a>, policies: &Policies) -> Result<Self, Problem> {
        let missing = |parts: String| bad("key", format!("key is missing; it is made of {parts}"));
        let PolicyRef::Policy(name) = policy_ref else {
            return Err(missing("1 to 1024 characters".to_owned()));
        };
        let policy = policy(policies, name)?;
        if !policy.partition().is_empty() {
            return Err(missing(parts(policy)));
        }
        let (key, permits, attributes) = (Cow::Borrowed(""), NonZeroU32::MIN, KeyAttributes::new());
        Ok(Self { policy_ref, key, permits, policy: [policy_ref.policy()], attributes, address: None })
    }

    /// The key's standings, also in the buckets of all overrides.
    pub(super) async fn look<S, O>(&self, limiter: &Limiter<S, O>, policies: &Arc<Policies>) -> Decision
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let attributes = self.attributes();
        let select = Select::EveryBucket(self.policy[0]);
        limiter.decide_under(policies, &Query { select, ..self.query(&attributes, Ask::Look(0)) }).await
    }

    /// Decides under the rule set with which the target was resolved. `id` is the request's, for the log.
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

    /// A query without patience.
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
        match self.policy_ref {
            PolicyRef::AdHoc(_) => {
                SmallVec::from_iter([Attribute { name: AttributeName::Key, value: &self.key }])
            }
            PolicyRef::Policy(_) => {
                self.attributes.iter().map(|(name, value)| Attribute { name: *name, value }).collect()
            }
        }
    }
}

fn address_in(attributes: &KeyAttributes<'_>) -> Option<IpAddr> {
    let (_, ip) = attributes.iter().find(|(name, _)| *name == AttributeName::Ip)?;
    ip.split('/').next()?.parse().ok()
}

/// The policy of that name.
fn policy<'a>(policies: &'a Policies, name: &str) -> Result<&'a Policy, Problem> {
    let is_ad_hoc = Algorithm::named(name).is_some();
    policies.named(name).filter(|_| !is_ad_hoc).ok_or_else(|| unknown_policy(name, Some(policies)))
}

/// The attributes of a policy's key: one value for each part of its partition, joined by `|`. A single value is taken
/// literally, except in the admin API, where it is encoded.
fn key_attributes<'a>(
    policy: &'a Policy,
    key: &'a str,
    accepted: AcceptedParams,
) -> Result<KeyAttributes<'a>, Problem> {
    let (name, n_parts) = (policy.name(), policy.partition().len());
    let key_mismatch = || {
        let detail = if n_parts == 0 {
            format!("policy {name} has one bucket for all clients; omit key")
        } else {
            format!("key {} does not fit policy {name}; it is made of {}", quoted(key), parts(policy))
        };
        bad("key", detail)
    };
    let limit = policy.limits().first().filter(|_| n_parts > 0).ok_or_else(key_mismatch)?;
    if n_parts == 1 && accepted != AcceptedParams::NamedKey {
        let attributes = limit.name().attributes(&[key]).ok_or_else(key_mismatch)?;
        return Ok(attributes
            .into_iter()
            .map(|attribute| (attribute.name, Cow::Borrowed(attribute.value)))
            .collect());
    }
    let values = key::values(key, n_parts).ok_or_else(|| not_utf8(key))?;
    let values = with_stand_ins(policy, key, values);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let attributes = limit.name().attributes(&values).ok_or_else(key_mismatch)?;
    if let Some(hidden) =
        attributes.iter().find(|attribute| accepted == AcceptedParams::NamedKey && is_digest(attribute))
    {
        let value = hidden.value.rsplit('#').next().unwrap_or_default();
        let detail = format!(
            "key {} is the digest of a secret value; send the value itself, for which printf %s VALUE | sha256sum begins with {value}",
            quoted(key)
        );
        return Err(bad("key", detail));
    }
    let named = attributes.iter().filter_map(|attribute| {
        let names = policy.partition().iter().flat_map(|part| part.names()).map(AttributeName::as_deref);
        let name = names.chain([AttributeName::Ip]).find(|name| *name == attribute.name)?;
        Some((name, Cow::Owned(attribute.value.to_owned())))
    });
    Ok(named.collect())
}

/// The attributes, with each address as in bucket keys: for IPv6 a network.
fn with_networks(mut attributes: KeyAttributes<'_>, ipv6_prefix: u8) -> KeyAttributes<'_> {
    for (name, value) in &mut attributes {
        if let (AttributeName::Ip, Ok(address)) = (&name, value.parse::<IpAddr>()) {
            *value = Cow::Owned(address::client(address, ipv6_prefix));
        }
    }
    attributes
}

/// The values, with a mark on each address that stands in for an unreadable value: keys show it as `ip:…`, and a value with
/// that text as `ip%3A…`.
fn with_stand_ins(policy: &Policy, key: &str, values: Vec<String>) -> Vec<String> {
    let key_text: Vec<&str> = if values.len() == 1 { vec![key] } else { key.split('|').collect() };
    let parts = policy.partition().iter().zip(key_text);
    let mark = |(value, (part, key_text)): (String, (&Part, &str))| {
        let is_address = part.may_be_unreadable() && key_text.starts_with("ip:");
        if is_address { Value::stand_in(value.trim_start_matches("ip:")) } else { value }
    };
    values.into_iter().zip(parts).map(mark).collect()
}

/// True for the digest that the admin API shows in place of a possible secret.
fn is_digest(attribute: &Attribute<'_>) -> bool {
    let may_be_secret = matches!(
        attribute.name,
        AttributeName::Header(_) | AttributeName::Cookie(_) | AttributeName::Param(_)
    );
    let name = attribute.name.to_string();
    let value = attribute
        .value
        .strip_prefix(name.as_str())
        .map_or(attribute.value, |rest| rest.trim_start_matches(':'));
    let digits = value.strip_prefix('#').filter(|digits| [8, 32].contains(&digits.len()));
    may_be_secret && digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The key with these attributes, as [`key_attributes`] takes it.
fn key_text(policy: &Policy, attributes: &KeyAttributes<'_>) -> Result<String, Problem> {
    let attributes: SmallVec<[_; 4]> =
        attributes.iter().map(|(name, value)| Attribute { name: *name, value }).collect();
    let limit = policy.limits().first();
    let key = limit.and_then(|limit| Key::new(limit.name(), &attributes)).ok_or_else(|| {
        let name = policy.name();
        let detail = format!("policy {name} counts by an attribute that this request does not have; set key");
        bad("key", detail)
    })?;
    let mut text = String::new();
    for (n, value) in key.values().enumerate() {
        // Writing to a string cannot fail.
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

/// The parts of a policy's keys, in words.
fn parts(policy: &Policy) -> String {
    let part = |part: &Part| {
        let names: Vec<_> = part.names().map(|name| name.to_string()).collect();
        if names.len() == 1 { names.concat() } else { names.join(":… or ") + ":…" }
    };
    policy.partition().iter().map(part).collect::<Vec<_>>().join("|")
}

/// The caller's own attributes: all that any policy needs, because overrides may read others than the key.
fn caller_attributes<'a>(
    policy: &Policy,
    policies: &'a Policies,
    request: &Request,
    settings: &ServerSettings,
    now: Timestamp,
) -> Result<(KeyAttributes<'a>, Option<IpAddr>), Problem> {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.headers.clone_from(request.headers());
    parts.method.clone_from(request.method());
    parts.uri.clone_from(request.uri());
    let facts = identify(&parts, peer(request)?, &settings.http_settings.rules, policies.needs(), now);
    settings.http_settings.report_unknown_key(&facts);
    let always = [AttributeName::Ip, AttributeName::Method, AttributeName::Path];
    let needed = policies.needs().iter().map(AttributeName::as_deref).filter(|name| !always.contains(name));
    let known = facts.attributes();
    let mut named = KeyAttributes::new();
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
