//! The suggested rate keeps its promise, and the next lower one does not.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroU32;

use proptest::prelude::*;
use ratewright_core::quota::{Algorithm, Rate};
use ratewright_core::{ManualClock, Quota, Timestamp};
use ratewright_sim::{DeniedShare, ShareOf, SimulationSettings, SuggestOptions, Suggestion, suggest};
use ratewright_store::KeyedLimiter;

use crate::{json_format, json_line, log, policies};

fn suggested(visits: &[(u64, u8)], bursts: &[u32], share: &str, of: ShareOf) -> Suggestion {
    let text: String =
        visits.iter().map(|(at, ip)| json_line(*at, &format!("192.0.2.{ip}"), "GET", "/", 200)).collect();
    let mut options = SuggestOptions::new(NonZeroU32::MIN, share.parse::<DeniedShare>().unwrap());
    options.bursts = bursts.iter().map(|burst| NonZeroU32::new(*burst).unwrap()).collect();
    options.of = of;
    suggest(
        &policies("policies: [{name: a, by: ip, quota: {rate: 1/s}}]"),
        vec![log("log", json_format(), text)],
        &options,
        &SimulationSettings::default(),
        Box::new(Cursor::new(Vec::new())),
        &|rate, burst| format!("{rate} {burst}"),
        &mut |_| {},
    )
    .unwrap()
}

/// Denied requests and clients by a limiter without any of the simulator's code.
fn denied(visits: &[(u64, u8)], rate: &str, burst: u32) -> (u64, u64) {
    let quota = Quota::new(Algorithm::default(), rate.parse::<Rate>().unwrap()).unwrap();
    let clock = ManualClock::default();
    let limiter = KeyedLimiter::new(
        quota.with_burst(NonZeroU32::new(burst).unwrap()).unwrap(),
        clock.clone(),
        1_000_000,
    );
    let mut by_client: BTreeMap<u8, u64> = BTreeMap::new();
    for (at, ip) in visits {
        clock.set(Timestamp::from_micros(*at));
        if limiter.check(ip).is_err() {
            *by_client.entry(*ip).or_default() += 1;
        }
    }
    (by_client.values().sum(), by_client.len() as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn the_suggested_rate_is_the_smallest_that_is_enough(
        steps in prop::collection::vec((prop_oneof![Just(0), 0u64..2_000_000, 0u64..100_000_000], 0u8..5), 1..150),
        burst in 1u32..8,
        (share, part, whole) in prop::sample::select(vec![("0%", 0u128, 1u128), ("0.1%", 1, 1000), ("5%", 1, 20), ("1/3", 1, 3), ("100%", 1, 1)]),
        of in prop::sample::select(vec![ShareOf::Requests, ShareOf::Clients]),
    ) {
        let mut at = 1_700_000_000_000_000;
        let visits: Vec<_> = steps.into_iter().map(|(step, ip)| { at += step; (at, ip) }).collect();
        let n_clients = visits.iter().map(|visit| visit.1).collect::<std::collections::BTreeSet<_>>().len() as u64;
        let all = match of { ShareOf::Requests => visits.len() as u64, ShareOf::Clients => n_clients };
        let is_enough = |(requests, clients): (u64, u64)| {
            let n = match of { ShareOf::Requests => requests, ShareOf::Clients => clients };
            u128::from(n) * whole <= part * u128::from(all)
        };
        let suggestion = suggested(&visits, &[burst], share, of);
        prop_assert_eq!((suggestion.requests, suggestion.clients), (visits.len() as u64, n_clients));
        let found = &suggestion.bursts[0];
        for point in found.curve.iter().chain(&found.next_lower) {
            prop_assert_eq!((point.denied, point.clients_denied), denied(&visits, &point.rate, burst), "{}", point.rate);
        }
        match &found.rate {
            Some(rate) => {
                let confirmed = denied(&visits, rate, burst);
                prop_assert_eq!((found.denied, found.clients_denied), confirmed);
                prop_assert!(is_enough(confirmed), "{rate}");
                match &found.next_lower {
                    Some(smaller) => prop_assert!(!is_enough(denied(&visits, &smaller.rate, burst)), "{}", smaller.rate),
                    None => prop_assert_eq!(rate, "1/h"),
                }
                prop_assert_eq!(found.most_denied.iter().map(|client| client.denied).sum::<u64>(), confirmed.0);
            }
            None => {
                prop_assert!(!is_enough(denied(&visits, "1000000/s", burst)));
                if let Some(least) = found.sufficient_burst {
                    prop_assert!(is_enough(denied(&visits, "1000000/s", least)));
                    prop_assert!(!is_enough(denied(&visits, "1000000/s", least - 1)));
                }
            }
        }
    }
}

#[test]
fn several_bursts_get_a_rate_each_and_a_log_without_requests_gets_none() {
    let visits: Vec<_> = (0..600).map(|n| (1_700_000_000_000_000 + n * 500_000, 1)).collect();
    let rates = |bursts: &[u32], share: &str| {
        let suggestion = suggested(&visits, bursts, share, ShareOf::Requests);
        suggestion.bursts.iter().map(|burst| burst.rate.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        rates(&[1, 10, 600], "0%"),
        [Some("120/min".to_owned()), Some("120/min".to_owned()), Some("1/h".to_owned())]
    );
    assert_eq!(rates(&[1], "50%"), [Some("60/min".to_owned())]);
    assert!(suggested(&[], &[5], "1%", ShareOf::Requests).bursts.is_empty());
}

#[test]
fn names_of_clients_are_found_again() {
    let visits: Vec<_> = (0..40).map(|n| (1_700_000_000_000_000, if n < 30 { 7 } else { 8 })).collect();
    let suggestion = suggested(&visits, &[10], "50%", ShareOf::Requests);
    let most = &suggestion.bursts[0].most_denied;
    assert_eq!((most[0].client.as_str(), most[0].denied, most[0].requests), ("192.0.2.7", 20, 30));
}

#[test]
fn shares_are_exact_and_read_back() {
    for (text, shown) in [
        ("0.1%", "0.1%"),
        ("1/1000", "0.1%"),
        ("1/3", "1/3"),
        ("100%", "100%"),
        ("0%", "0%"),
        ("0.000001%", "0.000001%"),
    ] {
        assert_eq!(text.parse::<DeniedShare>().unwrap().to_string(), shown);
    }
    for bad in ["", "%", "1", "0.1", "-1%", "101%", "2/1", "1/0", "1.0000001%", "x%", "1e3%", "1/"] {
        assert!(bad.parse::<DeniedShare>().is_err(), "{bad}");
    }
}

/// A request that counts under two clients cannot be replayed under one: it is left out, and the note says so.
#[test]
fn a_request_with_several_values_is_left_out() {
    let paths = ["/?t=a&t=b", "/?t=b", "/?t=b", "/?t=b"];
    let text: String =
        paths.iter().map(|path| json_line(1_700_000_000_000_000, "192.0.2.1", "GET", path, 200)).collect();
    let suggestion = suggest(
        &policies("policies: [{name: a, by: 'query:t', quota: {rate: 1/s}}]"),
        vec![log("log", json_format(), text)],
        &SuggestOptions::new(NonZeroU32::new(3).unwrap(), "0%".parse().unwrap()),
        &SimulationSettings::default(),
        Box::new(Cursor::new(Vec::new())),
        &|_, _| String::new(),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(suggestion.requests, 3);
    assert!(suggestion.notes.iter().any(|note| note.contains("several values")), "{:?}", suggestion.notes);
}
