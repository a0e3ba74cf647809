//! Layers with one line: limits in this process's memory, for services that need no other store.

use std::sync::Arc;

use ipnet::IpNet;
use ratewright_core::decision::Unobserved;
use ratewright_core::policy::PolicyError;
use ratewright_core::query::AttributeName;
use ratewright_core::{Limiter, Policies, Policy, Quota};
use ratewright_http::address::Proxies;
use ratewright_http::{HeaderStyle, HttpSettings};
use ratewright_store::{MemoryStore, SystemClock, WallClock};

use crate::layer::RateLimitLayer;
use crate::request_reader::RequestReader;

/// The name of the policy of [`RateLimitLayer::per_ip`], in headers and in problem bodies.
const PER_IP: &str = "per-ip";

/// Keys that a layer's store holds. At the cap, the keys that have spent the least of their quota are dropped first. A key takes about
/// 50 bytes.
const KEYS_MAX: usize = 1_000_000;

impl RateLimitLayer<MemoryStore<SystemClock>, Unobserved> {
    /// A quota for each client address.
    ///
    /// ```
    /// # use axum::{Router, routing::get};
    /// # use ratewright_tower::{Quota, RateLimitLayer};
    /// # async fn hello() -> &'static str { "hello" }
    /// let app: Router = Router::new().route("/", get(hello)).layer(RateLimitLayer::per_ip(Quota::per_minute(100)));
    /// ```
    ///
    /// The address is that of the connection's peer. With the feature `axum`, the layer finds it in
    /// `ConnectInfo<SocketAddr>`, so serve the router with `into_make_service_with_connect_info::<SocketAddr>()`; without
    /// it, add the extension [`Peer`](crate::Peer) to each request. A request without either gets 500 and never passes unlimited.
    ///
    /// No header is trusted: behind a proxy, set [`trusted_proxies`](Self::trusted_proxies), or all clients count as one.
    /// An IPv6 network of 64 bits is one client.
    ///
    /// Denied requests get 429 with `Retry-After` and a problem body; all responses carry the rate limit headers.
    /// [`headers`](Self::headers) selects fewer.
    ///
    /// Clones of a layer share their buckets; two layers never do. At most 1,000,000 clients are held in memory.
    #[must_use]
    pub fn per_ip(quota: Quota) -> Self {
        let policy = Policy::new(PER_IP, quota).expect("a valid name").by(&[AttributeName::Ip]);
        let layer = Self::in_memory([policy]).expect("a single policy has no conflict");
        layer.with_reader(RequestReader::without_decisions)
    }

    /// Any policies, counted in memory: several at once, with your own names, by other attributes than the address.
    ///
    /// Every request needs a peer address, as with [`per_ip`](Self::per_ip): without one it gets 500. With `Missing::Deny`, a request
    /// without the attribute gets 403; by default the policy does not limit it.
    ///
    /// ```
    /// use ratewright_core::Policy;
    /// use ratewright_core::policy::Missing;
    /// use ratewright_core::query::AttributeName;
    /// # use ratewright_tower::{Quota, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), ratewright_core::policy::PolicyError> {
    /// let by_key = [AttributeName::Header("x-api-key")];
    /// let policy = Policy::new("per-key", Quota::per_second(10).burst(50))?.by(&by_key).with_missing(Missing::Deny);
    /// let layer = RateLimitLayer::in_memory([policy])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If two policies have the same name.
    pub fn in_memory(policies: impl IntoIterator<Item = Policy>) -> Result<Self, PolicyError> {
        let policies = Policies::new(policies.into_iter().collect())?;
        let store = MemoryStore::new(SystemClock::new(), KEYS_MAX);
        Ok(Self::new(Arc::new(Limiter::new(policies, store)), RequestReader::new(WallClock)))
    }

    /// Sets the proxies in front of the service, as `clients.trusted_proxies` of the policy file: requests from these networks
    /// count for the address in `X-Forwarded-For`, or else in `X-Real-IP`. From other peers both are ignored.
    ///
    /// ```
    /// # use ratewright_tower::{Quota, RateLimitLayer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).trusted_proxies(["10.0.0.0/8".parse()?]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The layer keeps its other settings, in [`HttpSettings`] of its own: later changes of shared HTTP settings do not reach it. For the header
    /// `Forwarded`, or with shared HTTP settings, set the proxies in the [`HttpSettings`] and pass them with [`RequestReader::http_settings`].
    #[must_use]
    pub fn trusted_proxies(self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        let proxies = Proxies::default().trusted(networks.into_iter().collect());
        self.with_http_settings(|http_settings| http_settings.rules.proxies = proxies)
    }

    /// Sets which rate limit headers responses carry, whether denials have `Retry-After`, and what `X-RateLimit-Limit` means, as
    /// `headers` of the policy file. Default: all headers.
    ///
    /// ```
    /// # use ratewright_tower::{HeaderStyle, Quota, RateLimitLayer};
    /// let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).headers(HeaderStyle::default().ietf(false));
    /// ```
    ///
    /// As with [`trusted_proxies`](Self::trusted_proxies), later changes of shared HTTP settings do not reach the layer.
    #[must_use]
    pub fn headers(self, style: HeaderStyle) -> Self {
        self.with_http_settings(|http_settings| http_settings.headers = style)
    }

    fn with_http_settings(self, change: impl FnOnce(&mut HttpSettings)) -> Self {
        self.with_reader(|reader| {
            let mut http_settings = HttpSettings::clone(&reader.http_settings.load());
            change(&mut http_settings);
            reader.http_settings(http_settings.shared())
        })
    }
}
