//! The sections and settings of the policy file. Values are still text; only unknown names are rejected.
//!
//! A field's comment is its documentation: `ratewright schema` passes it to editors, and the reference in
//! docs/reference/configuration.md is generated from it.

mod cors;
mod envoy;
mod gateway;
mod shapes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use http::HeaderName;
use ipnet::IpNet;
use ratewright_core::Micros;
use ratewright_core::policy::{AfterAbort, Mode, OnFailure};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Leak, Rate, Refill, WindowStart};
use ratewright_http::address::Forwarding;
use ratewright_http::headers::LimitMeaning;
use ratewright_http::identify::AmbiguousPaths;
use ratewright_http::identify::original_request::AuthorizeProtocol;
use ratewright_http::jwt::TokenAlgorithm;
use ratewright_http::path::Case;
use serde::Deserialize;
use serde::de::Deserializer;

use crate::raw_value::{Located, Position, RawList, RawValue, Sections};
use crate::values::{
    Burst, FallbackShare, Family, FileName, InFlight, LogDenials, LogFormat, LogLevel, Name, OnMissing,
    Ratio, Secret, Statuses, Token,
};
use crate::yaml_tree::{self, Recorded};
pub use cors::{Cors, CorsSection};
pub use envoy::Envoy;
pub use gateway::{
    Gateway, GatewayTimeouts, Health, Route, RouteMatch, RouteTimeouts, Upstream, UpstreamSection,
    UpstreamTls,
};

/// The policy file of Ratewright. Every value may contain `${NAME}`, an environment variable, or
/// `${NAME:-default}`.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// The switch for everything. `false` lets every request pass, uncounted. Default: `true`.
    pub enabled: Option<RawValue<bool>>,
    /// Where Ratewright listens.
    pub listen: Option<Listen>,
    /// How long Ratewright still accepts connections after SIGTERM, so that load balancers notice that `/ready` answers 503. HTTP/1.1
    /// responses carry `Connection: close` meanwhile. Ctrl-C skips the delay. A change needs a restart. Default: `5s`.
    pub stop_delay: Option<RawValue<Micros>>,
    /// How long requests in flight may take to finish after Ratewright stops accepting connections. `listen.grpc` uses
    /// `envoy.connection_grace` instead. A change needs a restart. Default: `20s`.
    pub drain_timeout: Option<RawValue<Micros>>,
    /// Where buckets live.
    pub store: Option<Store>,
    /// How clients are identified.
    pub clients: Option<Clients>,
    /// What is never charged.
    pub exempt: Option<Exempt>,
    /// The limits. All policies without a group apply; of each group, only the first policy that matches.
    pub policies: Option<Vec<Located<Policy>>>,
    /// The reverse proxy as a whole. It opens if there are routes.
    pub gateway: Option<Gateway>,
    /// Where requests go. The most specific route counts, whatever the order.
    pub routes: Option<Vec<Located<Route>>>,
    /// Rules in the files of envoyproxy/ratelimit.
    pub envoy: Option<Envoy>,
    /// The REST API.
    pub api: Option<Api>,
    /// Which rate limit headers responses carry.
    pub headers: Option<Headers>,
    /// The bodies of denials.
    pub problem: Option<Problem>,
    /// Metrics for Prometheus.
    pub metrics: Option<Metrics>,
    /// What is logged.
    pub log: Option<Log>,
    /// Traces of requests. Only a build with `--features otel` has them.
    pub traces: Option<Traces>,
}

