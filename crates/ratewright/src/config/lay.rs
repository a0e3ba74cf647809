//! Several files as one.
//!
//! The files of a folder lie beside each other: no setting may stand in two of them, and their policies are one list, as
//! are their routes. A profile lies over what was there before: what it says counts, and a policy or a route that it names
//! again is changed in what it says of it.

use std::collections::BTreeMap;

use super::file::{
    Api, Clients, Condition, Defaults, Envoy, Exempt, File, Gateway, GatewayTimeouts, Headers, Jwt, Listen,
    ListenTls, Local, Log, Metrics, Policy, Problem, Redis, RedisTls, Route, RouteMatch, RouteTimeouts,
    Sentinel, Store, Traces, User,
};
use super::meaning::Name;
use super::outline::{IsThere, Outlined, Outliner, called};
use super::written::{At, Place, Sections, Several, Written};

/// How one file lies by another.
pub(super) struct Laying {
    pub(super) how: How,
    /// Settings that stand twice: where, and where else.
    pub(super) twice: Vec<(Option<Place>, Option<Place>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Beside,
    Over,
}

/// What can lie by another of its kind.
pub(super) trait Lay {
    fn lay(&mut self, other: Self, laying: &mut Laying);
}

/// A single setting, that one of the two has.
trait Single {
    fn place(&self) -> Option<Place>;
}

impl<T> Single for Written<T> {
    fn place(&self) -> Option<Place> {
        self.place
    }
}

impl<T> Single for Several<T> {
    fn place(&self) -> Option<Place> {
        self.place
    }
}

impl<T> Single for At<T> {
    fn place(&self) -> Option<Place> {
        self.place
    }
}

impl<T> Single for Sections<T> {
    fn place(&self) -> Option<Place> {
        self.place
    }
}

impl<T> Single for Vec<At<T>> {
    fn place(&self) -> Option<Place> {
        self.first().and_then(|item| item.place)
    }
}

impl<T> Single for BTreeMap<String, Written<T>> {
    fn place(&self) -> Option<Place> {
        self.values().next().and_then(|value| value.place)
    }
}

impl Single for Condition {
    fn place(&self) -> Option<Place> {
        self.0.values().next().and_then(|value| value.place)
    }
}

/// Lays one of two settings by the other.
fn lay_single<T: Single>(under: &mut Option<T>, over: Option<T>, laying: &mut Laying) {
    if let (How::Beside, Some(under), Some(over)) = (laying.how, &under, &over) {
        laying.twice.push((over.place(), under.place()));
    }
    if over.is_some() {
        *under = over;
    }
}

/// Lays one of two sections by the other.
fn lay_section<T: Lay>(under: &mut Option<T>, over: Option<T>, laying: &mut Laying) {
    match (under.as_mut(), over) {
        (Some(under), Some(over)) => under.lay(over, laying),
        (None, over) => *under = over,
        (Some(_), None) => {}
    }
}

/// How the fields of a section lie by each other, and that all of them are settings.
macro_rules! lay {
    ($section:ty { $($single:ident),* $(; $($inner:ident),*)? }) => {
        impl Lay for $section {
            fn lay(&mut self, other: Self, laying: &mut Laying) {
                let Self { $($single,)* $($($inner),*)? } = other; // all of them: one that is left out would be lost
                $(lay_single(&mut self.$single, $single, laying);)*
                $($(lay_section(&mut self.$inner, $inner, laying);)*)?
            }
        }

        impl Outlined for $section {
            fn outline(&self, into: &mut Outliner<'_>) {
                $(into.inside(called(stringify!($single)), &self.$single);)*
                $($(into.inside(called(stringify!($inner)), &self.$inner);)*)?
            }
        }
    };
}

lay!(Listen { gateway, api, grpc, admin, control; tls });
lay!(ListenTls { cert, key, client_ca });
lay!(Store { on_failure; redis, local });
lay!(Redis { url, cluster, prefix, deadline, min_ttl, readable; sentinel, tls });
lay!(Sentinel { master, nodes });
lay!(RedisTls { ca, cert, key });
lay!(Local { share, ttl, max_keys });
lay!(Clients { trusted_proxies, forwarded_by, ipv6_prefix, case, ambiguous_paths; user });
lay!(User { header; jwt });
lay!(Jwt { claim, secret, public_key, jwks, algorithms, issuer, audience, leeway, refresh });
lay!(Exempt { paths, methods, clients });
lay!(Policy {
    name,
    group,
    when,
    by,
    missing,
    quota,
    in_flight,
    cost,
    count,
    overrides,
    retry_after,
    mode,
    on_failure
});
lay!(Gateway { connections_max, connections_per_address, header_max, body_max, body_rate_min, strip_method_override, access_log, cors; timeouts });
lay!(GatewayTimeouts { connect, header, idle, total, tunnel_idle, request_header });
lay!(Route { id, upstream, policies, body_max, body_rate_min, host, retries, cors; matched, timeouts });
lay!(RouteMatch { path, host, method });
lay!(RouteTimeouts { connect, header, idle, total, tunnel_idle });
lay!(Envoy {
    files,
    compat,
    headers,
    merge_domains,
    shadow_mode,
    quota_mode,
    keep_alive,
    keep_alive_timeout,
    connection_age,
    connection_grace
});
lay!(Api { tokens; defaults });
lay!(Defaults { token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window });
lay!(Headers { families, retry_after, limit });
lay!(Problem { kind });
lay!(Metrics { labels });
lay!(Log { level, modules, format, denials });
lay!(Traces { endpoint, ratio });

impl Lay for File {
    fn lay(&mut self, other: Self, laying: &mut Laying) {
        let Self {
            enabled,
            stop_delay,
            drain_timeout,
            listen,
            store,
            clients,
            exempt,
            envoy,
            api,
            headers,
            problem,
            metrics,
            log,
            traces,
            gateway,
            policies,
            routes,
        } = other;
        lay_single(&mut self.enabled, enabled, laying);
        lay_single(&mut self.stop_delay, stop_delay, laying);
        lay_single(&mut self.drain_timeout, drain_timeout, laying);
        lay_section(&mut self.listen, listen, laying);
        lay_section(&mut self.store, store, laying);
        lay_section(&mut self.clients, clients, laying);
        lay_section(&mut self.exempt, exempt, laying);
        lay_section(&mut self.envoy, envoy, laying);
        lay_section(&mut self.api, api, laying);
        lay_section(&mut self.headers, headers, laying);
        lay_section(&mut self.problem, problem, laying);
        lay_section(&mut self.metrics, metrics, laying);
        lay_section(&mut self.log, log, laying);
        lay_section(&mut self.traces, traces, laying);
        lay_section(&mut self.gateway, gateway, laying);
        lay_list(&mut self.policies, policies, laying);
        lay_list(&mut self.routes, routes, laying);
    }
}

impl Outlined for File {
    fn outline(&self, into: &mut Outliner<'_>) {
        let Self {
            enabled,
            stop_delay,
            drain_timeout,
            listen,
            store,
            clients,
            exempt,
            envoy,
            api,
            headers,
            problem,
            metrics,
            log,
            traces,
            gateway,
            policies,
            routes,
        } = self;
        into.inside("enabled", enabled);
        into.inside("stop_delay", stop_delay);
        into.inside("drain_timeout", drain_timeout);
        into.inside("listen", listen);
        into.inside("store", store);
        into.inside("clients", clients);
        into.inside("exempt", exempt);
        into.inside("envoy", envoy);
        into.inside("api", api);
        into.inside("headers", headers);
        into.inside("problem", problem);
        into.inside("metrics", metrics);
        into.inside("log", log);
        into.inside("traces", traces);
        into.inside("gateway", gateway);
        into.inside("policies", policies);
        into.inside("routes", routes);
        // These mean something by being there, also if nothing stands in them.
        into.inside("envoy", &envoy.as_ref().map(|_| IsThere));
        into.inside("store.redis", &store.as_ref().and_then(|store| store.redis.as_ref()).map(|_| IsThere));
    }
}

/// What stands in a list and has a name.
trait Called: Lay {
    fn name(&self) -> Option<&Written<Name>>;
}

impl Called for Policy {
    fn name(&self) -> Option<&Written<Name>> {
        self.name.as_ref()
    }
}

impl Called for Route {
    fn name(&self) -> Option<&Written<Name>> {
        self.id.as_ref()
    }
}

/// Lays one of two lists by the other: over a list, what is of a name that is there changes that one.
fn lay_list<T: Called>(under: &mut Option<Vec<At<T>>>, over: Option<Vec<At<T>>>, laying: &mut Laying) {
    let Some(others) = over else { return };
    let list = under.get_or_insert_default();
    for item in others {
        let name = item.value.name().map(|name| name.text.as_str());
        let same = |known: &&mut At<T>| known.value.name().map(|name| name.text.as_str()) == name;
        match list.iter_mut().find(|known| name.is_some() && same(known)) {
            Some(known) if laying.how == How::Over => known.value.lay(item.value, laying),
            _ => list.push(item), // two of one name in a folder are told of later
        }
    }
}
