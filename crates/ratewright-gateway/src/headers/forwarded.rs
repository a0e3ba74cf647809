//! Forwarding headers: for which client a request is made.
//!
//! ```text
//!   header               from a trusted proxy                    from any other peer
//!   X-Forwarded-For      the proxy's address is appended         the peer's address alone
//!   X-Forwarded-Proto    kept                                    the scheme of the connection
//!   X-Forwarded-Host     kept                                    the requested host
//!   X-Real-IP            the identified client's address         the identified client's address
//!   Forwarded            kept, if proxies write it               removed
//!   the user header      kept                                    removed
//!   X-Forwarded-…, X-Original-URL and similar: kept              removed
//! ```
//!
//! A proxy writes either `X-Forwarded-For` or `Forwarded`, and may pass the other one on unchanged. So only the
//! configured one is trusted; the other is replaced or removed.
//!
//! [`OTHER_PATHS`] headers make some upstreams serve another path than the one that was limited. Some upstreams also
//! read `X_User_Id` as `X-User-Id`. Aliases of forwarding, framing and policy headers are always removed, even from
//! trusted proxies.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratewright_http::IdentityRules;
use ratewright_http::address::{self, Forwarding};
use smallvec::SmallVec;

use super::hop_by_hop::{has_alias_prefix, is_alias, is_alias_of, is_read_as_dash};
use super::identity::PolicyHeaders;
use crate::scheme::Scheme;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Headers that make some upstreams serve another path than the request line names: gunicorn and Daphne strip the value
/// of `SCRIPT_NAME` or `Daphne-Root-Path` from the path.
const OTHER_PATHS: [&str; 13] = [
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-vhm-root",
    "x-http-destinationurl",
    "x-envoy-original-path",
    "script-name",
    "x-script-name",
    "path-info",
    "daphne-root-path",
    "x-waws-unencoded-url",
];

/// The longest `X-Forwarded-For` that is extended, in bytes. A longer one is replaced.
const CHAIN_MAX: usize = 4_096;

/// Where a request came from.
#[derive(Clone, Debug)]
pub struct Hop<'a> {
    /// The peer of the connection.
    pub peer: &'a ConnectionPeer,
    /// The identified client.
    pub client: IpAddr,
    /// The scheme of the connection.
    pub scheme: Scheme,
    /// The requested host with its port.
    pub host: Option<HeaderValue>,
}

/// The peer of a connection. Its address is rendered once for all requests.
#[derive(Clone, Debug)]
pub struct ConnectionPeer {
    /// The address of the connection.
    pub address: IpAddr,
    text: HeaderValue,
}

/// Headers that the gateway adds. The request itself contains none of them.
#[derive(Clone, Debug)]
pub struct ForwardingHeaders {
    chain: HeaderValue,
    client: HeaderValue,
    scheme: Option<Scheme>,
    host: Option<HeaderValue>,
}

impl ConnectionPeer {
    /// The peer with this address.
    pub fn new(address: IpAddr) -> Self {
        Self { address, text: SmallText::of(address.to_canonical()).value() }
    }
}

impl Hop<'_> {
    /// Removes untrusted headers from the request, and returns the headers to add.
    pub fn forwarding_headers(
        self,
        headers: &mut HeaderMap,
        rules: &IdentityRules,
        read: &PolicyHeaders,
    ) -> ForwardingHeaders {
        let is_proxy = rules.proxies.trust(self.peer.address);
        remove_claims(headers, rules, read, is_proxy);
        if !is_proxy {
            let is_client = self.client.to_canonical() == self.peer.address.to_canonical();
            let chain = self.peer.text.clone();
            let client =
                if is_client { chain.clone() } else { SmallText::of(self.client.to_canonical()).value() };
            return ForwardingHeaders { chain, client, scheme: Some(self.scheme), host: self.host };
        }
        let chain = self.chain(headers, rules);
        headers.remove(X_FORWARDED_FOR);
        headers.remove(X_REAL_IP);
        let scheme = Some(self.scheme).filter(|_| !headers.contains_key(X_FORWARDED_PROTO));
        let host = self.host.filter(|_| !headers.contains_key(X_FORWARDED_HOST));
        ForwardingHeaders { chain, client: SmallText::of(self.client.to_canonical()).value(), scheme, host }
    }

    /// The value of `X-Forwarded-For`, the peer last.
    fn chain(&self, headers: &HeaderMap, rules: &IdentityRules) -> HeaderValue {
        let (peer, client) = (self.peer.address.to_canonical(), self.client.to_canonical());
        let mut chain = SmallText::default();
        let is_believed = rules.proxies.source == Forwarding::XForwardedFor;
        let lines = headers.get_all(X_FORWARDED_FOR).iter().filter(|line| is_believed && !line.is_empty());
        for line in lines {
            chain.0.extend_from_slice(line.as_bytes());
            chain.0.extend_from_slice(b", ");
        }
        if chain.0.len() > CHAIN_MAX {
            chain.0.clear();
        }
        if chain.0.is_empty() && client != peer {
            chain.put(client);
            chain.0.extend_from_slice(b", ");
        }
        chain.put(peer);
        chain.value()
    }
}

impl ForwardingHeaders {
    /// Visits each header.
    pub fn for_each(&self, mut visit: impl FnMut(&HeaderName, &[u8])) {
        visit(&X_FORWARDED_FOR, self.chain.as_bytes());
        visit(&X_REAL_IP, self.client.as_bytes());
        if let Some(scheme) = self.scheme {
            visit(&X_FORWARDED_PROTO, scheme.as_str().as_bytes());
        }
        if let Some(host) = &self.host {
            visit(&X_FORWARDED_HOST, host.as_bytes());
        }
    }

    /// Appends the headers to others.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        self.for_each(|name, value| {
            headers.extend(HeaderValue::from_bytes(value).map(|value| (name.clone(), value)));
        });
    }
}

/// A short text.
#[derive(Default)]
struct SmallText(SmallVec<[u8; 128]>);

impl SmallText {
    fn of(address: IpAddr) -> Self {
        let mut text = Self::default();
        text.put(address);
        text
    }

    fn put(&mut self, address: IpAddr) {
        address::push(address, |piece| self.0.extend_from_slice(piece.as_bytes()));
    }

    fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).expect("field values and addresses have nothing else in them")
    }
}

/// Removes identity claims of an untrusted peer. From a trusted proxy, removes aliases and the header that it does not
/// write.
fn remove_claims(headers: &mut HeaderMap, rules: &IdentityRules, read: &PolicyHeaders, is_proxy: bool) {
    let user = rules.user_header.as_ref().map(HeaderName::as_str);
    let keeps_forwarded = is_proxy && rules.proxies.source == Forwarding::Forwarded;
    let is_removed = |name: &&HeaderName| {
        let text = name.as_str();
        let is_odd = text.bytes().any(is_read_as_dash);
        (*name == FORWARDED && !keeps_forwarded)
            || ((!is_proxy || is_odd) && is_claim(text, user))
            || (is_odd && (is_alias(text) || read.contain_alias_of(name)))
    };
    let claims: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_removed).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

/// True if a header, or an alias of it, claims an identity or another path.
pub(super) fn is_claim(name: &str, user: Option<&str>) -> bool {
    let is = |known: &str| is_alias_of(name, known);
    has_alias_prefix(name, "x-forwarded-")
        || is("x-real-ip")
        || OTHER_PATHS.into_iter().any(is)
        || user.is_some_and(is)
}

#[cfg(test)]
mod tests;
