//! Refunds a charge if its request is dropped while it waits, or if its response does not count.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use ratewright_core::decision::{ExtraCharge, Observe, OpenCharges};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::{Decision, Limiter, Micros, Query, Store, Verdict};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::decide::now_or_never;

/// The query of a request, for a refund or a further charge after the request itself is gone.
#[derive(Clone, Debug)]
pub(crate) struct OwnedQuery {
    attributes: Vec<(AttributeName<String>, String)>,
    entrypoint: Entrypoint,
}

/// Refunds its charge when dropped, unless disarmed.
#[derive(Debug)]
pub(crate) struct RefundGuard<S: Store<Error = Infallible> + 'static, O: Observe + 'static> {
    limiter: Arc<Limiter<S, O>>,
    charged: Option<(OwnedQuery, Decision)>,
}

impl OwnedQuery {
    /// A copy of the query if its charge may be refunded, or is not yet complete.
    pub(crate) fn if_needed(query: &Query<'_>, decision: &Decision) -> Option<Self> {
        let is_needed =
            !decision.wait().is_zero() || decision.awaits_response() || decision.open_charges().is_some();
        (is_needed && decision.verdict() == Verdict::Allow).then(|| Self::of(query))
    }

    fn of(query: &Query<'_>) -> Self {
        let attributes =
            query.attributes.iter().map(|Attribute { name, value }| (name.to_owned(), (*value).to_owned()));
        Self { attributes: attributes.collect(), entrypoint: query.entrypoint }
    }

    fn attributes(&self) -> SmallVec<[Attribute<'_>; 6]> {
        self.attributes.iter().map(|(name, value)| Attribute { name: name.as_deref(), value }).collect()
    }

    /// The query as far as the names of its buckets depend on it.
    fn query<'a>(&self, attributes: &'a [Attribute<'a>]) -> Query<'a> {
        Query {
            select: Select::Named(&[]),
            attributes,
            address: None,
            ask: Ask::Look(0),
            patience: Micros::ZERO,
            id: None,
            entrypoint: self.entrypoint,
        }
    }
}

/// Refunds the charges of policies that do not count responses with this status.
pub(crate) async fn refund_uncounted<S: Store<Error = Infallible>, O: Observe>(
    limiter: &Limiter<S, O>,
    query: &OwnedQuery,
    decision: &mut Decision,
    status: u16,
) {
    let attributes = query.attributes();
    limiter.refund_uncounted(&query.query(&attributes), decision, status).await;
}

/// Charges more units to the limits of an allowed request.
pub(crate) async fn take_more<S: Store<Error = Infallible>, O: Observe>(
    limiter: &Limiter<S, O>,
    query: &OwnedQuery,
    open: &OpenCharges,
    units: NonZeroU32,
) -> ExtraCharge {
    let attributes = query.attributes();
    limiter.take_more(&Query { ask: Ask::Spend(units), ..query.query(&attributes) }, open, units).await
}

impl<S: Store<Error = Infallible> + 'static, O: Observe + 'static> RefundGuard<S, O> {
    pub(crate) fn new(limiter: Arc<Limiter<S, O>>, query: OwnedQuery, decision: Decision) -> Self {
        Self { limiter, charged: Some((query, decision)) }
    }

    /// Keeps the charge.
    pub(crate) fn disarm(mut self) -> Option<(OwnedQuery, Decision)> {
        self.charged.take()
    }
}

/// Spawns a task if the store has to be awaited, because the request's own task has dropped it.
impl<S: Store<Error = Infallible> + 'static, O: Observe + 'static> Drop for RefundGuard<S, O> {
    fn drop(&mut self) {
        let Some((query, decision)) = self.charged.take() else { return };
        let (limiter, never_waits) = (Arc::clone(&self.limiter), self.limiter.never_waits());
        let refund = async move {
            let attributes = query.attributes();
            limiter.refund(&query.query(&attributes), decision).await;
        };
        if never_waits {
            now_or_never(refund);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(refund);
        }
    }
}
