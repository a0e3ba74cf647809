//! What a limit counts by. In Spring that is code, a `KeyResolver` bean or an expression, so it is guessed from names.

use super::properties::SpringProperty;
use super::reader::{A_NAME, A_URL, SpringReader};
use super::url_credentials::{self, SplitAddress};
use crate::convert::policy_file_draft::{quoted, quoted_list};

/// What each bucket is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CountedBy {
    /// One bucket for everybody.
    Everybody,
    Ip,
    User,
    /// The user, or the address of a client without one.
    UserOrIp,
    Header(String),
    Query(String),
    Path,
    Host,
}

impl CountedBy {
    /// The setting `by`, in YAML; None for everybody.
    pub(super) fn setting(&self) -> Option<String> {
        Some(match self {
            Self::Everybody => return None,
            Self::Ip => "ip".to_owned(),
            Self::User => "user".to_owned(),
            Self::UserOrIp => "{ first_of: [user, ip] }".to_owned(),
            Self::Header(name) => quoted(&format!("header:{name}")),
            Self::Query(name) => quoted(&format!("query:{name}")),
            Self::Path => "path".to_owned(),
            Self::Host => "host".to_owned(),
        })
    }

    /// True if a request may lack the attribute.
    pub(super) fn may_be_missing(&self) -> bool {
        matches!(self, Self::User | Self::Header(_) | Self::Query(_))
    }

    /// By the name of a bean (`ipKeyResolver`) or of a kind of key (`IP_ADDRESS`). None if the name says nothing.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let words = words(name);
        let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
        let is_api_key = words.windows(2).any(|pair| matches!(pair, [a, b] if a == "api" && b == "key"));
        let is_user = has(&["user", "username", "principal", "jwt", "account", "subject", "login"]);
        let is_ip = has(&["ip", "addr", "address", "remote", "client"]);
        Some(match () {
            () if is_user && is_ip && !has(&["remote"]) => Self::UserOrIp,
            () if is_ip => Self::Ip,
            () if is_user => Self::User,
            () if is_api_key || has(&["apikey"]) => Self::Header("X-Api-Key".to_owned()),
            () if has(&["path", "uri", "url"]) => Self::Path,
            () if has(&["host", "hostname"]) => Self::Host,
            () if has(&["global", "everybody", "everyone", "shared", "constant", "all"]) => Self::Everybody,
            () => return None,
        })
    }

    /// True if an expression is nothing but one call that says exactly what is counted by.
    pub(super) fn is_exact(expression: &str) -> bool {
        let compact: String = expression.chars().filter(|c| !c.is_whitespace()).collect();
        let is_plain =
            ["getRemoteAddr()", "getRequestURI()", "1", "'1'", "\"1\""].contains(&compact.as_str());
        let argument = ["getHeader(", "getParameter("].iter().find_map(|call| compact.strip_prefix(call));
        let name =
            argument.and_then(|rest| rest.strip_suffix(')')).map(|name| name.trim_matches(['\'', '"']));
        is_plain
            || name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)))
    }

    /// By an expression of the starter: `getRemoteAddr()`, `getHeader('X-Api-Key')`, `@securityService.username()`.
    pub(super) fn of_expression(expression: &str) -> Option<Self> {
        let compact: String = expression.chars().filter(|c| !c.is_whitespace()).collect();
        let argument = |call: &str| {
            let (_, rest) = compact.split_once(call)?;
            let name = rest.trim_start_matches(['\'', '"']).split(['\'', '"', ')']).next()?;
            let is_name =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
            is_name.then(|| name.to_owned())
        };
        let header = ["getHeader(", "headers.getFirst(", "getHeaders().getFirst(", "headers["]
            .iter()
            .find_map(|call| argument(call));
        let is_ip = ["getRemoteAddr", "remoteAddr", "remoteAddress", "getRemoteAddress"]
            .iter()
            .any(|name| compact.contains(name));
        let lower = compact.to_ascii_lowercase();
        let is_user =
            ["username", "principal", "remoteuser", "authentication"].iter().any(|word| lower.contains(word));
        match (header, argument("getParameter("), is_user, is_ip) {
            (Some(name), None, false, false) => Some(Self::Header(name)),
            (None, Some(name), false, false) => Some(Self::Query(name)),
            (None, None, true, true) => Some(Self::UserOrIp),
            (None, None, true, false) => Some(Self::User),
            (None, None, false, true) => Some(Self::Ip),
            (None, None, false, false) if compact == "getRequestURI()" => Some(Self::Path),
            (None, None, false, false) if compact == "\"1\"" || compact == "1" || compact == "'1'" => {
                Some(Self::Everybody)
            }
            _ => None,
        }
    }
}