/// Where Ratewright listens.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// The reverse proxy. Default: `127.0.0.1:8000`. It opens if there are routes.
    pub gateway: Option<Located<Listener>>,
    /// REST decisions. Default: `127.0.0.1:8080`. Off loopback it needs `api.tokens`, or `client_ca`.
    pub api: Option<Located<Listener>>,
    /// Envoy's rate limit service, over gRPC. Default: `127.0.0.1:8081`. Opened only if the file has an `envoy` section. Every client that
    /// reaches it can use up limits, so an address off loopback needs `client_ca`, or `open: true` if only your own Envoys can reach it.
    pub grpc: Option<Located<Listener>>,
    /// Metrics, health, inspection. Default: `127.0.0.1:8082`; `off` to have none. Off loopback it needs
    /// `api.tokens`, or `client_ca`.
    pub admin: Option<Located<Listener>>,
    /// The certificate of every listener without its own.
    pub tls: Option<ListenTls>,
    /// Path of the Unix socket that `ratewright upgrade` connects to. Only the process's user and root can use it. Default:
    /// `control.sock` in systemd's `RUNTIME_DIRECTORY`; without that variable, no socket. `off` disables it.
    pub control: Option<RawValue<FileName>>,
}

/// A listener's address, alone or with settings of its own.
#[derive(Clone)]
pub enum Listener {
    Address(String),
    Section(Box<ListenerSection>),
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListenerSection {
    /// The address and the port.
    pub address: Option<RawValue<SocketAddr>>,
    /// The listener's own certificate.
    pub tls: Option<ListenTls>,
    /// `{from: [10.0.0.0/8]}` requires a PROXY protocol header (version 1 or 2) on every connection. The address in the header becomes the
    /// client's address. Connections from peers outside `from` are closed. List only your own load balancers, because any peer in `from`
    /// can announce any address. With this setting, `api` and `admin` need `api.tokens` or `client_ca`, and `grpc` needs `client_ca` or
    /// `open: true`. Default: headers are not accepted.
    pub proxy_protocol: Option<Located<ListenProxyProtocol>>,
    /// For `listen.grpc` only. `true` allows an address that other machines can reach without `client_ca`. Every client that reaches it
    /// can then use up limits; negative hits from other machines are ignored. Has no effect if `client_ca` is set. Default: `false`.
    pub open: Option<RawValue<bool>>,
}

/// Load balancers that announce the client's address.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListenProxyProtocol {
    /// The networks or addresses of the load balancers. Connections from other peers are closed at once.
    pub from: Option<RawList<IpNet>>,
}

/// Files in PEM.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ListenTls {
    /// The certificate, with those that lead to its root.
    pub cert: Option<RawValue<FileName>>,
    /// The certificate's private key.
    pub key: Option<RawValue<FileName>>,
    /// The certificate authorities that must have signed clients' certificates. Default: clients need no certificate.
    pub client_ca: Option<RawValue<FileName>>,
}

