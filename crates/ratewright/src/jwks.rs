//! Keeps a verifier's keys as fresh as those that the issuer publishes.
//!
//! ```text
//!   start ──► fetch ──► it went well: take the new keys ──► pause for `refresh`, or until somebody asks ─┐
//!               ▲  └──► it failed: keep the old ones ─────► pause for `retry`, twice that, … `refresh` ──┤
//!               └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One task does all of it, so there is never more than one fetch. A token with an unknown key asks for new ones:
//! issuers rotate when they like. Anybody can send such a token, so asking shortens a pause to `asked_pause` at
//! most. Until the first fetch goes well there are no keys, and nobody is verified; afterwards old keys are better
//! than none.

mod fetch;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use ratewright_http::jwt::Verifier;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::fetch::{TrustError, cause, is_local};
use fetch::{FetchError, KeyFetcher};

/// Where an issuer publishes its keys, and how often we look. Cannot be printed: the URL may hold a secret.
#[derive(Clone)]
pub(crate) struct JwksSource {
    url: Uri,
    /// Certificates in PEM that the server is held against; without them, those that the machine trusts.
    pub(crate) ca: Option<Vec<u8>>,
    /// How old the keys may become.
    pub(crate) refresh: Duration,
    /// How long a fetch may take, from the first packet to the last.
    pub(crate) timeout: Duration,
    /// How long the key set may be, in bytes.
    pub(crate) body_max: usize,
    /// How soon after a fetch the next one may be asked for.
    pub(crate) asked_pause: Duration,
    /// The pause after the first failure. It doubles with each further one, up to `refresh`.
    pub(crate) retry: Duration,
}

/// Asks for newer keys.
#[derive(Clone, Debug)]
pub(crate) struct Refresh(Arc<Notify>);

/// Why there is nowhere to fetch from.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// No address.
    #[error("the URL of the key set must be http:// or https://, with a host and without a user")]
    Url,

    /// Nobody to trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl JwksSource {
    /// The key set at `url`, with the usual pauses.
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

    /// Where, as it is written.
    pub(crate) fn url(&self) -> String {
        self.url.to_string()
    }

    /// How to ask for newer keys, and the task that keeps the verifier's fresh. It never ends.
    pub(crate) fn follow(
        self,
        verifier: Arc<Verifier>,
    ) -> Result<(Refresh, impl Future<Output = ()> + Send), SourceError> {
        let fetcher = KeyFetcher::new(&self)?;
        if self.url.scheme_str() == Some("http") && !is_local(&self.url) {
            warn!(
                from = self.place(),
                "keys come over plain HTTP: who can change them on the way can be anybody"
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
                    self.tell_success(std::mem::take(&mut n_failures));
                }
                Err(error) => {
                    self.tell_failure(n_failures, &error);
                    n_failures += 1;
                }
            }
            self.pause(n_failures, &asked).await;
        }
    }

    /// Waits for the next turn. Asking makes it come sooner, but not at once.
    async fn pause(&self, n_failures: u32, asked: &Notify) {
        let whole = self.pause_after(n_failures);
        let at_least = whole.min(self.asked_pause);
        tokio::time::sleep(at_least).await;
        // Asked or not, it is time.
        let _ = tokio::time::timeout(whole - at_least, asked.notified()).await;
    }

    fn pause_after(&self, n_failures: u32) -> Duration {
        match n_failures.checked_sub(1) {
            None => self.refresh,
            Some(n_doubled) => self.retry.saturating_mul(1 << n_doubled.min(20)).min(self.refresh),
        }
    }

    fn tell_success(&self, n_failures: u32) {
        if n_failures > 0 {
            info!(from = self.place(), failures = n_failures, "keys are fetched again");
        }
    }

    /// Only the first failure in a row is news.
    fn tell_failure(&self, n_failures: u32, error: &FetchError) {
        if n_failures == 0 {
            warn!(
                from = self.place(),
                cause = cause(error),
                "cannot fetch keys; the old ones count, if there are any"
            );
        }
    }

    /// The URL for people. Its query may hold a secret, so it is left out.
    fn place(&self) -> String {
        let host = self.url.authority().map_or("", |authority| authority.as_str());
        format!("{}://{host}{}", self.url.scheme_str().unwrap_or_default(), self.url.path())
    }
}

impl Refresh {
    /// Asks for newer keys. Costs nothing, and does not wait for them.
    pub(crate) fn ask(&self) {
        self.0.notify_one();
    }
}
