//! Finds the route of a request: the most specific one, whatever the order in the file.
//!
//! ```text
//!   host ──► exact, then patterns (more text first, then file order), then routes without a host
//!            path ──► by the order of `path_pattern.rs`
//!                     method ──► a route that names it, then one for all methods
//!                                then file order
//! ```
//!
//! The host comes first, as in nginx and Envoy: routes of a host precede routes for all hosts. Requests that a host's
//! own routes do not match fall through to the routes without a host.
//!
//! Each host has a tree of path segments. A pattern is stored at the node before its first star, so a lookup visits all
//! patterns that may match and hardly any other: ten thousand routes below ten thousand prefixes cost as much as one.
//! Patterns that start with a star are stored at the root and tried for every path.
//!
//! # Laws
//! - `find` returns the same as trying every route in order of specificity; a test does both.
//! - The work is bounded by the path's length and the patterns along it, however deep a path is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::Method;
use ratewright_core::policy::Pattern;

use crate::path_pattern::{PathPattern, segments};
use crate::route::{Match, Route, RouteError};

/// All routes.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// In the order of the file.
    routes: Vec<(Match, Arc<Route>)>,
    exact: HashMap<Box<str>, HostTable>,
    /// The most specific first.
    patterns: Vec<(Pattern, HostTable)>,
    any: HostTable,
}

/// The result of a lookup.
#[derive(Clone, Debug)]
pub enum RouteLookup<'a> {
    /// The route, and its index in the file.
    Route(&'a Arc<Route>, usize),
    /// Routes match host and path, but only with these methods, for the `Allow` header.
    MethodNotAllowed(Vec<Method>),
    /// No route matches host and path.
    NoRoute,
}

/// The routes of one host.
#[derive(Clone, Debug, Default)]
struct HostTable {
    /// Most specific first.
    rules: Vec<PathRule>,
    root: SegmentNode,
}

/// One path of a route.
#[derive(Clone, Debug)]
struct PathRule {
    path: PathPattern,
    /// Empty: all methods.
    methods: Vec<Method>,
    /// The index of the route.
    route: usize,
}

/// A node in the tree of path segments, with indices of rules.
#[derive(Clone, Debug, Default)]
struct SegmentNode {
    children: HashMap<Box<str>, SegmentNode>,
    /// Rules that match exactly this path.
    exact: Vec<usize>,
    /// Rules that continue with a star.
    open: Vec<usize>,
}

/// One host and one path of a route, while the tables are built.
struct HostPath<'a> {
    host: Option<&'a Pattern>,
    rule: PathRule,
}

impl RouteTable {
    /// The most routes, counted once for each pair of host and path.
    pub const MAX: usize = 1_000_000;

    /// Builds the lookup tables, for routes in file order.
    ///
    /// # Errors
    /// If two routes have the same name, or match the same requests.
    pub fn new(routes: Vec<(Match, Route)>) -> Result<Self, RouteError> {
        let mut ids = HashSet::new();
        if let Some((_, twice)) = routes.iter().find(|(_, route)| !ids.insert(&route.id)) {
            return Err(RouteError::DuplicateId { id: twice.id.to_string() });
        }
        let n = routes.iter().map(|(m, _)| m.hosts.len().max(1).saturating_mul(m.paths.len().max(1))).sum();
        if n > Self::MAX {
            return Err(RouteError::TooMany { n });
        }
        let mut host_paths: Vec<_> = routes
            .iter()
            .enumerate()
            .flat_map(|(number, (matched, _))| host_paths(number, matched))
            .collect();
        if let Some((first, second, what)) = find_conflict(&host_paths) {
            let id = |number: usize| routes[number].1.id.to_string();
            return Err(RouteError::Conflict { first: id(first), second: id(second), what });
        }
        add_implicit_head(&mut host_paths);
        let mut made = Self::default();
        for HostPath { host, rule } in host_paths {
            made.table(host).rules.push(rule);
        }
        made.finish();
        made.routes = routes.into_iter().map(|(matched, route)| (matched, Arc::new(route))).collect();
        Ok(made)
    }

