//! The gate: all calls of a process to one limit, let through one after another once the limit has been met.
//!
//! ```text
//!   call ──► shape "GET /items/*" ──► lane of the limit "per-user" ──► turn ──► sent
//!                 learned from RateLimit ▲        │ waiting calls, first come first served
//!                                        └────────┴── response: accepted, or throttled
//! ```
//!
//! A throttled login must not hold back everything else on its host. So there is a lane for each limit that servers name
//! in `RateLimit`, and until they name one, for each shape of a request.
//!
//! Waiting calls wait for a lock that is handed out in order; the one that has it waits for its turn. A call that is
//! dropped drops its key in line, or its key in flight.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Uri};
use parking_lot::Mutex;
use ratewright_http::RateLimitHeaders;
use ratewright_http::headers::ServiceLimit;
use tokio::sync::Notify;

use crate::budget::{BudgetSize, RetryBudget};
use crate::lane::{Lane, Throttle, Turn};
use crate::server_wait::joined;
use crate::timer::Timer;

/// The most lanes, shapes and origins that are remembered.
const REMEMBERED_MAX: usize = 1_024;

/// What a process knows about the origins that it calls.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Which limit a shape falls under, by the digest of its name.
    limits: DigestMap<u64>,
    lanes: DigestMap<Arc<LaneQueue>>,
    budgets: DigestMap<Arc<RetryBudget>>,
}

/// A map whose keys are digests already.
type DigestMap<T> = HashMap<u64, T, BuildHasherDefault<DigestHasher>>;

/// Takes a digest as it is.
#[derive(Debug, Default)]
struct DigestHasher(u64);

/// Where a request belongs, as digests. Two that collide share a lane, which makes them slower and not wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneKey {
    origin: u64,
    /// Origin and partition.
    scope: u64,
    /// Scope, method and path.
    shape: u64,
}

/// A lane and the calls that wait for it.
#[derive(Debug, Default)]
struct LaneQueue {
    lane: Mutex<Lane>,
    line: tokio::sync::Mutex<()>,
    /// Calls in line.
    n_waiting: AtomicUsize,
    /// Retries that wait for their own time, and come here next.
    n_asleep: AtomicUsize,
    /// A request in flight has ended.
    ended: Notify,
}

/// A request in flight. Dropped, it ends without a response.
#[derive(Debug)]
pub(crate) struct LanePermit {
    key: LaneKey,
    queue: Arc<LaneQueue>,
    sent_at: f64,
    is_named: bool,
    is_over: bool,
}

/// What a throttle says about the time until the next request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrottleTimes {
    /// How long the server asks to wait, or zero.
    pub(crate) hint: Duration,
    /// When the throttled request will be sent again, on the timer's clock.
    pub(crate) retry_at: Duration,
}

/// The deadline came before the turn.
#[derive(Debug)]
pub(crate) struct DeadlinePassed;

/// A retry that waits for its own time, for as long as it does.
#[derive(Debug)]
pub(crate) struct Asleep(Arc<LaneQueue>);

