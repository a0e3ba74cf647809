//! Encodes calls to `apply.lua`, and decodes its replies.
//!
//! ```text
//!   header   min_ttl in ms: u64, readable: u8, the latest time seen: u64
//!   charge   kind: u8, charges of the decision after it: u16, act: u8, cost: u32, capacity: u32,
//!            over: u32, p: u64, p_part: u32, q: u64, q_part: u32, r: u64, length of field: u8, field
//!
//!   kind                   p           q         r
//!   token 1, queue 2       earn        fill      patience          earn and fill with parts over `over`
//!   stepped 3, log 6       units       window    -
//!   counter 4              tick        window    ticks
//!   fixed 5                units       window    1: from the first hit
//!                                                of a refund: when it was paid
//! ```
//!
//! `field` is where the state is kept in the bucket's hash, named after the quota that wrote it: `full_at of BURST FILL`, or
//! `full_at of BURST FILL PART/OVER` with a fraction; stepped `spent of BURST UNITS/WINDOW`; nothing for windows, whose counts
//! mean the same under any quota of their kind.
//!
//! All numbers are little-endian. The reply has the states before anything is spent, and Redis' time. Ratewright derives
//! the standings from these states, as in memory, and also whether the charges were applied. The script must come to the
//! same result.

use std::io::Write as _;

use ratewright_core::algorithm::fixed_window::FixedWindow;
use ratewright_core::algorithm::leaky_bucket::Queue;
use ratewright_core::algorithm::sliding_counter::{SlidingCounter, ticks};
use ratewright_core::algorithm::stepped::Stepped;
use ratewright_core::algorithm::token_bucket::TokenBucket;
use ratewright_core::algorithm::{Bucket, Demand, Fit, Level};
use ratewright_core::quantity::Moment;
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Act, Basis, Charge, Refund, Standings};
use ratewright_core::{Micros, Quota, Timestamp};
use redis::Value;
use smallvec::SmallVec;

use super::name::Naming;
use crate::all_or_none::{Buckets, Purpose, settle};
use crate::clock_setback::TimeSeen;

/// One decision, ready to be sent alone or together with others.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// A key for each charge, and one more for a refund that is made once.
    pub(super) keys: SmallVec<[String; 2]>,
    /// The charges.
    pub(super) bytes: Vec<u8>,
    /// How many numbers come back.
    pub(super) n_numbers: usize,
    /// Of refunds, the latest time that Redis has shown. If it shows an earlier one, nothing is given back.
    pub(super) latest: u64,
    /// How long the script may take for it, in plain charges.
    pub(super) weight: u32,
}

/// What came back for one decision.
#[derive(Debug)]
pub(super) struct DecisionReply {
    pub(super) now: Timestamp,
    pub(super) numbers: SmallVec<[i64; 9]>,
}

/// Bytes of a charge, and about those of its field.
const CHARGE_BYTES: usize = 49 + 26;

const REFUND: u8 = 4;

/// In an act: the charge spends only together with the one before it.
const JOINS: u8 = 16;

/// In an act: a refund that is made once. The key after its bucket's says whether it was.
const ONCE: u8 = 32;

/// In an act: nothing of the decision is spent.
const DRY_RUN: u8 = 64;

/// In an act: another charge of the decision has the same key.
const KEY_REPEATS: u8 = 128;

/// The first bytes of every frame.
pub(super) fn header(min_ttl: Micros, readable: bool) -> [u8; 9] {
    let mut header = [0; 9];
    header[..8].copy_from_slice(&(min_ttl.as_micros().div_ceil(1_000)).to_le_bytes());
    header[8] = u8::from(readable);
    header
}

