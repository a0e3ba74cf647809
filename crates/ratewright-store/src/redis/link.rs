//! Keeps a connection to Redis. No caller waits for it longer than the deadline.
//!
//! ```text
//!              connected, and the script ran
//!      ┌──────────────────────────────────────────┐
//!      │                                          ▼
//!    down ─ each call fails at once             up ─ calls go out, several decisions together
//!      ▲                                          │
//!      └──────────────────────────────────────────┘
//!        the connection broke, or Redis refuses, or too many calls missed the deadline
//! ```
//!
//! While the link is down, a task tries to connect, with growing and random pauses. Each attempt opens a new
//! connection, so that a dead one is not used again, and runs the script without charges, so that a Redis that accepts
//! connections but no writes does not count as reachable.
//!
//! While the link is up, only a few calls are in progress. Decisions that arrive meanwhile wait, and are sent together
//! in one call. No caller waits longer than the deadline, whether for a place in a call or for the reply. A reply that
//! comes later is dropped: it belongs to its call, and cannot be taken for another one.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use ratewright_core::{Clock, ManualClock};
use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{timeout, timeout_at};

use super::counters::{Counters, Traffic};
use super::error::{Endpoint, StoreError, words};
use super::script_codec::{DecisionReply, Packed, answers};
use super::servers::{Connection, Servers};

/// The script.
const SCRIPT: &str = include_str!("apply.lua");

/// Decisions that may wait for Redis.
const WAITING_MAX: usize = 4_096;

/// The most decisions in one call, and the most weight of their charges together: Redis serves nobody else while a
/// script runs. 32 plain charges take 0.15 ms, and 0.7 ms if another quota's state must be converted for each. A
/// heavier decision is sent alone.
const BATCH_MAX: usize = 32;
const BATCH_WEIGHT_MAX: u32 = 32;

/// Calls under way to one server. Few, so that decisions gather; more than one, so that Redis never idles.
const CALLS_MAX: usize = 4;

/// Calls under way to a cluster, where each decision is a call.
const CLUSTER_CALLS_MAX: usize = 1_024;

/// This many missed calls in a row bring the link down.
const MISSED_IN_A_ROW: u32 = 5;

/// This many missed calls among the last 64 bring the link down too.
const MISSED_OF_64: u32 = 32;

/// The same for a cluster, where one node may be gone while the others serve: nearly all calls must be missed.
const CLUSTER_MISSED_OF_64: u32 = 56;

/// A link that has nothing to do is tried this often.
const IDLE: Duration = Duration::from_secs(1);

/// The first and the longest pause before another attempt.
const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// The way to Redis.
#[derive(Debug)]
pub(super) struct Link {
    queue: mpsc::Sender<Job>,
    shared: Arc<LinkInner>,
}

/// The state of a link.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkStatus {
    /// True if Redis is in reach.
    pub is_up: bool,
    /// Since when.
    pub since: Instant,
    /// What brought it down last.
    pub cause: Option<String>,
}

/// What the link's task and its callers share.
struct LinkInner {
    servers: Servers,
    endpoint: Endpoint,
    deadline: Duration,
    header: [u8; 9],
    /// Tests bring their own time.
    clock: Option<ManualClock>,
    /// The script's name in Redis' cache.
    sha: String,
    is_up: AtomicBool,
    status: Mutex<LinkStatus>,
    connection: ArcSwapOption<Connection>,
    counters: Counters,
}

/// A decision that waits for its answer.
struct Job {
    packed: Packed,
    answer: oneshot::Sender<Result<DecisionReply, StoreError>>,
}

/// Decides when calls have missed too often. One bit for each of the last 64 calls, the latest lowest.
struct Breaker {
    history: u64,
    is_cluster: bool,
}

/// What became of a call.
struct Called {
    jobs: Vec<Job>,
    result: Result<Vec<DecisionReply>, StoreError>,
}

