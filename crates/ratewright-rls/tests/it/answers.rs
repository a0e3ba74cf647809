//! What the service answers, as the original does, and in what it differs.

use ratewright_core::Micros;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_rls::wire::{RateLimitDescriptor, RateLimitRequest, RateLimitUnit};
use ratewright_rls::{Compat, HeaderFamily, Refunds, Refusal, RlsSettings};
use ratewright_rls_rules::{Descriptor, RateLimit};

use crate::world::{World, bringing, costing, limit, of};

const BOTH: [Compat; 2] = [Compat::AllOrNothing, Compat::Strict];

fn world(descriptors: &[Descriptor], compat: Compat) -> World {
    World::new(descriptors, RlsSettings { compat, ..RlsSettings::default() })
}

#[tokio::test]
async fn a_window_is_counted_down_and_begins_anew() {
    for compat in BOTH {
        let world = world(&[limit("client", "", 2, "minute")], compat);
        let ask = || world.ask(vec![of(&[("client", "red")])]);
        assert_eq!(ask().await, "OK | OK 2/MINUTE left 1 in 43");
        assert_eq!(ask().await, "OK | OK 2/MINUTE left 0 in 43");
        assert_eq!(ask().await, "OVER | OVER 2/MINUTE left 0 in 43");
        let blue = world.ask(vec![of(&[("client", "blue")])]).await;
        assert_eq!(blue, "OK | OK 2/MINUTE left 1 in 43", "each value has its own");
        world.clock.advance(Micros::from_secs(43));
        assert_eq!(ask().await, "OK | OK 2/MINUTE left 1 in 60");
    }
}

#[tokio::test]
async fn what_is_not_configured_has_no_limit_and_no_status_is_missing() {
    let unlimited = Descriptor {
        rate_limits: vec![RateLimit { unlimited: true, ..RateLimit::default() }],
        ..limit("free", "", 0, "")
    };
    let zero = limit("never", "", 0, "hour");
    for compat in BOTH {
        let world = world(&[unlimited.clone(), zero.clone(), limit("client", "", 1, "second")], compat);
        let asked = vec![of(&[("what", "ever")]), of(&[("free", "x")]), of(&[("client", "a")]), of(&[])];
        assert_eq!(world.ask(asked).await, "OK | OK | OK left 4294967295 | OK 1/SECOND left 0 in 1 | OK");
        let denied = world.ask(vec![of(&[("never", "x")])]).await;
        assert_eq!(denied, "OVER | OVER 0/HOUR left 0 in 2743");
    }
}

/// What tells the two apart: whether a request that one descriptor denies charges the others.
#[tokio::test]
async fn one_that_denies_keeps_the_others_uncharged_unless_answers_are_strict() {
    let rules = [limit("a", "", 1, "minute"), limit("b", "", 10, "minute")];
    for (compat, left) in [(Compat::AllOrNothing, 9), (Compat::Strict, 7)] {
        let world = world(&rules, compat);
        let both = || world.ask(vec![of(&[("a", "x")]), of(&[("b", "x")])]);
        assert_eq!(both().await, "OK | OK 1/MINUTE left 0 in 43 | OK 10/MINUTE left 9 in 43");
        for _ in 0..2 {
            assert!(both().await.starts_with("OVER | OVER 1/MINUTE left 0 in 43 | OK 10/MINUTE"));
        }
        let looked = world.ask(vec![costing(0, of(&[("b", "x")]))]).await;
        assert_eq!(looked, format!("OK | OK 10/MINUTE left {left} in 43"), "{compat:?}");
    }
}

/// At the limit a look is not over it: the original's users rely on that.
#[tokio::test]
async fn a_look_at_a_limit_that_is_just_used_up_is_not_over_it() {
    let world = world(&[limit("a", "", 2, "minute")], Compat::Strict);
    let (spend, look) = (of(&[("a", "x")]), costing(0, of(&[("a", "x")])));
    world.ask(vec![costing(2, spend.clone())]).await;
    assert_eq!(world.ask(vec![look.clone()]).await, "OK | OK 2/MINUTE left 0 in 43");
    assert_eq!(world.ask(vec![spend]).await, "OVER | OVER 2/MINUTE left 0 in 43");
    assert_eq!(world.ask(vec![look]).await, "OVER | OVER 2/MINUTE left 0 in 43", "now it is past it");
}

