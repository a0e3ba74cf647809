//! What the routes mean, in plain words.

use std::sync::Arc;

use http::Method;
use ratewright_core::policy::Pattern;
use ratewright_gateway::route::{Match, PathPattern};
use ratewright_gateway::{GatewaySettings, Route, RouteTable};

use super::cors;

/// A line for each route: which requests go where.
pub(super) fn routes(settings: &GatewaySettings) -> String {
    let line = |(matched, route): (&Match, &Arc<Route>)| {
        let cors = cors::route(settings, route).map(|words| format!("; {words}")).unwrap_or_default();
        format!("route {}: {}{cors}\n", route.id, describe(matched, route))
    };
    settings.routes.iter().map(line).collect()
}

/// On which routes a policy is named, if on any.
pub(super) fn on(routes: &RouteTable, policy: &str) -> Option<String> {
    let names = |route: &Route| route.policies.iter().any(|name| name == policy);
    let ids: Vec<_> = routes.iter().filter(|(_, route)| names(route)).map(|(_, route)| &*route.id).collect();
    match ids.as_slice() {
        [] => None,
        [id] => Some(format!("on route {id}")),
        ids => Some(format!("on routes {}", ids.join(", "))),
    }
}

fn describe(matched: &Match, route: &Route) -> String {
    let words = [
        matched.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", "),
        matched.hosts.iter().map(Pattern::as_str).collect::<Vec<_>>().join(", "),
        matched.paths.iter().map(PathPattern::as_str).collect::<Vec<_>>().join(", "),
    ];
    let words: Vec<_> = words.into_iter().filter(|words| !words.is_empty()).collect();
    let servers: Vec<_> = route.upstream.servers().map(ToString::to_string).collect();
    format!("{} to {}", words.join(" "), servers.join(", "))
}
