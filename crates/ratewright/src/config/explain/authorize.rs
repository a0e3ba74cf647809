//! What forward authentication does with the policies, in plain words.

use ratewright_core::Policy;
use ratewright_core::policy::{Cost, Mode, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Leak};
use ratewright_http::identify::original_request::AuthorizeProtocol;

use super::{Config, routes};

/// Which headers carry the client's request, and which settings of the policies do not apply.
pub(super) fn explain(protocol: AuthorizeProtocol, config: &Config) -> String {
    let described_in = if protocol == AuthorizeProtocol::ExtAuthz {
        "from the authorization request itself, and the client's address from X-Forwarded-For".to_owned()
    } else {
        format!("from {}", protocol.header_names())
    };
    let mut text = format!("/api/v1/authorize reads the client's request {described_in}\n");
    let covers =
        |policy: &&Policy| matches!(policy.selector(), Selector::When(_)) && policy.mode() != Mode::Off;
    let covering =
        |is: fn(&Policy) -> bool| names(config.policies.iter().filter(covers).filter(|policy| is(policy)));
    let is_on_route = |policy: &&Policy| {
        *policy.selector() == Selector::Named && routes::on(&config.gateway.routes, policy.name()).is_some()
    };
    for (why, names) in [
        (
            "count is ignored, because Ratewright does not see the response",
            covering(|policy| !policy.count().is_everything()),
        ),
        (
            "every request is denied, because the body length is unknown",
            covering(|policy| *policy.cost() == Cost::RequestBytes),
        ),
        (
            "denies instead of delaying (leak: queue)",
            covering(|policy| {
                let mut algorithms = policy.limits().iter().map(|limit| limit.quota().algorithm());
                algorithms.any(|algorithm| algorithm == Algorithm::LeakyBucket(Leak::Queue))
            }),
        ),
        (
            "without its route, because proxies send none (by: route)",
            covering(|policy| {
                policy.partition().iter().any(|part| part.names().any(|name| *name == AttributeName::Route))
            }),
        ),
        ("not applied, because only routes use it", names(config.policies.iter().filter(is_on_route))),
        (
            "in_flight is not applied, because Ratewright does not see when a request ends",
            names(config.permits.iter()),
        ),
    ] {
        if let Some(names) = names {
            text.push_str(&format!("  {why}: {names}\n"));
        }
    }
    text
}

/// The names of some policies, if there are any.
fn names<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<String> {
    let names: Vec<_> = policies.map(Policy::name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
