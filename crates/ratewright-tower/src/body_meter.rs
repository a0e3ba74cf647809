//! Bytes of request bodies whose length is not known before: they are recorded when the body has ended.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use ratewright_core::{Limiter, Observe, Store, Unrecorded};
use tokio::runtime::Handle;

use crate::claim::{Owned, record};
use crate::gate::at_once;

/// Records how long a request's body was. It is an extension of requests that a policy with `cost: {bytes: request}` let through before the
/// length was known; whoever reads the body must call [`BodyMeter::record`] once, with the bytes that came.
#[derive(Clone)]
pub struct BodyMeter(Arc<dyn Fn(u64) + Send + Sync>);

impl BodyMeter {
    pub(crate) fn new<S, O>(limiter: Arc<Limiter<S, O>>, owned: Owned, unrecorded: Unrecorded) -> Self
    where
        S: Store<Error = Infallible> + 'static,
        O: Observe + 'static,
    {
        let (owned, unrecorded) = (Arc::new(owned), Arc::new(unrecorded));
        Self(Arc::new(move |n_bytes| {
            let units = u32::try_from(n_bytes).unwrap_or(u32::MAX);
            let (limiter, owned, unrecorded) =
                (Arc::clone(&limiter), Arc::clone(&owned), Arc::clone(&unrecorded));
            if limiter.never_waits() {
                at_once(record(&limiter, &owned, &unrecorded, units));
            } else if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { record(&limiter, &owned, &unrecorded, units).await });
            }
        }))
    }

    /// Counts the bytes of the body, all of them at once.
    pub fn record(&self, n_bytes: u64) {
        (self.0)(n_bytes);
    }
}

impl fmt::Debug for BodyMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyMeter(..)")
    }
}