/// What an answer cost is known when it is sent. It counts even if it is more than was left, and the next request is denied.
#[tokio::test]
async fn what_has_happened_already_is_recorded_whatever_is_left() {
    let tokens = Descriptor { record_mode: true, ..limit("tokens", "", 10, "minute") };
    for compat in BOTH {
        let world = world(&[tokens.clone(), limit("client", "", 9, "minute")], compat);
        let begins = || world.ask(vec![costing(0, of(&[("tokens", "x")])), of(&[("client", "x")])]);
        let ends = |tokens| world.ask(vec![costing(tokens, of(&[("tokens", "x")]))]);
        assert_eq!(begins().await, "OK | OK 10/MINUTE left 10 in 43 | OK 9/MINUTE left 8 in 43");
        assert_eq!(ends(8).await, "OK | OK 10/MINUTE left 2 in 43");
        assert_eq!(begins().await, "OK | OK 10/MINUTE left 2 in 43 | OK 9/MINUTE left 7 in 43");
        assert_eq!(ends(8).await, "OVER | OVER 10/MINUTE left 0 in 43");
        let left = if compat == Compat::Strict { 6 } else { 7 };
        let denied = format!("OVER | OVER 10/MINUTE left 0 in 43 | OK 9/MINUTE left {left} in 43");
        assert_eq!(begins().await, denied, "{compat:?}");
        world.clock.advance(Micros::from_secs(43));
        assert!(begins().await.starts_with("OK | OK 10/MINUTE left 10 in 60"));
    }
}

/// Also if another descriptor of the same request denies: it has happened.
#[tokio::test]
async fn what_is_recorded_is_recorded_whatever_others_say() {
    let tokens = Descriptor { record_mode: true, ..limit("tokens", "", 10, "minute") };
    for (key, others) in
        [("client", limit("client", "", 1, "minute")), ("never", limit("never", "", 0, "minute"))]
    {
        for compat in BOTH {
            let world = world(&[tokens.clone(), others.clone()], compat);
            world.ask(vec![of(&[(key, "x")])]).await;
            let both = world.ask(vec![costing(8, of(&[("tokens", "x")])), of(&[(key, "x")])]).await;
            assert!(both.starts_with("OVER | OK 10/MINUTE left 2 in 43 | OVER"), "{both}");
            let left = world.ask(vec![costing(0, of(&[("tokens", "x")]))]).await;
            assert_eq!(left, "OK | OK 10/MINUTE left 2 in 43");
        }
    }
}

/// A limit of zero is known before anything is charged; of a quota with several limits all are charged, or none.
#[tokio::test]
async fn a_request_that_is_lost_charges_nobody() {
    let several = Descriptor {
        quota_mode: true,
        rate_limits: [limit("q", "", 10, "hour"), limit("q", "", 1, "day")]
            .into_iter()
            .flat_map(|one| one.rate_limits)
            .collect(),
        ..limit("q", "", 0, "")
    };
    let rules = [limit("a", "", 5, "minute"), limit("never", "", 0, "minute"), several];
    let world = world(&rules, Compat::AllOrNothing);
    let lost = world.ask(vec![of(&[("a", "x")]), of(&[("never", "x")])]).await;
    assert_eq!(lost, "OVER | OK 5/MINUTE left 5 in 43 | OVER 0/MINUTE left 0 in 43");
    assert_eq!(world.ask(vec![of(&[("a", "x")])]).await, "OK | OK 5/MINUTE left 4 in 43");

    for _ in 0..5 {
        world.ask(vec![of(&[("q", "x")]), of(&[("a", "x")])]).await;
    }
    world.clock.advance(Micros::from_secs(86_400)); // the day's limit is new, and so is the hour's
    assert!(world.ask(vec![of(&[("q", "y")])]).await.starts_with("OK | OK 1/DAY left 0"));
    assert!(world.ask(vec![of(&[("q", "y")])]).await.starts_with("OVER | OVER 1/DAY left 0"));
    let hour = world.rls.limiter.policies();
    assert_eq!(hour.named("envoy.shop.q").unwrap().limits().len(), 2);
    assert_eq!(world.remaining("envoy.shop.q", "q", "y").await, [9, 0], "one of the hour's");
}

#[tokio::test]
async fn what_is_off_lets_pass_whatever_is_brought_along() {
    let rules = [limit("a", "", 1, "minute"), limit("never", "", 0, "minute")];
    let world = World::new(&rules, RlsSettings { is_off: true, ..RlsSettings::default() });
    for _ in 0..3 {
        let own = bringing(1, RateLimitUnit::Hour, of(&[("a", "x")]));
        let all = world.ask(vec![of(&[("a", "x")]), of(&[("never", "x")]), own]).await;
        assert_eq!(all, "OK | OK | OK | OK");
    }
}

