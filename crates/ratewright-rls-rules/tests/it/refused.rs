//! What is wrong with descriptors, in the words that others know.

use expect_test::{Expect, expect};
use ratewright_rls_rules::{Domains, SameDomain};

use crate::written::errors;

#[track_caller]
fn check(tree: &str, expected: Expect) {
    expected.assert_eq(&errors(tree));
}

#[test]
fn everything_that_is_wrong_is_told_with_which_descriptor_it_is() {
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
fn unlimited_has_no_unit_and_stands_alone() {
    check(
        "a unlimited unit:day\nb unlimited 1/minute\nc unlimited unit:foo",
        expect![[r#"
        [0] Unit(0): should not specify rate limit unit when unlimited
        [1] RateLimit(0): unlimited cannot stand beside other limits; leave one of them out
    "#]],
    );
}

#[test]
fn what_others_do_not_have_is_checked_too() {
    check(
        "a 1/minute times:0\nb 1/year times:101\nc 1/minute burst:5\nd 1/minute by:token_bucket burst:0\n\
         e 10001/minute by:sliding_window\nf 1/minute 2/minute\ng 1/minute 2/minute times:2\n\
         h 1/minute 2/minute by:leaky_bucket\ni 0/minute burst:5\nj 1/year by:token_bucket burst:101",
        expect![[r#"
            [0] UnitMultiplier(0): a window of 0 times one minute is out of range; use 1 or more, and 100 years at most
            [1] UnitMultiplier(0): a window of 101 times one year is out of range; use 1 or more, and 100 years at most
            [2] Burst(0): fixed_window has no burst apart from its units; leave burst out, or use token_bucket
            [3] Burst(0): a burst of 0 would deny everything; use at least 1
            [4] RateLimit(0): sliding_window remembers every charge, so it takes at most 10000 units, not 10001; use sliding_window_counter for more
            [5] RateLimit(1): another limit of the descriptor has the same algorithm, unit and multiplier; leave one out
            [8] Burst(0): fixed_window has no burst apart from its units; leave burst out, or use token_bucket
            [9] Burst(0): 101 units at 1/year take over 100 years to come back; raise the rate or lower the burst
        "#]],
    );
}

#[test]
fn a_domain_has_a_name() {
    let errors = Domains::default().add("", &[], SameDomain::Refuse).unwrap_err();
    assert_eq!(errors[0].to_string(), "config file cannot have empty domain");
}

#[test]
fn nothing_is_nested_without_an_end() {
    let deep = |n: usize| (0..n).map(|depth| format!("{}k\n", "  ".repeat(depth))).collect::<String>();
    assert_eq!(errors(&deep(Domains::DEPTH_MAX)), "");
    assert!(errors(&deep(Domains::DEPTH_MAX + 1)).ends_with("descriptors are nested more than 32 deep\n"));
}
