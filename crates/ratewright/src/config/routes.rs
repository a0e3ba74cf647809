//! The section `routes`: which requests go where.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::HeaderValue;
use ratewright_core::policy::Pattern;
use ratewright_core::query::AttributeName;
use ratewright_core::quota::Algorithm;
use ratewright_core::{Policies, Policy};
use ratewright_gateway::route::{HostPolicy, Match, PathPattern, RouteError};
use ratewright_gateway::{GatewaySettings, Route, RouteTable};
use ratewright_http::path::Case;

use super::SectionReader;
use super::gateway::RawTimeouts;
use ratewright_config::program_api::file;
use ratewright_config::program_api::raw_value::{Located, Position, RawList, RawValue};
use ratewright_config::program_api::values::Name;
use ratewright_config::program_api::yaml_errors::closest;

/// The most retries of one request.
const RETRIES_MAX: u32 = 8;

/// A route before its policies are checked.
pub(super) struct ReadRoute {
    matched: Match,
    route: Route,
    /// The policies that it names.
    policies: Vec<Located<String>>,
    position: Option<Position>,
}

/// The policies that routes name.
pub(super) fn named(routes: &[ReadRoute]) -> BTreeSet<String> {
    routes.iter().flat_map(|route| &route.policies).map(|policy| policy.value.clone()).collect()
}

/// The ids of routes.
pub(super) fn ids(routes: &[ReadRoute]) -> Vec<String> {
    routes.iter().map(|route| route.route.id.to_string()).collect()
}

