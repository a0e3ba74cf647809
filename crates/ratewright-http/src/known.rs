//! What an earlier stage has found out about a request, passed on so that later stages need not repeat it.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::address::{self, Proxies};
use crate::dialect::Dialect;
use crate::identify::Token;
use crate::jwt::TokenError;

/// What an earlier stage has found out about a request. As an extension of the request it goes from layer to layer.
#[derive(Clone, Debug)]
pub struct Known {
    /// Who is at the other end of the connection.
    pub peer: IpAddr,
    /// The client's address, once it was looked for.
    pub client: Option<IpAddr>,
    /// True if the path is written in its one spelling, but for a slash at its end.
    pub has_normal_path: bool,
    /// What the token says, once it was verified.
    pub token: Option<Arc<Verified>>,
    /// The rules by which this was found. None: valid under any rules.
    pub dialect: Option<Arc<Dialect>>,
}

/// What a request's token says, and why it names nobody, if it does not.
#[derive(Debug)]
pub struct Verified {
    pub(crate) token: Token,
    pub(crate) refused: Option<TokenError>,
}

impl Known {
    /// Nothing but the peer.
    pub fn of(peer: IpAddr) -> Self {
        Self { peer, client: None, has_normal_path: false, token: None, dialect: None }
    }

    /// What of it holds by these rules: others may trust other proxies and other tokens.
    #[must_use]
    pub fn by(self, dialect: &Arc<Dialect>) -> Self {
        let is_theirs = self.dialect.as_ref().is_none_or(|found_by| Arc::ptr_eq(found_by, dialect));
        if is_theirs { self } else { Self::of(self.peer) }
    }

    /// The client's address.
    pub fn client(&self, headers: &HeaderMap, proxies: &Proxies) -> IpAddr {
        self.client.unwrap_or_else(|| address::client_address(headers, self.peer, proxies))
    }
}