impl Link {
    /// A link that begins to connect at once, in the background.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[expect(clippy::disallowed_methods, reason = "uptime is measured by the real clock")]
    pub(super) fn new(
        servers: Servers,
        deadline: Duration,
        header: [u8; 9],
        clock: Option<ManualClock>,
    ) -> Self {
        let (queue, jobs) = mpsc::channel(WAITING_MAX);
        let cause = Some("not connected yet".to_owned());
        let shared = Arc::new(LinkInner {
            endpoint: servers.endpoint(),
            servers,
            deadline,
            header,
            clock,
            sha: Script::new(SCRIPT).get_hash().to_owned(),
            is_up: AtomicBool::new(false),
            status: Mutex::new(LinkStatus { is_up: false, since: Instant::now(), cause }),
            connection: ArcSwapOption::empty(),
            counters: Counters::default(),
        });
        tokio::spawn(run(shared.clone(), jobs));
        Self { queue, shared }
    }

    /// Where it leads.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// How it stands.
    pub(super) fn status(&self) -> LinkStatus {
        self.shared.status.lock().clone()
    }

    /// What went over it.
    pub(super) fn traffic(&self) -> Traffic {
        self.shared.counters.read()
    }

    /// Until when an answer to what is asked now must come.
    #[expect(clippy::disallowed_methods, reason = "deadlines are by the real clock")]
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.shared.deadline
    }

    /// Sends a decision, and waits for its answer until the deadline.
    pub(super) async fn ask(&self, packed: Packed, until: Instant) -> Result<DecisionReply, StoreError> {
        self.count(self.answer(packed, until).await)
    }

    /// Sends a command other than a decision, and waits for the reply until the deadline.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value, StoreError> {
        let Some(connection) = self.shared.connection.load_full() else {
            return self.count(Err(self.shared.unreachable()));
        };
        let mut connection = Connection::clone(&connection);
        self.count(self.shared.in_time(connection.send(command)).await)
    }

    /// Counts the question if it got no answer.
    pub(super) fn count<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| self.shared.counters.failed(error))
    }

    async fn answer(&self, packed: Packed, until: Instant) -> Result<DecisionReply, StoreError> {
        if !self.shared.is_up.load(Ordering::Acquire) {
            return Err(self.shared.unreachable());
        }
        let (answer, answered) = oneshot::channel();
        let endpoint = &self.shared.endpoint;
        self.queue
            .try_send(Job { packed, answer })
            .map_err(|_| StoreError::QueueFull { endpoint: endpoint.clone(), n_max: WAITING_MAX })?;
        match timeout_at(until.into(), answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(StoreError::Lost { endpoint: endpoint.clone(), cause: "the link went down".to_owned() })
            }
            Err(_) => Err(self.shared.timed_out()),
        }
    }
}

/// Connects, serves, and reconnects, until all senders are dropped.
async fn run(shared: Arc<LinkInner>, mut jobs: mpsc::Receiver<Job>) {
    let random = RandomState::new();
    for round in 0_u64.. {
        let mut pause = PAUSE_MIN;
        let connection = loop {
            let attempt = tokio::select! {
                biased;
                attempt = shared.connect() => attempt,
                () = refuse(&shared, &mut jobs) => return,
            };
            match attempt {
                Ok(connection) => break connection,
                Err(cause) => shared.goes_down(cause),
            }
            // From half the pause to one and a half, so that instances do not come all at once.
            let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            let jitter = Duration::from_micros(random.hash_one((round, micros)) % micros);
            tokio::select! {
                () = tokio::time::sleep(pause / 2 + jitter) => {}
                () = refuse(&shared, &mut jobs) => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        };
        shared.goes_up(connection.clone());
        let Some(cause) = serve(&shared, &connection, &mut jobs).await else { return };
        shared.goes_down(cause);
    }
}

/// Rejects all jobs; ends when all senders are dropped.
async fn refuse(shared: &LinkInner, jobs: &mut mpsc::Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        let _gone_already = job.answer.send(Err(shared.unreachable()));
    }
}

