//! One decision under 10,000 policies, against one under 10: what is not selected must not cost.
//!
//! The mix: a third of the policies has an exact path, a third a prefix (`/shop/7/**`), a third a pattern with stars at both
//! ends (`**/act/7/**`). Each request falls under one of them, chosen at random, and under one policy that covers all;
//! before that, the default exemptions are tried. Both sides touch the same number of buckets, 10,000: few
//! policies with many clients, or many policies with one client each.

use std::hint::black_box;

use ratewright_core::policy::{Condition, Pattern, Selector};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Limiter, Micros, Policies, Policy, Query, Quota, Verdict};
use ratewright_store::{MemoryStore, SystemClock};

use crate::memory::{ONE, ready};
use crate::rounds::{compare, thread_cpu_nanos};

const BUCKETS: usize = 10_000;
const BATCH: usize = 2_048;
const BATCHES: usize = 50;

type Ours = Limiter<MemoryStore<SystemClock>>;

/// Runs it.
pub(crate) fn run() {
    let (many, few) = (limiter(10_000), limiter(10));
    compare("policies-10k", || play(&many, 10_000), || play(&few, 10));
}

fn limiter(n_policies: usize) -> Ours {
    let each =
        (0..n_policies).map(|n| policy(&format!("p{n}")).with_selector(Selector::When(on(&[&pattern(n)]))));
    let policies = Policies::new(each.chain([policy("all")]).collect()).expect("a rule set");
    let exempt = ["/actuator/**", "/health**", "/metrics**", "/static/**", "/css/**", "/js/**", "/images/**"];
    let limiter =
        Limiter::new(policies.with_exempt(vec![on(&exempt)]), MemoryStore::new(SystemClock::new(), 100_000));
    (0..BUCKETS).for_each(|n| assert!(decide(&limiter, &request(n, n_policies)), "nothing is denied"));
    limiter
}

fn policy(name: &str) -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "100000000/h".parse().expect("a rate"));
    Policy::new(name, quota.expect("a quota")).expect("a policy").by(&[AttributeName::Ip])
}

fn on(patterns: &[&str]) -> Condition {
    let pattern = |text: &&str| Pattern::new(text, Some(b'/')).expect("a pattern");
    Condition::default().and_fits(AttributeName::Path, patterns.iter().map(pattern).collect())
}

fn pattern(n: usize) -> String {
    match n % 3 {
        0 => format!("/api/v1/tenants/{n}/orders"),
        1 => format!("/shop/{n}/**"),
        _ => format!("**/act/{n}/**"),
    }
}

/// A path that falls under one policy, and an address.
fn request(n: usize, n_policies: usize) -> (String, String) {
    let (n, client) = (n % n_policies, n / n_policies);
    let path = match n % 3 {
        0 => format!("/api/v1/tenants/{n}/orders"),
        1 => format!("/shop/{n}/items/17"),
        _ => format!("/v2/act/{n}/now"),
    };
    (path, format!("10.1.{}.{}", client / 256, client % 256))
}

fn decide(limiter: &Ours, (path, ip): &(String, String)) -> bool {
    let attributes = [
        Attribute { name: AttributeName::Ip, value: ip },
        Attribute { name: AttributeName::Method, value: "GET" },
        Attribute { name: AttributeName::Path, value: path },
    ];
    let select = Select::Covering(&[]);
    let query = Query {
        select,
        attributes: &attributes,
        address: None,
        ask: Ask::Spend(ONE),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    let decision = ready(limiter.decide(&query));
    assert_eq!(decision.standings().count(), 2, "one chosen by its path, and one that covers all");
    decision.verdict() == Verdict::Allow
}

/// The CPU time of one decision, in nanoseconds.
fn play(limiter: &Ours, n_policies: usize) -> f64 {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut nanos = 0.0;
    for _ in 0..BATCHES {
        let random = |_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            request((((x >> 32) * BUCKETS as u64) >> 32) as usize, n_policies)
        };
        let requests: Vec<_> = (0..BATCH).map(random).collect();
        let before = thread_cpu_nanos();
        black_box(requests.iter().filter(|request| decide(limiter, request)).count());
        nanos += thread_cpu_nanos() - before;
    }
    nanos / (BATCHES * BATCH) as f64
}