/// Counts a waiting call for as long as it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Gate {
    pub(crate) fn key(&self, method: &Method, uri: &Uri, partition: &str) -> LaneKey {
        let host = uri.authority().map(|authority| lower_case(without_user(authority)));
        let origin = self.hasher.hash_one((uri.scheme_str(), host)); // `Uri` has its scheme in lower case
        let scope = self.hasher.hash_one((origin, partition));
        let mut shape = self.hasher.build_hasher();
        (scope, method.as_str()).hash(&mut shape);
        for segment in uri.path().split('/') {
            if is_id(segment) { "*".hash(&mut shape) } else { segment.hash(&mut shape) }
        }
        LaneKey { origin, scope, shape: shape.finish() }
    }

    pub(crate) fn budget(&self, key: LaneKey, size: BudgetSize) -> Arc<RetryBudget> {
        let mut known = self.known.lock();
        if let Some(budget) = known.budgets.get(&key.origin) {
            return budget.clone();
        }
        // A full one that no call uses is as good as new.
        make_room(&mut known.budgets, |budget| Arc::strong_count(budget) > 1 || !budget.is_full());
        let budget = Arc::new(RetryBudget::new(size));
        known.budgets.insert(key.origin, budget.clone());
        budget
    }

    /// The lane of a key, and whether a server has named its limit.
    fn queue(&self, key: LaneKey, now: f64) -> (Arc<LaneQueue>, bool) {
        let mut known = self.known.lock();
        let named = known.limits.get(&key.shape).copied();
        (known.lane(named.unwrap_or(key.shape), now), named.is_some())
    }

    /// True if a request of this key has no chance to be sent by the deadline, as far as is known now.
    pub(crate) fn would_miss_deadline(&self, key: LaneKey, now: Duration, deadline: Duration) -> bool {
        let (queue, _) = self.queue(key, millis(now));
        let ahead = queue.n_waiting.load(Ordering::Relaxed) + queue.n_asleep.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let ahead = ahead as f64;
        queue.lane.lock().capacity_until(millis(deadline)) <= ahead
    }

    /// How long the lane of this key stays closed, as far as is known now.
    pub(crate) fn opens_after(&self, key: LaneKey, now: Duration) -> Duration {
        let (queue, _) = self.queue(key, millis(now));
        let opens_at = queue.lane.lock().opens_at();
        duration(opens_at).saturating_sub(now)
    }

    /// Counts a retry of this key that waits for its own time.
    pub(crate) fn sleeper(&self, key: LaneKey, now: Duration) -> Asleep {
        let (queue, _) = self.queue(key, millis(now));
        queue.n_asleep.fetch_add(1, Ordering::Relaxed);
        Asleep(queue)
    }

    /// A turn without a wait: because the lane is open, or because it opens only after the deadline.
    pub(crate) fn try_enter(&self, key: LaneKey, now: Duration, deadline: Duration) -> Option<LanePermit> {
        let now = millis(now);
        let (queue, is_named) = self.queue(key, now);
        let is_free =
            queue.n_waiting.load(Ordering::Relaxed) == 0 && queue.lane.lock().enter(now, true) == Turn::Go;
        let sent_at = if is_free {
            now
        } else if queue.is_closed_beyond(deadline) {
            queue.lane.lock().force();
            f64::NEG_INFINITY // a throttle of this request says nothing new about the pace
        } else {
            return None;
        };
        Some(LanePermit { key, queue, sent_at, is_named, is_over: false })
    }

    /// Waits for a turn, in line.
    pub(crate) async fn enter(
        &self,
        key: LaneKey,
        timer: &dyn Timer,
        deadline: Duration,
    ) -> Result<LanePermit, DeadlinePassed> {
        let (queue, is_named) = self.queue(key, millis(timer.now()));
        {
            let _waiting = Waiting::new(&queue.n_waiting);
            tokio::select! {
                biased;
                () = queue.turn(timer) => {}
                () = timer.sleep_until(deadline) => return Err(DeadlinePassed),
            }
        }
        Ok(LanePermit { key, queue, sent_at: millis(timer.now()), is_named, is_over: false })
    }

    /// Ends a request that was not throttled.
    pub(crate) fn accepted(&self, mut permit: LanePermit, headers: &HeaderMap, now: Duration) {
        let now = millis(now);
        if !permit.is_named {
            self.learn(&mut permit, headers, now, Learn::First);
        }
        permit.end(|lane| lane.accepted(now));
    }

    /// Ends a request that was throttled.
    pub(crate) fn throttled(
        &self,
        mut permit: LanePermit,
        headers: &HeaderMap,
        now: Duration,
        times: ThrottleTimes,
    ) {
        let now = millis(now);
        self.learn(&mut permit, headers, now, Learn::Anew);
        let (hint, retry_at) = (millis(times.hint), millis(times.retry_at));
        let throttle = Throttle { sent_at: permit.sent_at, hint, retry_at };
        permit.end(|lane| lane.throttled(now, throttle));
    }

    /// Learns from a response which limit its request fell under. Its outcome counts for that limit.
    fn learn(&self, permit: &mut LanePermit, headers: &HeaderMap, now: f64, learn: Learn) {
        let limits = RateLimitHeaders::parse_limits(headers);
        let Some(limit) = limits.iter().min_by_key(|limit| tightness(limit)) else { return };
        if limit.name.is_empty() {
            return;
        }
        let queue = self.named(permit.key, &limit.name, now, learn);
        let policies = RateLimitHeaders::parse_policies(headers);
        let policy = policies.iter().find(|policy| policy.name == limit.name);
        if let Some((policy, window)) = policy.and_then(|policy| Some((policy, policy.window?)))
            && counts_requests(headers, &limit.name)
        {
            queue.lane.lock().learn(policy.quota, window);
        }
        if !Arc::ptr_eq(&queue, &permit.queue) {
            queue.lane.lock().force();
            permit.queue.end(Lane::failed);
            permit.queue = queue;
        }
    }

    /// The lane of a limit, and from now on of all requests of this shape.
    fn named(&self, key: LaneKey, limit: &str, now: f64, learn: Learn) -> Arc<LaneQueue> {
        let name = self.hasher.hash_one((key.scope, limit));
        let mut known = self.known.lock();
        let Known { limits, lanes, .. } = &mut *known;
        let is_known = limits.contains_key(&key.shape);
        if !is_known {
            make_room(limits, |name| lanes.get(name).is_some_and(|queue| queue.is_needed(now)));
        }
        if !is_known || learn == Learn::Anew {
            limits.insert(key.shape, name);
        }
        known.lane(name, now)
    }
}

