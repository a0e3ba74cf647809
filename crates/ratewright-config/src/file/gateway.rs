//! The sections `gateway` and `routes` as written.

use std::num::NonZeroU32;

use http::Method;
use ratewright_core::Micros;
use serde::Deserialize;

use super::Cors;
use crate::raw_value::{Located, Position, RawList, RawValue};
use crate::values::{
    BodyMax, BodyRateMin, ByteCount, FileName, HostText, LoadBalancing, Name, Ratio, TotalTime,
    UpstreamProtocol, UpstreamUrl,
};

/// The reverse proxy as a whole. It opens if there are routes.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// The most connections of clients, in all. Default: `10000`.
    pub connections_max: Option<RawValue<NonZeroU32>>,
    /// The most connections from one address; `0` for no such limit, for example behind a load balancer. Default: `1000`.
    pub connections_per_address: Option<RawValue<u32>>,
    /// The most HTTP/2 requests in flight from one address, not counting the first 8 of each connection; `0` for no such limit.
    /// Trusted proxies have no limit. A reload applies to new connections. Default: the value of `connections_per_address`.
    pub streams_per_address: Option<RawValue<u32>>,
    /// The longest head of a request, `8KB` to `1MB`. Default: `32KB`.
    pub header_max: Option<RawValue<ByteCount>>,
    /// The longest body of a request, or `none` for any length. Default: `1GB`.
    pub body_max: Option<RawValue<BodyMax>>,
    /// The slowest upload allowed: bytes per window, such as `240B/s` or `8KB/30s`, or `none`. Only time spent waiting for the
    /// client counts, and only until the upstream's response begins. A slower client gets 408. Default: `16KB/min`.
    pub body_rate_min: Option<RawValue<BodyRateMin>>,
    /// How long things may take.
    pub timeouts: Option<GatewayTimeouts>,
    /// Whether the gateway removes `X-HTTP-Method-Override`, `X-HTTP-Method` and `X-Method-Override`. If not, policies on methods
    /// count the request under both methods. The query parameter `_method` is never removed. Default: `false`.
    pub strip_method_override: Option<RawValue<bool>>,
    /// Whether every request is written to standard output, as one JSON object per line. Default: `false`.
    pub access_log: Option<RawValue<bool>>,
    /// Which other origins may read responses in a browser, or `off`. A route may have its own. Default: `off`, preflights are forwarded.
    pub cors: Option<Located<Cors>>,
}

/// How long things may take. A route can override each of these except `request_header`.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct GatewayTimeouts {
    /// Until there is a connection to a server. Default: `2s`.
    pub connect: Option<RawValue<Micros>>,
    /// Until the response header arrives, once the server has the whole request. Default: `30s`.
    pub header: Option<RawValue<Micros>>,
    /// Between two pieces of a body. Default: `60s`.
    pub idle: Option<RawValue<Micros>>,
    /// For a request and its response in all, or `none`. Default: `none`.
    pub total: Option<RawValue<TotalTime>>,
    /// How long a WebSocket or other upgraded connection may be idle. Default: `1h`.
    pub tunnel_idle: Option<RawValue<Micros>>,
    /// How long a client may take to send a request's header, and how long a connection without requests stays open. Default:
    /// `10s`.
    pub request_header: Option<RawValue<Micros>>,
}

/// Where requests go. The most specific route counts, whatever the order: the host first (exact, then with stars, then any),
/// then the path segment by segment (a text, then `{id}` or `*`, then `**`), then the method.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Route {
    /// Its name, in logs and for `by: route`.
    pub id: Option<RawValue<Name>>,
    /// Which requests it takes.
    #[serde(rename = "match")]
    pub matched: Option<RouteMatch>,
    /// The servers: a url such as `http://127.0.0.1:3000`, a list of them, or a section.
    pub upstream: Option<Located<Upstream>>,
    /// Policies that apply to its requests, beside those whose `when` covers them. A policy without `when` that a route
    /// names applies on the routes that name it, and nowhere else.
    pub policies: Option<RawList<Name>>,
    /// How long things may take. Default: as in `gateway`.
    pub timeouts: Option<RouteTimeouts>,
    /// The longest body of a request, or `none` for any length. Default: as in `gateway`.
    pub body_max: Option<RawValue<BodyMax>>,
    /// The slowest upload allowed on this route, such as `8KB/30s`, or `none` for clients that stream slowly. Default: as in
    /// `gateway`.
    pub body_rate_min: Option<RawValue<BodyRateMin>>,
    /// Which `Host` the server sees: `keep` the client's, `upstream` for the server's own, or a host. Default: `keep`.
    pub host: Option<RawValue<HostText>>,
    /// How many times, 0 to 8, a request is retried after a server may have received part of it. Only requests that are safe to
    /// repeat are retried. A request that certainly reached no server is always tried on the others. Default: `1`.
    pub retries: Option<RawValue<u32>>,
    /// Which other origins may read its responses in a browser, or `off`: replaces `gateway.cors` entirely. Default: as in `gateway`.
    pub cors: Option<Located<Cors>>,
}

