//! Routes of Spring Cloud Gateway, with the policies of their `RequestRateLimiter` filters.
//!
//! Spring takes the first route that matches, Ratewright the most specific one. Where that makes a difference, a warning says so.

mod order;
mod upstream;

use super::predicates::{RouteComponent, RouteConditions};
use super::properties::SpringProperty;
use super::rate_limiter_filter::{FilterPolicy, FilterScope};
use super::reader::{A_NAME, SpringReader};
use crate::convert::policy_file_draft::{DraftItem, DraftLine, quoted, quoted_list};

/// Where routes are, by the versions of Spring Cloud Gateway.
const SECTIONS: [&str; 4] = [
    "spring.cloud.gateway",
    "spring.cloud.gateway.server.webflux",
    "spring.cloud.gateway.server.webmvc",
    "spring.cloud.gateway.mvc",
];

/// Filters without an equivalent, and what to do about them. Others have the last advice.
const FILTERS: [(&str, &str); 12] = [
    ("StripPrefix", PATH),
    ("PrefixPath", PATH),
    ("RewritePath", PATH),
    ("SetPath", PATH),
    ("AddRequestHeader", HEADERS),
    ("AddResponseHeader", HEADERS),
    ("SetRequestHeader", HEADERS),
    ("SetResponseHeader", HEADERS),
    ("RemoveRequestHeader", HEADERS),
    ("RemoveResponseHeader", HEADERS),
    (
        "CircuitBreaker",
        "Ratewright stops sending requests to a failing upstream by itself: routes.upstream.health",
    ),
    ("Retry", "Ratewright sends a request again if that is harmless: routes.retries"),
];
const PATH: &str = "the upstream gets the path as the client sent it; change it in the upstream, or leave this route to Spring";
const HEADERS: &str = "Ratewright does not change headers; set them in the upstream";
const NO_FILTER: &str = "Ratewright has no such filter";

/// A route that was converted.
struct ConvertedRoute<'a> {
    id: String,
    property: &'a SpringProperty,
    conditions: RouteConditions,
    item: DraftItem,
    policies: Vec<String>,
}

/// What all routes have in common.
struct RouteDefaults<'a> {
    /// The settings of all `RequestRateLimiter` filters.
    limiter: Option<&'a SpringProperty>,
    keeps_host: bool,
    /// The index of the first policy that is made of a filter.
    first_policy: usize,
}

/// What the filters of a route, or of all routes, say.
#[derive(Default)]
struct RouteFilters {
    policies: Vec<FilterPolicy>,
    keeps_host: bool,
    settings: Vec<DraftLine>,
}

/// Converts the routes. Returns whether there are any.
pub(super) fn convert(reader: &mut SpringReader<'_>) -> bool {
    let root = reader.root;
    let sections: Vec<_> = SECTIONS.iter().filter_map(|name| root.get(name)).collect();
    if !sections.iter().any(|section| section.first_of(&["routes", "default-filters"]).is_some()) {
        return false;
    }
    let limiter = sections.iter().find_map(|section| section.get("filter.request-rate-limiter"));
    let filters: Vec<_> =
        sections.iter().flat_map(|section| RouteComponent::all(section.get("default-filters"))).collect();
    let first_policy = reader.n_policies();
    let defaults = read_filters(reader, &filters, FilterScope::AllRoutes, limiter);
    for FilterPolicy { policy, .. } in defaults.policies {
        reader.draft.section("policies").items.push(policy);
    }
    let common = RouteDefaults { limiter, keeps_host: defaults.keeps_host, first_policy };
    let mut listed: Vec<_> =
        sections.iter().filter_map(|section| section.get("routes")).flat_map(SpringProperty::items).collect();
    listed.sort_by_cached_key(|route| order(reader, route));
    let mut converted: Vec<ConvertedRoute<'_>> = Vec::new();
    for route in listed {
        if let Some(route) = convert_route(reader, route, &common) {
            add(reader, &mut converted, route);
        }
    }
    order::apply(reader, &mut converted);
    let gateway_settings = defaults.settings.into_iter().filter(|line| matches!(line, DraftLine::Comment(_)));
    let comments: Vec<_> = gateway_settings.collect();
    reader.draft.section("routes").lines.extend(comments);
    for ConvertedRoute { mut item, policies, .. } in converted {
        if !policies.is_empty() {
            let names: Vec<_> = policies.iter().map(|name| quoted(name)).collect();
            item.set("policies", format!("[{}]", names.join(", ")));
        }
        reader.draft.section("routes").items.push(item);
    }
    reader.add_switch(None, first_policy);
    if let Some(section) = sections.first() {
        general(reader, section);
    }
    true
}

