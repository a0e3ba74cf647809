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
//!   X-Forwarded-…, X-Original-URL, X-Rewrite-URL: stay           go
//! ```
//!
//! A proxy writes one of `X-Forwarded-For` and `Forwarded`, and may pass the other one on as the client sent it. So only the
//! one that proxies are said to write is believed; the other is made anew, or goes.
//!
//! `X-Original-URL` and its kind make some servers serve another path than the one that was limited. And some servers
//! read `X_User_Id` as `X-User-Id`: such doubles go, whoever sends them.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate_http::Rules;
use tollgate_http::address::Forwarding;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The longest `X-Forwarded-For` that is added to, in bytes. A longer one is made anew.
const CHAIN_MAX: usize = 4_096;

/// How a request came to us.
#[derive(Clone, Copy, Debug)]
pub struct Hop<'a> {
    /// Who is at the other end of the connection.
    pub peer: IpAddr,
    /// Who is asking, as it was found out.
    pub client: IpAddr,
    /// How the request came.
    pub scheme: Scheme,
    /// The host that was asked for, with its port.
    pub host: Option<&'a str>,
}

/// How a request came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Hop<'_> {
    /// Tells the server for whom the request is made, and takes away what nobody can vouch for.
    pub fn tell(&self, headers: &mut HeaderMap, rules: &Rules) {
        let is_trusted = rules.proxies.trust(self.peer);
        remove_claims(headers, rules, is_trusted);
        if !is_trusted || rules.proxies.source != Forwarding::Forwarded {
            headers.remove(FORWARDED);
        }
        let chain = self.chain(headers, rules, is_trusted);
        set(headers, X_FORWARDED_FOR, Some(chain));
        set(headers, X_REAL_IP, address(self.client.to_canonical()));
        if !(is_trusted && headers.contains_key(X_FORWARDED_PROTO)) {
            let scheme = match self.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            };
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        }
        if !(is_trusted && headers.contains_key(X_FORWARDED_HOST)) {
            set(headers, X_FORWARDED_HOST, self.host.and_then(|host| HeaderValue::from_str(host).ok()));
        }
    }

    /// Whom each one heard from, the peer last.
    fn chain(&self, headers: &HeaderMap, rules: &Rules, is_trusted: bool) -> HeaderValue {
        let peer = self.peer.to_canonical();
        let mut chain: SmallVec<[u8; 128]> = SmallVec::new();
        if is_trusted {
            let is_believed = rules.proxies.source == Forwarding::XForwardedFor;
            let lines = headers.get_all(X_FORWARDED_FOR).iter().filter(|_| is_believed);
            for line in lines.filter(|line| !line.is_empty()) {
                chain.extend_from_slice(line.as_bytes());
                chain.extend_from_slice(b", ");
            }
            if chain.len() > CHAIN_MAX {
                chain.clear();
            }
            if chain.is_empty() && self.client.to_canonical() != peer {
                let mut client = SmallText::default();
                client.put(format_args!("{}, ", self.client.to_canonical()));
                chain.extend_from_slice(&client.0);
            }
        }
        let mut last = SmallText(chain);
        last.put(format_args!("{peer}"));
        HeaderValue::from_bytes(&last.0)
            .expect("field values and addresses have nothing that a field value may not have")
    }
}

/// A text that is short.
#[derive(Default)]
struct SmallText(SmallVec<[u8; 128]>);

impl SmallText {
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.write_fmt(text).expect("a list takes all that is written");
    }
}

impl std::fmt::Write for SmallText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn address(address: IpAddr) -> Option<HeaderValue> {
    let mut text = SmallText::default();
    text.put(format_args!("{address}"));
    HeaderValue::from_bytes(&text.0).ok()
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

/// Takes away what a client says of itself, and doubles with `_` of what a proxy says.
fn remove_claims(headers: &mut HeaderMap, rules: &Rules, is_trusted: bool) {
    let user = rules.user_header.as_ref().map(HeaderName::as_str);
    let is_double = |name: &str| name.contains('_');
    let claims: SmallVec<[HeaderName; 4]> = headers
        .keys()
        .filter(|name| (!is_trusted || is_double(name.as_str())) && is_claim(name.as_str(), user))
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
}

/// True if a field, with `_` or with `-`, says for whom a request is made or what it is for.
fn is_claim(name: &str, user: Option<&str>) -> bool {
    let like = |known: &str| {
        let same = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
        name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same)
    };
    let is = |known: &str| name.len() == known.len() && like(known);
    like("x-forwarded-")
        || ["x-real-ip", "x-original-url", "x-rewrite-url"].into_iter().any(is)
        || user.is_some_and(is)
}

#[cfg(test)]
mod tests;
