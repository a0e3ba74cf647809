//! A store under a clock that the test moves. The laws know the store's API from here only.

use std::cell::OnceCell;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::generate::{Gap, lasts};
use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::store::{
    Act, Basis, BucketName, Charge, Key, Outcome, Receipt, Refund, Standing, Standings,
};
use ratewright_core::{ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_lab::{Redis, within};
use ratewright_store::{MemoryStore, RedisSettings, RedisStore, Servers};
use tokio::runtime::Runtime;

/// A store and its clock, which other worlds do not share.
pub(crate) struct World<S> {
    pub(crate) clock: ManualClock,
    pub(crate) store: S,
    /// The clock by which the store lives, if worlds take turns with it.
    turn: Option<ManualClock>,
    /// Which world a client belongs to.
    prefix: String,
}

/// A world in memory.
pub(crate) type MemoryWorld = World<MemoryStore<ManualClock>>;

/// A world in Redis.
pub(crate) type RedisWorld = World<Arc<RedisStore>>;

/// A quota whose buckets have a name.
pub(crate) struct Gate {
    pub(crate) quota: Quota,
    name: BucketName,
}

/// Where the worlds in Redis are: one server for all tests.
static SERVER: LazyLock<Redis> = LazyLock::new(Redis::start);

/// Where Redis' links live.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

static N_WORLDS: AtomicU32 = AtomicU32::new(0);

impl MemoryWorld {
    pub(crate) fn at(now: Timestamp) -> Self {
        Self::with_room_for(10_000, now)
    }

    /// A world with room for so many keys.
    pub(crate) fn with_room_for(n_keys: usize, now: Timestamp) -> Self {
        let clock = ManualClock::at(now);
        let store = MemoryStore::new(clock.clone(), n_keys);
        Self { store, clock, turn: None, prefix: String::new() }
    }
}

impl RedisWorld {
    pub(crate) fn at(now: Timestamp) -> Self {
        thread_local! {
            static STORE: OnceCell<(Arc<RedisStore>, ManualClock)> = const { OnceCell::new() };
        }
        let (store, turn) = STORE.with(|store| store.get_or_init(redis_store).clone());
        let prefix = format!("{}-", N_WORLDS.fetch_add(1, Ordering::Relaxed));
        Self { store: Arc::new(store.anew()), clock: ManualClock::at(now), turn: Some(turn), prefix }
    }
}

/// A store on the server, under a clock of its own. Keys outlive the longest test: they expire in real time.
fn redis_store() -> (Arc<RedisStore>, ManualClock) {
    let _in_it = RUNTIME.enter();
    let clock = ManualClock::default();
    let settings = RedisSettings::default()
        .deadline(Duration::from_secs(20))
        .min_ttl(Micros::from_secs(600))
        .clock(Some(clock.clone()));
    let store = RedisStore::new(Servers::single(&SERVER.url()).unwrap(), settings);
    ratewright_lab::wait_until("the link is up", || store.status().is_up);
    (Arc::new(store), clock)
}

impl<S: Store<Error: Debug>> World<S> {
    /// Applies one charge of the only client.
    pub(crate) fn apply(&self, gate: &Gate, act: Act) -> Standing {
        self.apply_all(&[(gate, "c", act)]).remove(0)
    }

    /// Applies several charges in one call: of which gate, whose, and what.
    pub(crate) fn apply_all(&self, charges: &[(&Gate, &str, Act)]) -> Standings {
        self.apply_within(Micros::MAX, charges)
    }

    /// The same, by somebody who waits no longer than that.
    pub(crate) fn apply_within(&self, patience: Micros, charges: &[(&Gate, &str, Act)]) -> Standings {
        let clients: Vec<_> =
            charges.iter().map(|(_, client, _)| format!("{}{client}", self.prefix)).collect();
        let clients: Vec<_> = clients.iter().map(|client| [client_of(client)]).collect();
        let charges: Vec<_> = charges
            .iter()
            .zip(&clients)
            .map(|((gate, _, act), client)| Charge {
                limit: LimitId::default(),
                key: Key::new(&gate.name, client).unwrap(),
                quota: &gate.quota,
                act: *act,
                patience,
                on_failure: OnFailure::Local,
            })
            .collect();
        self.apply_charges(&charges)
    }

    /// Applies charges of the only client, as policies select them.
    pub(crate) fn apply_charges(&self, charges: &[Charge<'_>]) -> Standings {
        let mut standings = Standings::new();
        self.answer(self.store.apply(charges, &mut standings)).unwrap();
        standings
    }

    /// What the only client is called in the store.
    pub(crate) fn client(&self) -> String {
        format!("{}c", self.prefix)
    }

    /// Lets time pass, in terms of the first gate. False, and none passes, where time would end too soon for their laws.
    pub(crate) fn pass(&self, gap: Gap, gates: &[&Gate]) -> bool {
        let by = Micros::new(gap.micros(&gates[0].quota));
        let lasts = self.lasts_after(by, gates);
        if lasts {
            self.clock.advance(by);
        }
        lasts
    }

    /// True if all that these gates may owe after so long comes back before time ends.
    pub(crate) fn lasts_after(&self, by: Micros, gates: &[&Gate]) -> bool {
        let then = ratewright_core::Clock::now(&self.clock) + by;
        gates.iter().all(|gate| lasts(&gate.quota, then.as_micros()))
    }

    /// Takes from the only client's bucket, and tells the receipt if it was paid.
    pub(crate) fn take(&self, gate: &Gate, cost: u32) -> Option<Receipt> {
        match self.apply(gate, take(cost)).outcome {
            Outcome::Charged(receipt) => Some(receipt),
            Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
        }
    }

    pub(crate) fn peek(&self, gate: &Gate) -> Standing {
        self.apply(gate, Act::Look(0))
    }

    /// True if so much would fit now.
    pub(crate) fn would_fit(&self, gate: &Gate, cost: u32) -> bool {
        self.apply(gate, Act::Look(cost)).outcome == Outcome::WouldPass
    }

    /// Refunds a charge of the only client. True if the store confirms it.
    pub(crate) fn refund(&self, gate: &Gate, receipt: Receipt) -> bool {
        let client = self.client();
        let client = [client_of(&client)];
        let key = Key::new(&gate.name, &client).unwrap();
        let basis = if self.turn.is_some() { Basis::Shared } else { Basis::Local };
        let refund = Refund { key, quota: &gate.quota, receipt, basis, share: None, id: None };
        self.answer(self.store.refund(&[refund])).unwrap() == 1
    }

    pub(crate) fn reset(&self, gate: &Gate) {
        let client = self.client();
        let client = [client_of(&client)];
        self.answer(self.store.reset(&[Key::new(&gate.name, &client).unwrap()])).unwrap();
    }

    /// What the store answers, living by this world's clock.
    fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        match &self.turn {
            None => ready(answer),
            Some(turn) => {
                turn.set(ratewright_core::Clock::now(&self.clock));
                block_on(answer)
            }
        }
    }
}

impl Gate {
    pub(crate) fn new(name: &str, quota: Quota) -> Self {
        Self { name: BucketName::new(name, None, &quota, vec![Part::one(AttributeName::Ip)]), quota }
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

pub(crate) fn join(cost: u32) -> Act {
    Act::Join(NonZeroU32::new(cost).expect("a try costs something"))
}

fn client_of(client: &str) -> Attribute<'_> {
    Attribute { name: AttributeName::Ip, value: client }
}

/// What a store answers. The wait ends, whatever the store's own deadline does.
#[track_caller]
pub(crate) fn block_on<T>(answer: impl Future<Output = T>) -> T {
    RUNTIME.block_on(within("the store answers", answer))
}

/// What a store in memory answers: it never waits.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}