/// Where buckets live. Without `redis`, in this process.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// The Redis that all instances share. `redis:` alone means the one on this machine.
    #[serde(deserialize_with = "present_section")]
    pub redis: Option<Redis>,
    /// What decides while Redis is unavailable: `local` memory, `open` (allow), `closed` (deny). Default: `local`.
    pub on_failure: Option<RawValue<OnFailure>>,
    /// This process' own memory.
    pub local: Option<Local>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Redis {
    /// `redis://`, `rediss://` (TLS) or `unix://`. Several mean a Cluster. Default: `redis://127.0.0.1:6379`.
    pub url: Option<RawList<Secret>>,
    /// True if the one url is a Cluster's.
    pub cluster: Option<RawValue<bool>>,
    /// The Sentinels that know the master.
    pub sentinel: Option<Sentinel>,
    /// Certificates, for `rediss://`.
    pub tls: Option<RedisTls>,
    /// What all keys begin with. Default: `ratelimit`.
    pub prefix: Option<RawValue<String>>,
    /// How long Redis may take to answer. Default: `5ms`.
    pub deadline: Option<RawValue<Micros>>,
    /// The shortest time to live of a key. Default: `0s`: a key expires when its state no longer has an effect.
    pub min_ttl: Option<RawValue<Micros>>,
    /// Whether buckets show `tokens` and `lastRefill` for people. Default: `true`.
    pub readable: Option<RawValue<bool>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Sentinel {
    /// The master's name.
    pub master: Option<RawValue<String>>,
    /// The Sentinels' urls.
    pub nodes: Option<RawList<Secret>>,
}

/// Files in PEM.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RedisTls {
    /// The certificate authorities that may sign the server's certificate. Default: those of the system.
    pub ca: Option<RawValue<FileName>>,
    /// Our own certificate.
    pub cert: Option<RawValue<FileName>>,
    /// The certificate's private key.
    pub key: Option<RawValue<FileName>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Local {
    /// How much of each quota this instance gives out while Redis is gone: a decimal up to 1, or `auto` for one part
    /// for each live instance. Default: `0.5`.
    pub share: Option<RawValue<FallbackShare>>,
    /// How long local charges still count after an outage has ended. With `60s`, an outage that begins 60 seconds or more after the end of
    /// the last one grants the share of a daily quota again. Default: no limit; local charges are repaid only by their quota.
    pub ttl: Option<RawValue<Micros>>,
    /// The most keys in memory. Default: `1000000`.
    pub max_keys: Option<RawValue<NonZeroU32>>,
}

/// How clients are identified. By default, nothing that a client claims about itself is trusted.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Clients {
    /// Networks of proxies whose forwarding headers are trusted. Default: none.
    pub trusted_proxies: Option<RawList<IpNet>>,
    /// Which header trusted proxies write: `x-forwarded-for` (and `X-Real-IP`), or `forwarded`. Default:
    /// `x-forwarded-for`.
    pub forwarded_by: Option<RawValue<Forwarding>>,
    /// How many bits of an IPv6 address make one client. Default: `64`.
    pub ipv6_prefix: Option<RawValue<u32>>,
    /// Whether `/Login` and `/login` are one path: `sensitive` (two) or `insensitive` (one). Set `insensitive` if an upstream
    /// ignores case; otherwise each spelling gets its own limit. Default: `sensitive`.
    pub case: Option<RawValue<Case>>,
    /// What happens to a path that upstreams may interpret differently, such as `/a%2f..%2fb`: `count` charges the policies of every
    /// interpretation, `reject` answers 400. The gateway normalises paths before this check. Default: `count`.
    pub ambiguous_paths: Option<RawValue<AmbiguousPaths>>,
    /// How users are identified.
    pub user: Option<User>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct User {
    /// The JWT that names the user, if it is genuine. It must have `exp`, and is refused `leeway` after that time. If a request's token is
    /// refused or lacks the claim, the policy's `missing` says what happens: see Refused tokens in docs/guides/policy-file.md. Without
    /// this setting, tokens are ignored.
    pub jwt: Option<Jwt>,
    /// A header that names the user. It is read only from trusted proxies.
    pub header: Option<RawValue<HeaderName>>,
}

/// Give one of `secret`, `public_key` and `jwks`.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Jwt {
    /// The claim that names the user; dots reach into objects. Default: `sub`.
    pub claim: Option<RawValue<String>>,
    /// The secret of HS256, of 32 bytes or more.
    pub secret: Option<RawValue<Secret>>,
    /// A file with the public key, in PEM.
    pub public_key: Option<RawValue<FileName>>,
    /// A file or an http(s) url with a set of keys.
    pub jwks: Option<RawValue<String>>,
    /// Which algorithms are accepted. Default: those of the keys.
    pub algorithms: Option<RawList<TokenAlgorithm>>,
    /// The accepted issuers (`iss`).
    pub issuer: Option<RawList<String>>,
    /// The accepted audiences (`aud`).
    pub audience: Option<RawList<String>>,
    /// How much clocks may differ. Default: `60s`.
    pub leeway: Option<RawValue<Micros>>,
    /// How often keys are fetched again from a url. Default: `5min`.
    pub refresh: Option<RawValue<Micros>>,
}

/// Requests that no policy limits. Each list replaces only its own default.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Exempt {
    /// Patterns of paths. Default: `[/actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**]`.
    pub paths: Option<RawList<String>>,
    /// Methods, in any case. Default: `[OPTIONS]`.
    pub methods: Option<RawList<String>>,
    /// Networks and addresses. Default: none.
    pub clients: Option<RawList<IpNet>>,
}

