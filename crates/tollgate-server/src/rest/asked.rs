//! What `check`, `remaining` and `reset` ask about: one bucket, or those of one policy.

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

use super::params::{self, Accepts, Params, Which};
use super::{entrust, peer};
use crate::settings::Settings;
use crate::url::{bad, quoted};

/// What is asked, once parameters and caller are understood.
pub(super) struct Asked {
    pub(super) which: Which,
    /// The bucket, in words.
    pub(super) key: String,
    pub(super) permits: NonZeroU32,
    /// What names the bucket of a policy. An ad hoc key names itself.
    attributes: Named,
}

/// Attributes of their own, for as long as a request takes.
type Named = SmallVec<[(AttributeName<String>, String); 1]>;

impl Asked {
    /// What a request asks, and of which key.
    pub(super) fn understand<S, O>(
        request: &Request,
        settings: &Settings,
        limiter: &Limiter<S, O>,
        accepts: Accepts,
        now: Timestamp,
    ) -> Result<Self, Problem>
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        if request.body().size_hint().exact() != Some(0) {
            let detail = "this call takes its parameters in the URL; send no body";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        let Params { which, key, permits } =
            Params::parse(request.uri().query().unwrap_or_default(), accepts)?;
        if accepts == Accepts::NamedKey && key.is_none() {
            return Self::nameless(which, limiter);
        }
        if key.is_some() {
            entrust(request, settings, "key", "leave it out to ask about yourself")?;
        }
        match &which {
            Which::AdHoc(_) => {
                let key = match key {
                    Some(key) => key,
                    None => {
                        let rules = &settings.rules;
                        let client =
                            address::client_address(request.headers(), peer(request)?, &rules.proxies);
                        address::client(client, rules.ipv6_prefix)
                    }
                };
                Ok(Self { which, key, permits, attributes: Named::new() })
            }
            Which::Policy(name) => {
                let policies = limiter.policies();
                let attributes = match &key {
                    Some(key) => of_key(&policies, name, key)?,
                    None => of_caller(&policies, name, request, settings, now)?,
                };
                let key = key.unwrap_or_else(|| {
                    attributes.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("|")
                });
                Ok(Self { which, key, permits, attributes })
            }
        }
    }

    /// Without a key only the one bucket of a policy for everybody can be meant.
    fn nameless<S, O>(which: Which, limiter: &Limiter<S, O>) -> Result<Self, Problem>
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let missing = |parts: String| bad("key", format!("key is missing; it is made of {parts}"));
        let Which::Policy(name) = &which else { return Err(missing("1 to 1024 characters".to_owned())) };
        let policies = limiter.policies();
        let policy = policy(&policies, name)?;
        if !policy.partition().is_empty() {
            return Err(missing(parts(policy)));
        }
        Ok(Self { which, key: String::new(), permits: NonZeroU32::MIN, attributes: Named::new() })
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

    /// The algorithm that decided.
    pub(super) fn algorithm(&self, decision: &Decision) -> Algorithm {
        match &self.which {
            Which::AdHoc(algorithm) => algorithm.model(),
            Which::Policy(_) => decision
                .tightest()
                .map_or(params::Algorithm::default().model(), |(_, limit, _)| limit.quota().algorithm()),
        }
    }

    /// Asks about one policy, and no other. Nobody can wait here.
    async fn with_query<T>(&self, ask: Ask, then: impl AsyncFnOnce(&Query<'_>) -> T) -> T {
        let patience = Micros::ZERO;
        match &self.which {
            Which::AdHoc(algorithm) => {
                let attributes = [Attribute { name: AttributeName::Key, value: &self.key }];
                let select = Select::Named(algorithm.policy());
                then(&Query { select, attributes: &attributes, address: None, ask, patience }).await
            }
            Which::Policy(name) => {
                let attributes = self.attributes.iter();
                let attributes: SmallVec<[_; 2]> =
                    attributes.map(|(name, value)| Attribute { name: name.as_deref(), value }).collect();
                let names = [name.as_str()];
                let select = Select::Named(&names);
                then(&Query { select, attributes: &attributes, address: self.address(), ask, patience }).await
            }
        }
    }

    /// The address that the bucket is of, if it is of one: of a network the first.
    fn address(&self) -> Option<IpAddr> {
        let (_, ip) = self.attributes.iter().find(|(name, _)| *name == AttributeName::Ip)?;
        ip.split('/').next()?.parse().ok()
    }
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
fn of_key(policies: &Policies, name: &str, key: &str) -> Result<Named, Problem> {
    let policy = policy(policies, name)?;
    let n_parts = policy.partition().len();
    let values: Vec<&str> = if n_parts == 1 { vec![key] } else { key.split('|').collect() };
    let attributes = policy.limits().first().and_then(|limit| limit.name().attributes(&values));
    let attributes = attributes.filter(|_| n_parts > 0).ok_or_else(|| {
        let detail = if n_parts == 0 {
            format!("policy {name} has one bucket for everybody; leave key out")
        } else {
            format!("key {} does not fit policy {name}; it is made of {}", quoted(key), parts(policy))
        };
        bad("key", detail)
    })?;
    Ok(attributes
        .into_iter()
        .map(|attribute| (attribute.name.to_owned(), attribute.value.to_owned()))
        .collect())
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
fn of_caller(
    policies: &Policies,
    name: &str,
    request: &Request,
    settings: &Settings,
    now: Timestamp,
) -> Result<Named, Problem> {
    let policy = policy(policies, name)?;
    let (head, needs) = (request.headers(), policies.needs().clone());
    let mut parts = http::Request::new(()).into_parts().0;
    parts.headers.clone_from(head);
    parts.method.clone_from(request.method());
    parts.uri.clone_from(request.uri());
    let facts = identify(&parts, peer(request)?, &settings.rules, &needs, now);
    settings.heed(&facts);
    let value = |part: &tollgate_core::Part| {
        part.names().find_map(|name| Some((name.clone(), facts.value(name.as_deref())?.to_owned())))
    };
    policy.partition().iter().map(value).collect::<Option<Named>>().ok_or_else(|| {
        let detail = format!("policy {name} counts by something that this request does not have; give key");
        bad("key", detail)
    })
}