impl SectionReader<'_> {
    /// Reads all routes. The gateway's settings are their defaults.
    pub(super) fn routes(
        &mut self,
        raw: Option<Vec<Located<file::Route>>>,
        settings: &GatewaySettings,
        case: Case,
    ) -> Vec<ReadRoute> {
        let mut positions: BTreeMap<String, Option<Position>> = BTreeMap::new();
        let mut routes = Vec::new();
        for route in raw.unwrap_or_default() {
            let position = route.value.id.as_ref().and_then(|id| id.position).or(route.position);
            let id = self.route_id(route.value.id.as_ref(), position);
            let read = self.route(id.as_deref(), &route, settings, case);
            let Some(id) = id else { continue };
            if let Some(first) = positions.insert(id.clone(), position) {
                let other = self.describe_position(first, position);
                self.error(
                    position,
                    format!("there is another route named {id:?} {other}; give each its own id"),
                );
                continue;
            }
            routes.extend(read);
        }
        routes
    }

    /// All routes, once the policies are known. `raw` has the names of all policies in the file, valid or not.
    pub(super) fn all_routes(
        &mut self,
        read: Vec<ReadRoute>,
        mut raw: BTreeSet<String>,
        policies: [&Policies; 2],
    ) -> RouteTable {
        let names = policies
            .into_iter()
            .flat_map(Policies::iter)
            .map(Policy::name)
            .filter(|name| Algorithm::named(name).is_none());
        raw.extend(names.map(str::to_owned));
        let mut positions = BTreeMap::new();
        let mut routes = Vec::new();
        for ReadRoute { matched, route, policies: named, position } in read {
            for name in named {
                self.check_policy(&route.id, &name, &raw);
            }
            positions.insert(route.id.to_string(), position);
            routes.push((matched, route));
        }
        RouteTable::new(routes).unwrap_or_else(|error| {
            let position = match &error {
                RouteError::DuplicateId { id } => positions.get(id),
                RouteError::Conflict { second, .. } => positions.get(second),
                RouteError::TooMany { .. } => None,
            };
            self.error(position.copied().flatten(), error.to_string());
            RouteTable::default()
        })
    }

    fn check_policy(&mut self, id: &str, name: &Located<String>, policies: &BTreeSet<String>) {
        if policies.contains(&name.value) {
            return;
        }
        let known = policies.iter().map(String::as_str).collect::<Vec<_>>();
        let advice = match (closest(&name.value, &known), known.is_empty()) {
            (Some(other), _) => format!("did you mean {other}?"),
            (None, true) => "there are no policies; write one under policies, or leave it out".to_owned(),
            (None, false) => "write one of that name under policies, or leave it out".to_owned(),
        };
        self.error(
            name.position,
            format!("routes.{id}.policies: there is no policy {:?}; {advice}", name.value),
        );
    }

    fn route_id(&mut self, raw: Option<&RawValue<Name>>, position: Option<Position>) -> Option<String> {
        let Some(raw) = raw else {
            self.error(position, "a route has no id; write id: orders".to_owned());
            return None;
        };
        self.read("routes.id", raw).map(|Name(id)| id)
    }

    fn route(
        &mut self,
        id: Option<&str>,
        raw: &Located<file::Route>,
        settings: &GatewaySettings,
        case: Case,
    ) -> Option<ReadRoute> {
        let Located { value: raw, position } = raw;
        let id_position = raw.id.as_ref().and_then(|id| id.position).or(*position);
        let path = id.map_or("routes".to_owned(), |id| format!("routes.{id}"));
        // Everything is read before the first return, so that all errors are reported.
        let matched = self.route_match(&path, raw.matched.as_ref(), id_position, case);
        let upstream = self.upstream(&format!("{path}.upstream"), raw.upstream.as_ref(), id_position);
        let policies = self.route_policies(&format!("{path}.policies"), raw.policies.as_ref());
        let times = raw.timeouts.clone().unwrap_or_default();
        let file::RouteTimeouts { connect, header, idle, total, tunnel_idle } = &times;
        let times = RawTimeouts { connect, header, idle, total, tunnel_idle };
        let timeouts = self.timeouts(&format!("{path}.timeouts"), &times, settings.timeouts);
        let body_max = self.body_max(&format!("{path}.body_max"), &raw.body_max);
        let body_rate_min = self.body_rate_min(&format!("{path}.body_rate_min"), &raw.body_rate_min);
        let host = raw
            .host
            .as_ref()
            .and_then(|host| self.read_with(&format!("{path}.host"), host, host_policy))
            .unwrap_or_default();
        let retries_max = self.retries(&format!("{path}.retries"), &raw.retries);
        let cors = self.cors(&format!("{path}.cors"), raw.cors.as_ref(), settings.cors.as_ref());
        let matched = matched?;
        let route = Route {
            id: id?.into(),
            label: matched.label().into(),
            policies: policies.iter().map(|policy| policy.value.clone()).collect(),
            upstream: Arc::new(upstream?),
            timeouts,
            body_max: body_max.unwrap_or(settings.body_max),
            body_rate_min: body_rate_min.unwrap_or(settings.body_rate_min),
            host,
            retries_max,
            cors,
        };
        Some(ReadRoute { matched, route, policies, position: id_position })
    }

    fn route_policies(&mut self, path: &str, raw: Option<&RawList<Name>>) -> Vec<Located<String>> {
        let mut policies: Vec<Located<String>> = Vec::new();
        for name in raw.into_iter().flat_map(|raw| &raw.items) {
            let Some(Name(value)) = self.read(path, name) else { continue };
            if policies.iter().any(|known| known.value == value) {
                self.error(name.position, format!("{path} names {value:?} twice; remove one"));
                continue;
            }
            policies.push(Located { value, position: name.position });
        }
        policies
    }

    fn retries(&mut self, path: &str, raw: &Option<RawValue<u32>>) -> u32 {
        let retries = self.read_if(path, raw).unwrap_or(1);
        if retries > RETRIES_MAX {
            let position = raw.as_ref().and_then(|raw| raw.position);
            self.error(position, format!("{path} is {retries}; use 0 to {RETRIES_MAX}"));
        }
        retries
    }

    fn route_match(
        &mut self,
        path: &str,
        raw: Option<&file::RouteMatch>,
        position: Option<Position>,
        case: Case,
    ) -> Option<Match> {
        let raw = raw.filter(|raw| raw.path.is_some() || raw.host.is_some());
        let Some(file::RouteMatch { path: paths, host, method }) = raw else {
            let problem =
                format!("{path}.match has no path and no host; write match: {{path: /api/orders/**}}");
            self.error(position, problem);
            return None;
        };
        let path = format!("{path}.match");
        let paths = self
            .each(&format!("{path}.path"), paths, |reader, path, raw| reader.path_pattern(path, raw, case));
        let hosts = self.each(&format!("{path}.host"), host, Self::host_pattern);
        let methods =
            self.each(&format!("{path}.method"), method, |reader, path, raw| reader.read(path, raw));
        Some(Match { hosts: hosts?, paths: paths?, methods: methods? })
    }

    /// The values of a list; None if one is invalid or the list is empty.
    fn each<T, U>(
        &mut self,
        path: &str,
        raw: &Option<RawList<T>>,
        mut read: impl FnMut(&mut Self, &str, &RawValue<T>) -> Option<U>,
    ) -> Option<Vec<U>> {
        let Some(raw) = raw else { return Some(Vec::new()) };
        if raw.items.is_empty() {
            self.error(raw.position, format!("{path} is an empty list, which matches nothing; remove it"));
            return None;
        }
        let read: Vec<_> = raw.items.iter().map(|item| read(self, path, item)).collect();
        read.into_iter().collect()
    }

    fn path_pattern(&mut self, path: &str, raw: &RawValue<String>, case: Case) -> Option<PathPattern> {
        let text = self.read(path, raw)?;
        let parse = |text: &str| PathPattern::new(text, case).map_err(|error| error.to_string());
        let pattern = self.parse_expanded(raw, &text, parse);
        pattern.map_err(|why| self.error(raw.position, format!("{path}: {why}"))).ok()
    }

    fn host_pattern(&mut self, path: &str, raw: &RawValue<String>) -> Option<Pattern> {
        let text = self.read(path, raw)?;
        // An example host, with a text for each star.
        let example = text.replace('*', "x");
        let is_host = !text.contains('@')
            && ratewright_http::parts::host_of(&example).as_deref() == Some(&example.to_ascii_lowercase());
        if !is_host {
            let problem = format!(
                "{path} is {:?}, which matches no host; hosts are compared without port and user: api.example.com, *.example.com",
                raw.text
            );
            self.error(raw.position, problem);
            return None;
        }
        let pattern = Pattern::new(&text.to_ascii_lowercase(), AttributeName::<&str>::Host.separator());
        pattern.map_err(|error| self.error(raw.position, format!("{path}: {error}"))).ok()
    }
}

fn host_policy(text: &str) -> Result<HostPolicy, String> {
    match text {
        "keep" => return Ok(HostPolicy::Keep),
        "upstream" => return Ok(HostPolicy::Upstream),
        _ => {}
    }
    let is_host = !text.contains('@') && text.is_ascii() && ratewright_http::parts::host_of(text).is_some();
    let value = HeaderValue::from_str(text).ok().filter(|_| is_host);
    value
        .map(HostPolicy::Fixed)
        .ok_or_else(|| "use keep, upstream, or a host such as api.internal or api.internal:8080".to_owned())
}
