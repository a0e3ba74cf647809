//! Bodies of unknown length, under limits on bytes: each piece is charged before it is passed on.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;

use ratewright_core::{Limiter, Observe, OpenCharges, Store, Taken};

use crate::claim::{Owned, take_more};

/// Charges the bytes of a request's body as they come. It is an extension of requests of unknown length that a policy with
/// `cost: {bytes: request}` let through; the service that reads the body must call [`BodyMeter::take`] for every piece.
#[derive(Clone)]
pub struct BodyMeter(Arc<Charge>);

type Charge = dyn Fn(NonZeroU32) -> Taking + Send + Sync;

/// The answer to [`BodyMeter::take`], to come.
pub type Taking = Pin<Box<dyn Future<Output = Taken> + Send>>;

impl BodyMeter {
    pub(crate) fn new<S, O>(limiter: Arc<Limiter<S, O>>, owned: Owned, open: OpenCharges) -> Self
    where
        S: Store<Error = Infallible> + 'static,
        O: Observe + 'static,
    {
        let (owned, open) = (Arc::new(owned), Arc::new(open));
        Self(Arc::new(move |units| {
            let (limiter, owned, open) = (Arc::clone(&limiter), Arc::clone(&owned), Arc::clone(&open));
            Box::pin(async move { take_more(&limiter, &owned, &open, units).await })
        }))
    }

    /// Charges a piece of the body. If it is denied, the service must not use the piece, and should end the request with 429.
    pub fn take(&self, n_bytes: usize) -> Taking {
        match NonZeroU32::new(u32::try_from(n_bytes).unwrap_or(u32::MAX)) {
            Some(units) => (self.0)(units),
            None => Box::pin(std::future::ready(Taken::Paid)),
        }
    }
}

impl fmt::Debug for BodyMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyMeter(..)")
    }
}