/// One limit.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Its name, used in keys, headers and metrics.
    pub name: Option<RawValue<Name>>,
    /// Of a group, only the first policy that matches applies, even if its mode is `off`. Policies with `in_flight` have groups of
    /// their own.
    pub group: Option<RawValue<Name>>,
    /// Which requests it covers. Default: all; or, if routes name the policy, those of these routes.
    pub when: Option<Condition>,
    /// What each bucket is for: `ip`, `user`, `header:X-Api-Key`, `cookie:…`, `query:…`, `claim:…`, `route`, `method`,
    /// `path`, `host`, `attribute:NAME` for an attribute that a caller of the API sends. A list is a composite key; `{first_of: [user, ip]}` takes the first that is present. Default:
    /// one bucket for everybody.
    pub by: Option<Located<By>>,
    /// What happens to a request that has no such attribute: `skip` the policy, count by `ip`, or `deny` with 403. A refused token is
    /// not missing: under `skip` it is counted by client address, under `ip` in the bucket of requests without a token; under
    /// `deny` it gets 403. Default: `skip`.
    pub missing: Option<RawValue<OnMissing>>,
    /// How much. A list means several quotas, all of which apply.
    pub quota: Option<Sections<Quota>>,
    /// In place of `quota`: how many requests may be in flight at once, each until its response has been sent. Only the gateway
    /// counts them, each instance its own.
    pub in_flight: Option<RawValue<InFlight>>,
    /// For `in_flight`: when a request stops counting after its client has disconnected. `keep`: when the upstream responds or times
    /// out. `free`: at once. Default: `free` without `by`, or if `by` names only `route`, `host`, `path` or `method`; otherwise
    /// `keep`.
    pub after_abort: Option<RawValue<AfterAbort>>,
    /// What a request costs: a number; `{header: X-Cost}`; a number for each method, `{GET: 1, POST: 5, default: 1}`; a number for each
    /// path, `{path: {"/reports/**": 10, default: 1}}`, where the largest matching cost applies; or `{bytes: request}`, the bytes of its
    /// body. Default: `1`.
    pub cost: Option<Located<Cost>>,
    /// Which responses count: `{status: [401, 403]}`, each a status, a class (`5xx`) or a range (`500-599`). A request
    /// is charged when it arrives, and refunded if its response does not count. Entrypoints that do not see the response count
    /// all. Default: all.
    pub count: Option<Located<Count>>,
    /// Different terms for some requests. The first override that matches applies. Two overrides with the same `name`, or two
    /// without a name and with the same `match`, are an error.
    pub overrides: Option<Vec<Located<Override>>>,
    /// The smallest `Retry-After` of a denial. Default: the time until the request would be allowed; with `in_flight`, `1s`.
    pub retry_after: Option<RawValue<Micros>>,
    /// `enforce`, `shadow` (counts, never denies) or `off`. Default: `enforce`.
    pub mode: Option<RawValue<Mode>>,
    /// What decides while Redis is unavailable. Default: that of `store`.
    pub on_failure: Option<RawValue<OnFailure>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Tells several quotas of a policy apart. The first needs none.
    pub name: Option<RawValue<Name>>,
    /// `token_bucket`, `leaky_bucket`, `sliding_window`, `sliding_window_counter` or `fixed_window`. Default:
    /// `token_bucket`, or in an override that of the policy.
    pub algorithm: Option<RawValue<Algorithm>>,
    /// Units and time: `10/s`, `1/6s`, `250/min`; for bytes, such as `10MB/min`.
    pub rate: Option<RawValue<Rate>>,
    /// The most units at once, for `token_bucket` and `leaky_bucket`; for bytes, such as `20MB`. Default: the units of the
    /// rate.
    pub burst: Option<RawValue<Burst>>,
    /// How a token bucket fills: `smooth`, or `stepped` at whole periods. Default: `smooth`.
    pub refill: Option<RawValue<Refill>>,
    /// What a leaky bucket does with requests above the rate: a `meter` denies them, a `queue` makes them wait, where the
    /// entrypoint can. Default: `meter`.
    pub leak: Option<RawValue<Leak>>,
    /// When a fixed window begins: by the clock (`epoch`), or at the `first_hit`. Default: `epoch`.
    pub start: Option<RawValue<WindowStart>>,
}