    /// Takes over the state of servers that `old` has in the same route.
    #[must_use]
    pub fn inheriting(mut self, old: &Self) -> Self {
        let known: HashMap<&str, &Arc<Route>> = old.iter().map(|(_, route)| (&*route.id, route)).collect();
        for (_, route) in &mut self.routes {
            if let Some(old) = known.get(&*route.id) {
                let upstream = Arc::new(route.upstream.inheriting(&old.upstream));
                *route = Arc::new(Route { upstream, ..Route::clone(route) });
            }
        }
        self
    }

    /// True if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// All routes in file order, with their matches.
    pub fn iter(&self) -> impl Iterator<Item = (&Match, &Arc<Route>)> {
        self.routes.iter().map(|(matched, route)| (matched, route))
    }

    /// The route with this index.
    pub fn nth(&self, number: usize) -> Option<&Arc<Route>> {
        self.routes.get(number).map(|(_, route)| route)
    }

    /// The route of a request. The host is in lower case and without a port, the path is normalized.
    pub fn find(&self, host: Option<&str>, path: &str, method: &Method) -> RouteLookup<'_> {
        let mut rule = None;
        for table in self.tables(host) {
            rule = table.find(path, method);
            if rule.is_some() {
                break;
            }
        }
        match rule.and_then(|rule| Some((self.routes.get(rule.route)?, rule.route))) {
            Some(((_, route), number)) => RouteLookup::Route(route, number),
            None => self.explain(host, path),
        }
    }

    /// Why no route was found.
    #[cold]
    fn explain(&self, host: Option<&str>, path: &str) -> RouteLookup<'_> {
        let mut allowed: Vec<Method> = Vec::new();
        for table in self.tables(host) {
            table.each(path, |_, rule| allowed.extend(rule.methods.iter().cloned()));
        }
        allowed.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        allowed.dedup();
        if allowed.is_empty() { RouteLookup::NoRoute } else { RouteLookup::MethodNotAllowed(allowed) }
    }

    /// The tables for a host, most specific first.
    fn tables(&self, host: Option<&str>) -> impl Iterator<Item = &HostTable> {
        let exact = host.and_then(|host| self.exact.get(host));
        let fits = move |pattern: &Pattern| host.is_some_and(|host| pattern.matches(host));
        let patterns = self.patterns.iter().filter(move |(pattern, _)| fits(pattern));
        exact.into_iter().chain(patterns.map(|(_, table)| table)).chain([&self.any])
    }

    /// The table of a configured host.
    fn table(&mut self, host: Option<&Pattern>) -> &mut HostTable {
        match host {
            None => &mut self.any,
            Some(host) if host.is_exact() => self.exact.entry(host.as_str().into()).or_default(),
            Some(host) => {
                let known = self.patterns.iter().position(|(other, _)| other == host);
                let at = known.unwrap_or(self.patterns.len());
                if known.is_none() {
                    self.patterns.push((host.clone(), HostTable::default()));
                }
                &mut self.patterns[at].1
            }
        }
    }

    /// Sorts everything, once all rules are added.
    fn finish(&mut self) {
        let n_stars = |text: &str| text.bytes().filter(|byte| *byte == b'*').count();
        let rank = |text: &str| (std::cmp::Reverse(text.len() - n_stars(text)), n_stars(text));
        self.patterns.sort_by_key(|(pattern, _)| rank(pattern.as_str()));
        let tables = self.exact.values_mut().chain(self.patterns.iter_mut().map(|(_, table)| table));
        tables.chain([&mut self.any]).for_each(HostTable::finish);
    }
}

