//! Warnings about valid policies that never apply, or that clients can evade. Without a warning nobody would notice, so `check` and the log
//! report them.

mod unreachable_policies;

use ratewright_core::Policy;
use ratewright_core::policy::{Missing, Mode, Part, Pattern, Selector};
use ratewright_core::query::AttributeName;

use crate::raw_value::Position;
use crate::reader::Reader;
use crate::yaml_errors::closest;
use unreachable_policies::CoverIndex;

/// A policy and its position.
pub(crate) struct LocatedPolicy<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) name: Option<Position>,
    pub(crate) by: Option<Position>,
}

/// What happens to requests without an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnavailableEffect {
    /// The policy or condition does not apply.
    Ignored,
    /// They are denied.
    Denied,
}

impl Reader<'_> {
    /// Warns if no request can have any of these attributes, unless a caller of the API sends one.
    pub(crate) fn check_available<'n>(
        &mut self,
        path: &str,
        names: impl IntoIterator<Item = &'n AttributeName<String>>,
        position: Option<Position>,
        effect: UnavailableEffect,
    ) {
        let mut why = None;
        for name in names {
            match self.unavailable_reason(name) {
                None => return,
                Some(reason) => why = Some((name, reason)),
            }
        }
        if let Some((name, reason)) = why {
            let scope = if self.available.routes.is_empty() { "" } else { ", not in the gateway" };
            let problem = match effect {
                UnavailableEffect::Ignored => {
                    format!(
                        "{path}: {reason}. The policy or condition applies only to requests to /api/v1/decide that send \
                         {name}{scope}"
                    )
                }
                UnavailableEffect::Denied => format!(
                    "{path}: {reason}. With missing: deny, every request that the policy covers gets 403, unless a caller of /api/v1/decide sends {name}"
                ),
            };
            self.warn(position, problem);
        }
    }

    /// Why no request has an attribute, if that is so.
    fn unavailable_reason(&self, name: &AttributeName<String>) -> Option<&'static str> {
        match name {
            AttributeName::User if !self.available.has_tokens && !self.available.has_user_header => Some(
                "no request has a user, because neither clients.user.jwt nor clients.user.header is set; set one",
            ),
            AttributeName::Claim(_) if !self.available.has_tokens => {
                Some("no request has claims, because clients.user.jwt is not set; set it")
            }
            AttributeName::Named(_) if !self.available.routes.is_empty() => Some(
                "requests through the gateway have no attribute:NAME; use header:NAME or another attribute",
            ),
            AttributeName::User
            | AttributeName::Claim(_)
            | AttributeName::Named(_)
            | AttributeName::Ip
            | AttributeName::Method
            | AttributeName::Path
            | AttributeName::Host
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Param(_) => None,
        }
    }

    /// Reports an unknown route. Without routes, callers of the API may send any.
    pub(crate) fn check_route(&mut self, path: &str, text: &str, position: Option<Position>) {
        let Ok(pattern) = Pattern::new(text, AttributeName::<&str>::Route.separator()) else { return };
        let ids: Vec<&str> = self.available.routes.iter().map(String::as_str).collect();
        if ids.is_empty() || ids.iter().any(|id| pattern.matches(id)) {
            return;
        }
        let advice = closest(text, &ids).map_or_else(
            || format!("the routes are {}", ids.join(", ")),
            |like| format!("did you mean {like}?"),
        );
        self.error(position, format!("{path} is {text:?}, which is an unknown route; {advice}"));
    }

    /// Warns of policies that never apply, and of those that clients can evade.
    pub(crate) fn warn_ineffective(&mut self, placed: &[LocatedPolicy<'_>]) {
        let mut index = CoverIndex::of(placed.iter().map(|placed| placed.policy));
        for later in placed {
            if let Some(earlier) = index.first_covering(later.policy) {
                let (name, first) = (later.policy.name(), earlier.name());
                let group = later.policy.group().unwrap_or_default();
                let problem = format!(
                    "policies.{name} never applies: only the first matching policy of group {group} applies, and \
                     {first}, which is listed earlier, matches every request that {name} matches. Put {name} before {first}"
                );
                self.warn(later.name, problem);
            }
        }
        let is_net = |policy: &Policy| {
            let covers_all = matches!(policy.selector(), Selector::When(condition) if condition.is_empty());
            let has_address =
                policy.partition().iter().any(|part| part.names().any(|name| *name == AttributeName::Ip));
            covers_all && has_address && policy.mode() != Mode::Off && client_chosen_part(policy).is_none()
        };
        if placed.iter().any(|placed| is_net(placed.policy)) {
            return;
        }
        for LocatedPolicy { policy, by, .. } in placed {
            if let Some(part) = client_chosen_part(policy) {
                let names = part.names().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                let problem = format!(
                    "policies.{}.by has {names}, which clients can change at will: each new value gets a full \
                     quota, so a client can evade the limit. Also add a policy with by: ip that covers all requests",
                    policy.name()
                );
                self.warn(*by, problem);
            }
        }
    }
}

/// The part of a policy's key whose values clients choose, if there is one.
fn client_chosen_part(policy: &Policy) -> Option<&Part> {
    policy.partition().iter().find(|part| part.names().all(is_client_chosen))
}

/// True if clients can give an attribute as many values as they like.
fn is_client_chosen(name: &AttributeName<String>) -> bool {
    match name {
        AttributeName::Path
        | AttributeName::Header(_)
        | AttributeName::Cookie(_)
        | AttributeName::Param(_) => true,
        AttributeName::Ip
        | AttributeName::User
        | AttributeName::Method
        | AttributeName::Host
        | AttributeName::Route
        | AttributeName::Key
        | AttributeName::Claim(_)
        | AttributeName::Named(_) => false,
    }
}

/// True if every request has the attribute.
pub fn is_always_present(name: &AttributeName<String>) -> bool {
    matches!(
        name,
        AttributeName::Ip
            | AttributeName::Method
            | AttributeName::Path
            | AttributeName::Host
            | AttributeName::Key
    )
}

/// True if a policy may skip a request that it matches, because the request lacks an attribute of its partition. The next
/// matching policy of the group then applies.
pub fn may_skip(policy: &Policy) -> bool {
    let is_there = |part: &Part| part.names().any(is_always_present);
    policy.mode() != Mode::Off
        && policy.missing() == Missing::Skip
        && !policy.partition().iter().all(is_there)
}
