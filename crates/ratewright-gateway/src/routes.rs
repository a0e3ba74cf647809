//! From a request to its route: the most specific one, whatever the order in the file.
//!
//! ```text
//!   host ──► exact, then patterns (the more text the sooner, then the first in the file), then the routes of any host
//!            path ──► by the order of `path_pattern.rs`
//!                     method ──► a route that names it, then one that takes all
//!                                then the order of the file
//! ```
//!
//! The host goes first, as in nginx and Envoy: who gives a host routes of its own means them before what holds for
//! all hosts. What a host's own routes do not take falls through to those of any host.
//!
//! Each host has a tree of path segments. A pattern hangs where its first star is, so on its way down a path passes all
//! patterns that could fit, and hardly any other: ten thousand routes below ten thousand prefixes cost as much as one.
//! Patterns that begin with a star hang at the root and are tried for every path.
//!
//! # Laws
//! - `find` answers as trying every route in order of specificity would; a test does both.
//! - The work is bounded by the path's length and the patterns on its way, however deep a path is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::Method;
use ratewright_core::Pattern;

use crate::path_pattern::{PathPattern, segments};
use crate::route::{Match, Route, RouteError};

/// All routes.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// In the order of the file.
    routes: Vec<(Match, Arc<Route>)>,
    exact: HashMap<Box<str>, Table>,
    /// The most specific first.
    patterns: Vec<(Pattern, Table)>,
    any: Table,
}

/// What was found for a request.
#[derive(Clone, Debug)]
pub enum Found<'a> {
    /// Its route, and the number of that in the order of the file.
    Route(&'a Arc<Route>, usize),
    /// There are routes for this host and path, with these methods only: what `Allow` says.
    WrongMethod(Vec<Method>),
    /// There is no route for this host and path.
    Nowhere,
}

/// The routes of one host.
#[derive(Clone, Debug, Default)]
struct Table {
    /// The most specific first.
    rules: Vec<Rule>,
    root: Node,
}

/// One path of a route.
#[derive(Clone, Debug)]
struct Rule {
    path: PathPattern,
    /// None: all of them.
    methods: Vec<Method>,
    /// Which of the routes.
    route: usize,
}

/// A place in the tree of path segments. Rules are known by their numbers.
#[derive(Clone, Debug, Default)]
struct Node {
    below: HashMap<Box<str>, Node>,
    /// Those that fit this very path.
    exact: Vec<usize>,
    /// Those that go on with a star from here.
    open: Vec<usize>,
}

/// One host and one path of a route, while the tables are made.
struct Cell<'a> {
    host: Option<&'a Pattern>,
    rule: Rule,
}

impl Routes {
    /// The most routes, counted once for each of their hosts and paths.
    pub const MAX: usize = 1_000_000;

    /// These routes, in the order of the file.
    ///
    /// # Errors
    /// If two of them have the same name, or take the same requests.
    pub fn new(routes: Vec<(Match, Route)>) -> Result<Self, RouteError> {
        let mut ids = HashSet::new();
        if let Some((_, twice)) = routes.iter().find(|(_, route)| !ids.insert(&route.id)) {
            return Err(RouteError::Twice { id: twice.id.to_string() });
        }
        let n = routes.iter().map(|(m, _)| m.hosts.len().max(1).saturating_mul(m.paths.len().max(1))).sum();
        if n > Self::MAX {
            return Err(RouteError::TooMany { n });
        }
        let mut cells: Vec<_> =
            routes.iter().enumerate().flat_map(|(number, (matched, _))| cells(number, matched)).collect();
        if let Some((first, second, what)) = same(&cells) {
            let id = |number: usize| routes[number].1.id.to_string();
            return Err(RouteError::Same { first: id(first), second: id(second), what });
        }
        serve_head(&mut cells);
        let mut made = Self::default();
        for Cell { host, rule } in cells {
            made.table(host).rules.push(rule);
        }
        made.finish();
        made.routes = routes.into_iter().map(|(matched, route)| (matched, Arc::new(route))).collect();
        Ok(made)
    }