/// Which responses count.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Count {
    /// Statuses from 100 to 599: `401`, a class such as `5xx`, a range such as `500-599`.
    pub status: Option<RawList<Statuses>>,
}

/// Different terms for some requests. An override with a quota has its own buckets; an override of `in_flight` shares the
/// policy's count.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Override {
    /// The override's name, part of its buckets' names: 1 to 64 characters of `a-z 0-9 . _ -`. Default: a digest of `match`; changing
    /// `match` then starts new buckets.
    pub name: Option<RawValue<Name>>,
    /// Which requests it is for.
    #[serde(rename = "match")]
    pub condition: Option<Condition>,
    /// How much. Default: the policy's.
    pub quota: Option<Sections<Quota>>,
    /// How many requests in flight at once, for a policy with `in_flight`. Default: the policy's.
    pub in_flight: Option<RawValue<InFlight>>,
    /// `off`: the policy does not limit these requests. Every interpretation of the request must match, and `method: GET` does not include
    /// HEAD. Default: the policy's.
    pub mode: Option<RawValue<Mode>>,
}

/// Attributes and their patterns. Every attribute must match one of its patterns. In a path, `*` stays in a segment and `**` crosses
/// segments. `ip` takes networks.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Condition(pub BTreeMap<String, RawList<String>>);

/// The attributes of a partition.
#[derive(Clone)]
pub enum By {
    One(String),
    FirstOf(Vec<RawValue<AttributeName<String>>>),
    All(Vec<Located<By>>),
}

/// What a request costs.
#[derive(Clone)]
pub enum Cost {
    Fixed(String),
    Table(BTreeMap<String, CostEntry>),
}

/// One entry of a table of costs.
#[derive(Clone)]
pub enum CostEntry {
    /// A number for a method, or the name of a header.
    One(RawValue<String>),
    /// Under `path`, a number for each pattern.
    Paths(BTreeMap<String, RawValue<String>>),
}