/// Packs the charges of one decision.
pub(super) fn pack(charges: &[Charge<'_>], purpose: Purpose, naming: &Naming) -> Packed {
    let mut packed = Packed { n_numbers: 1 + 4 * charges.len(), ..Packed::default() };
    packed.bytes.reserve_exact(CHARGE_BYTES * charges.len());
    for (n, charge) in charges.iter().enumerate() {
        let act = match charge.act {
            Act::Take(_) => 0,
            Act::Try(_) | Act::Join(_) => 1,
            Act::Record(_) => 2,
            Act::Look(_) => 3,
        };
        let is_same = |(other, earlier): (usize, &Charge<'_>)| other != n && earlier.key == charge.key;
        let meets_again = charges.iter().enumerate().any(is_same);
        let before = n.checked_sub(1).and_then(|before| charges.get(before));
        let joins = before.is_some_and(|before| charge.joins(before));
        let act = if joins { act | JOINS } else { act };
        let act = if meets_again { act | KEY_REPEATS } else { act };
        let act = if purpose == Purpose::Weigh { act | DRY_RUN } else { act };
        // No wait is longer than a full refill, so no patience need be.
        let patience = charge.patience.min(charge.quota.time_to_fill().ceil());
        packed.keys.push(naming.name(&charge.key));
        packed.push(act, charge.act.cost(), charge.quota, patience.as_micros(), charges.len() - 1 - n);
    }
    packed
}

/// Packs those refunds that were paid here, and not before the clock was set back.
pub(super) fn pack_refunds(refunds: &[Refund<'_>], time_seen: &TimeSeen, naming: &Naming) -> Packed {
    let mut packed = Packed { n_numbers: 1, latest: time_seen.latest().as_micros(), ..Packed::default() };
    let is_due =
        |refund: &&Refund<'_>| refund.basis == Basis::Shared && !time_seen.is_void(refund.receipt.paid_at);
    let refunds: SmallVec<[_; 4]> = refunds.iter().filter(is_due).collect();
    for (n, refund) in refunds.iter().enumerate() {
        let key = naming.name(&refund.key);
        let used = refund.id.map(|id| naming.used(&key, id));
        let act = if used.is_some() { REFUND | ONCE } else { REFUND };
        packed.keys.push(key);
        packed.keys.extend(used);
        let paid_at = refund.receipt.paid_at.as_micros();
        packed.push(act, refund.receipt.cost, refund.quota, paid_at, refunds.len() - 1 - n);
    }
    packed
}

impl Packed {
    fn push(&mut self, act: u8, cost: u32, quota: &Quota, r: u64, n_left: usize) {
        let window = quota.window().as_micros();
        let units = (u64::from(quota.units()), 0);
        let kind: u8 = match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => 1,
            Algorithm::LeakyBucket(Leak::Queue) => 2,
            Algorithm::TokenBucket(Refill::Stepped) => 3,
            Algorithm::SlidingWindowCounter => 4,
            Algorithm::FixedWindow(_) => 5,
            Algorithm::SlidingWindow => 6,
        };
        let (p, q) = if kind <= 2 {
            // More than the deepest is not counted anyway.
            let earn = quota.time_to_earn(u64::from(cost.min(quota.deepest())));
            let fill = quota.time_to_fill();
            ((earn.micros(), earn.part()), (fill.micros(), fill.part()))
        } else {
            let p = if kind == 4 { (quota.tick(), 0) } else { units };
            (p, (window, 0))
        };
        let r = match (act, quota.algorithm()) {
            (act, _) if act & REFUND != 0 => r,
            (_, Algorithm::SlidingWindowCounter) => ticks(quota),
            (_, algorithm) if kind == 5 => {
                u64::from(algorithm == Algorithm::FixedWindow(WindowStart::FirstHit))
            }
            _ => r,
        };
        self.weight += weight(quota);
        let n_left = u16::try_from(n_left).unwrap_or(u16::MAX);
        let bytes = &mut self.bytes;
        bytes.push(kind);
        bytes.extend_from_slice(&n_left.to_le_bytes());
        bytes.push(act);
        bytes.extend_from_slice(&cost.to_le_bytes());
        bytes.extend_from_slice(&quota.capacity().get().to_le_bytes());
        bytes.extend_from_slice(&quota.over().to_le_bytes());
        for (whole, part) in [p, q] {
            bytes.extend_from_slice(&whole.to_le_bytes());
            bytes.extend_from_slice(&part.to_le_bytes());
        }
        bytes.extend_from_slice(&r.to_le_bytes());
        let at = bytes.len();
        bytes.push(0);
        // Writing to memory cannot fail.
        let _ = match kind {
            4.. => Ok(()),
            3 => write!(bytes, "spent of {} {}/{window}", quota.capacity(), quota.units()),
            _ if q.1 == 0 => write!(bytes, "full_at of {} {}", quota.capacity(), q.0),
            _ => write!(bytes, "full_at of {} {} {}/{}", quota.capacity(), q.0, q.1, quota.over()),
        };
        bytes[at] = u8::try_from(bytes.len() - at - 1).unwrap_or(u8::MAX); // three numbers have at most 36 digits
    }
}

/// How long the script may take for a charge, in plain ones. Of a log it may have to read one chunk of 64 charges, and the
/// sums of half the others.
fn weight(quota: &Quota) -> u32 {
    match quota.algorithm() {
        Algorithm::SlidingWindow => 1 + quota.units().min(64) / 16 + quota.units() / 250,
        Algorithm::TokenBucket(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::SlidingWindowCounter
        | Algorithm::FixedWindow(_) => 1,
    }
}

/// Cuts a reply into the answers of its decisions. `None` if it has another form.
pub(super) fn answers(reply: &Value, lengths: impl Iterator<Item = usize>) -> Option<Vec<DecisionReply>> {
    let Value::Array(values) = reply else { return None };
    let mut numbers = values.iter().map(|value| {
        let Value::Int(number) = value else { return None };
        Some(*number)
    });
    let now = Timestamp::from_micros(u64::try_from(numbers.next()??).ok()?);
    let answers = lengths.map(|n_numbers| {
        let numbers = numbers.by_ref().take(n_numbers).collect::<Option<SmallVec<_>>>()?;
        (numbers.len() == n_numbers).then_some(DecisionReply { now, numbers })
    });
    answers.collect()
}

/// The standings that follow from an answer, and whether none vetoed; `None` if it cannot be one to these charges.
pub(super) fn derive(
    charges: &[Charge<'_>],
    purpose: Purpose,
    answer: &DecisionReply,
    standings: &mut Standings,
) -> Option<bool> {
    let (paid, states) = answer.numbers.split_first()?;
    let states = charges.iter().zip(states.as_chunks().0);
    let states = states.map(|(charge, state)| FoundBucket::read(charge.quota, *state));
    let states = states.collect::<Option<SmallVec<_>>>()?;
    let mut replayed = Replayed { charges, states, now: answer.now };
    let settled = settle(charges, &mut replayed, answer.now, Basis::Shared, purpose, standings);
    (settled == (*paid == 1)).then_some(settled)
}

/// The buckets of a decision as the script found them.
struct Replayed<'a> {
    charges: &'a [Charge<'a>],
    states: SmallVec<[FoundBucket; 4]>,
    now: Timestamp,
}

/// A bucket as the script found it.
enum FoundBucket {
    Token(TokenBucket),
    Queue(Queue),
    Stepped(Stepped),
    Counter(SlidingCounter),
    Fixed(FixedWindow),
    Log(LogSummary),
}

/// What the script says of a log, which is too long to be sent.
struct LogSummary {
    fit: Fit,
    counted: u32,
    spent: u64,
    oldest_at: Option<Timestamp>,
}

impl FoundBucket {
    fn read(quota: &Quota, state: [i64; 4]) -> Option<Self> {
        let whole = |n: usize| u64::try_from(state[n]).ok();
        let at = |n: usize| whole(n).map(Timestamp::from_micros);
        let count = |n: usize| u32::try_from(state[n]).ok();
        let token = || Some(TokenBucket { full_at: Moment::from_parts(whole(0)?, count(1)?, count(2)?) });
        Some(match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => {
                Self::Token(token()?)
            }
            Algorithm::LeakyBucket(Leak::Queue) => Self::Queue(Queue(token()?)),
            Algorithm::TokenBucket(Refill::Stepped) => {
                Self::Stepped(Stepped { since: at(0)?, spent: count(1)? })
            }
            Algorithm::SlidingWindowCounter => {
                Self::Counter(SlidingCounter { opened_at: at(0)?, previous: count(1)?, current: count(2)? })
            }
            Algorithm::FixedWindow(_) => Self::Fixed(FixedWindow { opened_at: at(0)?, count: count(1)? }),
            Algorithm::SlidingWindow => Self::Log(LogSummary {
                fit: match state[0] {
                    0 => Fit::Fits { wait: Micros::ZERO },
                    -1 => Fit::Never,
                    _ => Fit::Short { retry_after: Micros::new(whole(0)?) },
                },
                counted: count(1)?,
                spent: whole(2)?,
                oldest_at: at(3),
            }),
        })
    }

    fn bucket(&mut self) -> &mut dyn Bucket {
        match self {
            Self::Token(bucket) => bucket,
            Self::Queue(bucket) => bucket,
            Self::Stepped(bucket) => bucket,
            Self::Counter(bucket) => bucket,
            Self::Fixed(bucket) => bucket,
            Self::Log(bucket) => bucket,
        }
    }
}

/// It repeats what the script found.
impl Bucket for LogSummary {
    fn mend(&mut self, _: &Quota, _: Timestamp) -> bool {
        false
    }

    fn fit(&self, _: &Quota, _: Demand, _: Timestamp) -> Fit {
        self.fit
    }

    fn spend(&mut self, _: &Quota, _: u32, _: Timestamp) -> u32 {
        self.counted
    }

    fn refund(&mut self, _: &Quota, _: u32, _: Timestamp, _: Timestamp) {}

    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let left = u64::from(quota.units()).saturating_sub(self.spent);
        let leaves = |at: Timestamp| at.left_of(quota.window(), now);
        Level {
            remaining: u32::try_from(left).unwrap_or(u32::MAX),
            reset_after: self.oldest_at.map_or(Micros::ZERO, leaves),
        }
    }

    fn gone_at(&self, _: &Quota) -> Timestamp {
        Timestamp::default()
    }
}

impl Replayed<'_> {
    /// The bucket of the n-th charge; charges of the same bucket share the state of the first. The script sends a log's
    /// result for each charge.
    fn bucket(&mut self, n: usize) -> &mut dyn Bucket {
        let is_shared = !matches!(self.states[n], FoundBucket::Log(_));
        let first = (0..n).find(|&other| is_shared && self.is_same(n, other)).unwrap_or(n);
        self.states[first].bucket()
    }
}

impl Buckets for Replayed<'_> {
    fn is_same(&self, n: usize, other: usize) -> bool {
        n == other || self.charges[n].key == self.charges[other].key
    }

    fn fit(&mut self, n: usize, charge: &Charge<'_>, demand: Demand) -> Fit {
        let now = self.now;
        self.bucket(n).fit(charge.quota, demand, now)
    }

    fn spend(&mut self, n: usize, charge: &Charge<'_>) -> (u32, Level) {
        let now = self.now;
        let bucket = self.bucket(n);
        let counted = bucket.spend(charge.quota, charge.act.cost(), now);
        (counted, bucket.level(charge.quota, now))
    }

    fn level(&mut self, n: usize, charge: &Charge<'_>) -> Level {
        let now = self.now;
        self.bucket(n).level(charge.quota, now)
    }
}
