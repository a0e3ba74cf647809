//! The seam to where buckets live.

use std::future::Future;
use std::sync::Arc;

pub use crate::charge::{Act, Charge, Charges, PaidCharge, Refund};
pub use crate::inline_vec::InlineVec;
pub use crate::key::{BucketName, Key, Value};
pub use crate::standing::{Basis, Outcome, Receipt, Standing, Standings};

/// Holds buckets, and applies charges to them.
///
/// The store owns time. Nodes do not agree on the clock; one store does.
pub trait Store: Send + Sync {
    /// Why it may give no answer. A store that always answers says so with
    /// [`Infallible`](std::convert::Infallible), and only such a store can stand behind a
    /// [`Limiter`](crate::Limiter).
    type Error: std::error::Error + Send + Sync + 'static;

    /// Applies `charges` in one step and tells how each key stands, in their order. Without charges
    /// nothing is asked of anyone.
    ///
    /// All or nothing: if any charge vetoes, no bucket moves. Charges of equal keys are judged in
    /// order, each with those before it counted. Dropping the future may leave the charges applied or
    /// not, but never in part.
    fn apply(
        &self,
        charges: &[Charge<'_>],
        standings: &mut Standings,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Gives back what was paid on this store's ground, as far as time has not repaid it. Never lets more through than if it had
    /// not been charged, unless the bucket was forgotten meanwhile, by a reset or for want of room.
    /// Tells how many were given back: not those that were before, nor those of another ground.
    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<usize, Self::Error>> + Send;

    /// Forgets the buckets, so that their keys stand as if never seen, and tells on what ground.
    fn reset(&self, keys: &[Key<'_>]) -> impl Future<Output = Result<Basis, Self::Error>> + Send;

    /// True if no future of this store is ever pending: who asks has the answer at the first poll, and needs no place to
    /// keep the future in.
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
