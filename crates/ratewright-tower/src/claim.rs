//! A charge that may have to be given back: when its request goes away while it waits, or when its answer does not count.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use ratewright_core::{
    Ask, Attribute, AttributeName, Decision, Entrypoint, Limiter, Micros, Observe, OpenCharges, Query,
    Select, Store, Taken, Verdict,
};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::gate::at_once;

/// What a request was counted by, for longer than the request.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    attributes: Vec<(AttributeName<String>, String)>,
    entrypoint: Entrypoint,
}

/// A charge that is given back if this is dropped.
#[derive(Debug)]
pub(crate) struct Claim<S: Store<Error = Infallible> + 'static, O: Observe + 'static> {
    limiter: Arc<Limiter<S, O>>,
    paid: Option<(Owned, Decision)>,
}

impl Owned {
    /// What to keep of a query whose charge may have to be given back, or is not known yet.
    pub(crate) fn kept(query: &Query<'_>, decision: &Decision) -> Option<Self> {
        let is_needed =
            !decision.wait().is_zero() || decision.awaits_answer() || decision.open_charges().is_some();
        (is_needed && decision.verdict() == Verdict::Allow).then(|| Self::of(query))
    }

    fn of(query: &Query<'_>) -> Self {
        let owned =
            query.attributes.iter().map(|Attribute { name, value }| (name.to_owned(), (*value).to_owned()));
        Self { attributes: owned.collect(), entrypoint: query.entrypoint }
    }

    fn attributes(&self) -> SmallVec<[Attribute<'_>; 6]> {
        self.attributes.iter().map(|(name, value)| Attribute { name: name.as_deref(), value }).collect()
    }
}

/// Gives back what a decision charged under the policies that count no answer of this status.
pub(crate) async fn refund_uncounted<S: Store<Error = Infallible>, O: Observe>(
    limiter: &Limiter<S, O>,
    owned: &Owned,
    decision: &mut Decision,
    status: u16,
) {
    let attributes = owned.attributes();
    limiter.refund_uncounted(&query(&attributes, owned), decision, status).await;
}

/// Takes more units under the limits of a request that was let through.
pub(crate) async fn take_more<S: Store<Error = Infallible>, O: Observe>(
    limiter: &Limiter<S, O>,
    owned: &Owned,
    open: &OpenCharges,
    units: NonZeroU32,
) -> Taken {
    let attributes = owned.attributes();
    limiter.take_more(&Query { ask: Ask::Spend(units), ..query(&attributes, owned) }, open, units).await
}

/// The query that was decided, as far as its buckets' names go.
fn query<'a>(attributes: &'a [Attribute<'a>], owned: &Owned) -> Query<'a> {
    Query {
        select: Select::Named(&[]),
        attributes,
        address: None,
        ask: Ask::Look(0),
        patience: Micros::ZERO,
        id: None,
        entrypoint: owned.entrypoint,
    }
}

impl<S: Store<Error = Infallible> + 'static, O: Observe + 'static> Claim<S, O> {
    pub(crate) fn new(limiter: Arc<Limiter<S, O>>, owned: Owned, decision: Decision) -> Self {
        Self { limiter, paid: Some((owned, decision)) }
    }

    /// The charge stands.
    pub(crate) fn keep(mut self) -> Option<(Owned, Decision)> {
        self.paid.take()
    }
}

/// A store that must be waited for is waited for by a task of its own: who was asked is gone.
impl<S: Store<Error = Infallible> + 'static, O: Observe + 'static> Drop for Claim<S, O> {
    fn drop(&mut self) {
        let Some((owned, decision)) = self.paid.take() else { return };
        let (limiter, never_waits) = (Arc::clone(&self.limiter), self.limiter.never_waits());
        let refund = async move {
            let attributes = owned.attributes();
            limiter.refund(&query(&attributes, &owned), decision).await;
        };
        if never_waits {
            at_once(refund);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(refund);
        }
    }
}