/// Which requests a route takes. All settings given must match; of a list, one entry is enough. Give at least a path or a host.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RouteMatch {
    /// Paths: `/api/orders`, `/users/{id}` with any one segment, `/api/orders/**` with all below it. Default: all.
    pub path: Option<RawList<String>>,
    /// Hosts, without a port, such as `*.example.com`: `*` stands for one label, `**` for any number. Default: all.
    pub host: Option<RawList<String>>,
    /// Methods, in any case. `GET` also takes `HEAD`. Default: all.
    pub method: Option<RawList<Method>>,
}

/// How long things may take.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RouteTimeouts {
    /// Until there is a connection to a server.
    pub connect: Option<RawValue<Micros>>,
    /// Until the response header arrives, once the server has the whole request.
    pub header: Option<RawValue<Micros>>,
    /// Between two pieces of a body.
    pub idle: Option<RawValue<Micros>>,
    /// For a request and its response in all, or `none`.
    pub total: Option<RawValue<TotalTime>>,
    /// How long a WebSocket or other upgraded connection may be idle.
    pub tunnel_idle: Option<RawValue<Micros>>,
}

/// The servers of a route.
#[derive(Clone)]
pub enum Upstream {
    Url(String),
    All(Vec<Located<Upstream>>),
    Section(Box<UpstreamSection>),
}

/// The servers of a route, and how they are used.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamSection {
    /// Their urls: `http://host:port` or `https://host`, without a path.
    pub servers: Option<RawList<UpstreamUrl>>,
    /// Which server gets the next request: `round_robin`, or the one with the `least_connections`. Default: `round_robin`.
    pub balance: Option<RawValue<LoadBalancing>>,
    /// The protocol to the servers: `http1` or `http2`. Default: `http1`.
    pub protocol: Option<RawValue<UpstreamProtocol>>,
    /// When a failing server is ejected.
    pub health: Option<Health>,
    /// The certificate authorities for `https://` servers: `{ca: FILE}`, in PEM. Default: those of the
    /// system.
    pub tls: Option<UpstreamTls>,
}

/// Files in PEM.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTls {
    /// The certificate authorities that may sign the servers' certificates. Default: those of the system.
    pub ca: Option<RawValue<FileName>>,
}

/// When a failing server is ejected. After the time, one request tests whether the server is back.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// After how many consecutive failures. Default: `3`.
    pub failures: Option<RawValue<NonZeroU32>>,
    /// For how long at first; the time doubles while no connection can be opened, up to 5 minutes. Default: `10s`.
    pub eject: Option<RawValue<Micros>>,
    /// The largest share of the servers that is ejected at once for failures that a client can cause, from 0 to 1. One server can
    /// always be ejected. Default: `0.5`.
    pub ejected_max: Option<RawValue<Ratio>>,
}

impl Route {
    /// The positions of urls that contain a password, which is an error.
    pub fn secrets(&self) -> Vec<Position> {
        fn urls(upstream: &Located<Upstream>, found: &mut Vec<(String, Option<Position>)>) {
            match &upstream.value {
                Upstream::Url(text) => found.push((text.clone(), upstream.position)),
                Upstream::All(all) => all.iter().for_each(|one| urls(one, found)),
                Upstream::Section(section) => {
                    let servers = section.servers.iter().flat_map(|servers| &servers.items);
                    found.extend(servers.map(|server| (server.text.clone(), server.position)));
                }
            }
        }
        let mut found = Vec::new();
        self.upstream.iter().for_each(|upstream| urls(upstream, &mut found));
        found
            .into_iter()
            .filter(|(text, _)| text.contains('@'))
            .filter_map(|(_, position)| position)
            .collect()
    }
}
