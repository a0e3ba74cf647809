//! Which descriptor matches a request.

use allocation_counter::measure;
use expect_test::{Expect, expect};
use ratewright_rls_rules::{Domains, DuplicateDomains, Matched, replace};

use crate::notation::{DOMAIN, descriptors, domains, entries, summary};

/// Matches each of the requests.
#[track_caller]
fn check(tree: &str, requests: &[&str], expected: Expect) {
    let domains = domains(tree);
    let lines = requests.iter().map(|request| {
        let matched = domains.find(DOMAIN, &entries(request));
        format!("{request}: {}\n", summary(&matched))
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn an_exact_value_precedes_wildcards_which_precede_the_key_alone() {
    check(
        "c 1/minute\nc=r* 2/minute\nc=red 3/minute\nd=* 1/minute",
        &["c=red", "c=rose", "c=blue", "c", "d=x", "d", "e=red"],
        expect![[r#"
            c=red: shop.c_red
            c=rose: shop.c_r* c=rose
            c=blue: shop.c c=blue
            c: shop.c c=
            d=x: shop.d_* d=x
            d: shop.d_* d=
            e=red: nothing
        "#]],
    );
}

#[test]
fn the_first_matching_wildcard_in_the_file_counts() {
    check(
        "p=/a/* 1/minute\np=/a/b* 2/minute\np=*c 3/minute\np=x*y*z 4/minute",
        &["p=/a/b", "p=/a/c", "p=/c", "p=xyz", "p=x1y2z3", "p=x*y*z"],
        expect![[r#"
            p=/a/b: shop.p_/a/* p=/a/b
            p=/a/c: shop.p_/a/* p=/a/c
            p=/c: shop.p_*c p=/c
            p=xyz: shop.p_x*y*z p=xyz
            p=x1y2z3: nothing
            p=x*y*z: shop.p_x*y*z p=x*y*z
        "#]],
    );
}

#[test]
fn matching_does_not_backtrack() {
    check(
        "c=red\n  m=get 1/minute\nc\n  m=post 2/minute\nc=r*\n  m=put 3/minute",
        &["c=red m=get", "c=red m=post", "c=rose m=put", "c=rose m=post", "c=blue m=post"],
        expect![[r#"
            c=red m=get: shop.c_red.m_get
            c=red m=post: nothing
            c=rose m=put: shop.c_r*.m_put c=rose
            c=rose m=post: nothing
            c=blue m=post: shop.c.m_post c=blue
        "#]],
    );
}

#[test]
fn a_limit_applies_at_its_own_depth_only() {
    check(
        "c 1/minute\n  m 2/minute\n    p=x 3/minute",
        &["c=1", "c=1 m=get", "c=1 m=get p=x", "c=1 m=get p=y", "c=1 m=get p=x q=z", "m=get", ""],
        expect![[r#"
            c=1: shop.c c=1
            c=1 m=get: shop.c.m c=1 m=get
            c=1 m=get p=x: shop.c.m.p_x c=1 m=get
            c=1 m=get p=y: nothing
            c=1 m=get p=x q=z: nothing
            m=get: nothing
            : nothing
        "#]],
    );
}

#[test]
fn a_descriptor_without_limits_allows_everything() {
    check(
        "c 1/minute\nc=friend\nc=vip unlimited\nc=foe 0/minute",
        &["c=red", "c=friend", "c=vip", "c=foe"],
        expect![[r#"
            c=red: shop.c c=red
            c=friend: nothing
            c=vip: unlimited shop.c_vip
            c=foe: blocked shop.c_foe
        "#]],
    );
}

#[test]
fn key_and_value_match_as_one_text() {
    check(
        "a_b=c 1/minute\nx=y_z 2/minute\np=q_* 3/minute\nn 4/minute\nk=l 5/minute\nm_ 6/minute",
        &["a_b=c", "a=b_c", "x_y=z", "p=q_1", "p_q=1", "p_q_1=2", "p=q_1_2", "k_l=7", "n=1", "m="],
        expect![[r#"
            a_b=c: shop.a_b_c
            a=b_c: shop.a_b_c
            x_y=z: shop.x_y_z
            p=q_1: shop.p_q_* p=q_1
            p_q=1: shop.p_q_* p=q_1
            p_q_1=2: shop.p_q_* p=q_1_2
            p=q_1_2: shop.p_q_* p=q_1_2
            k_l=7: shop.k_l
            n=1: shop.n n=1
            m=: shop.m_ m_=
        "#]],
    );
}

#[test]
fn a_key_may_contain_wildcards() {
    check(
        "v* 1/minute\nx_*=y 2/minute",
        &["v=1", "v1=1", "v*=1", "w=1", "x_1=y", "x=2_y", "x_1=z"],
        expect![[r#"
            v=1: shop.v* v*=v_1
            v1=1: shop.v* v*=v1_1
            v*=1: shop.v* v*=v*_1
            w=1: nothing
            x_1=y: shop.x_*_y x_*_y=x_1_y
            x=2_y: shop.x_*_y x_*_y=x_2_y
            x_1=z: nothing
        "#]],
    );
}

#[test]
fn values_share_a_bucket_with_share_threshold() {
    check(
        "f=/f/* share 1/minute\n  g=g* 2/minute\n    h 3/minute\ne=e* share\n  e=f* share 4/minute",
        &["f=/f/1", "f=/f/1 g=g2", "f=/f/1 g=g2 h=3", "e=e1 e=f1"],
        expect![[r#"
            f=/f/1: shop.f_/f/*
            f=/f/1 g=g2: shop.f_/f/*.g_g* g=g2
            f=/f/1 g=g2 h=3: shop.f_/f/*.g_g*.h g=g2 h=3
            e=e1 e=f1: shop.e_e*.e_f*
        "#]],
    );
}

#[test]
fn a_repeated_key_partitions_twice() {
    check(
        "a\n  a\n    a.2 1/minute",
        &["a=1 a=2 a.2=3"],
        expect![[r#"
        a=1 a=2 a.2=3: shop.a.a.a.2 a=1 a.2=2 a.2.2=3
    "#]],
    );
}

#[test]
fn an_unknown_domain_matches_nothing() {
    let domains = domains("c 1/minute");
    assert!(domains.has_domain(DOMAIN) && !domains.has_domain("Shop"));
    assert!(matches!(domains.find("Shop", &entries("c=1")), Matched::Nothing));
}

#[test]
fn duplicate_domains_are_merged_only_if_configured() {
    let mut domains = Domains::default();
    let [first, second] = ["a 1/minute\nb=x* 2/minute", "b=* 3/minute\nc 4/minute"].map(descriptors);
    domains.add(DOMAIN, &first, DuplicateDomains::Reject).unwrap();
    let rejected = domains.add(DOMAIN, &second, DuplicateDomains::Reject).unwrap_err();
    assert_eq!(
        rejected[0].to_string(),
        "duplicate domain 'shop' in config file; files of one domain need envoy.merge_domains"
    );
    domains.add(DOMAIN, &second, DuplicateDomains::Merge).unwrap();
    let matched =
        ["a=1", "b=xy", "b=y", "c=1"].map(|request| summary(&domains.find(DOMAIN, &entries(request))));
    assert_eq!(matched, ["shop.a a=1", "shop.b_x* b=xy", "shop.b_* b=y", "shop.c c=1"]);
    let again = domains.add(DOMAIN, &second, DuplicateDomains::Merge).unwrap_err();
    assert_eq!(again[0].to_string(), "duplicate descriptor composite key 'shop.b_*'");
}

/// The rules that match all descriptors of one request, after `replace`.
#[track_caller]
fn check_together(tree: &str, request: &[&str], expected: Expect) {
    let domains = domains(tree);
    let mut matched: Vec<_> = request.iter().map(|one| domains.find(DOMAIN, &entries(one))).collect();
    replace(&mut matched);
    expected.assert_eq(&matched.iter().map(summary).collect::<Vec<_>>().join(", "));
}

#[test]
fn a_replaced_limit_does_not_count() {
    let tree = "a 1/minute name:a\nb 2/minute name:b replaces:a\nc 3/minute replaces:b replaces:a\n\
                d unlimited replaces:a\ne unlimited name:e\nf 4/minute replaces:e replaces:z\nz 0/minute name:z";
    check_together(tree, &["a=1"], expect!["shop.a a=1"]);
    check_together(tree, &["a=1", "b=1"], expect!["nothing, shop.b b=1"]);
    check_together(tree, &["a=1", "b=1", "c=1"], expect!["nothing, nothing, shop.c c=1"]);
    check_together(tree, &["a=1", "d=1"], expect!["nothing, unlimited shop.d"]);
    check_together(tree, &["e=1", "f=1", "z=1"], expect!["unlimited shop.e, shop.f f=1, nothing"]);
}

#[test]
fn one_name_is_enough_to_replace_all_limits_of_a_rule() {
    let tree = "a 1/second name:s 10/minute name:m\nb 2/minute replaces:m";
    check_together(tree, &["a=1", "b=1"], expect!["nothing, shop.b b=1"]);
}

#[test]
fn finding_allocates_nothing() {
    let siblings: String = (0..1000).map(|n| format!("c=n{n} 1/minute\n")).collect();
    let domains = domains(&format!("{siblings}c 1/minute\nr=*\n  m\n    p=/a/*\n      q 1/second"));
    for request in ["c=n500", "c=other", "r=1 m=2 p=/a/b q=4", "x=1", "r=1"] {
        let entries = entries(request);
        let info = measure(|| drop(std::hint::black_box(domains.find(DOMAIN, &entries))));
        assert_eq!(info.count_total, 0, "{request}");
    }
}
