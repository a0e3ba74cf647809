//! Builds the query that an entrypoint would have made from a logged request.

use std::borrow::Cow;
use std::net::IpAddr;

use ratewright_core::query::{Attribute, AttributeName};
use ratewright_http::address::forwarded_address;
use ratewright_http::identify::{Facts, IdentityRules};
use ratewright_http::parts::{self, Values};
use ratewright_http::path::normalise;

use crate::record::Record;
use crate::replay::SimulatedFile;

/// The path and the query of a target.
pub(crate) fn path_and_query(target: &str) -> (&str, &str) {
    let (target, _) = target.split_once('#').unwrap_or((target, ""));
    target.split_once('?').unwrap_or((target, ""))
}

/// The client's address: as logged, or, if that is a trusted proxy's or none, the one that `X-Forwarded-For` names.
pub(crate) fn address(record: &Record<'_>, rules: &IdentityRules) -> Option<IpAddr> {
    let logged = record.address.map(|address| address.to_canonical());
    let Some(forwarded_for) = &record.forwarded_for else { return logged };
    match logged {
        Some(address) if !rules.proxies.trust(address) => logged,
        _ => forwarded_address(forwarded_for.as_bytes(), &rules.proxies).or(logged),
    }
}

/// The path that policies see. A gateway normalises it first, and forwards that one; other entrypoints count every reading.
pub(crate) fn path_seen<'a>(record: &'a Record<'_>, file: &SimulatedFile) -> Cow<'a, str> {
    let (path, _) = path_and_query(&record.target);
    let is_normalised = file.routes.is_some() && !path.is_empty();
    if is_normalised { normalise(path, file.identity.case) } else { Cow::Borrowed(path) }
}

/// What is known about a logged request, and the policies listed under its route. `path` is the one that policies see. `None`: the gateway
/// rejects the request before it asks the limiter, because no route matches or the path is ambiguous.
pub(crate) fn facts<'a>(
    record: &'a Record<'_>,
    address: Option<IpAddr>,
    file: &'a SimulatedFile,
    path: &'a str,
) -> Option<(Facts<'a>, &'a [String])> {
    let mut facts = attributes(record, address, file, path);
    if facts.problem(&file.identity).is_some() {
        return None;
    }
    let Some(routes) = &file.routes else { return Some((facts, &[])) };
    let host = record.host.as_deref().and_then(parts::host_of);
    let (route, policies) = routes.find(host.as_deref(), path, &record.method)?;
    facts.set(AttributeName::Route, route);
    Some((facts, policies))
}

/// The attributes that the policies of a file need.
fn attributes<'a>(
    record: &'a Record<'_>,
    address: Option<IpAddr>,
    file: &'a SimulatedFile,
    path: &'a str,
) -> Facts<'a> {
    let rules = &file.identity;
    let mut facts = Facts::default();
    if let Some(address) = address {
        facts.set_address(address, rules);
    }
    let (_, query) = path_and_query(&record.target);
    for name in file.policies.needs().iter() {
        match name {
            AttributeName::Method => facts.set_method(&record.method),
            AttributeName::Path if !path.is_empty() => facts.set_path(path, rules),
            AttributeName::User => set_text(&mut facts, name, record.user.as_deref()),
            AttributeName::Route => set_text(&mut facts, name, record.route.as_deref()),
            AttributeName::Host => {
                let host = record.host.as_deref().filter(|host| !host.is_empty());
                facts.set_all(name, parts::hosts(host, std::iter::empty()));
            }
            AttributeName::Param(param) => {
                let mut values = Values::default();
                parts::param(query, param, &mut values);
                facts.set_all(name, values);
            }
            AttributeName::Header(header) if header == "content-length" => {
                if let Some(n_bytes) = record.request_bytes {
                    facts.set(name.as_deref(), n_bytes.to_string());
                }
            }
            AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => {
                let logged = record.attributes.iter().filter(|(known, _)| known.is(name));
                let mut values = Values::default();
                logged.for_each(|(_, value)| values.add_trusted(value));
                facts.set_all(name, values);
            }
            // Set above, or not part of a request.
            AttributeName::Ip | AttributeName::Path | AttributeName::Key => {}
        }
    }
    facts
}

fn set_text<'a>(facts: &mut Facts<'a>, name: &'a AttributeName<String>, text: Option<&'a str>) {
    if let Some(text) = text.filter(|text| !text.starts_with(Attribute::UNREADABLE)) {
        facts.set(name.as_deref(), text);
    }
}
