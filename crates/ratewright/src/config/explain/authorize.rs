//! What forward authentication does with the policies, in plain words.

use ratewright_core::policy::{Cost, Mode, Selector};
use ratewright_core::{Policies, Policy};
use ratewright_http::original_request::OriginalRequestSource;

use super::{Config, routes};

/// Where the client's request is read from, and which settings of the policies do not apply.
pub(super) fn explain(source: OriginalRequestSource, config: &Config) -> String {
    let whence = match source {
        OriginalRequestSource::Call => "from the call itself, and its client from X-Forwarded-For".to_owned(),
        _ => format!("from {}", source.header_names()),
    };
    let mut text = format!("/api/v1/authorize reads the client's request {whence}");
    let covers =
        |policy: &&Policy| matches!(policy.selector(), Selector::When(_)) && policy.mode() != Mode::Off;
    let covering = |is: &dyn Fn(&Policy) -> bool| {
        names(config.policies.iter().filter(covers).filter(|policy| is(policy)))
    };
    let is_named = |policy: &&Policy| {
        *policy.selector() == Selector::Named && routes::on(&config.gateway.routes, policy.name()).is_some()
    };
    for (names, why) in [
        (
            covering(&|policy| !policy.count().is_everything()),
            "counts every request, because the response is not known there",
        ),
        (
            covering(&|policy| *policy.cost() == Cost::RequestBytes),
            "denies every request, because the length of the body is not known there",
        ),
        (names(config.policies.iter().filter(is_named)), "does not apply: only routes name it"),
        (in_flight(&config.permits), "does not apply: requests in flight are not known there"),
    ] {
        if let Some(names) = names {
            text.push_str(&format!("; {names} {why}"));
        }
    }
    text + "\n"
}

fn in_flight(permits: &Policies) -> Option<String> {
    names(permits.iter())
}

/// The names of some policies, if there are any.
fn names<'a>(policies: impl Iterator<Item = &'a Policy>) -> Option<String> {
    let names: Vec<_> = policies.map(Policy::name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
