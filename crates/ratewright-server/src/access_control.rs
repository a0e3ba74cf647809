//! Access control of the REST and admin listeners.
//!
//! A local caller may do anything; a remote caller needs a token. Without one, the response depends on the listener
//! and the call:
//!
//! | caller | listener on loopback | exposed listener | another client's key, or a reset |
//! |---|---|---|---|
//! | local | yes | yes | yes |
//! | local, a web page in a browser | yes; 403 on the admin listener | 403 | 403 |
//! | remote, with a token | yes | yes | yes |
//! | remote, with an invalid token | yes | 401 | 403 |
//! | remote, without a token | yes | 401 | 403 |
//! | remote, with a certificate, if no tokens are configured | yes | yes | yes |
//!
//! The certificate must be signed by the listener's `client_ca`. If tokens are configured too, both are required.
//!
//! An exposed listener authenticates first, so its 401 comes before any 403. The program does not open an exposed
//! listener without tokens: see [`is_exposed`].
//!
//! A local browser also runs pages of other sites, which must not act for the operator. To `localhost`, 127.0.0.0/8 and
//! `[::1]`, browsers send the site of a page (`Sec-Fetch-Site`); to any other name or spelling of this machine they send
//! nothing. So a loopback request counts as local only if `Host` is one of these three, no header names another site,
//! and a browser's `User-Agent` comes with `Sec-Fetch-Site`. A URL that was typed or opened by a link may look, but not spend.
//! Requests with a valid token are always accepted.
//!
//! Forward authentication has a rule of its own, because `Authorization`, `Host` and `Origin` are the client's there: see
//! [`Access::authenticate_proxy`].
//!
//! Tokens are stored as SHA-256 digests, and a presented token is compared with all of them in constant time, so that
//! neither a memory dump nor timing reveals one. A caller behind a local proxy looks local: that proxy must
//! authenticate its clients itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::request::Parts;
use http::uri::Authority;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use ratewright_http::Problem;
use ratewright_http::address::Proxies;

use crate::response::ProblemResponse;
use crate::settings::SharedServerSettings;

/// The longest accepted token, in bytes.
const TOKEN_MAX: usize = 1_024;

/// The header in which browsers send the site of a page.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How the user agents of browsers begin: pages, and what they play.
const BROWSERS: [&[u8]; 2] = [b"Mozilla/", b"AppleCoreMedia/"];

/// The header in which a proxy presents its token.
const PROXY_TOKEN: HeaderName = HeaderName::from_static("x-ratewright-token");

/// The digest of a token.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; SHA256_OUTPUT_LEN]);

/// The authorized callers: local ones, and those with one of these tokens.
#[derive(Clone, Default)]
pub struct Access {
    tokens: Vec<TokenDigest>,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Its address.
    pub peer: IpAddr,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The host in the request's target: always in HTTP/2, seldom in HTTP/1.
    pub authority: Option<&'a str>,
    /// Set if the client presented a valid certificate.
    pub client_certified: Option<ClientCertified>,
    /// True if the listener requires a load balancer's PROXY protocol.
    pub is_behind_load_balancer: bool,
}

/// Marks requests of a listener that requires a load balancer's PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BehindLoadBalancer;

/// Marks requests with a client certificate that the listener's `client_ca` has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientCertified;

/// Adds the access control of an exposed listener: a caller without a token gets 401.
pub fn guard(routes: Router, settings: SharedServerSettings) -> Router {
    with_check(routes, settings, |access, caller| access.authenticate(caller))
}

/// Adds the access control of calls that concern other clients, on any listener: an unauthorized caller gets 403.
pub fn authorized(
    routes: Router,
    settings: SharedServerSettings,
    what: &'static str,
    instead: &'static str,
) -> Router {
    with_check(routes, settings, move |access, caller| access.authorize(caller, what, instead))
}

fn with_check<J>(routes: Router, settings: SharedServerSettings, judge: J) -> Router
where
    J: Fn(&Access, Caller<'_>) -> Result<(), Problem> + Clone + Send + Sync + 'static,
{
    routes.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let with_check = judge(&settings.load().access, Caller::of(&request));
        async move {
            match with_check {
                Ok(()) => next.run(request).await,
                Err(problem) => ProblemResponse::from(problem).into_response(),
            }
        }
    }))
}

