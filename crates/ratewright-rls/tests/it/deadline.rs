//! A decision waits for one call to the store in every mode, and so for one deadline; what it corrects follows its answer.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratewright_core::Store;
use ratewright_core::query::Entrypoint;
use ratewright_core::store::{Basis, Charge, Key, Refund, Standing, Standings};
use ratewright_lab::within;
use ratewright_listen::Shutdown;
use ratewright_rls::wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use ratewright_rls::{Compat, GrpcListenerSettings, GrpcService, Refunds, Refusal, RlsSettings, serve};
use ratewright_rls_rules::Descriptor;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::grpc::Open;
use crate::world::{Memory, World, costing, in_words, limit, of};

/// How long the store takes for a call.
const CALL: Duration = Duration::from_millis(4);

/// A store that takes its time, or only comes to an end when it may.
struct Slow {
    memory: Memory,
    n_calls: AtomicU32,
    pace: Pace,
}

enum Pace {
    /// Each call takes [`CALL`].
    Steady,
    /// No call is answered in [`CALL`], and this is the basis of what is decided then.
    Stalled(Basis),
    /// The first calls are answered at once, so many as there are permits.
    Permits(Semaphore),
}

impl Slow {
    async fn call(&self) {
        self.n_calls.fetch_add(1, Ordering::SeqCst);
        match &self.pace {
            Pace::Steady | Pace::Stalled(_) => tokio::time::sleep(CALL).await,
            Pace::Permits(permits) => permits.acquire().await.unwrap().forget(),
        }
    }
}

impl Store for Slow {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        self.call().await;
        if let Pace::Stalled(basis) = self.pace {
            standings.extend(charges.iter().map(|charge| Standing::unknown(charge, basis)));
            return Ok(());
        }
        self.memory.apply(charges, standings).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        self.call().await;
        self.memory.refund(refunds).await
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        self.memory.reset(keys).await
    }
}

/// A request, with those before it that lead to where it stands.
struct Case {
    name: &'static str,
    before: Vec<Vec<RateLimitDescriptor>>,
    asked: Vec<RateLimitDescriptor>,
    compat: Compat,
    /// What is answered.
    expected: &'static str,
    /// InlineExecutor that follow the answer.
    n_after: u32,
    /// How many of ten units the client has left then.
    left: &'static str,
}

/// Ten a minute for clients, ten in record mode, one in each of two quotas, none for `never`.
fn rules() -> Vec<Descriptor> {
    let quota = |key: &str| Descriptor { quota_mode: true, ..limit(key, "", 1, "minute") };
    vec![
        limit("client", "", 10, "minute"),
        limit("once", "", 1, "minute"),
        limit("never", "", 0, "minute"),
        Descriptor { record_mode: true, ..limit("tokens", "", 10, "minute") },
        quota("q1"),
        quota("q2"),
    ]
}

fn one(key: &str) -> RateLimitDescriptor {
    of(&[(key, "x")])
}

fn n(hits: u64, key: &str) -> RateLimitDescriptor {
    costing(hits, one(key))
}

fn back(hits: u64, key: &str) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..n(hits, key) }
}

fn cases() -> Vec<Case> {
    let case = || Case {
        name: "",
        before: Vec::new(),
        asked: Vec::new(),
        compat: Compat::AllOrNothing,
        expected: "",
        n_after: 0,
        left: "OK | OK 10/MINUTE left 10 in 43",
    };
    vec![
        Case {
            name: "all have room",
            asked: vec![n(8, "tokens"), one("client"), one("q1")],
            expected: "OK | OK 10/MINUTE left 2 in 43 | OK 10/MINUTE left 9 in 43 | OK 1/MINUTE left 0 in 43",
            left: "OK | OK 10/MINUTE left 9 in 43",
            ..case()
        },
        Case {
            name: "a record is past its limit",
            before: vec![vec![n(11, "tokens")]],
            asked: vec![n(0, "tokens"), one("client"), one("q1")],
            expected: "OVER | OVER 10/MINUTE left 0 in 43 | OK 10/MINUTE left 10 in 43 | OK 1/MINUTE left 1 in 43",
            n_after: 1,
            ..case()
        },
        Case {
            name: "a record beside a veto",
            before: vec![vec![one("once")]],
            asked: vec![n(8, "tokens"), one("client"), one("once")],
            expected: "OVER | OK 10/MINUTE left 2 in 43 | OK 10/MINUTE left 10 in 43 | OVER 1/MINUTE left 0 in 43",
            n_after: 1,
            ..case()
        },
        Case {
            name: "a record beside a limit of zero",
            asked: vec![n(8, "tokens"), one("client"), one("never")],
            expected: "OVER | OK 10/MINUTE left 2 in 43 | OK 10/MINUTE left 10 in 43 | OVER 0/MINUTE left 0 in 43",
            ..case()
        },
        Case {
            name: "all quotas are used up",
            before: vec![vec![one("q1")], vec![one("q2")]],
            asked: vec![one("q1"), one("q2"), one("client")],
            expected: "OVER | OVER 1/MINUTE left 0 in 43 | OVER 1/MINUTE left 0 in 43 | OK 10/MINUTE left 10 in 43",
            n_after: 1,
            ..case()
        },
        Case {
            name: "quotas beside a record past its limit",
            before: vec![vec![n(11, "tokens"), one("q1")]],
            asked: vec![n(3, "tokens"), one("q2"), one("client"), back(1, "client")],
            expected: "OVER | OVER 10/MINUTE left 0 in 43 | OK 1/MINUTE left 1 in 43 | OK 10/MINUTE left 10 in 43 | OK 10/MINUTE left 9 in 43",
            n_after: 1,
            ..case()
        },
        Case {
            name: "negative hits",
            before: vec![vec![n(5, "client")]],
            asked: vec![back(2, "client")],
            expected: "OK | OK 10/MINUTE left 7 in 43",
            n_after: 1,
            left: "OK | OK 10/MINUTE left 7 in 43",
            ..case()
        },
        Case {
            name: "negative hits, strictly",
            before: vec![vec![n(5, "client")]],
            asked: vec![back(2, "client"), one("once"), one("once")],
            compat: Compat::Strict,
            expected: "OVER | OK 10/MINUTE left 7 in 43 | OK 1/MINUTE left 0 in 43 | OVER 1/MINUTE left 0 in 43",
            n_after: 1,
            left: "OK | OK 10/MINUTE left 7 in 43",
        },
    ]
}

