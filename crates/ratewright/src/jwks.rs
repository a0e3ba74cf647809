//! Fetches an issuer's key set (JWKS) regularly, for the verifier of tokens.
//!
//! ```text
//!   start ──► fetch ──► success: use the new keys ────────► pause for `refresh`, or until a request ─────┐
//!               ▲  └──► failure: keep the old keys ───────► pause for `retry`, twice that, … `refresh` ──┤
//!               └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One task fetches, so there is never more than one fetch at a time. A token with an unknown key requests a fetch, because issuers
//! rotate keys at any time. Anyone can send such a token, so a request shortens a pause to `asked_pause` at least. Before the first
//! successful fetch there are no keys, and no token is valid; later a failed fetch keeps the old keys.

mod fetch;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use ratewright_http::jwt::Verifier;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::fetch::{TrustError, error_chain, is_local};
use fetch::{JwksError, KeyFetcher};

/// The URL of an issuer's keys, and how often to fetch them. Has no `Debug`: the URL may contain a secret.
#[derive(Clone)]
pub(crate) struct JwksSource {
    url: Uri,
    /// Root certificates (PEM) that verify the server; without them, those of the machine.
    pub(crate) ca: Option<Vec<u8>>,
    /// The interval between fetches.
    pub(crate) refresh: Duration,
    /// The timeout of a fetch, from the connection to the last byte.
    pub(crate) timeout: Duration,
    /// The largest key set, in bytes.
    pub(crate) body_max: usize,
    /// The shortest pause between a fetch and one that a token requests.
    pub(crate) asked_pause: Duration,
    /// The pause after the first failure. It doubles with each further one, up to `refresh`.
    pub(crate) retry: Duration,
}

/// Requests a fetch.
#[derive(Clone, Debug)]
pub(crate) struct Refresh(Arc<Notify>);

/// Why keys cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The URL is invalid.
    #[error("the URL of the key set must be http:// or https://, with a host and without a user")]
    Url,

    /// TLS cannot be set up.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl JwksSource {
    /// The key set at `url`, with the default pauses.
    pub(crate) fn new(url: &str) -> Result<Self, SourceError> {
        let url = crate::fetch::parse(url).ok_or(SourceError::Url)?;
        Ok(Self {
            url,
            ca: None,
            refresh: Duration::from_secs(5 * 60),
            timeout: Duration::from_secs(5),
            body_max: 1 << 20,
            asked_pause: Duration::from_secs(30),
            retry: Duration::from_secs(1),
        })
    }

    /// The URL, as configured.
    pub(crate) fn url(&self) -> String {
        self.url.to_string()
    }

    /// A handle that requests fetches, and the task that fetches. The task never ends.
    pub(crate) fn follow(
        self,
        verifier: Arc<Verifier>,
    ) -> Result<(Refresh, impl Future<Output = ()> + Send), SourceError> {
        let fetcher = KeyFetcher::new(&self)?;
        if self.url.scheme_str() == Some("http") && !is_local(&self.url) {
            warn!(
                from = self.place(),
                "JWKS fetched over plain HTTP; anyone on the network path can forge tokens"
            );
        }
        let asked = Arc::new(Notify::new());
        Ok((Refresh(Arc::clone(&asked)), self.keep_fresh(fetcher, verifier, asked)))
    }

    async fn keep_fresh(self, fetcher: KeyFetcher, verifier: Arc<Verifier>, asked: Arc<Notify>) {
        let mut n_failures = 0;
        loop {
            match fetcher.fetch().await {
                Ok(keys) => {
                    verifier.replace_keys(keys);
                    self.log_success(std::mem::take(&mut n_failures));
                }
                Err(error) => {
                    self.log_failure(n_failures, &error);
                    n_failures += 1;
                }
            }
            self.pause(n_failures, &asked).await;
        }
    }

    /// Waits for the next fetch. A request shortens the pause to `asked_pause`.
    async fn pause(&self, n_failures: u32, asked: &Notify) {
        let whole = self.pause_after(n_failures);
        let at_least = whole.min(self.asked_pause);
        tokio::time::sleep(at_least).await;
        // A timeout and a request both end the pause.
        let _ = tokio::time::timeout(whole - at_least, asked.notified()).await;
    }

    fn pause_after(&self, n_failures: u32) -> Duration {
        match n_failures.checked_sub(1) {
            None => self.refresh,
            Some(n_doubled) => self.retry.saturating_mul(1 << n_doubled.min(20)).min(self.refresh),
        }
    }

    fn log_success(&self, n_failures: u32) {
        if n_failures > 0 {
            info!(from = self.place(), failures = n_failures, "JWKS fetch succeeded again");
        }
    }

    /// Logs only the first of consecutive failures.
    fn log_failure(&self, n_failures: u32, error: &JwksError) {
        if n_failures == 0 {
            warn!(
                from = self.place(),
                cause = error_chain(error),
                "JWKS fetch failed; keeping the previous keys, if any"
            );
        }
    }

    /// The URL for logs, without its query, which may contain a secret.
    fn place(&self) -> String {
        let host = self.url.authority().map_or("", |authority| authority.as_str());
        format!("{}://{host}{}", self.url.scheme_str().unwrap_or_default(), self.url.path())
    }
}

impl Refresh {
    /// Requests a fetch, and returns at once.
    pub(crate) fn ask(&self) {
        self.0.notify_one();
    }
}