/// The response to a refund shows the state after it, for every algorithm: a log gives nothing back of another moment. A request that is denied
/// gives nothing back.
#[tokio::test]
async fn what_is_given_back_is_told_truly() {
    let with = |key: &str, algorithm| {
        let mut descriptor = limit(key, "", 5, "minute");
        descriptor.rate_limits[0].algorithm = algorithm;
        descriptor
    };
    let rules = [
        with("bucket", Algorithm::TokenBucket(Refill::Smooth)),
        with("log", Algorithm::SlidingWindow),
        limit("once", "", 1, "minute"),
    ];
    let world = world(&rules, Compat::AllOrNothing);
    let back = |key: &str| RateLimitDescriptor { is_negative_hits: true, ..costing(2, of(&[(key, "x")])) };
    for key in ["bucket", "log"] {
        let look = || world.ask(vec![costing(0, of(&[(key, "x")]))]);
        world.ask(vec![costing(5, of(&[(key, "x")]))]).await;
        world.clock.advance(Micros::from_secs(1));
        let outcomes = world.ask(vec![back(key)]).await;
        assert_eq!(outcomes, look().await, "{key}");
    }
    assert_eq!(world.ask(vec![back("bucket")]).await, "OK | OK 5/MINUTE left 4 in 10");
    world.ask(vec![of(&[("once", "x")])]).await;
    let denied = world.ask(vec![back("bucket"), of(&[("once", "x")])]).await;
    assert!(denied.starts_with("OVER | OK 5/MINUTE left 4 in 10 | OVER"), "{denied}");
}

#[tokio::test]
async fn negative_hits_are_given_back_and_never_over() {
    for compat in BOTH {
        let world = world(&[limit("a", "", 5, "minute")], compat);
        let back = |hits| RateLimitDescriptor { is_negative_hits: true, ..costing(hits, of(&[("a", "x")])) };
        world.ask(vec![costing(5, of(&[("a", "x")]))]).await;
        assert_eq!(world.ask(vec![back(2)]).await, "OK | OK 5/MINUTE left 2 in 43");
        assert_eq!(world.ask(vec![of(&[("a", "x")])]).await, "OK | OK 5/MINUTE left 1 in 43");
        assert_eq!(
            world.ask(vec![back(u64::MAX)]).await,
            "OK | OK 5/MINUTE left 5 in 43",
            "not more than all"
        );
        assert_eq!(world.ask(vec![of(&[("a", "x")])]).await, "OK | OK 5/MINUTE left 4 in 43");
    }
}

#[tokio::test]
async fn shadow_counts_and_never_denies() {
    let shadow = Descriptor { shadow_mode: true, ..limit("a", "", 1, "minute") };
    for compat in BOTH {
        let world = world(std::slice::from_ref(&shadow), compat);
        for _ in 0..3 {
            assert_eq!(world.ask(vec![of(&[("a", "x")])]).await, "OK | OK 1/MINUTE left 0 in 43");
        }
    }
}

#[tokio::test]
async fn of_quotas_all_must_be_used_up_and_then_nothing_is_charged() {
    let quota = |key: &str, n| Descriptor { quota_mode: true, ..limit(key, "", n, "minute") };
    for (compat, left) in [(Compat::AllOrNothing, 7), (Compat::Strict, 6)] {
        let world = world(&[quota("a", 1), quota("b", 2), limit("c", "", 9, "minute")], compat);
        let all = || world.ask(vec![of(&[("a", "x")]), of(&[("b", "x")]), of(&[("c", "x")])]);
        assert!(all().await.starts_with("OK | OK 1/MINUTE left 0 in 43 | OK 2/MINUTE left 1"));
        assert!(all().await.starts_with("OK | OVER 1/MINUTE left 0 in 43 | OK 2/MINUTE left 0"));
        assert!(all().await.starts_with("OVER | OVER 1/MINUTE left 0 in 43 | OVER 2/MINUTE left 0"));
        let looked = world.ask(vec![costing(0, of(&[("c", "x")]))]).await;
        assert_eq!(looked, format!("OK | OK 9/MINUTE left {left} in 43"), "{compat:?}");
    }
}