fn world(compat: Compat, pace: Pace) -> World<Slow> {
    let settings = RlsSettings { compat, ..RlsSettings::default() };
    World::over(&rules(), settings, |memory| Slow { memory, n_calls: AtomicU32::new(0), pace })
}

impl World<Slow> {
    fn n_calls(&self) -> u32 {
        self.store.n_calls.load(Ordering::SeqCst)
    }

    /// The answer, when it was there and after how many calls.
    async fn answer_first(
        &self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> (RateLimitResponse, Duration, u32) {
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        let (queue, n_before) = (Instant::now(), self.n_calls());
        let mut answer = None;
        let reply = |outcomes: Result<RateLimitResponse, Refusal>| {
            answer = Some((outcomes.unwrap(), queue.elapsed(), self.n_calls() - n_before));
        };
        self.rls.answer_first(&request, Refunds::Allowed, Entrypoint::Grpc, reply).await;
        answer.unwrap()
    }
}

/// Time stands still but for what the store takes.
#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_one_call_in_every_mode() {
    for Case { name, before, asked, compat, expected, n_after, left } in cases() {
        let world = world(compat, Pace::Steady);
        for asked in before {
            world.ask(asked).await;
        }
        let n_before = world.n_calls();
        let (answer, took, n_calls) = world.answer_first(asked).await;
        assert_eq!(in_words(&answer), expected, "{name}");
        assert_eq!((took, n_calls), (CALL, 1), "{name}");
        assert_eq!(world.n_calls() - n_before - 1, n_after, "{name}");
        assert_eq!(world.ask(vec![n(0, "client")]).await, left, "{name}: what is left then");
    }
}

/// Records are counted whatever the others say.
#[tokio::test(start_paused = true)]
async fn a_record_that_a_veto_held_up_is_counted_after_the_answer() {
    for Case { name, before, asked, compat, .. } in
        cases().into_iter().filter(|case| case.name.starts_with("a record beside"))
    {
        let world = world(compat, Pace::Steady);
        for asked in before {
            world.ask(asked).await;
        }
        world.answer_first(asked).await;
        assert_eq!(world.ask(vec![n(0, "tokens")]).await, "OK | OK 10/MINUTE left 2 in 43", "{name}");
    }
}

/// A store that does not answer is waited for once, and `on_failure` decides.
#[tokio::test(start_paused = true)]
async fn a_store_that_stalls_is_waited_for_once_in_every_mode() {
    for (basis, code) in [(Basis::FailOpen, "OK |"), (Basis::FailClosed, "OVER |")] {
        for Case { name, asked, compat, .. } in cases() {
            let world = world(compat, Pace::Stalled(basis));
            let is_denied_anyway = asked.contains(&one("never"));
            let only_gives_back = asked.iter().all(|descriptor| descriptor.is_negative_hits);
            let (answer, took, n_calls) = world.answer_first(asked).await;
            let expected = if is_denied_anyway {
                "OVER |"
            } else if only_gives_back {
                "OK |"
            } else {
                code
            };
            assert!(in_words(&answer).starts_with(expected), "{name}: {}", in_words(&answer));
            assert_eq!((took, n_calls, world.n_calls()), (CALL, 1, 1), "{name}: it may have been applied");
        }
    }
}

/// Over gRPC: the answer is there while its corrections wait, and a stop waits for them.
#[tokio::test]
async fn a_call_is_answered_before_its_corrections_and_a_stop_waits_for_them() {
    let world = world(Compat::AllOrNothing, Pace::Permits(Semaphore::new(2)));
    let rls = world.rls.clone();
    let permits = || match &world.store.pace {
        Pace::Permits(permits) => permits,
        Pace::Steady | Pace::Stalled(_) => unreachable!(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, health) = GrpcService::new(rls.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = Shutdown::when(async { stopped.await.unwrap_or_default() });
    let served = tokio::spawn(serve(listener, service, GrpcListenerSettings::default(), None, stopped));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let open = Open { address, channel, health, stop, served };

    open.ask_for(vec![n(5, "client")]).await.unwrap();
    let answer = open.ask_for(vec![back(2, "client")]).await.unwrap();
    assert_eq!(in_words(&answer), "OK | OK 10/MINUTE left 7 in 43");
    assert_eq!(world.n_calls(), 3, "the refund is on its way");
    let Open { stop, mut served, channel, .. } = open;
    drop(channel);
    stop.send(()).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), &mut served).await;
    assert!(early.is_err(), "what is to be given back is waited for");
    permits().add_permits(1);
    within("it stops", served).await.unwrap();
    permits().add_permits(1);
    assert_eq!(world.ask(vec![n(0, "client")]).await, "OK | OK 10/MINUTE left 7 in 43");
}