/// Adds a route, or its policies to an earlier route that takes the same requests.
fn add<'a>(
    reader: &mut SpringReader<'_>,
    converted: &mut Vec<ConvertedRoute<'a>>,
    mut route: ConvertedRoute<'a>,
) {
    if let Some(same) = converted.iter_mut().find(|other| other.conditions == route.conditions) {
        let note = format!(
            "route {0} has the same path, host and method as route {1}: the limits of {0} were added to {1}, the upstream of {0} was dropped",
            route.id, same.id
        );
        same.item.comment(format!("not converted: {note}"));
        reader.notes.push(note);
        same.policies.append(&mut route.policies);
        return;
    }
    if let Some(earlier) = converted.iter().find(|earlier| earlier.conditions.covers(&route.conditions)) {
        let note = format!(
            "route {} comes after route {}, which takes its requests in Spring; Ratewright prefers the more specific path",
            route.id, earlier.id
        );
        route.item.comment(format!("assumed: {note}"));
        reader.notes.push(note);
    }
    converted.push(route);
}

fn order(reader: &mut SpringReader<'_>, route: &SpringProperty) -> i64 {
    let text = route.get("order").and_then(|order| reader.fixed(order, "0"));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn convert_route<'a>(
    reader: &mut SpringReader<'_>,
    route: &'a SpringProperty,
    defaults: &RouteDefaults<'_>,
) -> Option<ConvertedRoute<'a>> {
    if route.get("enabled").and_then(|enabled| reader.switch(enabled, true)) == Some(false) {
        let comment = reader.not_converted(route, "the route is switched off");
        reader.draft.section("routes").comment(comment);
        return None;
    }
    let upstream = match upstream::convert(reader, route) {
        Ok(upstream) => upstream,
        Err(comments) => {
            let routes = reader.draft.section("routes");
            comments.into_iter().for_each(|comment| routes.comment(comment));
            keep_limits(reader, route, defaults);
            return None;
        }
    };
    let id = route.get("id").and_then(|id| reader.text(id, A_NAME)?.value);
    let id = reader.unique_name(id.as_deref().unwrap_or("route"), "route");
    let predicates = RouteComponent::all(route.get("predicates"));
    let (conditions, mut comments) = RouteConditions::read(reader, &predicates);
    let filters = RouteComponent::all(route.get("filters"));
    let RouteFilters { policies, keeps_host, settings } =
        read_filters(reader, &filters, FilterScope::Route(&id), defaults.limiter);
    let mut item = DraftItem::new(id.clone(), route.place);
    item.set("match", conditions.setting());
    comments.extend(upstream.comment);
    item.set("upstream", quoted(&upstream.url));
    let sets_host = settings.iter().any(|line| matches!(line, DraftLine::Setting(name, _) if name == "host"));
    if !keeps_host && !defaults.keeps_host && !sets_host {
        item.set("host", "upstream");
    }
    item.lines.extend(settings);
    item.lines.extend(timeouts(reader, route.get("metadata")));
    comments.extend(reader.leftovers(route, "routes have no such setting"));
    comments.into_iter().for_each(|comment| item.comment(comment));
    let policies =
        policies.into_iter().map(|policy| add_policy(reader, policy, defaults.first_policy)).collect();
    reader.assumed().into_iter().for_each(|comment| item.comment(comment));
    Some(ConvertedRoute { id, property: route, conditions, item, policies })
}

/// Writes the limits of a route without an upstream as policies for its paths: another route may take its requests.
fn keep_limits(reader: &mut SpringReader<'_>, route: &SpringProperty, defaults: &RouteDefaults<'_>) {
    let id =
        route.get("id").and_then(|id| reader.text(id, A_NAME)?.value).unwrap_or_else(|| "route".to_owned());
    let (conditions, _) = RouteConditions::read(reader, &RouteComponent::all(route.get("predicates")));
    let filters = RouteComponent::all(route.get("filters"));
    for mut filter in read_filters(reader, &filters, FilterScope::Route(&id), defaults.limiter).policies {
        filter.policy.set("when", conditions.policy_setting());
        reader.draft.section("policies").items.push(filter.policy);
    }
    let comments = reader.leftovers(route, "the route is left out");
    let routes = reader.draft.section("routes");
    comments.into_iter().for_each(|comment| routes.comment(comment));
}

