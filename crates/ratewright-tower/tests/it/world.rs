//! A service behind a limiter with a clock that stands still.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version};
use http_body_util::BodyExt;
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Basis, Charge, Key, Refund, Standings};
use ratewright_core::{Limiter, ManualClock, Policies, Policy, Quota, Store, Timestamp};
use ratewright_lab::within;
use ratewright_store::MemoryStore;
use ratewright_tower::{Peer, RequestReader};

pub(crate) type Memory = MemoryStore<ManualClock>;
pub(crate) type Body = http_body_util::Full<bytes::Bytes>;

/// A moment on 2023-11-14.
pub(crate) const NOW: u64 = 1_700_000_000;

pub(crate) fn quota(algorithm: Algorithm, rate: &str) -> Quota {
    Quota::new(algorithm, rate.parse().unwrap()).unwrap()
}

/// A token bucket for each address.
pub(crate) fn bucket(name: &str, rate: &str) -> Policy {
    Policy::new(name, quota(Algorithm::TokenBucket(Refill::Smooth), rate)).unwrap().by(&[AttributeName::Ip])
}

pub(crate) fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(NOW * 1_000_000))
}

pub(crate) fn limiter<const N: usize>(policies: [Policy; N]) -> (Arc<Limiter<Memory>>, ManualClock) {
    let clock = clock();
    let policies = Policies::new(policies.into()).unwrap();
    (Arc::new(Limiter::new(policies, MemoryStore::new(clock.clone(), 1_000))), clock)
}

pub(crate) fn reader() -> RequestReader {
    RequestReader::new(clock())
}

/// A request from an address that ends in `client`.
pub(crate) fn request(client: u8, path: &str) -> Request<Body> {
    let peer = Peer(IpAddr::V4(Ipv4Addr::new(192, 0, 2, client)));
    Request::get(path).extension(peer).body(Body::default()).unwrap()
}

/// The same request over HTTP/2: its target names the host in place of the first `Host` header.
pub(crate) fn over_http_2(mut request: Request<Body>) -> Request<Body> {
    *request.version_mut() = Version::HTTP_2;
    if request.uri().authority().is_some() {
        return request;
    }
    let hosts: Vec<_> = request.headers().get_all(HOST).iter().cloned().collect();
    let first = hosts.first().map_or(&b"a.example"[..], HeaderValue::as_bytes);
    let Ok(authority) = Authority::try_from(first) else { return request }; // an invalid host stays in its header
    request.headers_mut().remove(HOST);
    for host in hosts.into_iter().skip(1) {
        request.headers_mut().append(HOST, host);
    }
    let path = request.uri().path_and_query().unwrap().clone();
    let target = Uri::builder().scheme("http").authority(authority).path_and_query(path);
    *request.uri_mut() = target.build().unwrap();
    request
}

pub(crate) async fn text<B: http_body::Body<Error: std::fmt::Debug>>(response: Response<B>) -> String {
    let bytes = within("the whole body", response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A header's value, or `-`.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("-", |value| value.to_str().unwrap())
}

/// The memory store with calls that have to be awaited, as for Redis.
pub(crate) struct RemoteStore(pub(crate) Memory);

impl Store for RemoteStore {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        tokio::task::yield_now().await;
        self.0.apply(charges, standings).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        tokio::task::yield_now().await;
        self.0.refund(refunds).await
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        self.0.reset(keys).await
    }
}
