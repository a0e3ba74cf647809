//! The gateway as users run it: the examples, a real nginx as upstream, real clients.

mod access_log;
mod ambiguous_requests;
mod cors;
mod limits_by_route;
mod many_connections;
mod proxy_protocol;
mod real_clients;
mod scenarios;
mod shared_redis;
mod troubleshooting;
mod websocket;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ratewright_lab::Nginx;

use crate::process::{Answer, Ratewright};

/// An application: logins fail, everything else says what it was asked.
fn application() -> Nginx {
    let says = "$request_method $request_uri|$http_x_forwarded_for|$http_x_forwarded_host|$http_x_request_id";
    let server = format!(
        "location ~ /login {{ return 401 'no'; }}\n\
         location / {{ return 200 '{says}'; }}\n"
    );
    Nginx::start(1, "", &server)
}

/// A gateway with these policies in front of the application.
fn gateway(application: &Nginx, config: &str) -> Ratewright {
    Ratewright::start(&with_routes(application, config))
}

fn with_routes(application: &Nginx, config: &str) -> String {
    let address = application.address();
    format!("{config}routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{address}'}}]\n")
}

/// Python, with the libraries that tests need.
pub(crate) fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let python = root.join("target/venv/bin/python");
    assert!(python.exists(), "Python's libraries are missing; `make deps` installs them");
    python
}

/// Asks so many times, and counts the answers by status.
fn statuses(n: usize, mut ask: impl FnMut(usize) -> Answer) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for n in 0..n {
        *counts.entry(ask(n).status).or_default() += 1;
    }
    counts
}
