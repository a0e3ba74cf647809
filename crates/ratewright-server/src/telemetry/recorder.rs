//! Records individual decisions while the live page is open: the request and the verdict.
//!
//! A replay needs all requests of a client, so clients are sampled, not requests: a decision is recorded if a hash of
//! the client's address is below a threshold. With more than 100 decisions in a second, the threshold halves; below 25
//! for a minute, it doubles. It never falls below 1 in 64 addresses; further decisions in that second are only counted.
//!
//! A decision of an address outside of the sample costs some 20 instructions, others some 1,000. Values of headers,
//! cookies and parameters may be secrets: a digest is recorded.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::{Decision, Query, Timestamp, Verdict};
use ratewright_telemetry::may_be_secret;

use super::{deciding_policy, denial_summary};
use crate::response::{push_number, push_quoted};

/// The most decisions that are recorded in a second.
const PER_SECOND_MAX: usize = 100;

/// With fewer decisions in each second of [`QUIET_SECONDS`], more addresses are sampled.
const QUIET_BELOW: usize = 25;
const QUIET_SECONDS: u32 = 60;

/// At least 1 in 2^6 addresses is sampled.
const HALVINGS_MAX: u32 = 6;

/// The longest value that is recorded, in bytes. A request with a longer one is only counted: a replay of a part of it
/// could select other policies.
const VALUE_MAX: usize = 1_024;

/// The most decisions that wait for a page to read them.
const BUFFERED_MAX: usize = 4 * PER_SECOND_MAX;

/// Records decisions.
#[derive(Debug, Default)]
pub struct Recorder {
    /// How often the sample was halved.
    halvings: AtomicU32,
    buffer: Mutex<RecordBuffer>,
}

/// Recorded decisions that a page has not got yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordedDecisions {
    /// The sampling rate: 1 in this many client addresses is recorded.
    pub one_in: u32,
    /// How many decisions of these addresses could not be recorded.
    pub n_dropped: u64,
    /// How many were overwritten since the earlier reading.
    pub n_missed: u64,
    /// Each as a JSON object.
    pub decisions: Vec<Arc<str>>,
    /// Where the next reading begins.
    pub next: u64,
}

#[derive(Debug, Default)]
struct RecordBuffer {
    /// How many pages are open.
    n_open: usize,
    buffered: VecDeque<Arc<str>>,
    /// The number of the first of `buffered`, counted from the start.
    first: u64,
    n_in_second: usize,
    n_quiet_seconds: u32,
    n_dropped: u64,
}

impl Recorder {
    /// Counts a page that is open, unless `n_max` are. `set_recording` is called if it is the first.
    pub(super) fn open(&self, n_max: usize, set_recording: impl FnOnce(bool)) -> bool {
        let mut buffer = self.buffer.lock();
        if buffer.n_open >= n_max {
            return false;
        }
        buffer.n_open += 1;
        if buffer.n_open == 1 {
            set_recording(true);
        }
        true
    }

    /// Counts a page that was closed. `set_recording` is called if it was the last.
    pub(super) fn close(&self, set_recording: impl FnOnce(bool)) {
        let mut buffer = self.buffer.lock();
        buffer.n_open = buffer.n_open.saturating_sub(1);
        if buffer.n_open == 0 {
            set_recording(false);
            buffer.first += buffer.buffered.len() as u64;
            buffer.buffered = VecDeque::new();
            self.halvings.store(0, Relaxed);
        }
    }

    /// True if a page is open.
    pub fn is_open(&self) -> bool {
        self.buffer.lock().n_open > 0
    }

    /// True if decisions for this address are recorded. Decisions without an address count as one address.
    #[inline]
    pub(super) fn is_sampled(&self, address: Option<IpAddr>) -> bool {
        let bits = match address {
            Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
            // The addresses of a client have the same 48 bits, unless `clients.ipv6_prefix` is shorter.
            Some(IpAddr::V6(address)) => u64::try_from(address.to_bits() >> 80).unwrap_or_default(),
            None => 0,
        };
        let hash = bits.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash.leading_zeros() >= self.halvings.load(Relaxed)
    }

    /// Records a decision.
    pub(super) fn record(
        &self,
        query: &Query<'_>,
        decision: &Decision,
        is_shadow_denied: bool,
        now: Timestamp,
    ) {
        let mut buffer = self.buffer.lock();
        if buffer.n_open == 0 {
            return;
        }
        if query.attributes.iter().any(|attribute| attribute.value.len() > VALUE_MAX) {
            buffer.n_dropped += 1;
            return;
        }
        if buffer.n_in_second >= PER_SECOND_MAX {
            let halvings = self.halvings.load(Relaxed);
            if halvings < HALVINGS_MAX {
                self.halvings.store(halvings + 1, Relaxed);
                buffer.n_in_second /= 2; // about as many as if the sample had been this small before
                if !self.is_sampled(query.address) {
                    return;
                }
            } else {
                buffer.n_dropped += 1;
                return;
            }
        }
        buffer.n_in_second += 1;
        buffer.buffered.push_back(to_json(query, decision, is_shadow_denied, now).into());
        if buffer.buffered.len() > BUFFERED_MAX {
            buffer.buffered.pop_front();
            buffer.first += 1;
        }
    }

