//! Whatever stands in a file of rules for Envoy, it is understood, or told with its place what is wrong. What is understood makes a rule
//! set, and answers whoever asks.
#![no_main]

use ratewright_core::Policies;
use ratewright_rls_rules::{Entry, Matched};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let domains = match ratewright::parse_envoy_rules(text) {
        Ok(domains) => domains,
        Err(problems) => {
            assert!(!problems.is_empty(), "it is refused without a reason");
            for problem in problems {
                assert!(problem.starts_with("t.yaml:"), "no place: {problem}");
            }
            return;
        }
    };
    let policies = Policies::new(domains.policies().to_vec()).expect("names of their own");
    let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && !"_*".contains(c)).take(64).collect();
    for name in domains.names() {
        for n_entries in 1..4 {
            for words in words.windows(2 * n_entries) {
                let entries: Vec<_> =
                    words.chunks(2).map(|pair| Entry { key: pair[0], value: pair[1] }).collect();
                let named = domains.metric_name(name, &entries);
                match domains.find(name, &entries) {
                    Matched::Nothing => assert_eq!(named, None),
                    Matched::Unlimited(_) | Matched::Blocked(_) => assert!(named.is_some()),
                    Matched::Limited(limited) => {
                        let policy = policies.named(limited.policy()).expect("a policy that counts");
                        assert_eq!(policy.partition().len(), limited.attributes().len());
                        assert_eq!(policy.limits().len(), limited.rule().limits().len());
                    }
                }
            }
        }
    }
});
