//! One server of an upstream, given by its URL.

use http::uri::Authority;
use http::{HeaderValue, Uri};

use crate::scheme::Scheme;

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamServer {
    scheme: Scheme,
    authority: Authority,
    port: u16,
    host: String,
    host_header: HeaderValue,
}

/// Why a server URL is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpstreamServerError {
    /// Not a URL.
    #[error("invalid URL; write http://host:port or https://host")]
    InvalidUrl,
    /// Neither http nor https.
    #[error("unknown scheme; write http:// or https://")]
    Scheme,
    /// Requests keep the path that was matched and limited.
    #[error("URL has a path or a query, but requests keep their own; write http://host:port")]
    Path,
    /// The gateway sends no credentials.
    #[error("URL has a user or a password, which the gateway does not send; write http://host:port")]
    Credentials,
    /// The port is not a number from 1 to 65535.
    #[error("invalid port; use 1 to 65535")]
    Port,
}

impl UpstreamServer {
    /// Parses a URL.
    ///
    /// # Errors
    /// If it is not a URL, or contains more than scheme, host and port.
    pub fn parse(url: &str) -> Result<Self, UpstreamServerError> {
        let (scheme, rest) = url.split_once("://").ok_or(UpstreamServerError::InvalidUrl)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(UpstreamServerError::Scheme),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('@') {
            return Err(UpstreamServerError::Credentials);
        }
        if authority.contains(['/', '?', '#']) {
            return Err(UpstreamServerError::Path);
        }
        let authority = authority.to_ascii_lowercase();
        let uri: Uri = format!("http://{authority}/").parse().map_err(|_| UpstreamServerError::InvalidUrl)?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(UpstreamServerError::InvalidUrl)?;
        let port = match authority.strip_prefix(host) {
            Some("") => scheme.default_port(),
            Some(port) => {
                let digits = port.strip_prefix(':').ok_or(UpstreamServerError::InvalidUrl)?;
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                digits.parse().ok().filter(|port| *port > 0 && is_number).ok_or(UpstreamServerError::Port)?
            }
            None => return Err(UpstreamServerError::InvalidUrl),
        };
        Self::new(scheme, host, port).ok_or(UpstreamServerError::InvalidUrl)
    }

    fn new(scheme: Scheme, host: &str, port: u16) -> Option<Self> {
        let whole = format!("{host}:{port}");
        let host_header = if port == scheme.default_port() { host } else { &whole };
        Some(Self {
            scheme,
            port,
            host_header: HeaderValue::from_str(host_header).ok()?,
            host: host.trim_matches(['[', ']']).to_owned(),
            authority: whole.parse().ok()?,
        })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// True for https.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Host and port, even if it is the default port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host alone, an IPv6 address without brackets, as in a certificate.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The value of `Host` for this server: without the default port.
    pub fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }
}

impl std::fmt::Display for UpstreamServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, shown: &str, host: &str, field: &str) {
        let server = UpstreamServer::parse(url).unwrap();
        assert_eq!((server.to_string().as_str(), server.host()), (shown, host));
        assert_eq!(server.host_header(), field);
        assert_eq!(shown.rsplit(':').next().unwrap(), server.port().to_string());
    }

    #[test]
    fn a_url_names_a_server_with_its_port() {
        check("http://127.0.0.1:3000", "http://127.0.0.1:3000", "127.0.0.1", "127.0.0.1:3000");
        check("HTTP://Api.Internal/", "http://api.internal:80", "api.internal", "api.internal");
        check("https://api.internal", "https://api.internal:443", "api.internal", "api.internal");
        check(
            "https://[2001:DB8::1]:8443",
            "https://[2001:db8::1]:8443",
            "2001:db8::1",
            "[2001:db8::1]:8443",
        );
        check("http://h:443", "http://h:443", "h", "h:443");
    }

    #[test]
    fn invalid_server_urls_are_rejected() {
        use UpstreamServerError::{Credentials, InvalidUrl, Path, Port, Scheme};
        for (url, why) in [
            ("", InvalidUrl),
            ("127.0.0.1:3000", InvalidUrl),
            ("http://", InvalidUrl),
            ("http:///", InvalidUrl),
            ("http://a b", InvalidUrl),
            ("http://[::1", InvalidUrl),
            ("http://:80", InvalidUrl),
            ("ftp://h", Scheme),
            ("unix:///run/x", Scheme),
            ("http://h/api", Path),
            ("http://h?x", Path),
            ("http://h/#x", Path),
            ("http://u:p@h", Credentials),
            ("http://h:", Port),
            ("http://h:0", Port),
            ("http://h:+80", Port),
            ("http://h:65536", Port),
        ] {
            assert_eq!(UpstreamServer::parse(url), Err(why), "{url}");
        }
    }
}