/// Adds a policy, or finds the equal one that Spring shares between routes, and returns its name.
fn add_policy(
    reader: &mut SpringReader<'_>,
    FilterPolicy { policy, is_shared }: FilterPolicy,
    first: usize,
) -> String {
    let policies = &mut reader.draft.section("policies").items;
    let settings = |item: &DraftItem| -> Vec<(String, String)> {
        let lines = item.lines.iter().filter_map(|line| match line {
            DraftLine::Setting(name, value) => Some((name.clone(), value.clone())),
            DraftLine::Comment(_) | DraftLine::List(..) => None,
        });
        lines.collect()
    };
    let equal = policies.iter().skip(first).find(|other| is_shared && settings(other) == settings(&policy));
    if let Some(equal) = equal {
        return equal.name.clone();
    }
    let name = policy.name.clone();
    policies.push(policy);
    name
}

/// Reads filters: policies, settings of the route, and comments for those without an equivalent.
fn read_filters(
    reader: &mut SpringReader<'_>,
    filters: &[RouteComponent<'_>],
    scope: FilterScope<'_>,
    limiter: Option<&SpringProperty>,
) -> RouteFilters {
    let mut read = RouteFilters::default();
    for filter in filters {
        if filter.is("RequestRateLimiter") {
            read.policies.extend(reader.filter_policy(filter, scope, limiter));
        } else if filter.is("PreserveHostHeader") {
            read.keeps_host = true;
        } else if let Some((name, value)) = route_setting(reader, filter) {
            read.settings.push(DraftLine::Setting(name.to_owned(), value));
        } else {
            let known = FILTERS.iter().find(|(name, _)| filter.is(name));
            let advice = format!("filter {}: {}", filter.name, known.map_or(NO_FILTER, |(_, advice)| advice));
            read.settings.push(DraftLine::Comment(reader.not_converted(filter.property, &advice)));
        }
    }
    read
}

/// The setting of a route that does what a filter does.
fn route_setting(
    reader: &mut SpringReader<'_>,
    filter: &RouteComponent<'_>,
) -> Option<(&'static str, String)> {
    let value = |reader: &mut SpringReader<'_>, names: &[&str]| {
        let arg =
            filter.arg(names).and_then(|property| reader.text(property, A_NAME)).map(|text| text.written);
        arg.or_else(|| filter.shortcut(0).map(str::to_owned))
    };
    if filter.is("SetRequestHostHeader") {
        return value(reader, &["host"]).map(|host| ("host", quoted(&host)));
    }
    if filter.is("RequestSize") {
        let size = value(reader, &["max-size"])?;
        let is_number = size.bytes().all(|b| b.is_ascii_digit());
        return Some(("body_max", quoted(&if is_number { format!("{size}B") } else { size })));
    }
    None
}

/// Timeouts in a route's metadata, or of the HTTP client. Numbers are milliseconds.
fn timeouts(reader: &mut SpringReader<'_>, section: Option<&SpringProperty>) -> Option<DraftLine> {
    let mut settings = Vec::new();
    for (name, setting) in [("connect-timeout", "connect"), ("response-timeout", "header")] {
        let Some(property) = section.and_then(|section| section.get(name)) else { continue };
        if let Some(duration) = reader.duration_in(property, Some("ms")) {
            settings.push(format!("{setting}: {}", quoted(&duration.text)));
        }
    }
    let value = format!("{{ {} }}", settings.join(", "));
    (!settings.is_empty()).then(|| DraftLine::Setting("timeouts".to_owned(), value))
}

/// Settings of the whole gateway.
fn general(reader: &mut SpringReader<'_>, section: &SpringProperty) {
    for name in ["", "server.webflux."] {
        let client = section.get(&format!("{name}httpclient"));
        let timeouts = timeouts(reader, client);
        reader.draft.section("gateway").lines.extend(timeouts);
        let Some(include) = section.get(&format!("{name}redis-rate-limiter.include-headers")) else {
            continue;
        };
        if reader.is_true(include) == Some(false) {
            reader.draft.section("headers").set("families", quoted_list::<&str>(&[]));
        }
    }
    let mut comments = Vec::new();
    for (name, advice) in [
        ("globalcors", "write gateway.cors"),
        ("discovery", "Ratewright has no service discovery; write a route for each service"),
        ("redis-rate-limiter", "the names of rate limit headers are fixed; see headers"),
    ] {
        let left = section.first_of(&[name, &format!("server.webflux.{name}")]);
        let left = left.filter(|left| !left.unread().is_empty());
        comments.extend(left.map(|left| reader.not_converted(left, advice)));
    }
    comments.extend(reader.leftovers(section, "Ratewright's gateway has no such setting"));
    let routes = reader.draft.section("routes");
    comments.into_iter().for_each(|comment| routes.comment(comment));
}
