//! Who may ask.
//!
//! A caller on this machine may ask anything; a caller from elsewhere may with a token. What happens otherwise
//! depends on what is asked, and where:
//!
//! | caller | a door on loopback | a door that is exposed | another's key, or a reset |
//! |---|---|---|---|
//! | on this machine | yes | yes | yes |
//! | on this machine, a web page in a browser | yes, but for the admin door 403 | 403 | 403 |
//! | elsewhere, with a token | yes | yes | yes |
//! | elsewhere, with a wrong one | yes | 401 | 403 |
//! | elsewhere, with none | yes | 401 | 403 |
//! | elsewhere, with a certificate, where no tokens are configured | yes | yes | yes |
//!
//! The certificate is one that the door's `client_ca` has signed. Where there are tokens too, both are asked for.
//!
//! A door that is exposed asks first, so that its 401 comes before any 403. A program does not open an exposed
//! door without tokens: [`exposed`] tells which are.
//!
//! A browser on this machine also runs the pages of strangers, and those must not speak for who runs it. A browser tells
//! where a page is from; a page that was led here by a name of its own (DNS rebinding) is known by that name. So a loopback request
//! counts as local only if it names no other site, and its `Host` is `localhost` or an IP address other than `0.0.0.0` and `[::]`. Requests
//! with a valid token are always accepted.
//!
//! Tokens are kept as SHA-256 digests, and a presented one is compared with all of them in constant time:
//! neither a dump of memory nor a clock gives one away. Who asks through a proxy on this machine is, for all
//! that can be seen here, on this machine: such a proxy must ask for tokens itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderName, StatusCode, header};
use ratewright_http::Problem;

use crate::answer::Refusal;
use crate::settings::SharedSettings;

/// The longest token that is looked at, in bytes.
const TOKEN_MAX: usize = 1_024;

/// In which browsers say whose page asks.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a token is known by.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; SHA256_OUTPUT_LEN]);

/// Who may ask: callers on this machine, and callers with one of these tokens.
#[derive(Clone, Default)]
pub struct Access {
    tokens: Vec<TokenDigest>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// From where.
    pub peer: IpAddr,
    /// With which words.
    pub headers: &'a HeaderMap,
    /// With which certificate, if any.
    pub certified: Option<Certified>,
    /// Through a load balancer, which announces the addresses of its clients.
    pub is_balanced: bool,
}

/// That the listener requires a load balancer's PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Balanced;

/// That the caller showed a certificate which the door's `client_ca` has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Certified;

/// Lays the access control of an exposed door around its routes: who has no token gets 401.
pub fn guard(routes: Router, settings: SharedSettings) -> Router {
    judged(routes, settings, |access, caller| access.admit(caller))
}

/// The same around routes that speak for others, on whichever door: who may not gets 403.
pub fn entrusted(
    routes: Router,
    settings: SharedSettings,
    what: &'static str,
    instead: &'static str,
) -> Router {
    judged(routes, settings, move |access, caller| access.entrust(caller, what, instead))
}

fn judged<J>(routes: Router, settings: SharedSettings, judge: J) -> Router
where
    J: Fn(&Access, Caller<'_>) -> Result<(), Problem> + Clone + Send + Sync + 'static,
{
    routes.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let judged = judge(&settings.load().access, Caller::of(&request));
        async move {
            match judged {
                Ok(()) => next.run(request).await,
                Err(problem) => Refusal::from(problem).into_response(),
            }
        }
    }))
}

/// True if callers from other machines can reach a door at this address.
pub fn exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

impl<'a> Caller<'a> {
    /// Who makes a request, by what the listener knows. Without an address nobody is on this machine.
    pub fn of(request: &'a Request) -> Self {
        let extensions = request.extensions();
        let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        Self {
            peer: peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            headers: request.headers(),
            certified: extensions.get().copied(),
            is_balanced: extensions.get::<Balanced>().is_some(),
        }
    }

    /// True if the caller is on this machine. Behind a load balancer nobody is: it may connect from this machine, and pass on
    /// connections without saying whose they are.
    fn is_local(&self) -> bool {
        !self.is_balanced && self.peer.to_canonical().is_loopback()
    }

