//! Limits on bytes for bodies of unknown length: each chunk is charged before the service uses it.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;

use ratewright_core::decision::{ExtraCharge, Observe, OpenCharges};
use ratewright_core::{Limiter, Store};

use crate::refund_guard::{OwnedQuery, take_more};

/// Charges the bytes of a request body as they arrive. Requests of unknown length that pass a policy with
/// `cost: {bytes: request}` carry it as an extension; the service must call [`BodyMeter::take`] for every chunk.
///
/// ```
/// use ratewright_core::decision::ExtraCharge;
/// use ratewright_tower::BodyMeter;
///
/// /// True if the chunk may be used.
/// async fn is_paid(request: &http::request::Parts, chunk: &[u8]) -> bool {
///     let Some(meter) = request.extensions.get::<BodyMeter>() else { return true }; // the length was known
///     meter.take(chunk.len()).await == ExtraCharge::Charged
/// }
/// ```
#[derive(Clone)]
pub struct BodyMeter(Arc<ChargeFn>);

type ChargeFn = dyn Fn(NonZeroU32) -> TakeFuture + Send + Sync;

/// The result of [`BodyMeter::take`].
pub type TakeFuture = Pin<Box<dyn Future<Output = ExtraCharge> + Send>>;

impl BodyMeter {
    pub(crate) fn new<S, O>(limiter: Arc<Limiter<S, O>>, query: OwnedQuery, open: OpenCharges) -> Self
    where
        S: Store<Error = Infallible> + 'static,
        O: Observe + 'static,
    {
        let (query, open) = (Arc::new(query), Arc::new(open));
        Self(Arc::new(move |units| {
            let (limiter, query, open) = (Arc::clone(&limiter), Arc::clone(&query), Arc::clone(&open));
            Box::pin(async move { take_more(&limiter, &query, &open, units).await })
        }))
    }

    /// Charges a chunk of the body. If it is denied, the service must not use the chunk and should respond with 429.
    pub fn take(&self, n_bytes: usize) -> TakeFuture {
        match NonZeroU32::new(u32::try_from(n_bytes).unwrap_or(u32::MAX)) {
            Some(units) => (self.0)(units),
            None => Box::pin(std::future::ready(ExtraCharge::Charged)),
        }
    }
}

impl fmt::Debug for BodyMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyMeter(..)")
    }
}
