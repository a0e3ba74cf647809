//! What `check`, `remaining` and `reset` ask about: one bucket, or those of one policy.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;

use axum::extract::Request;
use http::StatusCode;
use http_body::Body as _;
use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Ask, Attribute, AttributeName, Basis, Decision, Limiter, Micros, Observe, Policies, Policy,
    Query, Select, Store, Timestamp,
};
use tollgate_http::{Problem, address, identify};

use super::params::{Accepts, Params, Which};
use super::{entrust, peer};
use crate::settings::Settings;
use crate::url::{bad, quoted};

/// What is asked, once parameters and caller are understood.
pub(super) struct Asked<'a> {
    pub(super) which: &'a Which<'a>,
    /// The bucket, in words.
    pub(super) key: Cow<'a, str>,
    pub(super) permits: NonZeroU32,
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
        let mut address = None;
        let (key, attributes) = match which {
            Which::AdHoc(_) => {
                let caller = || {
                    let rules = &settings.rules;
                    let client = address::client_address(request.headers(), peer(request)?, &rules.proxies);
                    Ok::<_, Problem>(Cow::Owned(address::client(client, rules.ipv6_prefix)))
                };
                (key.map_or_else(caller, |key| Ok(Cow::Borrowed(key)))?, Named::new())
            }
            Which::Policy(name) => {
                let policy = policy(policies, name)?;
                let attributes = match key {
                    Some(key) => of_key(policy, key)?,
                    None => of_caller(policies, policy, request, settings, now)?,
                };
                if policy.overrides().next().is_some() {
                    address = address_in(&attributes);
                }
                let joined = || {
                    let values: Vec<&str> = attributes.iter().map(|(_, value)| &**value).collect();
                    Cow::Owned(values.join("|"))
                };
                (key.map_or_else(joined, Cow::Borrowed), attributes)
            }
        };
        Ok(Self { which, key, permits: *permits, attributes, address })
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
        Ok(Self { which, key, permits, attributes, address: None })
    }

    pub(super) async fn decide<S, O>(&self, limiter: &Limiter<S, O>, ask: Ask) -> Decision
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        self.with_query(ask, async |query| limiter.decide(query).await).await
    }

    pub(super) async fn reset<S, O>(&self, limiter: &Limiter<S, O>) -> Basis
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        self.with_query(Ask::Look(0), async |query| limiter.reset(query).await).await
    }

    /// Asks about one policy, and no other. Nobody can wait here.
    async fn with_query<T>(&self, ask: Ask, then: impl AsyncFnOnce(&Query<'_>) -> T) -> T {
        let patience = Micros::ZERO;
        match self.which {
            Which::AdHoc(algorithm) => {
                let attributes = [Attribute { name: AttributeName::Key, value: &self.key }];
                let select = Select::Named(algorithm.policy());
                then(&Query { select, attributes: &attributes, address: None, ask, patience }).await
            }
            Which::Policy(name) => {
                let attributes = self.attributes.iter();
                let attributes: SmallVec<[_; 2]> =
                    attributes.map(|(name, value)| Attribute { name: *name, value }).collect();
                let names = [&**name];
                let select = Select::Named(&names);
                then(&Query { select, attributes: &attributes, address: self.address, ask, patience }).await
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
    policies.named(name).filter(|_| !is_ad_hoc).ok_or_else(|| {
        let detail = format!("there is no policy {}; the policy file has the names", quoted(name));
        Problem::new(StatusCode::NOT_FOUND, detail).about("policy")
    })
}

/// The attributes that a key of a policy stands for: one value for each part of its partition, joined by `|`.
fn of_key<'a>(policy: &'a Policy, key: &'a str) -> Result<Named<'a>, Problem> {
    let (name, n_parts) = (policy.name(), policy.partition().len());
    let values: SmallVec<[&str; 2]> =
        if n_parts == 1 { SmallVec::from_elem(key, 1) } else { key.split('|').collect() };
    let attributes = policy.limits().first().and_then(|limit| limit.name().attributes(&values));
    let attributes = attributes.filter(|_| n_parts > 0).ok_or_else(|| {
        let detail = if n_parts == 0 {
            format!("policy {name} has one bucket for everybody; leave key out")
        } else {
            format!("key {} does not fit policy {name}; it is made of {}", quoted(key), parts(policy))
        };
        bad("key", detail)
    })?;
    Ok(attributes.into_iter().map(|Attribute { name, value }| (name, Cow::Borrowed(value))).collect())
}

/// What the keys of a policy are made of, in words.
fn parts(policy: &Policy) -> String {
    let part = |part: &tollgate_core::Part| {
        let names: Vec<_> = part.names().map(|name| name.to_string()).collect();
        if names.len() == 1 { names.concat() } else { names.join(":… or ") + ":…" }
    };
    policy.partition().iter().map(part).collect::<Vec<_>>().join("|")
}

/// The attributes by which a policy counts the caller itself.
fn of_caller<'a>(
    policies: &Policies,
    policy: &'a Policy,
    request: &Request,
    settings: &Settings,
    now: Timestamp,
) -> Result<Named<'a>, Problem> {
    let (head, needs) = (request.headers(), policies.needs().clone());
    let mut parts = http::Request::new(()).into_parts().0;
    parts.headers.clone_from(head);
    parts.method.clone_from(request.method());
    parts.uri.clone_from(request.uri());
    let facts = identify(&parts, peer(request)?, &settings.rules, &needs, now);
    settings.heed(&facts);
    let value = |part: &'a tollgate_core::Part| {
        let told = |name: AttributeName<&'a str>| Some((name, Cow::Owned(facts.value(name)?.to_owned())));
        part.names().map(AttributeName::as_deref).find_map(told)
    };
    policy.partition().iter().map(value).collect::<Option<Named<'_>>>().ok_or_else(|| {
        let name = policy.name();
        let detail = format!("policy {name} counts by something that this request does not have; give key");
        bad("key", detail)
    })
}