    /// Refuses a page that a browser on this machine runs for somebody else.
    fn not_a_page(&self) -> Result<(), Problem> {
        let Some(why) = foreign(self.headers).filter(|_| self.is_local()) else { return Ok(()) };
        let detail = format!(
            "{why}; this may be a web page of somebody else; set api.tokens, and send one as \"Authorization: Bearer TOKEN\""
        );
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
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
    /// Lets in callers with one of these tokens, beside those on this machine.
    pub fn new(tokens: Vec<TokenDigest>) -> Self {
        Self { tokens }
    }

    /// True if there is any token. Without one nobody from elsewhere gets in, unless with a certificate.
    pub fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// True if the caller is on this machine and no stranger's page, or has a token, or has a certificate where there are no
    /// tokens.
    pub fn allows(&self, caller: Caller<'_>) -> bool {
        (caller.is_local() && foreign(caller.headers).is_none())
            || bearer(caller.headers).is_some_and(|token| self.knows(token))
            || (caller.certified.is_some() && !self.has_tokens())
    }

    /// Lets a caller in through an exposed door.
    ///
    /// # Errors
    /// 401 if it is neither on this machine nor has a token, 403 if it may be a stranger's page.
    pub fn admit(&self, caller: Caller<'_>) -> Result<(), Problem> {
        if self.allows(caller) {
            return Ok(());
        }
        caller.not_a_page()?;
        let what =
            if caller.headers.contains_key(header::AUTHORIZATION) { "is not valid" } else { "is missing" };
        let detail =
            format!("the token {what}; send one that is configured as \"Authorization: Bearer TOKEN\"");
        Err(Problem::new(StatusCode::UNAUTHORIZED, detail))
    }

    /// Lets a caller do what concerns others: `what`, or else what it can do `instead`.
    ///
    /// # Errors
    /// 403 if it is neither on this machine nor has a token.
    pub fn entrust(&self, caller: Caller<'_>, what: &str, instead: &str) -> Result<(), Problem> {
        if self.allows(caller) {
            return Ok(());
        }
        caller.not_a_page()?;
        let detail = format!("{what} is for callers on the same machine or with a token; {instead}");
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }

    /// Compares with every token, whichever it is: how long it takes says nothing.
    pub fn knows(&self, token: &str) -> bool {
        let presented = TokenDigest::of(token);
        let same = |known: &TokenDigest| verify_slices_are_equal(&known.0, &presented.0).is_ok();
        self.tokens.iter().fold(false, |found, known| found | same(known))
    }
}

/// What makes a request look like that of a stranger's page.
fn foreign(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if text(SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Some("Sec-Fetch-Site names another site");
    }
    let is_here = |host: &str| host.eq_ignore_ascii_case("localhost") || ip(host).is_some_and(is_loopback);
    let page = |origin: &str| origin.split_once("://").is_some_and(|(_, host)| is_here(without_port(host)));
    if text(header::ORIGIN).is_some_and(|origin| !page(origin)) {
        return Some("Origin is not on this machine");
    }
    if text(header::HOST).is_some_and(|host| !names_a_machine(without_port(host))) {
        return Some("Host must be localhost or an IP address in standard form, not 0.0.0.0 or [::]");
    }
    None
}

/// True for `localhost` and for an address in its one usual form. Browsers send no other form (`127.1`, `0x7f000001`), so nobody needs
/// them. `0.0.0.0` and `[::]` connect to this machine, but no machine has them as its address, and browsers do not say which page asks there.
fn names_a_machine(host: &str) -> bool {
    let is_address = ip(host).is_some_and(|ip| !ip.to_canonical().is_unspecified());
    is_address || host.eq_ignore_ascii_case("localhost")
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// A host as an address; one of IPv6 stands in brackets.
fn ip(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[') {
        None => host.parse().ok().map(IpAddr::V4),
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
    }
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

/// The token that a caller presents. An empty one is none, also where an empty one is configured; and so are several.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && (1..=TOKEN_MAX).contains(&token.len())).then_some(token)
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
mod tests {
    use super::*;
    use http::HeaderValue;

    const ELSEWHERE: &str = "192.0.2.7";

    fn access() -> Access {
        Access::new(vec![TokenDigest::of("first"), TokenDigest::of("second")])
    }

    /// A request's header fields with these values of `Authorization`.
    fn authorization(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    fn caller<'a>(headers: &'a HeaderMap, peer: &str) -> Caller<'a> {
        Caller { headers, peer: peer.parse().unwrap(), certified: None, is_balanced: false }
    }

    fn allows(access: &Access, values: &[&'static str], peer: &str) -> bool {
        access.allows(caller(&authorization(values), peer))
    }

    #[test]
    fn c6_callers_on_this_machine_are_allowed() {
        for local in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(allows(&Access::default(), &[], local), "{local}");
            assert!(allows(&access(), &["Bearer wrong"], local), "{local}");
        }
        for stranger in [ELSEWHERE, "0.0.0.0", "::", "2001:db8::7", "::ffff:192.0.2.7", "fe80::1"] {
            assert!(!allows(&access(), &[], stranger), "{stranger}");
        }
    }

    #[test]
    fn c6_callers_from_elsewhere_are_allowed_with_a_token() {
        for right in ["Bearer first", "bearer second", "BEARER  first"] {
            assert!(allows(&access(), &[right], ELSEWHERE), "{right}");
            assert!(!allows(&Access::default(), &[right], ELSEWHERE), "there are no tokens");
        }
        for wrong in
            ["Bearer third", "Bearer First", "Bearer firs", "Bearer ", "Bearer", "first", "Basic first", ""]
        {
            assert!(!allows(&access(), &[wrong], ELSEWHERE), "{wrong}");
        }
        assert!(
            !allows(&access(), &["Bearer first", "Bearer first"], ELSEWHERE),
            "which of the two is meant?"
        );
    }

    #[test]
    fn c6_an_empty_token_opens_nothing_even_if_one_is_configured() {
        let careless = Access::new(vec![TokenDigest::of("")]);
        for empty in ["Bearer ", "Bearer", "Bearer   ", ""] {
            assert!(!allows(&careless, &[empty], ELSEWHERE), "{empty:?}");
        }
        let long = HeaderValue::from_str(&format!("Bearer {}", "x".repeat(1_025))).unwrap();
        let headers = [(header::AUTHORIZATION, long)].into_iter().collect();
        let access = Access::new(vec![TokenDigest::of(&"x".repeat(1_025))]);
        assert!(!access.allows(caller(&headers, ELSEWHERE)), "nobody has to hash that");
    }

    #[test]
    fn a_certificate_is_enough_where_no_tokens_are_asked_for() {
        let certified = |access: &Access, values| {
            let headers = authorization(values);
            access.allows(Caller { certified: Some(Certified), ..caller(&headers, ELSEWHERE) })
        };
        assert!(certified(&Access::default(), &[]));
        assert!(!certified(&access(), &[]), "both are asked for");
        assert!(!certified(&access(), &["Bearer third"]));
        assert!(certified(&access(), &["Bearer first"]));
    }

    /// Whether a caller on this machine is allowed with these header fields, and else why not.
    fn by_page(access: &Access, fields: &[(&'static str, &'static str)]) -> Option<String> {
        let field = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        let headers = fields.iter().map(field).collect();
        let caller = caller(&headers, "127.0.0.1");
        let problem = access.entrust(caller, "reset", "ask there").err()?;
        assert!(!access.allows(caller));
        assert_eq!(access.admit(caller), Err(problem.clone()), "also at an exposed door");
        let body: serde_json::Value = serde_json::from_str(problem.render().body()).unwrap();
        assert_eq!(body["status"], 403);
        Some(body["detail"].as_str().unwrap().split(';').next().unwrap().to_owned())
    }

    #[test]
    fn a_page_of_somebody_else_is_not_on_this_machine() {
        let site = "Sec-Fetch-Site names another site";
        let origin = "Origin is not on this machine";
        let host = "Host must be localhost or an IP address in standard form, not 0.0.0.0 or [::]";
        for (fields, expected) in [
            (&[][..], None),
            (&[("host", "127.0.0.1:8080")], None),
            (&[("host", "[::1]:8080")], None),
            (&[("host", "[::1]")], None),
            (&[("host", "LocalHost:8080")], None),
            (&[("host", "192.0.2.7")], None),
            (&[("host", "evil.example:8080")], Some(host)),
            (&[("host", "127.0.0.1.evil.example")], Some(host)),
            (&[("host", "localhost.evil.example")], Some(host)),
            (&[("host", "t")], Some(host)),
            (&[("host", "")], Some(host)),
            (&[("host", "::1")], Some(host)),
            (&[("host", "127.0.0.1@evil.example")], Some(host)),
            (&[("host", "\u{fc}")], Some(host)),
            (&[("sec-fetch-site", "same-origin")], None),
            (&[("sec-fetch-site", "none")], None),
            (&[("sec-fetch-site", "cross-site")], Some(site)),
            (&[("sec-fetch-site", "same-site")], Some(site)),
            (&[("sec-fetch-site", "same-site"), ("host", "localhost")], Some(site)),
            (&[("origin", "http://localhost:3000")], None),
            (&[("origin", "http://127.0.0.1")], None),
            (&[("origin", "https://[::1]:3000")], None),
            (&[("origin", "https://evil.example"), ("host", "127.0.0.1")], Some(origin)),
            (&[("origin", "http://192.0.2.7")], Some(origin)),
            (&[("origin", "null")], Some(origin)),
            (&[("origin", "http://localhost@evil.example")], Some(origin)),
        ] {
            assert_eq!(by_page(&access(), fields).as_deref(), expected, "{fields:?}");
            let with_token = [fields, &[("authorization", "Bearer first")]].concat();
            assert_eq!(by_page(&access(), &with_token), None, "with a token it may be anybody's");
        }
    }

    /// A page can reach this machine by 0.0.0.0, and browsers send neither Origin nor Sec-Fetch-Site with a plain GET to it.
    #[test]
    fn an_unspecified_or_unusual_address_is_not_this_machine() {
        for host in concat!(
            "0.0.0.0 0.0.0.0:8080 [::] [::]:8080 [0:0:0:0:0:0:0:0] [::ffff:0.0.0.0] [::ffff:0:0]:80 ",
            "0 0:8080 00 0x0 0x0:8080 0.0 0.0.0 00.0.0.0 0000.0.0.0 . 1 127.1 127.1:8080 127.0.1 127.0.0.01 127.0.0.1. ",
            "127.0.0.256 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 [ [] [::1 [::1]x [::1]:80x [127.0.0.1]"
        )
        .split(' ')
        {
            let host_rule = "Host must be localhost or an IP address in standard form, not 0.0.0.0 or [::]";
            let expected = Some(host_rule.to_owned());
            assert_eq!(by_page(&Access::default(), &[("host", host)]), expected, "{host}");
        }
        for host in ["127.0.0.1", "127.9.9.9:1", "[::1]:8080", "[::ffff:127.0.0.1]", "localhost:"] {
            assert_eq!(by_page(&Access::default(), &[("host", host)]), None, "{host}");
        }
    }

    #[test]
    fn a_page_is_told_why_and_what_to_do() {
        let headers = [(header::ORIGIN, HeaderValue::from_static("null"))].into_iter().collect();
        refused(
            access().entrust(caller(&headers, "::1"), "reset", "ask there"),
            403,
            "Origin is not on this machine; this may be a web page of somebody else; set api.tokens, and send one as \"Authorization: Bearer TOKEN\"",
        );
        refused(
            access().admit(caller(&headers, ELSEWHERE)),
            401,
            "the token is missing; send one that is configured as \"Authorization: Bearer TOKEN\"",
        );
    }

    #[track_caller]
    fn refused(refusal: Result<(), Problem>, status: u16, detail: &str) {
        let answer = refusal.unwrap_err().render();
        assert_eq!(answer.status(), status);
        assert_eq!(answer.headers().contains_key(header::WWW_AUTHENTICATE), status == 401);
        let body: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
        assert_eq!(body["detail"], detail);
    }

    #[test]
    fn c6_an_exposed_door_asks_for_a_token_with_401() {
        let admit = |values| access().admit(caller(&authorization(values), ELSEWHERE));
        assert_eq!(admit(&["Bearer first"]), Ok(()));
        let how = "send one that is configured as \"Authorization: Bearer TOKEN\"";
        refused(admit(&[]), 401, &format!("the token is missing; {how}"));
        refused(admit(&["Bearer wrong"]), 401, &format!("the token is not valid; {how}"));
    }

    #[test]
    fn c6_a_key_or_a_reset_from_elsewhere_without_a_token_is_403() {
        let entrust =
            |values| access().entrust(caller(&authorization(values), ELSEWHERE), "reset", "ask there");
        assert_eq!(entrust(&["Bearer second"]), Ok(()));
        let detail = "reset is for callers on the same machine or with a token; ask there";
        refused(entrust(&[]), 403, detail);
        refused(entrust(&["Bearer wrong"]), 403, detail);
    }

    #[test]
    fn only_loopback_is_not_exposed() {
        for (address, expected) in [
            ("127.0.0.1:80", false),
            ("127.9.9.9:80", false),
            ("[::1]:80", false),
            ("[::ffff:127.0.0.1]:80", false),
            ("0.0.0.0:80", true),
            ("[::]:80", true),
            ("10.0.0.1:80", true),
        ] {
            assert_eq!(exposed(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(
            format!("{:?} {:?}", access(), TokenDigest::of("first")),
            "Access { n_tokens: 2 } TokenDigest(..)"
        );
    }
}
