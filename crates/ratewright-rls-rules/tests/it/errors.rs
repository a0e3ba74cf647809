//! Errors in descriptors, with the messages of envoyproxy/ratelimit where it has the same check.

use expect_test::{Expect, expect};
use ratewright_rls_rules::{Domains, DuplicateDomains};

use crate::notation::errors;

#[track_caller]
fn check(tree: &str, expected: Expect) {
    expected.assert_eq(&errors(tree));
}

#[test]
fn all_errors_are_reported_with_their_descriptors() {
    check(
        "a 1/foo\n=x 1/minute\nb\n  c=d\n  c_d\n  e 1/minute name:n replaces:n\n  f 1/hour replaces:\ng share\ng=x share\nh=* share",
        expect![[r#"
            [0] Unit(0): invalid rate limit unit 'foo'; use second, minute, hour, day, week, month, year
            [1] Key: descriptor has empty key
            [2, 1] Key: duplicate descriptor composite key 'shop.b.c_d'
            [2, 2] Replaces(0, 0): replaces should not contain name of same descriptor
            [2, 3] Replaces(0, 0): should not have an empty replaces entry
            [3] ShareThreshold: share_threshold can only be used with wildcard values (containing '*'), but found key 'g'
            [4] ShareThreshold: share_threshold can only be used with wildcard values (containing '*'), but found key 'g_x'
        "#]],
    );
}

#[test]
fn unlimited_excludes_units_and_other_limits() {
    check(
        "a unlimited unit:day\nb unlimited 1/minute\nc unlimited unit:foo",
        expect![[r#"
        [0] Unit(0): should not specify rate limit unit when unlimited
        [1] RateLimit(0): unlimited cannot be combined with other limits; remove one of them
    "#]],
    );
}

#[test]
fn settings_of_our_own_are_checked_too() {
    check(
        "a 1/minute times:0\nb 1/year times:101\nc 1/minute burst:5\nd 1/minute by:token_bucket burst:0\n\
         e 10001/minute by:sliding_window\nf 1/minute 2/minute\ng 1/minute 2/minute times:2\n\
         h 1/minute 2/minute by:leaky_bucket\ni 0/minute burst:5\nj 1/year by:token_bucket burst:101",
        expect![[r#"
            [0] UnitMultiplier(0): unit_multiplier 0 is out of range with unit minute; use at least 1, and a window of at most 100 years
            [1] UnitMultiplier(0): unit_multiplier 101 is out of range with unit year; use at least 1, and a window of at most 100 years
            [2] Burst(0): fixed_window has no burst apart from its units; leave burst out, or use token_bucket
            [3] Burst(0): a burst of 0 would deny everything; use at least 1
            [4] RateLimit(0): sliding_window remembers every charge, so it takes at most 10000 units, not 10001; use sliding_window_counter for more
            [5] RateLimit(1): duplicate limit: another limit of the descriptor has the same algorithm, unit and unit_multiplier; remove one
            [8] Burst(0): fixed_window has no burst apart from its units; leave burst out, or use token_bucket
            [9] Burst(0): 101 units at 1/year take over 100 years to come back; raise the rate or lower the burst
        "#]],
    );
}

#[test]
fn an_empty_domain_is_rejected() {
    let errors = Domains::default().add("", &[], DuplicateDomains::Reject).unwrap_err();
    assert_eq!(errors[0].to_string(), "config file cannot have empty domain");
}

#[test]
fn the_depth_of_nesting_is_limited() {
    let deep = |n: usize| (0..n).map(|depth| format!("{}k\n", "  ".repeat(depth))).collect::<String>();
    assert_eq!(errors(&deep(Domains::DEPTH_MAX)), "");
    assert!(errors(&deep(Domains::DEPTH_MAX + 1)).ends_with("descriptors are nested more than 32 deep\n"));
}
