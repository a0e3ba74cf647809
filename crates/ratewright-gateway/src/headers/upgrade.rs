//! Upgrades to another protocol: the client's request, and whether the upstream's response matches it.
//!
//! ```text
//!   request       Connection: upgrade, Upgrade: websocket      requested_by, then write
//!   101 response  Connection: upgrade, Upgrade: websocket      check, then write
//! ```
//!
//! After the upgrade, bytes pass through a tunnel that no policy sees, so neither side may still speak HTTP.

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};

use super::hop_by_hop::elements;

/// The requested protocol, for example `websocket`.
#[derive(Clone, Debug)]
pub struct Upgrade(HeaderValue);

/// Why a 101 response opens no tunnel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    /// The request asked for no upgrade, or the upstream speaks HTTP/2.
    #[error("unexpected 101: the client asked for no upgrade")]
    Unasked,
    /// `Connection` does not name `upgrade`.
    #[error("101 response without Connection: upgrade")]
    NotConnection,
    /// `Upgrade` names no protocol.
    #[error("101 response without Upgrade")]
    NoProtocol,
    /// `Upgrade` names another protocol, possibly besides the requested one.
    #[error("101 response upgrades to {0}, which the client did not ask for")]
    OtherProtocol(String),
}

impl Upgrade {
    /// The upgrade that a request asks for, if it is unambiguous.
    ///
    /// An upgrade to another HTTP version or to TLS is ignored: the requests inside could not be matched or limited.
    pub fn requested_by(request: &Parts) -> Option<Self> {
        if request.version != Version::HTTP_11 || request.method != Method::GET {
            return None;
        }
        let mut upgrades = request.headers.get_all(UPGRADE).iter();
        let (upgrade, None) = (upgrades.next()?, upgrades.next()) else { return None };
        let name = upgrade.as_bytes().split(|byte| *byte == b'/').next().unwrap_or_default();
        let is_token = !name.is_empty() && !upgrade.as_bytes().iter().any(|byte| b", \t;".contains(byte));
        // Also their drafts, such as h2c-14.
        let is_hidden = [&b"h2"[..], b"h3", b"http", b"tls"]
            .iter()
            .any(|other| name.get(..other.len()).is_some_and(|start| start.eq_ignore_ascii_case(other)));
        (names_upgrade(&request.headers) && is_token && !is_hidden).then(|| Self(upgrade.clone()))
    }

    /// Checks that a 101 response switches to this protocol and no other.
    ///
    /// Otherwise the upstream may still read HTTP, and the client's bytes would be requests that no policy limits.
    pub(crate) fn check(&self, response: &HeaderMap) -> Result<(), UpgradeError> {
        if !names_upgrade(response) {
            return Err(UpgradeError::NotConnection);
        }
        let protocols = response.get_all(UPGRADE).iter().flat_map(elements);
        let mut protocols = protocols.filter(|protocol| !protocol.is_empty()).peekable();
        if protocols.peek().is_none() {
            return Err(UpgradeError::NoProtocol);
        }
        match protocols.find(|protocol| !protocol.eq_ignore_ascii_case(self.0.as_bytes())) {
            None => Ok(()),
            Some(other) => {
                Err(UpgradeError::OtherProtocol(String::from_utf8_lossy(other).chars().take(64).collect()))
            }
        }
    }

    /// Writes both headers into a request or response without them.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.0.clone());
    }
}

/// True if `Connection` names `upgrade`.
fn names_upgrade(headers: &HeaderMap) -> bool {
    let mut options = headers.get_all(CONNECTION).iter().flat_map(elements);
    options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[track_caller]
    fn check_upgrade(method: &str, version: Version, fields: &[(&str, &str)], expected: Option<&str>) {
        let mut request = Request::builder().method(method).version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let upgrade = Upgrade::requested_by(&parts);
        assert_eq!(upgrade.as_ref().map(|upgrade| upgrade.0.to_str().unwrap()), expected, "{fields:?}");
    }

    #[test]
    fn an_upgrade_needs_two_headers() {
        let both = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        check_upgrade("GET", Version::HTTP_11, &both, Some("websocket"));
        check_upgrade("POST", Version::HTTP_11, &both, None);
        check_upgrade("GET", Version::HTTP_10, &both, None);
        check_upgrade("GET", Version::HTTP_2, &both, None);
        check_upgrade("GET", Version::HTTP_11, &both[..1], None);
        check_upgrade("GET", Version::HTTP_11, &both[1..], None);
        check_upgrade("GET", Version::HTTP_11, &[both[0], both[1], both[1]], None);
        check_upgrade("GET", Version::HTTP_11, &[both[0], ("upgrade", "websocket, h2c")], None);
        check_upgrade("GET", Version::HTTP_11, &[both[0], ("upgrade", "")], None);
    }

    /// The requests inside would not be limited.
    #[test]
    fn upgrades_to_another_http_version_are_ignored() {
        for hidden in ["h2c", "H2C", "h2c-14", "H2-16", "h3-29", "HTTP/2.0", "TLS/1.2", "h2", "h3"] {
            let fields = [("connection", "upgrade, http2-settings"), ("upgrade", hidden)];
            check_upgrade("GET", Version::HTTP_11, &fields, None);
        }
    }
}