impl HostTable {
    /// Sorts the rules and adds them to the tree. The sort is stable, so ties keep file order.
    fn finish(&mut self) {
        self.rules.sort_by_cached_key(|rule| (rule.path.specificity(), rule.methods.is_empty()));
        for (number, rule) in self.rules.iter().enumerate() {
            let mut node = &mut self.root;
            for segment in rule.path.literal_segments() {
                node = node.children.entry(segment.into()).or_default();
            }
            if rule.path.is_exact() { node.exact.push(number) } else { node.open.push(number) }
        }
    }

    /// The first rule that matches.
    fn find(&self, path: &str, method: &Method) -> Option<&PathRule> {
        let mut first = usize::MAX;
        self.each(path, |number, rule| {
            if number < first && (rule.methods.is_empty() || rule.methods.contains(method)) {
                first = number;
            }
        });
        self.rules.get(first)
    }

    /// Visits the rules whose path matches.
    fn each<'a>(&'a self, path: &str, mut visit: impl FnMut(usize, &'a PathRule)) {
        let mut node = Some(&self.root);
        let mut segments = segments(path);
        while let Some(here) = node {
            for &number in &here.open {
                if self.rules[number].path.matches(path) {
                    visit(number, &self.rules[number]);
                }
            }
            match segments.next() {
                Some(segment) => node = here.children.get(segment),
                None => return here.exact.iter().for_each(|&number| visit(number, &self.rules[number])),
            }
        }
    }
}

/// The hosts and paths of a route, each pair once.
fn host_paths(route: usize, matched: &Match) -> impl Iterator<Item = HostPath<'_>> {
    let hosts = matched.hosts.iter().map(Some).chain(matched.hosts.is_empty().then_some(None));
    let mut known = HashSet::new();
    let pairs = hosts.flat_map(|host| {
        let paths = matched.paths.iter().cloned();
        paths.chain(matched.paths.is_empty().then(PathPattern::anything)).map(move |path| (host, path))
    });
    pairs.filter_map(move |(host, path)| {
        let (text, is_named) = path.identity();
        let is_new = known.insert((host.map(Pattern::as_str), text.to_owned(), is_named));
        is_new.then(|| HostPath { host, rule: PathRule { path, methods: matched.methods.clone(), route } })
    })
}

impl HostPath<'_> {
    /// The identity of this host and path.
    fn host_and_path(&self) -> (Option<&str>, (&str, bool)) {
        (self.host.map(Pattern::as_str), self.rule.path.identity())
    }
}

/// Two routes that match the same requests, and which requests these are.
fn find_conflict(host_paths: &[HostPath<'_>]) -> Option<(usize, usize, String)> {
    let mut known = HashMap::new();
    for host_path in host_paths {
        let methods = host_path.rule.methods.iter().map(Some);
        for method in methods.chain(host_path.rule.methods.is_empty().then_some(None)) {
            let first = *known.entry((host_path.host_and_path(), method)).or_insert(host_path.rule.route);
            if first != host_path.rule.route {
                let path = host_path.rule.path.as_str();
                let words = [method.map(Method::as_str), host_path.host.map(Pattern::as_str), Some(path)];
                let what = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
                return Some((first, host_path.rule.route, what));
            }
        }
    }
    None
}

/// Makes `GET` match `HEAD`, unless a route with the same host and path names `HEAD`.
fn add_implicit_head(host_paths: &mut [HostPath<'_>]) {
    let names = |host_path: &HostPath<'_>, method| host_path.rule.methods.contains(&method);
    let served: HashSet<_> = host_paths
        .iter()
        .filter(|host_path| names(host_path, Method::HEAD))
        .map(HostPath::host_and_path)
        .collect();
    let serve = |host_path: &HostPath<'_>| {
        names(host_path, Method::GET) && !served.contains(&host_path.host_and_path())
    };
    let serving: Vec<_> = host_paths.iter().map(serve).collect();
    for (host_path, _) in host_paths.iter_mut().zip(serving).filter(|(_, serves)| *serves) {
        host_path.rule.methods.push(Method::HEAD);
    }
}

#[cfg(test)]
mod tests;