/// True if other machines can reach a listener at this address.
pub fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

impl<'a> Caller<'a> {
    /// The sender of a request, according to the listener. Without an address it is not local.
    pub fn of(request: &'a Request) -> Self {
        Self::new(request.headers(), request.uri(), request.extensions())
    }

    /// The sender of a request with this head.
    pub(crate) fn of_head(head: &'a Parts) -> Self {
        Self::new(&head.headers, &head.uri, &head.extensions)
    }

    fn new(headers: &'a HeaderMap, target: &'a Uri, extensions: &Extensions) -> Self {
        let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        Self {
            peer: peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            headers,
            authority: target.authority().map(Authority::as_str),
            client_certified: extensions.get().copied(),
            is_behind_load_balancer: extensions.get::<BehindLoadBalancer>().is_some(),
        }
    }

    /// True if the caller is on this machine. Behind a load balancer no caller is local: it may run on this machine, and
    /// forward connections without naming the client.
    fn is_local(&self) -> bool {
        !self.is_behind_load_balancer && self.peer.to_canonical().is_loopback()
    }

    /// Rejects a request from a local browser for a page of another site.
    fn reject_cross_site(&self) -> Result<(), Problem> {
        self.cross_site_reason().filter(|_| self.is_local()).map_or(Ok(()), |why| Err(cross_site(why)))
    }

    /// Why a request looks like one from a page of another site.
    fn cross_site_reason(&self) -> Option<&'static str> {
        let lines = |name| {
            self.headers.get_all(name).iter().map(|value: &HeaderValue| value.to_str().unwrap_or_default())
        };
        if lines(SEC_FETCH_SITE).any(|site| !matches!(site, "same-origin" | "none")) {
            return Some("Sec-Fetch-Site names another site");
        }
        if lines(header::ORIGIN).any(|page| !is_local_page(page)) {
            return Some("Origin is not on this machine");
        }
        // Through a proxy on this machine, a page of ours has a foreign address, and its browser says that it is the same.
        let says_site = self.headers.contains_key(SEC_FETCH_SITE);
        if !says_site && lines(header::REFERER).any(|page| !is_local_page(page)) {
            return Some("Referer is not on this machine");
        }
        if self.authority.into_iter().chain(lines(header::HOST)).any(|host| !is_local_host(host)) {
            return Some("Host is not localhost, 127.0.0.1 or [::1]");
        }
        let agent = self.headers.get(header::USER_AGENT).map_or(&[][..], |agent| agent.as_bytes());
        let is_browser = BROWSERS.iter().any(|browser| agent.starts_with(browser));
        (is_browser && !says_site).then_some(
            "User-Agent is a browser's, without Sec-Fetch-Site; let a program send another User-Agent",
        )
    }

    /// True if the URL was typed, or opened by a link of another program, or if such a URL led here by redirects.
    fn is_opened_url(&self) -> bool {
        self.headers.get_all(SEC_FETCH_SITE).iter().any(|site| site == "none")
    }
}

impl TokenDigest {
    /// The digest of a token.
    pub fn of(token: &str) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref()); // both have that length
        Self(bytes)
    }
}

impl Access {
    /// Authorizes local callers, and those with one of these tokens.
    pub fn new(tokens: Vec<TokenDigest>) -> Self {
        Self { tokens }
    }

    /// True if tokens are configured. Without tokens, remote callers need a certificate.
    pub fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// True if the caller is local and not a page of another site, or has a token, or has a certificate and no tokens are
    /// configured.
    pub fn allows(&self, caller: Caller<'_>) -> bool {
        (caller.is_local() && caller.cross_site_reason().is_none())
            || bearer(caller.headers).is_some_and(|token| self.has_token(token))
            || (caller.client_certified.is_some() && !self.has_tokens())
    }

    /// Authenticates a caller of an exposed listener.
    ///
    /// # Errors
    /// 401 if it is neither local nor has a token, 403 if it may be a page of another site.
    pub fn authenticate(&self, caller: Caller<'_>) -> Result<(), Problem> {
        if self.allows(caller) {
            return Ok(());
        }
        caller.reject_cross_site()?;
        let what =
            if caller.headers.contains_key(header::AUTHORIZATION) { "is not valid" } else { "is missing" };
        let detail =
            format!("the token {what}; send one that is configured as \"Authorization: Bearer TOKEN\"");
        Err(Problem::new(StatusCode::UNAUTHORIZED, detail))
    }