/// Sends jobs until the link goes down, and returns the cause; None if all senders are dropped.
async fn serve(
    shared: &LinkInner,
    connection: &Connection,
    jobs: &mut mpsc::Receiver<Job>,
) -> Option<String> {
    let (batch_max, calls_max) =
        if shared.servers.is_cluster() { (1, CLUSTER_CALLS_MAX) } else { (BATCH_MAX, CALLS_MAX) };
    let mut calls = FuturesUnordered::new();
    let mut waiting = Vec::new();
    let mut idle = tokio::time::interval(IDLE);
    idle.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut breaker = Breaker { history: 0, is_cluster: shared.servers.is_cluster() };
    loop {
        tokio::select! {
            biased;
            Some(called) = calls.next(), if !calls.is_empty() => {
                let Called { jobs, result } = called;
                let tripped = breaker.record(&result);
                let cause = result.as_ref().err().filter(|_| tripped).map(ToString::to_string);
                answer(jobs, result);
                if cause.is_some() {
                    return cause;
                }
            }
            _ = idle.tick(), if calls.is_empty() => {
                // Nothing to do: a call that says so tells in time if the link is broken.
                calls.push(call(shared, connection.clone(), Vec::new()));
            }
            n = jobs.recv_many(&mut waiting, batch_max), if calls.len() < calls_max => {
                if n == 0 {
                    return None;
                }
                waiting.retain(|job: &Job| !job.answer.is_closed());
                while !waiting.is_empty() {
                    calls.push(call(shared, connection.clone(), batch(&mut waiting)));
                }
            }
        }
    }
}

/// Takes the first jobs that may go out in one call.
fn batch(waiting: &mut Vec<Job>) -> Vec<Job> {
    let mut weight = 0;
    let fits = |job: &&Job| {
        weight += job.packed.weight;
        weight <= BATCH_WEIGHT_MAX
    };
    let n_jobs = waiting.iter().take_while(fits).count().max(1);
    waiting.drain(..n_jobs.min(waiting.len())).collect()
}

/// Hands the answers out.
fn answer(jobs: Vec<Job>, result: Result<Vec<DecisionReply>, StoreError>) {
    match result {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                let _too_late = job.answer.send(Ok(answer));
            }
        }
        Err(error) => {
            for job in jobs {
                let _too_late = job.answer.send(Err(error.clone()));
            }
        }
    }
}

/// One call, with the decisions of all these jobs.
async fn call(shared: &LinkInner, mut connection: Connection, jobs: Vec<Job>) -> Called {
    let command = |name: &str, script: &str| {
        let keys = jobs.iter().flat_map(|job| &job.packed.keys);
        let latest = jobs.iter().map(|job| job.packed.latest).max().unwrap_or(0);
        let mut frame = shared.header.to_vec();
        frame.extend_from_slice(&latest.to_le_bytes());
        jobs.iter().for_each(|job| frame.extend_from_slice(&job.packed.bytes));
        let mut command = Cmd::new();
        command.arg(name).arg(script).arg(keys.clone().count());
        keys.for_each(|key| {
            command.arg(key);
        });
        command.arg(frame);
        if let Some(clock) = &shared.clock {
            command.arg(clock.now().as_micros());
        }
        command
    };
    let sent = async {
        let first = connection.send(&command("EVALSHA", &shared.sha)).await;
        match first {
            Err(error) if is_unknown(&error) => {
                // With its text the script runs and is known from then on.
                connection.send(&command("EVAL", SCRIPT)).await
            }
            first => first,
        }
    };
    let result = shared.in_time(sent).await.and_then(|reply| {
        answers(&reply, jobs.iter().map(|job| job.packed.n_numbers)).ok_or_else(|| shared.garbled(&reply))
    });
    Called { jobs, result }
}

