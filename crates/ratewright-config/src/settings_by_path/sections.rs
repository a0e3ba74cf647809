//! The settings of each section.

use super::{Outlined, Outliner};
use crate::file::{
    Api, Clients, CorsSection, Count, Defaults, Envoy, Exempt, File, Gateway, GatewayTimeouts, Headers,
    Health, Jwt, Listen, ListenProxyProtocol, ListenTls, ListenerSection, Local, Log, Metrics, Override,
    Policy, Problem, Quota, Redis, RedisTls, Route, RouteMatch, RouteTimeouts, Sentinel, Store, Traces,
    UpstreamSection, UpstreamTls, User,
};

macro_rules! outline {
    ($section:ty { $($field:ident),* }) => {
        impl Outlined for $section {
            fn outline(&self, into: &mut Outliner<'_>) {
                let Self { $($field),* } = self; // all of them: one that is left out would not be compared
                $(into.inside(setting_name(stringify!($field)), $field);)*
            }
        }
    };
}

outline!(File {
    enabled,
    listen,
    stop_delay,
    drain_timeout,
    store,
    clients,
    exempt,
    policies,
    gateway,
    routes,
    envoy,
    api,
    headers,
    problem,
    metrics,
    log,
    traces
});
outline!(Listen { gateway, api, grpc, admin, control, tls });
outline!(ListenTls { cert, key, client_ca });
outline!(Store { on_failure, redis, local });
outline!(Redis { url, cluster, prefix, deadline, min_ttl, readable, sentinel, tls });
outline!(Sentinel { master, nodes });
outline!(RedisTls { ca, cert, key });
outline!(Local { share, ttl, max_keys });
outline!(Clients { trusted_proxies, forwarded_by, ipv6_prefix, case, ambiguous_paths, user });
outline!(User { header, jwt });
outline!(Jwt { claim, secret, public_key, jwks, algorithms, issuer, audience, leeway, refresh });
outline!(Exempt { paths, methods, clients });
outline!(Policy {
    name,
    group,
    when,
    by,
    missing,
    quota,
    in_flight,
    after_abort,
    cost,
    count,
    overrides,
    retry_after,
    mode,
    on_failure
});
outline!(Gateway {
    connections_max,
    connections_per_address,
    streams_per_address,
    header_max,
    body_max,
    body_rate_min,
    strip_method_override,
    access_log,
    cors,
    timeouts
});
outline!(GatewayTimeouts { connect, header, idle, total, tunnel_idle, request_header });
outline!(Route { id, upstream, policies, body_max, body_rate_min, host, retries, cors, matched, timeouts });
outline!(RouteMatch { path, host, method });
outline!(RouteTimeouts { connect, header, idle, total, tunnel_idle });
outline!(Envoy {
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
outline!(Api { tokens, authorize, defaults });
outline!(Defaults { token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window });
outline!(Headers { families, retry_after, limit });
outline!(Problem { kind });
outline!(Metrics { labels });
outline!(Log { level, modules, format, denials });
outline!(Traces { endpoint, ratio });
outline!(ListenerSection { address, tls, proxy_protocol, open });
outline!(ListenProxyProtocol { from });
outline!(Quota { name, algorithm, rate, burst, refill, leak, start });
outline!(Count { status });
outline!(Override { name, condition, quota, in_flight, mode });
outline!(CorsSection { origins, methods, headers, expose, credentials, max_age });
outline!(UpstreamSection { servers, balance, protocol, health, tls });
outline!(UpstreamTls { ca });
outline!(Health { failures, eject, ejected_max });

/// The name of a field in files, where Rust does not allow that name.
fn setting_name(field: &'static str) -> &'static str {
    match field {
        "matched" | "condition" => "match",
        "kind" => "type",
        _ => field,
    }
}