    /// Ends a second: adapts the sample.
    pub(super) fn end_second(&self) {
        let mut buffer = self.buffer.lock();
        let is_quiet = std::mem::take(&mut buffer.n_in_second) < QUIET_BELOW;
        buffer.n_quiet_seconds = if is_quiet { buffer.n_quiet_seconds + 1 } else { 0 };
        if buffer.n_quiet_seconds >= QUIET_SECONDS {
            buffer.n_quiet_seconds = 0;
            let halvings = self.halvings.load(Relaxed);
            self.halvings.store(halvings.saturating_sub(1), Relaxed);
        }
    }

    /// The decisions since an earlier reading, which returned `next`; 0 returns all that are buffered.
    pub fn read(&self, next: u64) -> RecordedDecisions {
        let buffer = self.buffer.lock();
        let n_known = usize::try_from(next.saturating_sub(buffer.first)).unwrap_or(usize::MAX);
        RecordedDecisions {
            one_in: 1 << self.halvings.load(Relaxed),
            n_dropped: buffer.n_dropped,
            n_missed: buffer.first.saturating_sub(next),
            decisions: buffer.buffered.iter().skip(n_known).cloned().collect(),
            next: buffer.first + buffer.buffered.len() as u64,
        }
    }
}

/// A decision as a JSON object: time, verdict, policy, and the attributes of the request.
fn to_json(query: &Query<'_>, decision: &Decision, is_shadow_denied: bool, now: Timestamp) -> String {
    let (seconds, micros) = (now.as_micros() / 1_000_000, now.as_micros() % 1_000_000);
    let verdict = match decision.verdict() {
        Verdict::Deny => "denied",
        Verdict::Allow if is_shadow_denied => "shadow",
        Verdict::Allow => "allowed",
    };
    let mut json = String::with_capacity(256);
    json.push_str("{\"at\":");
    push_number(&mut json, seconds);
    let _ = write!(json, ".{micros:06},\"verdict\":\"{verdict}\""); // writing to a string cannot fail
    let denied_by = denial_summary(decision).map(|summary| summary.policy);
    if let Some(policy) = denied_by.or_else(|| deciding_policy(decision).map(|(policy, _)| policy)) {
        push_member(&mut json, "policy", policy.name());
    }
    let address = query.address.map(|address| address.to_string());
    if let Some(address) = &address {
        push_member(&mut json, "ip", address);
    }
    for (n, attribute) in query.attributes.iter().enumerate() {
        // Of an attribute with several values, the first.
        let is_known = query.attributes.iter().take(n).any(|earlier| earlier.name == attribute.name)
            || (address.is_some() && attribute.name == AttributeName::Ip);
        if !is_known && attribute.is_readable() {
            push_member(&mut json, &attribute.name.to_string(), &value_or_digest(attribute));
        }
    }
    json.push('}');
    json
}

fn push_member(json: &mut String, name: &str, value: &str) {
    json.push(',');
    push_quoted(json, name);
    json.push(':');
    push_quoted(json, value);
}