/// True if that server does not know the script yet. Nothing ran.
fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl Breaker {
    /// Takes note of a call, and tells whether the link should go down.
    fn record(&mut self, result: &Result<Vec<DecisionReply>, StoreError>) -> bool {
        let Err(error) = result else {
            self.history <<= 1;
            return false;
        };
        self.history = self.history << 1 | 1;
        if self.is_cluster {
            return CLUSTER_MISSED_OF_64 <= self.history.count_ones();
        }
        match error {
            // All further calls would fail too.
            StoreError::Lost { .. } | StoreError::Refused { .. } | StoreError::Unreachable { .. } => true,
            StoreError::TimedOut { .. }
            | StoreError::BadReply { .. }
            | StoreError::Incomplete { .. }
            | StoreError::QueueFull { .. } => {
                MISSED_IN_A_ROW <= self.history.trailing_ones() || MISSED_OF_64 <= self.history.count_ones()
            }
        }
    }
}

impl LinkInner {
    /// Opens a connection, and tries the script on it with nothing to do: once with its text, so that it is known, and
    /// once in time.
    async fn connect(&self) -> Result<Connection, String> {
        let mut connection = self.servers.connect(self.deadline).await.map_err(|error| words(&error))?;
        let probe = |name: &str, script: &str| {
            let mut probe = Cmd::new();
            let frame = [&self.header[..], &[0; 8]].concat();
            probe.arg(name).arg(script).arg(0).arg(frame);
            probe
        };
        let known = connection.send(&probe("EVAL", SCRIPT)).await;
        known.map_err(|error| words(&error))?;
        match timeout(self.deadline, connection.send(&probe("EVALSHA", &self.sha))).await {
            Ok(Err(error)) if !is_unknown(&error) => Err(words(&error)),
            Ok(_) => Ok(connection),
            Err(_) => Err(format!("no reply within {:?}", self.deadline)),
        }
    }

    /// Waits for a call until the deadline, and counts it.
    #[expect(clippy::disallowed_methods, reason = "durations are measured by the real clock")]
    async fn in_time(
        &self,
        call: impl Future<Output = Result<Value, RedisError>>,
    ) -> Result<Value, StoreError> {
        let sent_at = Instant::now();
        let result = timeout(self.deadline, call).await;
        self.counters.called(sent_at.elapsed());
        match result {
            Ok(result) => result.map_err(|error| StoreError::of_call(&self.endpoint, &error)),
            Err(_) => Err(self.timed_out()),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "uptime is measured by the real clock")]
    fn goes_up(&self, connection: Connection) {
        self.connection.store(Some(Arc::new(connection)));
        let mut status = self.status.lock();
        *status = LinkStatus { is_up: true, since: Instant::now(), cause: status.cause.take() };
        self.is_up.store(true, Ordering::Release);
    }

    /// Notes that the link is down, and why. If it was down already, only why.
    #[expect(clippy::disallowed_methods, reason = "uptime is measured by the real clock")]
    fn goes_down(&self, cause: String) {
        self.is_up.store(false, Ordering::Release);
        self.connection.store(None);
        let mut status = self.status.lock();
        let since = if status.is_up { Instant::now() } else { status.since };
        if status.is_up {
            self.counters.went_down();
        }
        *status = LinkStatus { is_up: false, since, cause: Some(cause) };
    }

    #[cold]
    fn unreachable(&self) -> StoreError {
        let cause = self.status.lock().cause.clone().unwrap_or_default();
        StoreError::Unreachable { endpoint: self.endpoint.clone(), cause }
    }

    fn timed_out(&self) -> StoreError {
        StoreError::TimedOut { endpoint: self.endpoint.clone(), deadline: self.deadline }
    }

    fn garbled(&self, reply: &Value) -> StoreError {
        let got = format!("{reply:?}").chars().take(200).collect();
        StoreError::BadReply { endpoint: self.endpoint.clone(), got, expected: "a number for each state" }
    }
}

impl fmt::Debug for LinkInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkInner").field("status", &self.status).finish_non_exhaustive()
    }
}