/// The words of a name in camelCase, kebab-case or snake_case, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

impl SpringReader<'_> {
    /// Writes how users are identified, if a policy counts by user: by the tokens that Spring Security verifies, or by a header.
    pub(super) fn identify_users(&mut self) {
        if self.draft.has_settings("clients") {
            return;
        }
        const JWT: &str = "spring.security.oauth2.resourceserver.jwt";
        let jwt = self.root.get(JWT);
        let keys = jwt.and_then(|jwt| jwt.get("jwk-set-uri")).and_then(|keys| self.text(keys, A_URL));
        if let (Some(jwt), Some(keys)) = (jwt, keys) {
            let SplitAddress { scheme, login, host } = url_credentials::split(&keys.written);
            if login.is_some() {
                self.warn(jwt, "the login in jwk-set-uri was left out");
            }
            self.identify_by_token(jwt, &format!("{scheme}{host}"));
            return;
        }
        let clients = self.draft.section("clients");
        clients.comment("assumed: a proxy names the user in X-User-Id. Name the proxies, or verify tokens with user: { jwt: … }.");
        clients.set("trusted_proxies", "[\"${TRUSTED_PROXIES:-127.0.0.1}\"]");
        clients.set("user", "{ header: X-User-Id }");
        self.notes
            .push("a limit counts by user; set clients.user to how Ratewright identifies users".to_owned());
    }

    fn identify_by_token(&mut self, jwt: &SpringProperty, keys: &str) {
        let mut settings = vec![format!("jwks: {}", quoted(keys))];
        for (name, setting) in
            [("issuer-uri", "issuer"), ("audiences", "audience"), ("principal-claim-name", "claim")]
        {
            let Some(property) = jwt.get(name) else { continue };
            let texts: Vec<_> = self.texts(property, A_NAME).into_iter().map(|text| text.written).collect();
            settings.push(format!("{setting}: {}", quoted_list(&texts)));
        }
        let comments = self.leftovers(jwt, "see clients.user.jwt");
        let clients = self.draft.section("clients");
        comments.into_iter().for_each(|comment| clients.comment(comment));
        clients.set("user.jwt", format!("{{ {} }}", settings.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_beans_say_what_is_counted_by() {
        for (name, expected) in [
            ("ipKeyResolver", Some(CountedBy::Ip)),
            ("remoteAddrKeyResolver", Some(CountedBy::Ip)),
            ("remoteUserIpResolver", Some(CountedBy::Ip)),
            ("principalNameKeyResolver", Some(CountedBy::User)),
            ("userKeyResolver", Some(CountedBy::User)),
            ("userOrIpKeyResolver", Some(CountedBy::UserOrIp)),
            ("apiKeyResolver", Some(CountedBy::Header("X-Api-Key".to_owned()))),
            ("pathKeyResolver", Some(CountedBy::Path)),
            ("hostNameKeyResolver", Some(CountedBy::Host)),
            ("IP_ADDRESS", Some(CountedBy::Ip)),
            ("tenantKeyResolver", None),
            ("subscriptionResolver", None),
            ("", None),
        ] {
            assert_eq!(CountedBy::of_name(name), expected, "{name}");
        }
    }

    #[test]
    fn expressions_say_what_is_counted_by() {
        for (expression, expected) in [
            ("getRemoteAddr()", Some(CountedBy::Ip)),
            ("getHeader('X-Api-Key')", Some(CountedBy::Header("X-Api-Key".to_owned()))),
            ("getParameter(\"key\")", Some(CountedBy::Query("key".to_owned()))),
            ("@securityService.username()", Some(CountedBy::User)),
            ("@securityService.username() ?: getRemoteAddr()", Some(CountedBy::UserOrIp)),
            ("getRequestURI()", Some(CountedBy::Path)),
            ("getHeader('X-A') + getRemoteAddr()", None),
            ("T(java.time.Instant).now()", None),
        ] {
            assert_eq!(CountedBy::of_expression(expression), expected, "{expression}");
        }
    }
}