/// Whether a response changes what is known about its request's limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Learn {
    /// Only if nothing is known. A success that comes late must not move requests out of a lane that a throttle closed.
    First,
    /// In any case: it was throttled.
    Anew,
}

/// Forgets what is not needed if there are too many entries, and any one if all are needed.
fn make_room<T>(map: &mut DigestMap<T>, is_needed: impl Fn(&T) -> bool) {
    if map.len() < REMEMBERED_MAX {
        return;
    }
    map.retain(|_, value| is_needed(value));
    if map.len() >= REMEMBERED_MAX
        && let Some(key) = map.keys().next().copied()
    {
        map.remove(&key);
    }
}

/// True unless `RateLimit-Policy` says that the limit counts something else, such as bytes (`qu="content-bytes"`): then its
/// quota tells nothing about sends.
fn counts_requests(headers: &HeaderMap, limit: &str) -> bool {
    let policy = HeaderName::from_static("ratelimit-policy");
    let Ok(list) = sfv::Parser::new(&joined(headers, &policy)).parse::<sfv::List>() else { return false };
    let items = list.iter().filter_map(|entry| match entry {
        sfv::ListEntry::Item(item) => Some(item),
        sfv::ListEntry::InnerList(_) => None,
    });
    let is_named = |item: &&sfv::Item| item.bare_item.as_string().is_some_and(|name| name.as_str() == limit);
    let unit = items.into_iter().find(is_named).and_then(|item| item.params.get("qu"));
    unit.is_none_or(|unit| unit.as_string().is_some_and(|unit| unit.as_str() == "requests"))
}

/// Units left, then the longest window first.
fn tightness(limit: &ServiceLimit) -> (u64, Reverse<Option<u64>>) {
    (limit.available, Reverse(limit.window))
}

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are digests");
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

impl Known {
    fn lane(&mut self, name: u64, now: f64) -> Arc<LaneQueue> {
        if let Some(queue) = self.lanes.get(&name) {
            return queue.clone();
        }
        make_room(&mut self.lanes, |queue| queue.is_needed(now));
        self.lanes.entry(name).or_default().clone()
    }
}

impl LaneQueue {
    /// True if a call uses the lane, or its pace would be missed.
    fn is_needed(self: &Arc<Self>, now: f64) -> bool {
        Arc::strong_count(self) > 1 || !self.lane.lock().is_idle(now)
    }

    fn is_closed_beyond(&self, deadline: Duration) -> bool {
        self.lane.lock().opens_at() > millis(deadline)
    }

    /// Waits in line, and then for the lane.
    async fn turn(&self, timer: &dyn Timer) {
        let _first = self.line.lock().await;
        loop {
            let ended = self.ended.notified();
            let is_alone = self.n_waiting.load(Ordering::Relaxed) <= 1;
            let turn = self.lane.lock().enter(millis(timer.now()), is_alone);
            match turn {
                Turn::Go => return,
                Turn::Until(at) => timer.sleep_until(duration(at)).await,
                Turn::Full => ended.await,
            }
        }
    }

    fn end(&self, end: impl FnOnce(&mut Lane)) {
        end(&mut self.lane.lock());
        if self.n_waiting.load(Ordering::Relaxed) > 0 {
            self.ended.notify_one();
        }
    }
}

impl LanePermit {
    /// True if a throttle has closed the lane since the turn was given.
    pub(crate) fn is_revoked(&self, now: Duration) -> bool {
        self.queue.lane.lock().is_closed(millis(now))
    }

    fn end(mut self, end: impl FnOnce(&mut Lane)) {
        self.is_over = true;
        self.queue.end(end);
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        if !self.is_over {
            self.queue.end(Lane::failed);
        }
    }
}

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.n_asleep.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Host and port, as written. Credentials make no other server of it.
fn without_user(authority: &Authority) -> &str {
    let text = authority.as_str();
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}

fn lower_case(text: &str) -> Cow<'_, str> {
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower { Cow::Borrowed(text) } else { Cow::Owned(text.to_ascii_lowercase()) }
}

/// True for a path segment that names one thing of many: digits, or long with a digit.
fn is_id(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    let has_digit = bytes.any(|byte| byte.is_ascii_digit());
    has_digit && (segment.chars().count() >= 8 || segment.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Milliseconds, with their fraction. Whole ones are exact: a sleep until then must find that it is over.
#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days, and to the microsecond for centuries")]
fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// Rounded up to whole milliseconds: a timer that fires then is never early.
fn duration(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis.ceil() / 1_000.0).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