/// The REST API.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Api {
    /// What `/check` uses when no policy is named.
    pub defaults: Option<Defaults>,
    /// Bearer tokens, several for rotation. They are needed for reset and explicit keys from other machines, and by every listener
    /// that is not on loopback; `/health` and `/ready` excepted.
    pub tokens: Option<RawList<Token>>,
    /// Enables `/api/v1/authorize`, and selects how proxies send the client's request: `forward-auth` (Caddy, HAProxy, Traefik),
    /// `auth-request` (nginx) or `ext-authz` (Envoy). Callers must be listed in `clients.trusted_proxies`, or present a client
    /// certificate or one of `tokens`. Default: `off`.
    pub authorize: Option<RawValue<Option<AuthorizeProtocol>>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    /// Default: `{rate: 10/s, burst: 100}`.
    pub token_bucket: Option<Located<Quota>>,
    /// Default: `{rate: 10/s, burst: 100}`.
    pub leaky_bucket: Option<Located<Quota>>,
    /// Default: `{rate: 100/60s}`.
    pub sliding_window: Option<Located<Quota>>,
    /// Default: `{rate: 100/60s}`.
    pub sliding_window_counter: Option<Located<Quota>>,
    /// Default: `{rate: 100/60s}`.
    pub fixed_window: Option<Located<Quota>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Headers {
    /// Which families responses carry: `x-ratelimit`, `ietf`, both, or `[]` for neither. Default: both.
    pub families: Option<RawList<Family>>,
    /// Whether denials carry `Retry-After`. Default: `true`.
    pub retry_after: Option<RawValue<bool>>,
    /// What `X-RateLimit-Limit` says: the `capacity`, or the `rate` as it is written. Default: `capacity`.
    pub limit: Option<RawValue<LimitMeaning>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Problem {
    /// The type of a denial, a URI; `{name}` is the policy. Default: `about:blank`.
    #[serde(rename = "type")]
    pub kind: Option<RawValue<String>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Labels that every series carries.
    pub labels: Option<BTreeMap<String, RawValue<String>>>,
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`. Default: `info`.
    pub level: Option<RawValue<LogLevel>>,
    /// Levels of single modules, for example `{ratewright_server: debug}`. Modules that log: `ratewright_gateway`,
    /// `ratewright_listen`, `ratewright_rls`, `ratewright_server`, `ratewright_store`, `ratewright_tower`, and `h2` for
    /// HTTP/2; `ratewright` stands for all of ours.
    pub modules: Option<BTreeMap<String, RawValue<LogLevel>>>,
    /// `text`, `json`, or `auto`: text on a terminal, JSON otherwise. Default: `auto`.
    pub format: Option<RawValue<LogFormat>>,
    /// How many denials are logged in each second at most, or `all`. Default: `10`.
    pub denials: Option<RawValue<LogDenials>>,
}

impl File {
    /// The positions of secrets: passwords in addresses, tokens, keys.
    pub fn secrets(&self) -> impl Iterator<Item = Position> {
        let redis = self.store.as_ref().and_then(|store| store.redis.as_ref());
        let nodes = redis.and_then(|redis| redis.sentinel.as_ref()?.nodes.as_ref());
        let tokens = self.api.as_ref().and_then(|api| api.tokens.as_ref());
        let tokens = tokens.into_iter().flat_map(|tokens| &tokens.items).map(|token| token.position);
        let lists = [redis.and_then(|redis| redis.url.as_ref()), nodes];
        let jwt = self.clients.as_ref().and_then(|clients| clients.user.as_ref()?.jwt.as_ref());
        let secret = jwt.and_then(|jwt| jwt.secret.as_ref());
        let jwks = jwt.and_then(|jwt| jwt.jwks.as_ref()).filter(|jwks| jwks.text.contains("://"));
        let secrets = lists.into_iter().flatten().flat_map(|list| &list.items).chain(secret);
        let urls = self.routes.iter().flatten().flat_map(|route| route.value.secrets());
        let positions =
            secrets.map(|secret| secret.position).chain(tokens).chain(jwks.map(|jwks| jwks.position));
        positions.flatten().chain(urls)
    }
}

impl Defaults {
    /// All algorithms in their order, each with its quota if the file has one.
    pub fn each(&self) -> [(&'static str, Option<&Located<Quota>>); 5] {
        let Self { token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window } = self;
        let quotas = [token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window];
        let mut quotas = quotas.into_iter();
        Algorithm::NAMES.map(|name| (name, quotas.next().and_then(Option::as_ref)))
    }

    /// The names of the defaults that the file sets.
    pub fn names_set(&self) -> Vec<&'static str> {
        self.each().into_iter().filter(|(_, quota)| quota.is_some()).map(|(name, _)| name).collect()
    }
}

#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Traces {
    /// The collector, over OTLP and plain HTTP, for example `http://127.0.0.1:4318`.
    pub endpoint: Option<RawValue<String>>,
    /// How many of the requests without a `traceparent` are traced: a decimal from 0 to 1. Default: `0.01`. A request with
    /// a `traceparent` follows its flag.
    pub ratio: Option<RawValue<Ratio>>,
}

/// A section that counts as present even if it is empty: `redis:` alone means Redis.
fn present_section<'d, D: Deserializer<'d>>(section: D) -> Result<Option<Redis>, D::Error> {
    Option::<Redis>::deserialize(section).map(|redis| Some(redis.unwrap_or_default()))
}

/// Reads a file's text.
pub fn parse(text: &str) -> Result<File, serde_saphyr::Error> {
    parse_recorded(text).map(|recorded| recorded.value.unwrap_or_default())
}

/// Reads a file's text, and keeps its tree.
pub(crate) fn parse_recorded(text: &str) -> Result<Recorded<Option<File>>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        // Texts that look like numbers without an end, such as the token 1e999, stay texts.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
    };
    yaml_tree::parse_recorded(text, options)
}
