//! Merges several files into one.
//!
//! The files of a folder are equals: a setting may be in one of them only, and their policies form one list, as do their
//! routes. A profile overrides: its settings replace those of the files before it, and a policy or route of the same name
//! is changed setting by setting.

use std::collections::BTreeMap;

use crate::error;
use crate::file;
use crate::file::{
    Api, Clients, Condition, Defaults, Envoy, Exempt, File, Gateway, GatewayTimeouts, Headers, Jwt, Listen,
    ListenTls, Local, Log, Metrics, Policy, Problem, Redis, RedisTls, Route, RouteMatch, RouteTimeouts,
    Sentinel, Store, Traces, User,
};
use crate::outline::{Outlined, Outliner, Present, setting_name};
use crate::raw_value::{self, Located, Position, RawList, RawValue, Sections};
use crate::reader::Reader;
use crate::values::Name;
use crate::yaml_errors;

/// A merge of one file into another.
pub(crate) struct Merging {
    pub(crate) mode: MergeMode,
    /// Settings in both files: the second position, then the first.
    pub(crate) duplicates: Vec<(Option<Position>, Option<Position>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeMode {
    Beside,
    Override,
}

/// A section that can be merged with another of its kind.
pub(crate) trait Merge {
    fn merge(&mut self, other: Self, merging: &mut Merging);
}

/// A setting that is replaced as a whole.
trait Single {
    fn position(&self) -> Option<Position>;
}

impl<T> Single for RawValue<T> {
    fn position(&self) -> Option<Position> {
        self.position
    }
}

impl<T> Single for RawList<T> {
    fn position(&self) -> Option<Position> {
        self.position
    }
}

impl<T> Single for Located<T> {
    fn position(&self) -> Option<Position> {
        self.position
    }
}

impl<T> Single for Sections<T> {
    fn position(&self) -> Option<Position> {
        self.position
    }
}

impl<T> Single for Vec<Located<T>> {
    fn position(&self) -> Option<Position> {
        self.first().and_then(|item| item.position)
    }
}

impl<T> Single for BTreeMap<String, RawValue<T>> {
    fn position(&self) -> Option<Position> {
        self.values().next().and_then(|value| value.position)
    }
}

impl Single for Condition {
    fn position(&self) -> Option<Position> {
        self.0.values().next().and_then(|value| value.position)
    }
}

/// Merges two settings.
fn merge_single<T: Single>(under: &mut Option<T>, over: Option<T>, merging: &mut Merging) {
    if let (MergeMode::Beside, Some(under), Some(over)) = (merging.mode, &under, &over) {
        merging.duplicates.push((over.position(), under.position()));
    }
    if over.is_some() {
        *under = over;
    }
}

/// Merges two sections.
fn merge_section<T: Merge>(under: &mut Option<T>, over: Option<T>, merging: &mut Merging) {
    match (under.as_mut(), over) {
        (Some(under), Some(over)) => under.merge(over, merging),
        (None, over) => *under = over,
        (Some(_), None) => {}
    }
}

/// Lists the fields of a section, for merging and for the outline.
macro_rules! merge {
    ($section:ty { $($single:ident),* $(; $($inner:ident),*)? }) => {
        impl Merge for $section {
            fn merge(&mut self, other: Self, merging: &mut Merging) {
                let Self { $($single,)* $($($inner),*)? } = other; // all of them: one that is left out would be lost
                $(merge_single(&mut self.$single, $single, merging);)*
                $($(merge_section(&mut self.$inner, $inner, merging);)*)?
            }
        }

        impl Outlined for $section {
            fn outline(&self, into: &mut Outliner<'_>) {
                $(into.inside(setting_name(stringify!($single)), &self.$single);)*
                $($(into.inside(setting_name(stringify!($inner)), &self.$inner);)*)?
            }
        }
    };
}

merge!(Listen { gateway, api, grpc, admin, control; tls });
merge!(ListenTls { cert, key, client_ca });
merge!(Store { on_failure; redis, local });
merge!(Redis { url, cluster, prefix, deadline, min_ttl, readable; sentinel, tls });
merge!(Sentinel { master, nodes });
merge!(RedisTls { ca, cert, key });
merge!(Local { share, ttl, max_keys });
merge!(Clients { trusted_proxies, forwarded_by, ipv6_prefix, case, ambiguous_paths; user });
merge!(User { header; jwt });
merge!(Jwt { claim, secret, public_key, jwks, algorithms, issuer, audience, leeway, refresh });
merge!(Exempt { paths, methods, clients });
merge!(Policy {
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
merge!(Gateway { connections_max, connections_per_address, header_max, body_max, body_rate_min, strip_method_override, access_log, cors; timeouts });
merge!(GatewayTimeouts { connect, header, idle, total, tunnel_idle, request_header });
merge!(Route { id, upstream, policies, body_max, body_rate_min, host, retries, cors; matched, timeouts });
merge!(RouteMatch { path, host, method });
merge!(RouteTimeouts { connect, header, idle, total, tunnel_idle });
merge!(Envoy {
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
merge!(Api { tokens; defaults });
merge!(Defaults { token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window });
merge!(Headers { families, retry_after, limit });
merge!(Problem { kind });
merge!(Metrics { labels });
merge!(Log { level, modules, format, denials });
merge!(Traces { endpoint, ratio });

impl Merge for File {
    fn merge(&mut self, other: Self, merging: &mut Merging) {
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
        merge_single(&mut self.enabled, enabled, merging);
        merge_single(&mut self.stop_delay, stop_delay, merging);
        merge_single(&mut self.drain_timeout, drain_timeout, merging);
        merge_section(&mut self.listen, listen, merging);
        merge_section(&mut self.store, store, merging);
        merge_section(&mut self.clients, clients, merging);
        merge_section(&mut self.exempt, exempt, merging);
        merge_section(&mut self.envoy, envoy, merging);
        merge_section(&mut self.api, api, merging);
        merge_section(&mut self.headers, headers, merging);
        merge_section(&mut self.problem, problem, merging);
        merge_section(&mut self.metrics, metrics, merging);
        merge_section(&mut self.log, log, merging);
        merge_section(&mut self.traces, traces, merging);
        merge_section(&mut self.gateway, gateway, merging);
        merge_list(&mut self.policies, policies, merging);
        merge_list(&mut self.routes, routes, merging);
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
        // Their presence alone has an effect.
        into.inside("envoy", &envoy.as_ref().map(|_| Present));
        into.inside("store.redis", &store.as_ref().and_then(|store| store.redis.as_ref()).map(|_| Present));
    }
}

/// A named item of a list.
trait NamedItem: Merge {
    fn name(&self) -> Option<&RawValue<Name>>;
}

impl NamedItem for Policy {
    fn name(&self) -> Option<&RawValue<Name>> {
        self.name.as_ref()
    }
}

impl NamedItem for Route {
    fn name(&self) -> Option<&RawValue<Name>> {
        self.id.as_ref()
    }
}

/// Merges two lists. In a profile, an item changes the earlier item of the same name.
fn merge_list<T: NamedItem>(
    under: &mut Option<Vec<Located<T>>>,
    over: Option<Vec<Located<T>>>,
    merging: &mut Merging,
) {
    let Some(others) = over else { return };
    let list = under.get_or_insert_default();
    for item in others {
        let name = item.value.name().map(|name| name.text.as_str());
        let same = |known: &&mut Located<T>| known.value.name().map(|name| name.text.as_str()) == name;
        match list.iter_mut().find(|known| name.is_some() && same(known)) {
            Some(known) if merging.mode == MergeMode::Override => known.value.merge(item.value, merging),
            _ => list.push(item), // duplicate names in a folder are reported later
        }
    }
}

impl Reader<'_> {
    /// All files as one. None if one of them is invalid: it may have what the others lack.
    pub fn merged_file(&mut self) -> Option<File> {
        let mut merged = File::default();
        let mut is_complete = true;
        for (number, source) in self.files.iter().enumerate() {
            let parsed = raw_value::in_file(number, || {
                file::parse(&source.text)
                    .map_err(|error| (error.location().and_then(Position::of), yaml_errors::describe(&error)))
            });
            match parsed {
                Err((position, problem)) => {
                    is_complete = false;
                    let position = position.unwrap_or(Position { file: number, line: 1, column: 1 });
                    // Which lines are secret is unknown in an invalid file.
                    if error::may_hold_secrets(&source.text, position.line) {
                        self.secret.insert((number, position.line));
                    }
                    self.error(Some(position), problem);
                }
                Ok(file) => {
                    self.secret.extend(file.secrets().map(|position| (position.file, position.line)));
                    let n_listed = file.policies.as_ref().map(Vec::len);
                    self.listing.extend(n_listed.map(|n| (source.path.clone(), n)));
                    let mode = if source.is_profile { MergeMode::Override } else { MergeMode::Beside };
                    let mut merging = Merging { mode, duplicates: Vec::new() };
                    merged.merge(file, &mut merging);
                    merging
                        .duplicates
                        .into_iter()
                        .for_each(|(position, other)| self.set_in_two_files(position, other));
                }
            }
        }
        is_complete.then_some(merged)
    }

    /// Reports a setting that two files of a folder have.
    fn set_in_two_files(&mut self, position: Option<Position>, other: Option<Position>) {
        let other = self.describe_position(other, position);
        self.error(
            position,
            format!("duplicate setting, also set {other}; keep one, or move one into a profile"),
        );
    }
}