/// The value of an attribute, or a digest of it if it may be a secret.
fn value_or_digest(attribute: &Attribute<'_>) -> String {
    let mut shown = String::new();
    if may_be_secret(&attribute.name) {
        shown.push('#');
        for byte in digest(&SHA256, attribute.value.as_bytes()).as_ref().iter().take(8) {
            let _ = write!(shown, "{byte:02x}"); // writing to a string cannot fail
        }
    } else {
        shown.push_str(attribute.value);
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ratewright_core::{Limiter, ManualClock, Policies, Policy, Quota};
    use ratewright_store::MemoryStore;

    use super::*;
    use crate::telemetry::{Telemetry, TelemetryObserver, Warnings};

    type TestLimiter = Limiter<MemoryStore<ManualClock>, TelemetryObserver<ManualClock>>;

    fn limiter() -> (Arc<Telemetry<ManualClock>>, TestLimiter) {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let telemetry = Arc::new(Telemetry::new(Warnings::All, clock.clone(), Arc::new(clock.clone())));
        let policy = Policy::new("a", Quota::per_second(5)).unwrap().by(&[AttributeName::Ip]);
        let observer = TelemetryObserver::Rates(telemetry.clone());
        let store = MemoryStore::new(clock, 100_000);
        (telemetry, Limiter::observed(Policies::new(vec![policy]).unwrap(), store, observer))
    }

    async fn request(limiter: &TestLimiter, address: impl Into<IpAddr>, path: &str) {
        let address = address.into();
        let text = address.to_string();
        let attributes = [
            Attribute { name: AttributeName::Ip, value: &text },
            Attribute { name: AttributeName::Path, value: path },
        ];
        limiter.decide(&Query { address: Some(address), ..Query::new(&attributes) }).await;
    }

    fn addresses(read: &RecordedDecisions) -> Vec<String> {
        let ip = |json: &Arc<str>| {
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            json["ip"].as_str().unwrap().to_owned()
        };
        read.decisions.iter().map(ip).collect()
    }

    /// All requests of a sampled client are recorded once the sample is small enough.
    #[tokio::test]
    async fn clients_are_sampled_not_requests() {
        let (telemetry, limiter) = limiter();
        assert!(telemetry.open_page(1));
        let send_all = async || {
            for n in 0..1_000_u32 {
                request(&limiter, Ipv4Addr::from_bits(0xCB00_7100 + n / 2), "/").await;
            }
        };
        let mut next = 0;
        for _ in 0..10 {
            send_all().await;
            telemetry.sample();
            next = telemetry.recorder().read(next).next;
        }
        send_all().await;
        let read = telemetry.recorder().read(next);
        assert!(read.one_in >= 8 && read.one_in <= 64, "{}", read.one_in);
        assert!((10..=PER_SECOND_MAX).contains(&read.decisions.len()), "{}", read.decisions.len());
        let mut by_address: BTreeMap<String, usize> = BTreeMap::new();
        addresses(&read).into_iter().for_each(|address| *by_address.entry(address).or_default() += 1);
        assert!(by_address.values().all(|n| *n == 2), "both requests of each: {by_address:?}");
        assert_eq!(read.n_dropped, 0);

        for _ in 0..10 * QUIET_SECONDS {
            telemetry.sample();
        }
        assert_eq!(telemetry.recorder().read(0).one_in, 1, "a quiet minute doubles the sample");
    }

    #[tokio::test]
    async fn one_busy_client_is_recorded_in_part() {
        let (telemetry, limiter) = limiter();
        assert!(telemetry.open_page(1));
        let sampled = (0..).map(Ipv4Addr::from_bits).find(|address| {
            let hash = u64::from(address.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            address.to_bits() > 0 && hash.leading_zeros() >= HALVINGS_MAX
        });
        for _ in 0..1_000 {
            request(&limiter, sampled.unwrap(), "/").await;
        }
        let read = telemetry.recorder().read(0);
        assert_eq!(read.decisions.len() as u64 + read.n_dropped, 1_000);
        assert!(read.n_dropped > 0 && read.decisions.len() <= BUFFERED_MAX, "{}", read.decisions.len());
    }

    #[tokio::test]
    async fn a_request_with_a_long_value_is_dropped_not_truncated() {
        let (telemetry, limiter) = limiter();
        assert!(telemetry.open_page(1));
        request(&limiter, Ipv6Addr::LOCALHOST, &"x".repeat(VALUE_MAX + 1)).await;
        request(&limiter, Ipv6Addr::LOCALHOST, &"x".repeat(VALUE_MAX)).await;
        let read = telemetry.recorder().read(0);
        assert_eq!((read.decisions.len(), read.n_dropped), (1, 1));
        assert!(read.decisions[0].len() > VALUE_MAX);
    }

    #[tokio::test]
    async fn a_reload_does_not_end_the_recording() {
        let (telemetry, limiter) = limiter();
        assert!(telemetry.open_page(1));
        for n in 0..10 {
            let policy =
                Policy::new(&format!("p{n}"), Quota::per_second(5)).unwrap().by(&[AttributeName::Ip]);
            limiter.swap(Policies::new(vec![policy]).unwrap());
            request(&limiter, Ipv4Addr::LOCALHOST, "/").await;
        }
        assert_eq!(telemetry.recorder().read(0).decisions.len(), 10);
        telemetry.close_page();
        request(&limiter, Ipv4Addr::LOCALHOST, "/").await;
        assert_eq!(telemetry.recorder().read(0).decisions.len(), 0);
    }

    #[test]
    fn addresses_spread_evenly() {
        let recorder = Recorder::default();
        recorder.halvings.store(3, Relaxed);
        let sampled = (0..8_000_u32).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + n)));
        let n = sampled.filter(|address| recorder.is_sampled(Some(*address))).count();
        assert!((900..1_100).contains(&n), "{n}");
        let networks: BTreeSet<_> = (0..800_u128)
            .map(|n| IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) + (n << 80) + (n << 64) + 1)))
            .filter(|address| recorder.is_sampled(Some(*address)))
            .collect();
        assert!((80..120).contains(&networks.len()), "{}", networks.len());
    }
}
