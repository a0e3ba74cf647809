//! A store under a clock that the test moves. The laws know the store's API from here only.

use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::{
    Act, Attribute, AttributeName, BucketName, Charge, Key, LimitId, ManualClock, Micros, Outcome, Quota,
    Receipt, Refund, Standing, Standings, Store, Timestamp,
};
use tollgate_store::MemoryStore;

/// A store, its clock, and one quota with the name of its buckets.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore<ManualClock>,
}

/// A quota whose buckets have a name.
pub(crate) struct Gate {
    pub(crate) quota: Quota,
    name: BucketName,
}

impl World {
    pub(crate) fn at(now: Timestamp) -> Self {
        let clock = ManualClock::at(now);
        Self { store: MemoryStore::new(clock.clone(), 10_000), clock }
    }

    /// Applies one charge of the only client.
    pub(crate) fn apply(&self, gate: &Gate, act: Act) -> Standing {
        self.apply_all(&[(gate, "c", act)]).remove(0)
    }

    /// Applies several charges in one call: of which gate, whose, and what.
    pub(crate) fn apply_all(&self, charges: &[(&Gate, &str, Act)]) -> Standings {
        let clients: Vec<_> = charges.iter().map(|(_, client, _)| [client_of(client)]).collect();
        let charges: Vec<_> = charges
            .iter()
            .zip(&clients)
            .map(|((gate, _, act), client)| Charge {
                limit: LimitId::default(),
                key: Key::new(&gate.name, client).unwrap(),
                quota: &gate.quota,
                act: *act,
                patience: Micros::MAX,
            })
            .collect();
        let mut standings = Standings::new();
        ready(self.store.apply(&charges, &mut standings)).unwrap();
        standings
    }

    /// Takes from the only client's bucket, and tells the receipt if it was paid.
    pub(crate) fn take(&self, gate: &Gate, cost: u32) -> Option<Receipt> {
        match self.apply(gate, take(cost)).outcome {
            Outcome::Paid(receipt) => Some(receipt),
            Outcome::Fits | Outcome::Short { .. } | Outcome::Never | Outcome::Unknown => None,
        }
    }

    pub(crate) fn peek(&self, gate: &Gate) -> Standing {
        self.apply(gate, Act::Look(0))
    }

    /// True if so much would fit now.
    pub(crate) fn would_fit(&self, gate: &Gate, cost: u32) -> bool {
        self.apply(gate, Act::Look(cost)).outcome == Outcome::Fits
    }

    pub(crate) fn refund(&self, gate: &Gate, receipt: Receipt) {
        let client = [client_of("c")];
        let key = Key::new(&gate.name, &client).unwrap();
        ready(self.store.refund(&[Refund { key, quota: &gate.quota, receipt }])).unwrap();
    }

    pub(crate) fn reset(&self, gate: &Gate) {
        let client = [client_of("c")];
        ready(self.store.reset(&[Key::new(&gate.name, &client).unwrap()])).unwrap();
    }
}

impl Gate {
    pub(crate) fn new(name: &str, quota: Quota) -> Self {
        Self { name: BucketName::new(name, None, &quota, vec![AttributeName::Ip]), quota }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.quota.capacity().get()
    }
}

pub(crate) fn take(cost: u32) -> Act {
    Act::Take(NonZeroU32::new(cost).expect("a take costs something"))
}

pub(crate) fn trial(cost: u32) -> Act {
    Act::Try(NonZeroU32::new(cost).expect("a try costs something"))
}

fn client_of(client: &str) -> Attribute<'_> {
    Attribute { name: AttributeName::Ip, value: client }
}

/// What a store in memory answers: it never waits.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}
