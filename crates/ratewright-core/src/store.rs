//! The store trait, and the types that a store works with: charges in, standings out.

use std::future::Future;
use std::sync::Arc;

pub use crate::charge::{Act, Charge, Charges, PaidCharge, Refund};
pub use crate::inline_vec::InlineVec;
pub use crate::key::{BucketName, Key, Value};
pub use crate::standing::{Basis, Outcome, Receipt, Standing, Standings};

/// Holds buckets, and applies charges to them.
///
/// The store owns time: the clocks of several instances differ, one store has one clock.
///
/// [`Limiter`](crate::Limiter) has an example of a store.
pub trait Store: Send + Sync {
    /// Why the store may not reply. A [`Limiter`](crate::Limiter) needs a store that always replies: its error type is
    /// [`Infallible`](std::convert::Infallible).
    type Error: std::error::Error + Send + Sync + 'static;

    /// Applies `charges` in one step and adds one standing for each, in their order. Without charges it does nothing.
    ///
    /// All or nothing: if any charge vetoes, no bucket changes. Charges with the same key are checked in order, each
    /// with the ones before it counted. Dropping the future may leave the charges applied or not, but never in part.
    fn apply(
        &self,
        charges: &[Charge<'_>],
        standings: &mut Standings,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Refunds charges that were made with this store's basis, without units that have returned by themselves. It never
    /// allows more than if they had not been charged, unless the bucket was deleted meanwhile, by a reset or to free
    /// memory. Returns how many were refunded, without those refunded before or made with another basis.
    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<usize, Self::Error>> + Send;

    /// Deletes the buckets, so that their keys have their full quota again. Returns the basis.
    fn reset(&self, keys: &[Key<'_>]) -> impl Future<Output = Result<Basis, Self::Error>> + Send;

    /// True if no future of this store is ever pending: each is ready at the first poll, so a caller need not keep it.
    #[inline(always)]
    fn never_waits(&self) -> bool {
        false
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    type Error = S::Error;

    #[inline(always)]
    fn apply(
        &self,
        charges: &[Charge<'_>],
        standings: &mut Standings,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        (**self).apply(charges, standings)
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<usize, Self::Error>> + Send {
        (**self).refund(refunds)
    }

    fn reset(&self, keys: &[Key<'_>]) -> impl Future<Output = Result<Basis, Self::Error>> + Send {
        (**self).reset(keys)
    }

    #[inline(always)]
    fn never_waits(&self) -> bool {
        (**self).never_waits()
    }
}
