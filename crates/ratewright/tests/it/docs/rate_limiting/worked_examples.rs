//! The worked examples: each row of a table is one request, decided by the engine under a clock that the test moves.

use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ratewright_core::query::{Ask, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::{
    Decision, Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Timestamp, Verdict,
};
use ratewright_http::RateLimitHeaders;
use ratewright_store::MemoryStore;
use serde_json::Value;

use super::PAGES;
use crate::docs::markdown::{Table, quoted, tables};
use crate::docs::page;

/// A whole minute, at which windows of ten seconds begin.
const START: Timestamp = Timestamp::from_micros(1_700_000_040_000_000);

/// D2: the engine answers what the tables say, on both pages.
#[test]
fn d2_the_worked_examples_are_what_the_engine_calculates() {
    for name in PAGES {
        let page = page(name);
        let tables = tables(&page);
        let examples: Vec<_> =
            tables.iter().filter_map(|table| Some((table, quota_before(table.before)?))).collect();
        let kinds: Vec<_> = examples.iter().map(|(_, quota)| quota.kind()).collect();
        let expected =
            ["token_bucket", "token_bucket.stepped", "leaky_bucket.queue", "sliding_window.10000000"];
        let expected =
            [&expected[..], &["sliding_window_counter.10000000", "fixed_window.10000000"]].concat();
        assert_eq!(kinds, expected, "{name}: an example for each algorithm");
        let one_of_seven = Quota::new(Algorithm::default(), "7/h".parse().unwrap()).unwrap().time_to_earn(1);
        let fraction = format!("{} {}/7", one_of_seven.micros(), one_of_seven.part());
        assert!(
            page.replace([',', '\u{a0}'], "").contains(&fraction),
            "{name}: a token of 7/h takes {fraction} µs"
        );
        for (table, quota) in examples {
            check(name, table, &quota);
        }
    }
}

/// The quota that stands alone in the text before a table.
fn quota_before(text: &str) -> Option<Quota> {
    let line = text.lines().last().filter(|line| line.ends_with("}`"))?;
    let [written] = &quoted(line)[..] else { return None };
    let quota_yaml: Value = serde_saphyr::from_str(written).unwrap();
    let word = |name: &str| quota_yaml[name].as_str();
    let algorithm = match (word("algorithm"), word("refill"), word("leak")) {
        (None | Some("token_bucket"), Some("stepped"), None) => Algorithm::TokenBucket(Refill::Stepped),
        (Some("leaky_bucket"), None, Some("queue")) => Algorithm::LeakyBucket(Leak::Queue),
        (Some("fixed_window"), None, None) => Algorithm::FixedWindow(WindowStart::Epoch),
        (name, None, None) => Algorithm::named(name.unwrap_or("token_bucket")).unwrap(),
        other => panic!("{written}: {other:?}"),
    };
    let quota = Quota::new(algorithm, word("rate")?.parse().unwrap()).unwrap();
    let burst = quota_yaml["burst"].as_u64().and_then(|burst| NonZeroU32::new(u32::try_from(burst).ok()?));
    Some(match burst {
        Some(burst) => quota.with_burst(burst).unwrap(),
        None => quota,
    })
}

fn check(page: &str, table: &Table<'_>, quota: &Quota) {
    let policies = Policies::new(vec![Policy::new("example", quota.clone()).unwrap()]).unwrap();
    let clock = ManualClock::at(START);
    let limiter = Limiter::new(policies, MemoryStore::new(clock.clone(), 10));
    for row in &table.rows {
        let at = row[0].replace(',', ".").parse::<f64>().unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "tenths of seconds")]
        let now = START + Micros::from_millis((at * 1_000.0).round() as u64);
        clock.set(now);
        let row: Vec<_> = row.iter().map(|cell| cell.replace(',', ".")).collect();
        assert_eq!(calculated(&row[0], &decide(&limiter), now), row, "{page}: {}", table.before);
    }
}

fn decide(limiter: &Limiter<MemoryStore<ManualClock>>) -> Decision {
    let query = Query {
        select: Select::Covering(&[]),
        attributes: &[],
        address: None,
        ask: Ask::Spend(NonZeroU32::MIN),
        patience: Micros::MAX,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    match pin!(limiter.decide(&query)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => panic!("memory answers at once"),
    }
}

/// The cells of a row: time, status, tokens of a smooth bucket or seconds in a queue, remaining, reset, wait, header.
fn calculated(at: &str, decision: &Decision, now: Timestamp) -> Vec<String> {
    let (_, limit, standing) = decision.tightest().unwrap();
    let quota = limit.quota();
    let (is_denied, fields) =
        (decision.verdict() == Verdict::Deny, RateLimitHeaders::of(decision, now).unwrap());
    let on_denial = |text: Option<String>| text.filter(|_| is_denied).unwrap_or_else(|| "–".to_owned());
    let mut cells = vec![at.to_owned(), if is_denied { "429" } else { "200" }.to_owned()];
    match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) => {
            #[expect(clippy::cast_precision_loss, reason = "some seconds")]
            let spent = standing.reset_after.as_micros() as f64 / quota.time_to_earn(1).micros() as f64;
            cells.push((f64::from(quota.capacity().get()) - spent).to_string());
        }
        Algorithm::LeakyBucket(Leak::Queue) => {
            cells.push(if is_denied { "–".to_owned() } else { seconds(standing.wait) });
        }
        Algorithm::TokenBucket(Refill::Stepped)
        | Algorithm::LeakyBucket(Leak::Meter)
        | Algorithm::SlidingWindow
        | Algorithm::SlidingWindowCounter
        | Algorithm::FixedWindow(_) => {}
    }
    cells.push(standing.remaining.to_string());
    cells.push(seconds(standing.reset_after));
    cells.push(on_denial(decision.retry_after().map(seconds)));
    cells.push(on_denial(fields.retry_after().map(|seconds| seconds.to_string())));
    cells
}

fn seconds(micros: Micros) -> String {
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let seconds = micros.as_micros() as f64 / 1e6;
    seconds.to_string()
}