/// As with SHADOW_MODE and QUOTA_MODE of the original: for all rules at once.
#[tokio::test]
async fn all_rules_can_be_shadows_or_quotas_at_once() {
    let rules = [limit("a", "", 1, "minute"), limit("b", "", 2, "minute")];
    for compat in BOTH {
        let shadow = World::new(&rules, RlsSettings { compat, shadow_mode: true, ..RlsSettings::default() });
        let ask = || shadow.ask(vec![of(&[("a", "x")])]);
        assert_eq!(ask().await, "OK | OK 1/MINUTE left 0 in 43");
        assert_eq!(ask().await, "OK | OVER 1/MINUTE left 0 in 43", "the status says what it would have been");

        let quota = World::new(&rules, RlsSettings { compat, quota_mode: true, ..RlsSettings::default() });
        let ask = || quota.ask(vec![of(&[("a", "x")]), of(&[("b", "x")]), of(&[("free", "x")])]);
        assert_eq!(ask().await, "OK | OK 1/MINUTE left 0 in 43 | OK 2/MINUTE left 1 in 43 | OK");
        assert_eq!(ask().await, "OK | OVER 1/MINUTE left 0 in 43 | OK 2/MINUTE left 0 in 43 | OK");
        assert_eq!(ask().await, "OVER | OVER 1/MINUTE left 0 in 43 | OVER 2/MINUTE left 0 in 43 | OK");

        // Also a limit of zero that is brought along is one quota of several.
        let quota = World::new(&rules, RlsSettings { compat, quota_mode: true, ..RlsSettings::default() });
        let ask = || quota.ask(vec![bringing(0, RateLimitUnit::Hour, of(&[("z", "x")])), of(&[("b", "x")])]);
        for left in [1, 0] {
            assert_eq!(
                ask().await,
                format!("OK | OVER 0/HOUR left 0 in 2743 | OK 2/MINUTE left {left} in 43")
            );
        }
        assert_eq!(ask().await, "OVER | OVER 0/HOUR left 0 in 2743 | OVER 2/MINUTE left 0 in 43");
    }
}

#[tokio::test]
async fn a_limit_that_a_request_brings_along_counts_in_place_of_the_configured_one() {
    for compat in BOTH {
        let world = world(&[limit("a", "", 5, "minute")], compat);
        let own = || world.ask(vec![bringing(1, RateLimitUnit::Hour, of(&[("a", "x")]))]);
        assert_eq!(own().await, "OK | OK 1/HOUR left 0 in 2743");
        assert_eq!(own().await, "OVER | OVER 1/HOUR left 0 in 2743");
        let zero = world.ask(vec![bringing(0, RateLimitUnit::Day, of(&[("a", "x")]))]).await;
        assert!(zero.starts_with("OVER | OVER 0/DAY left 0"), "{zero}");
        // An unknown unit adds no limit; the original dies of it.
        let none = world.ask(vec![bringing(1, RateLimitUnit::Unknown, of(&[("a", "x")]))]).await;
        assert_eq!(none, "OK | OK 5/MINUTE left 4 in 43");
    }
}

/// Keys and values are a client's: no way of dividing them may lead to the bucket of another descriptor.
#[tokio::test]
async fn limits_that_requests_bring_along_share_no_bucket() {
    let world = world(&[limit("a", "", 5, "minute")], Compat::AllOrNothing);
    let own = |entries: &[(&str, &str)]| world.ask(vec![bringing(1, RateLimitUnit::Hour, of(entries))]);
    for entries in [
        &[("x_path", "/login")][..],
        &[("x", "path_/login")],
        &[("x", ""), ("path", "/login")],
        &[("x_path", "/login"), ("", "")],
        &[("x_path_/login", "")],
        &[("", "x_path_/login")],
        &[("6:x_path:6:/login:", "")],
    ] {
        assert!(own(entries).await.starts_with("OK"), "{entries:?}");
        assert!(own(entries).await.starts_with("OVER"), "{entries:?}");
    }
}

#[tokio::test]
async fn one_rule_replaces_another_within_a_request() {
    let named = |key: &str, name: &str, replaces: &[&str]| {
        let mut descriptor = limit(key, "", 1, "minute");
        descriptor.rate_limits[0].name = name.to_owned();
        descriptor.rate_limits[0].replaces = replaces.iter().map(|name| (*name).to_owned()).collect();
        descriptor
    };
    let world = world(&[named("a", "of-a", &[]), named("b", "of-b", &["of-a"])], Compat::Strict);
    let asked = || world.ask(vec![of(&[("a", "x")]), of(&[("b", "x")])]);
    assert_eq!(asked().await, "OK | OK | OK 1/MINUTE \"of-b\" left 0 in 43");
    let alone = world.ask(vec![of(&[("a", "x")])]).await;
    assert_eq!(alone, "OK | OK 1/MINUTE \"of-a\" left 0 in 43", "it was not charged");
}

