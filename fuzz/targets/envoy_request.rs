//! Whatever comes as a question of Envoy's, in JSON or as its bytes: it is refused with a reason, or answered, with a status for each
//! descriptor and a code that says something.
#![no_main]

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use prost::Message;
use ratewright_core::decision::Unobserved;
use ratewright_core::{Limiter, ManualClock, Policies, Timestamp};
use ratewright_rls::wire::{Code, RateLimitRequest};
use ratewright_rls::{Compat, HeaderFamily, Rls, RlsSettings, RuleSet, json, override_policies};
use ratewright_store::MemoryStore;

type Service = Rls<MemoryStore<ManualClock>, Unobserved, ManualClock>;

const RULES: &str = "domain: d
descriptors:
- {key: a, rate_limit: {unit: second, requests_per_unit: 2, name: of-a}}
- {key: a, value: x, rate_limit: {unlimited: true, name: x, replaces: [{name: of-a}]}}
- {key: b, value: 'y*', share_threshold: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
- key: b
  quota_mode: true
  rate_limit: [{unit: hour, requests_per_unit: 3, algorithm: token_bucket}, {unit: year, requests_per_unit: 4294967295, algorithm: sliding_window_counter}]
  descriptors: [{key: c, record_mode: true, rate_limit: {unit: minute, unit_multiplier: 3, requests_per_unit: 5, algorithm: leaky_bucket}}]
";

static SERVICES: LazyLock<[Service; 2]> = LazyLock::new(|| {
    [Compat::AllOrNothing, Compat::Strict].map(|compat| {
        let domains = ratewright::parse_envoy_rules(RULES).expect("valid rules");
        let all = domains.policies().iter().cloned().chain(override_policies()).collect();
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_057_000_000));
        let store = MemoryStore::new(clock.clone(), 1_000);
        let limiter = Arc::new(Limiter::new(Policies::new(all).expect("names of their own"), store));
        let headers = vec![HeaderFamily::XRateLimit, HeaderFamily::RateLimit, HeaderFamily::RetryAfter];
        let settings = RlsSettings { compat, headers, ..RlsSettings::default() };
        let rules = RuleSet { domains: Arc::new(domains), policies: limiter.policies(), settings };
        Rls::new(limiter, Arc::new(ArcSwap::from_pointee(rules)), clock)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for request in [json::read(bytes).ok(), RateLimitRequest::decode(bytes).ok()].into_iter().flatten() {
        for service in SERVICES.iter() {
            let answer = pin!(service.answer(&request, ratewright_rls::Refunds::Allowed));
            let Poll::Ready(answer) = answer.poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("memory does not wait");
            };
            let Ok(answer) = answer else { continue };
            assert_eq!(answer.statuses.len(), request.descriptors.len());
            assert_ne!(answer.overall_code(), Code::Unknown);
            let told: serde_json::Value = serde_json::from_str(&json::write(&answer)).expect("JSON");
            assert_eq!(told["statuses"].as_array().map_or(0, Vec::len), answer.statuses.len());
        }
    }
});
