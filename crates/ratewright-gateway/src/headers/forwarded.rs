//! For whom a request is made: what the server is told of it.
//!
//! ```text
//!   field                from a trusted proxy                    from anybody else
//!   X-Forwarded-For      the proxy's address is added            the peer's address alone
//!   X-Forwarded-Proto    stays                                   how the request came
//!   X-Forwarded-Host     stays                                   the host that was asked for
//!   X-Real-IP            the client's address, as it was found out in both cases
//!   Forwarded            stays, if that is what proxies write    goes
//!   the user's field     stays                                   goes
//!   X-Forwarded-…, X-Original-URL and its kind: stay             go
//! ```
//!
//! A proxy writes one of `X-Forwarded-For` and `Forwarded`, and may pass the other one on as the client sent it. So only the
//! one that proxies are said to write is believed; the other is made anew, or goes.
//!
//! [`OTHER_PATHS`] headers make some upstreams serve another path than the one that was limited. Some upstreams also read `X_User_Id` as
//! `X-User-Id`. Such aliases of forwarding, framing and policy headers are always removed, even from trusted proxies.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratewright_http::IdentityRules;
use ratewright_http::address::{self, Forwarding};
use smallvec::SmallVec;

use super::hop_by_hop::{begins, is_double, is_read_as_dash, is_spelled};
use super::identity::ReadHeaders;
use crate::scheme::Scheme;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Headers that make some upstreams serve another path than the request line names: gunicorn and Daphne strip the value of `SCRIPT_NAME` or
/// `Daphne-Root-Path` from the path.
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

/// The longest `X-Forwarded-For` that is added to, in bytes. A longer one is made anew.
const CHAIN_MAX: usize = 4_096;

/// How a request came to us.
#[derive(Clone, Debug)]
pub struct Hop<'a> {
    /// Who is at the other end of the connection.
    pub peer: &'a Peer,
    /// Who is asking, as it was found out.
    pub client: IpAddr,
    /// How the request came.
    pub scheme: Scheme,
    /// The host that was asked for, with its port.
    pub host: Option<HeaderValue>,
}

/// Who is at the other end of a connection. Its address is written down once, for all requests.
#[derive(Clone, Debug)]
pub struct Peer {
    /// As the connection has it.
    pub address: IpAddr,
    text: HeaderValue,
}

/// What the server is told. None of these fields is among the request's own.
#[derive(Clone, Debug)]
pub struct Told {
    chain: HeaderValue,
    client: HeaderValue,
    scheme: Option<Scheme>,
    host: Option<HeaderValue>,
}

impl Peer {
    /// Who has this address.
    pub fn new(address: IpAddr) -> Self {
        Self { address, text: SmallText::of(address.to_canonical()).value() }
    }
}

impl Hop<'_> {
    /// What the server is to be told of whom the request is made for. Takes away what nobody can vouch for.
    pub fn tell(self, headers: &mut HeaderMap, rules: &IdentityRules, read: &ReadHeaders) -> Told {
        let is_proxy = rules.proxies.trust(self.peer.address);
        remove_claims(headers, rules, read, is_proxy);
        if !is_proxy {
            let is_client = self.client.to_canonical() == self.peer.address.to_canonical();
            let chain = self.peer.text.clone();
            let client =
                if is_client { chain.clone() } else { SmallText::of(self.client.to_canonical()).value() };
            return Told { chain, client, scheme: Some(self.scheme), host: self.host };
        }
        let chain = self.chain(headers, rules);
        headers.remove(X_FORWARDED_FOR);
        headers.remove(X_REAL_IP);
        let scheme = Some(self.scheme).filter(|_| !headers.contains_key(X_FORWARDED_PROTO));
        let host = self.host.filter(|_| !headers.contains_key(X_FORWARDED_HOST));
        Told { chain, client: SmallText::of(self.client.to_canonical()).value(), scheme, host }
    }

    /// Whom each one heard from, the peer last.
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

impl Told {
    /// Shows each field and its value.
    pub fn each(&self, mut show: impl FnMut(&HeaderName, &[u8])) {
        show(&X_FORWARDED_FOR, self.chain.as_bytes());
        show(&X_REAL_IP, self.client.as_bytes());
        if let Some(scheme) = self.scheme {
            show(&X_FORWARDED_PROTO, scheme.as_str().as_bytes());
        }
        if let Some(host) = &self.host {
            show(&X_FORWARDED_HOST, host.as_bytes());
        }
    }

    /// Adds the fields to others.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        self.each(|name, value| {
            headers.extend(HeaderValue::from_bytes(value).map(|value| (name.clone(), value)));
        });
    }
}

/// A text that is short.
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

/// Takes away what a client says of itself; of what a proxy says, doubles with `_` or the like and what it does not write.
fn remove_claims(headers: &mut HeaderMap, rules: &IdentityRules, read: &ReadHeaders, is_proxy: bool) {
    let user = rules.user_header.as_ref().map(HeaderName::as_str);
    let keeps_forwarded = is_proxy && rules.proxies.source == Forwarding::Forwarded;
    let is_removed = |name: &&HeaderName| {
        let text = name.as_str();
        let is_odd = text.bytes().any(is_read_as_dash);
        (*name == FORWARDED && !keeps_forwarded)
            || ((!is_proxy || is_odd) && is_claim(text, user))
            || (is_odd && (is_double(text) || read.contain_double_of(name)))
    };
    let claims: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_removed).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

/// True if a field, with `-` or with `_` or the like, says for whom a request is made or what it is for.
pub(super) fn is_claim(name: &str, user: Option<&str>) -> bool {
    let is = |known: &str| is_spelled(name, known);
    begins(name, "x-forwarded-") || is("x-real-ip") || OTHER_PATHS.into_iter().any(is) || user.is_some_and(is)
}

#[cfg(test)]
mod tests;