#[tokio::test]
async fn the_same_descriptor_twice_is_charged_twice_and_absurd_numbers_do_no_harm() {
    for compat in BOTH {
        let world = world(&[limit("a", "", 3, "minute")], compat);
        let twice = vec![of(&[("a", "x")]), of(&[("a", "x")])];
        assert!(world.ask(twice).await.ends_with("OK 3/MINUTE left 1 in 43"));
        let huge = world.ask(vec![costing(u64::MAX, of(&[("a", "x")]))]).await;
        assert!(huge.starts_with("OVER | OVER 3/MINUTE left 0"), "{huge}");
    }
}

/// An attacker could otherwise fill Redis with long keys, or have its requests refused and so let through.
#[tokio::test]
async fn values_that_are_very_long_are_counted_by_how_they_begin() {
    for compat in BOTH {
        let world = world(&[limit("a", "", 1, "minute")], compat);
        let long = |end: &str| of(&[("a", &("é".repeat(10_000) + end))]);
        assert!(world.ask(vec![long("1")]).await.starts_with("OK"));
        assert!(world.ask(vec![long("2")]).await.starts_with("OVER"));
        let own = |end| world.ask(vec![bringing(1, RateLimitUnit::Hour, long(end))]);
        assert!(own("1").await.starts_with("OK"));
        assert!(own("2").await.starts_with("OK"), "a digest tells long values apart");
        assert!(own("1").await.starts_with("OVER"));
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_the_originals_words() {
    let world = world(&[], Compat::Strict);
    let answer = async |domain: &str, n: usize| {
        let descriptors = vec![of(&[("a", "x")]); n];
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
        world.rls.answer(&request, Refunds::Allowed).await.map(|answer| answer.statuses.len())
    };
    assert_eq!(answer("", 1).await, Err(Refusal::Domain));
    assert_eq!(answer("shop", 0).await, Err(Refusal::Descriptors));
    assert_eq!(answer("other", 256).await, Ok(256), "an unknown domain has no limits");
    assert_eq!(answer("shop", 257).await, Err(Refusal::TooMany));
    assert_eq!(Refusal::Domain.to_string(), "rate limit domain must not be empty");
    assert_eq!(Refusal::Descriptors.to_string(), "rate limit descriptor list must not be empty");
}

#[tokio::test]
async fn header_fields_are_added_as_configured() {
    let headers = vec![HeaderFamily::XRateLimit, HeaderFamily::RateLimit, HeaderFamily::RetryAfter];
    let world = World::new(&[limit("a", "", 1, "minute")], RlsSettings { headers, ..RlsSettings::default() });
    let fields = async || {
        let descriptors = vec![of(&[("b", "x")]), of(&[("a", "x")])];
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        let answer = world.rls.answer(&request, Refunds::Allowed).await.unwrap();
        let field = |field: &ratewright_rls::wire::HeaderValue| format!("{}: {}", field.key, field.value);
        answer.response_headers_to_add.iter().map(field).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        fields().await,
        "X-RateLimit-Limit: 1; X-RateLimit-Remaining: 0; X-RateLimit-Reset: 1700000100; \
         RateLimit-Limit: 1; RateLimit-Remaining: 0; RateLimit-Reset: 43"
    );
    assert!(fields().await.ends_with("RateLimit-Reset: 43; Retry-After: 43"));

    // A request that several limits deny waits for the longest of them.
    let rules = [limit("hour", "", 1, "hour"), limit("second", "", 1, "second")];
    let world = World::new(
        &rules,
        RlsSettings {
            headers: vec![HeaderFamily::RetryAfter],
            compat: Compat::Strict,
            ..RlsSettings::default()
        },
    );
    let descriptors = vec![of(&[("hour", "x")]), of(&[("second", "x")])];
    let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 2 };
    let answer = world.rls.answer(&request, Refunds::Allowed).await.unwrap();
    assert_eq!(answer.response_headers_to_add[0].value, "2743");

    // With quotas besides, for the first of them to have room again.
    let quota = |key: &str, unit: &str| Descriptor { quota_mode: true, ..limit(key, "", 1, unit) };
    let rules = [limit("second", "", 1, "second"), quota("minute", "minute"), quota("hour", "hour")];
    let settings = RlsSettings {
        headers: vec![HeaderFamily::RetryAfter],
        compat: Compat::Strict,
        ..RlsSettings::default()
    };
    let world = World::new(&rules, settings);
    let descriptors = ["second", "minute", "hour"].map(|key| of(&[(key, "x")])).to_vec();
    let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 2 };
    let answer = world.rls.answer(&request, Refunds::Allowed).await.unwrap();
    assert_eq!(answer.response_headers_to_add[0].value, "43");
}
