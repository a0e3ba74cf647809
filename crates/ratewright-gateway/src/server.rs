//! One server behind the gateway, as its url names it.

use http::uri::Authority;
use http::{HeaderValue, Uri};

use crate::scheme::Scheme;

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    scheme: Scheme,
    authority: Authority,
    port: u16,
    host: String,
    host_field: HeaderValue,
}

/// Why a text names no server.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServerError {
    /// It is no url at all.
    #[error("it is no url; write http://host:port or https://host")]
    Garbled,
    /// Only these two are spoken.
    #[error("its scheme is unknown; write http:// or https://")]
    Scheme,
    /// Requests keep the path that was matched and limited.
    #[error("it has a path or a query, and requests keep their own; leave only http://host:port")]
    Path,
    /// A password that nobody would send.
    #[error("it has a user or a password, which no server is sent; leave only http://host:port")]
    User,
    /// There is no such port.
    #[error("its port is none; use 1 to 65535")]
    Port,
}

impl Server {
    /// The server that a url names.
    ///
    /// # Errors
    /// If it is no url, or has more than scheme, host and port.
    pub fn parse(url: &str) -> Result<Self, ServerError> {
        let (scheme, rest) = url.split_once("://").ok_or(ServerError::Garbled)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(ServerError::Scheme),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('@') {
            return Err(ServerError::User);
        }
        if authority.contains(['/', '?', '#']) {
            return Err(ServerError::Path);
        }
        let authority = authority.to_ascii_lowercase();
        let uri: Uri = format!("http://{authority}/").parse().map_err(|_| ServerError::Garbled)?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(ServerError::Garbled)?;
        let port = match authority.strip_prefix(host) {
            Some("") => scheme.default_port(),
            Some(port) => {
                let digits = port.strip_prefix(':').ok_or(ServerError::Garbled)?;
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                digits.parse().ok().filter(|port| *port > 0 && is_number).ok_or(ServerError::Port)?
            }
            None => return Err(ServerError::Garbled),
        };
        Self::new(scheme, host, port).ok_or(ServerError::Garbled)
    }

    fn new(scheme: Scheme, host: &str, port: u16) -> Option<Self> {
        let whole = format!("{host}:{port}");
        let host_field = if port == scheme.default_port() { host } else { &whole };
        Some(Self {
            scheme,
            port,
            host_field: HeaderValue::from_str(host_field).ok()?,
            host: host.trim_matches(['[', ']']).to_owned(),
            authority: whole.parse().ok()?,
        })
    }

    /// How it is spoken to.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// True if it is spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Host and port; the port is always there.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host alone, an IPv6 address without brackets: whom a certificate must name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What `Host` says if the server is to see its own: without the port that its scheme has anyway.
    pub fn host_field(&self) -> &HeaderValue {
        &self.host_field
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, shown: &str, host: &str, field: &str) {
        let server = Server::parse(url).unwrap();
        assert_eq!((server.to_string().as_str(), server.host()), (shown, host));
        assert_eq!(server.host_field(), field);
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
    fn what_names_no_server_is_told() {
        use ServerError::{Garbled, Path, Port, Scheme, User};
        for (url, why) in [
            ("", Garbled),
            ("127.0.0.1:3000", Garbled),
            ("http://", Garbled),
            ("http:///", Garbled),
            ("http://a b", Garbled),
            ("http://[::1", Garbled),
            ("http://:80", Garbled),
            ("ftp://h", Scheme),
            ("unix:///run/x", Scheme),
            ("http://h/api", Path),
            ("http://h?x", Path),
            ("http://h/#x", Path),
            ("http://u:p@h", User),
            ("http://h:", Port),
            ("http://h:0", Port),
            ("http://h:+80", Port),
            ("http://h:65536", Port),
        ] {
            assert_eq!(Server::parse(url), Err(why), "{url}");
        }
    }
}