    /// The same routes, whose servers stay in the state in which `old` has them, if they are the same servers of the same
    /// route.
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

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// All routes with what they match, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&Match, &Arc<Route>)> {
        self.routes.iter().map(|(matched, route)| (matched, route))
    }

    /// The route of that number.
    pub fn nth(&self, number: usize) -> Option<&Arc<Route>> {
        self.routes.get(number).map(|(_, route)| route)
    }

    /// The route of a request. The host is in lower case and without a port, the path in its normal form.
    pub fn find(&self, host: Option<&str>, path: &str, method: &Method) -> Found<'_> {
        let mut rule = None;
        for table in self.tables(host) {
            rule = table.find(path, method);
            if rule.is_some() {
                break;
            }
        }
        match rule.and_then(|rule| Some((self.routes.get(rule.route)?, rule.route))) {
            Some(((_, route), number)) => Found::Route(route, number),
            None => self.explain(host, path),
        }
    }

    /// Why nothing was found.
    #[cold]
    fn explain(&self, host: Option<&str>, path: &str) -> Found<'_> {
        let mut allowed: Vec<Method> = Vec::new();
        for table in self.tables(host) {
            table.each(path, |_, rule| allowed.extend(rule.methods.iter().cloned()));
        }
        allowed.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        allowed.dedup();
        if allowed.is_empty() { Found::Nowhere } else { Found::WrongMethod(allowed) }
    }

    /// The tables for a host, the most specific first.
    fn tables(&self, host: Option<&str>) -> impl Iterator<Item = &Table> {
        let exact = host.and_then(|host| self.exact.get(host));
        let fits = move |pattern: &Pattern| host.is_some_and(|host| pattern.matches(host));
        let patterns = self.patterns.iter().filter(move |(pattern, _)| fits(pattern));
        exact.into_iter().chain(patterns.map(|(_, table)| table)).chain([&self.any])
    }

    /// The table of a host as a route has it.
    fn table(&mut self, host: Option<&Pattern>) -> &mut Table {
        match host {
            None => &mut self.any,
            Some(host) if host.is_exact() => self.exact.entry(host.as_str().into()).or_default(),
            Some(host) => {
                let known = self.patterns.iter().position(|(other, _)| other == host);
                let at = known.unwrap_or(self.patterns.len());
                if known.is_none() {
                    self.patterns.push((host.clone(), Table::default()));
                }
                &mut self.patterns[at].1
            }
        }
    }

    /// Puts everything in its order, once all rules are there.
    fn finish(&mut self) {
        let n_stars = |text: &str| text.bytes().filter(|byte| *byte == b'*').count();
        let rank = |text: &str| (std::cmp::Reverse(text.len() - n_stars(text)), n_stars(text));
        self.patterns.sort_by_key(|(pattern, _)| rank(pattern.as_str()));
        let tables = self.exact.values_mut().chain(self.patterns.iter_mut().map(|(_, table)| table));
        tables.chain([&mut self.any]).for_each(Table::finish);
    }
}

impl Table {
    /// Sorts the rules and hangs them into the tree. Rules come in the order of the file, which decides where nothing else
    /// does.
    fn finish(&mut self) {
        self.rules.sort_by_cached_key(|rule| (rule.path.specificity(), rule.methods.is_empty()));
        for (number, rule) in self.rules.iter().enumerate() {
            let mut node = &mut self.root;
            for segment in rule.path.literal_segments() {
                node = node.below.entry(segment.into()).or_default();
            }
            if rule.path.is_exact() { node.exact.push(number) } else { node.open.push(number) }
        }
    }

    /// The first rule that fits.
    fn find(&self, path: &str, method: &Method) -> Option<&Rule> {
        let mut first = usize::MAX;
        self.each(path, |number, rule| {
            if number < first && (rule.methods.is_empty() || rule.methods.contains(method)) {
                first = number;
            }
        });
        self.rules.get(first)
    }

    /// Visits the rules whose path fits.
    fn each<'a>(&'a self, path: &str, mut visit: impl FnMut(usize, &'a Rule)) {
        let mut node = Some(&self.root);
        let mut segments = segments(path);
        while let Some(here) = node {
            for &number in &here.open {
                if self.rules[number].path.matches(path) {
                    visit(number, &self.rules[number]);
                }
            }
            match segments.next() {
                Some(segment) => node = here.below.get(segment),
                None => return here.exact.iter().for_each(|&number| visit(number, &self.rules[number])),
            }
        }
    }
}

/// The hosts and paths of a route, each pair once.
fn cells(route: usize, matched: &Match) -> impl Iterator<Item = Cell<'_>> {
    let hosts = matched.hosts.iter().map(Some).chain(matched.hosts.is_empty().then_some(None));
    let mut known = HashSet::new();
    let pairs = hosts.flat_map(|host| {
        let paths = matched.paths.iter().cloned();
        paths.chain(matched.paths.is_empty().then(PathPattern::anything)).map(move |path| (host, path))
    });
    pairs.filter_map(move |(host, path)| {
        let (text, is_named) = path.identity();
        let is_new = known.insert((host.map(Pattern::as_str), text.to_owned(), is_named));
        is_new.then(|| Cell { host, rule: Rule { path, methods: matched.methods.clone(), route } })
    })
}

impl Cell<'_> {
    /// Where it is: the host and the path.
    fn place(&self) -> (Option<&str>, (&str, bool)) {
        (self.host.map(Pattern::as_str), self.rule.path.identity())
    }
}

/// Two routes that take the same requests, and which these are.
fn same(cells: &[Cell<'_>]) -> Option<(usize, usize, String)> {
    let mut known = HashMap::new();
    for cell in cells {
        let methods = cell.rule.methods.iter().map(Some);
        for method in methods.chain(cell.rule.methods.is_empty().then_some(None)) {
            let first = *known.entry((cell.place(), method)).or_insert(cell.rule.route);
            if first != cell.rule.route {
                let path = cell.rule.path.as_str();
                let words = [method.map(Method::as_str), cell.host.map(Pattern::as_str), Some(path)];
                let what = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
                return Some((first, cell.rule.route, what));
            }
        }
    }
    None
}

/// Makes `GET` serve `HEAD`, where no route of the same host and path does.
fn serve_head(cells: &mut [Cell<'_>]) {
    let names = |cell: &Cell<'_>, method| cell.rule.methods.contains(&method);
    let served: HashSet<_> = cells.iter().filter(|cell| names(cell, Method::HEAD)).map(Cell::place).collect();
    let serve = |cell: &Cell<'_>| names(cell, Method::GET) && !served.contains(&cell.place());
    let serving: Vec<_> = cells.iter().map(serve).collect();
    for (cell, _) in cells.iter_mut().zip(serving).filter(|(_, serves)| *serves) {
        cell.rule.methods.push(Method::HEAD);
    }
}

#[cfg(test)]
mod tests;