    /// Authorizes a call that concerns other clients: `what`. The error says what to do `instead`.
    ///
    /// # Errors
    /// 403 if the caller is neither local nor has a token.
    pub fn authorize(&self, caller: Caller<'_>, what: &str, instead: &str) -> Result<(), Problem> {
        if self.allows(caller) {
            return Ok(());
        }
        caller.reject_cross_site()?;
        let detail = format!("{what} is for callers on the same machine or with a token; {instead}");
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }

    /// The same for a call that spends units by a plain GET, so that no link spends them.
    ///
    /// # Errors
    /// The same, and 403 if a browser may have been led to this URL.
    pub fn authorize_spending(&self, caller: Caller<'_>, what: &str, instead: &str) -> Result<(), Problem> {
        self.authorize(caller, what, instead)?;
        let has_token = bearer(caller.headers).is_some_and(|token| self.has_token(token));
        if caller.is_opened_url() && !has_token {
            return Err(cross_site("a link may have opened this URL (Sec-Fetch-Site: none)"));
        }
        Ok(())
    }

    /// Authenticates a proxy that asks on behalf of its clients: by its address, a client certificate, or a token in
    /// `X-Ratewright-Token`. `Authorization` is not read: it belongs to the client.
    ///
    /// # Errors
    /// 401 if the caller is not a trusted proxy, even if it is local.
    pub fn authenticate_proxy(&self, caller: Caller<'_>, proxies: &Proxies) -> Result<(), Problem> {
        // A load balancer may forward connections without naming the client; the peer is then the balancer itself.
        let is_trusted_address = !caller.is_behind_load_balancer && proxies.trust(caller.peer);
        if is_trusted_address
            || caller.client_certified.is_some()
            || proxy_token(caller.headers).is_some_and(|token| self.has_token(token))
        {
            return Ok(());
        }
        let peer = caller.peer;
        let detail = format!(
            "caller {peer} is not a trusted proxy; add its address to clients.trusted_proxies, or send one of api.tokens in X-Ratewright-Token"
        );
        Err(Problem::new(StatusCode::UNAUTHORIZED, detail))
    }

    /// Compares with every token, so that the duration reveals nothing.
    pub fn has_token(&self, token: &str) -> bool {
        let presented = TokenDigest::of(token);
        let same = |known: &TokenDigest| verify_slices_are_equal(&known.0, &presented.0).is_ok();
        self.tokens.iter().fold(false, |found, known| found | same(known))
    }
}

/// The rejection of a request that another site may have caused.
fn cross_site(why: &str) -> Problem {
    let detail = format!(
        "{why}; the request may come from a web page of another site; set api.tokens, and send one as \"Authorization: Bearer TOKEN\""
    );
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// True for the URL of a page on this machine, or the origin of one.
fn is_local_page(url: &str) -> bool {
    let host = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    host.is_some_and(is_local_host)
}

/// True for `localhost`, 127.0.0.0/8 and `[::1]`, in the spelling that browsers send, with any port. A page reaches this machine
/// by other names too, such as `0.0.0.0` and `[::ffff:127.0.0.1]`, but there browsers do not say whose page it is.
fn is_local_host(authority: &str) -> bool {
    let host = without_port(authority);
    host.eq_ignore_ascii_case("localhost")
        || host == "[::1]"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

/// The token that a caller presents. An empty one is ignored, even if an empty one is configured; so are several.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && (1..=TOKEN_MAX).contains(&token.len())).then_some(token)
}

/// The token that a proxy presents. None if the header is missing, empty, too long or repeated.
fn proxy_token(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(PROXY_TOKEN).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    line.to_str().ok().filter(|token| (1..=TOKEN_MAX).contains(&token.len()))
}

/// Shows nothing of the token.
impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

/// Shows how many tokens there are, and nothing of them.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("n_tokens", &self.tokens.len()).finish()
    }
}

#[cfg(test)]
mod tests;
