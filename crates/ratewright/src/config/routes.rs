//! The section `routes`: which requests go where.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ratewright_core::{Algorithm, AttributeName, Pattern, Policies, Policy};
use ratewright_gateway::{Match, PathPattern, Route, RouteError, Routes, Settings};
use ratewright_http::path::Case;

use super::file;
use super::gateway::WrittenTimeouts;
use super::meaning::Name;
use super::plain::likest;
use super::reader::Reader;
use super::written::{At, Place, Several, Written};

/// The most retries of one request.
const RETRIES_MAX: u32 = 8;

/// A route as far as it can be understood without the policies.
pub(super) struct ReadRoute {
    matched: Match,
    route: Route,
    /// The policies that it names.
    policies: Vec<At<String>>,
    place: Option<Place>,
}

/// The policies that routes name.
pub(super) fn named(routes: &[ReadRoute]) -> BTreeSet<String> {
    routes.iter().flat_map(|route| &route.policies).map(|policy| policy.value.clone()).collect()
}

/// What routes are called.
pub(super) fn ids(routes: &[ReadRoute]) -> Vec<String> {
    routes.iter().map(|route| route.route.id.to_string()).collect()
}

impl Reader<'_> {
    /// All routes, where they say nothing else with what holds for the gateway.
    pub(super) fn routes(
        &mut self,
        written: Option<Vec<At<file::Route>>>,
        settings: &Settings,
        case: Case,
    ) -> Vec<ReadRoute> {
        let mut places: BTreeMap<String, Option<Place>> = BTreeMap::new();
        let mut routes = Vec::new();
        for route in written.unwrap_or_default() {
            let place = route.value.id.as_ref().and_then(|id| id.place).or(route.place);
            let id = self.route_id(route.value.id.as_ref(), place);
            let read = self.route(id.as_deref(), &route, settings, case);
            let Some(id) = id else { continue };
            if let Some(first) = places.insert(id.clone(), place) {
                let other = self.whereabouts(first, place);
                self.wrong(
                    place,
                    format!("there is another route named {id:?} {other}; give each its own id"),
                );
                continue;
            }
            routes.extend(read);
        }
        routes
    }

    /// The routes as a whole, once it is known which policies there are. Those in `written` may be wrong in something
    /// else.
    pub(super) fn all_routes(
        &mut self,
        read: Vec<ReadRoute>,
        mut written: BTreeSet<String>,
        policies: [&Policies; 2],
    ) -> Routes {
        let names = policies
            .into_iter()
            .flat_map(Policies::iter)
            .map(Policy::name)
            .filter(|name| Algorithm::named(name).is_none());
        written.extend(names.map(str::to_owned));
        let mut places = BTreeMap::new();
        let mut routes = Vec::new();
        for ReadRoute { matched, route, policies: named, place } in read {
            for name in named {
                self.check_policy(&route.id, &name, &written);
            }
            places.insert(route.id.to_string(), place);
            routes.push((matched, route));
        }
        Routes::new(routes).unwrap_or_else(|error| {
            let place = match &error {
                RouteError::DuplicateId { id } => places.get(id),
                RouteError::Conflict { second, .. } => places.get(second),
                RouteError::TooMany { .. } => None,
            };
            self.wrong(place.copied().flatten(), error.to_string());
            Routes::default()
        })
    }

    fn check_policy(&mut self, id: &str, name: &At<String>, policies: &BTreeSet<String>) {
        if policies.contains(&name.value) {
            return;
        }
        let known = policies.iter().map(String::as_str).collect::<Vec<_>>();
        let advice = match (likest(&name.value, &known), known.is_empty()) {
            (Some(other), _) => format!("did you mean {other}?"),
            (None, true) => "there are no policies; write one under policies, or leave it out".to_owned(),
            (None, false) => "write one of that name under policies, or leave it out".to_owned(),
        };
        self.wrong(
            name.place,
            format!("routes.{id}.policies: there is no policy {:?}; {advice}", name.value),
        );
    }

    fn route_id(&mut self, written: Option<&Written<Name>>, place: Option<Place>) -> Option<String> {
        let Some(written) = written else {
            self.wrong(place, "a route has no id; write id: orders".to_owned());
            return None;
        };
        self.read("routes.id", written).map(|Name(id)| id)
    }

    fn route(
        &mut self,
        id: Option<&str>,
        written: &At<file::Route>,
        settings: &Settings,
        case: Case,
    ) -> Option<ReadRoute> {
        let At { value: written, place } = written;
        let id_place = written.id.as_ref().and_then(|id| id.place).or(*place);
        let path = id.map_or("routes".to_owned(), |id| format!("routes.{id}"));
        // Everything is read before anything is given up, so that all that is wrong is told.
        let matched = self.route_match(&path, written.matched.as_ref(), id_place, case);
        let upstream = self.upstream(&format!("{path}.upstream"), written.upstream.as_ref(), id_place);
        let policies = self.route_policies(&format!("{path}.policies"), written.policies.as_ref());
        let times = written.timeouts.clone().unwrap_or_default();
        let file::RouteTimeouts { connect, header, idle, total, tunnel_idle } = &times;
        let times = WrittenTimeouts { connect, header, idle, total, tunnel_idle };
        let timeouts = self.timeouts(&format!("{path}.timeouts"), &times, settings.timeouts);
        let body_max = self.body_max(&format!("{path}.body_max"), &written.body_max);
        let body_rate_min = self.body_rate_min(&format!("{path}.body_rate_min"), &written.body_rate_min);
        let host = self.read_if(&format!("{path}.host"), &written.host).unwrap_or_default();
        let retries_max = self.retries(&format!("{path}.retries"), &written.retries);
        let cors = self.cors(&format!("{path}.cors"), written.cors.as_ref(), settings.cors.as_ref());
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
        Some(ReadRoute { matched, route, policies, place: id_place })
    }

    fn route_policies(&mut self, path: &str, written: Option<&Several<Name>>) -> Vec<At<String>> {
        let mut policies: Vec<At<String>> = Vec::new();
        for name in written.into_iter().flat_map(|written| &written.items) {
            let Some(Name(value)) = self.read(path, name) else { continue };
            if policies.iter().any(|known| known.value == value) {
                self.wrong(name.place, format!("{path} names {value:?} twice; leave one of the two out"));
                continue;
            }
            policies.push(At { value, place: name.place });
        }
        policies
    }

    fn retries(&mut self, path: &str, written: &Option<Written<u32>>) -> u32 {
        let retries = self.read_if(path, written).unwrap_or(1);
        if retries > RETRIES_MAX {
            let place = written.as_ref().and_then(|written| written.place);
            self.wrong(place, format!("{path} is {retries}; use 0 to {RETRIES_MAX}"));
        }
        retries
    }

    fn route_match(
        &mut self,
        path: &str,
        written: Option<&file::RouteMatch>,
        place: Option<Place>,
        case: Case,
    ) -> Option<Match> {
        let written = written.filter(|written| written.path.is_some() || written.host.is_some());
        let Some(file::RouteMatch { path: paths, host, method }) = written else {
            let problem =
                format!("{path}.match has no path and no host; write match: {{path: /api/orders/**}}");
            self.wrong(place, problem);
            return None;
        };
        let path = format!("{path}.match");
        let paths = self.each(&format!("{path}.path"), paths, |reader, path, written| {
            reader.path_pattern(path, written, case)
        });
        let hosts = self.each(&format!("{path}.host"), host, Self::host_pattern);
        let methods = self.each(&format!("{path}.method"), method, Self::read);
        Some(Match { hosts: hosts?, paths: paths?, methods: methods? })
    }

    /// What each item of a list means; nothing if one of them means nothing. A list that is there has something in it.
    fn each<T, U>(
        &mut self,
        path: &str,
        written: &Option<Several<T>>,
        mut read: impl FnMut(&mut Self, &str, &Written<T>) -> Option<U>,
    ) -> Option<Vec<U>> {
        let Some(written) = written else { return Some(Vec::new()) };
        if written.items.is_empty() {
            self.wrong(written.place, format!("{path} is an empty list, which nothing fits; leave it out"));
            return None;
        }
        let read: Vec<_> = written.items.iter().map(|item| read(self, path, item)).collect();
        read.into_iter().collect()
    }

    fn path_pattern(&mut self, path: &str, written: &Written<String>, case: Case) -> Option<PathPattern> {
        let text = self.read(path, written)?;
        let pattern = PathPattern::new(&text, case);
        pattern.map_err(|error| self.wrong(written.place, format!("{path}: {error}"))).ok()
    }

    fn host_pattern(&mut self, path: &str, written: &Written<String>) -> Option<Pattern> {
        let text = self.read(path, written)?;
        // What a host can be called, once stars stand for something.
        let example = text.replace('*', "x");
        let is_host = !text.contains('@')
            && ratewright_http::parts::host_of(&example).as_deref() == Some(&example.to_ascii_lowercase());
        if !is_host {
            let problem = format!(
                "{path} is {text:?}, which no host fits; hosts are compared without port and user: api.example.com, *.example.com"
            );
            self.wrong(written.place, problem);
            return None;
        }
        let pattern = Pattern::new(&text.to_ascii_lowercase(), AttributeName::<&str>::Host.separator());
        pattern.map_err(|error| self.wrong(written.place, format!("{path}: {error}"))).ok()
    }
}
