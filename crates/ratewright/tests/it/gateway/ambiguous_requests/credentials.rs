//! Tokens and other credentials.

use super::{USERS, bearer, check, limit};
use crate::curl::Request;

#[test]
fn two_authorization_headers_are_rejected_or_counted_by_address() {
    let (anna, bert) = (bearer("anna", 4_000_000_000), bearer("bert", 4_000_000_000));
    let both: Request<'_> = ("GET", "/", &[&anna, &bert]);
    check(&limit("by: user"), &[both, both], &[400, 400], Some(&[200, 429]));
}

#[test]
fn a_token_after_a_tab_or_several_spaces_is_a_token() {
    let anna = String::from_utf8(bearer("anna", 4_000_000_000)).unwrap();
    let [tab, spaces] = ["Bearer\t", "Bearer   "].map(|scheme| anna.replace("Bearer ", scheme).into_bytes());
    let requests: [Request<'_>; 2] = [("GET", "/", &[&tab]), ("GET", "/", &[&spaces])];
    check(&limit("by: user"), &requests, &[200, 429], Some(&[200, 429]));
}

/// Many applications take whatever follows the first blank for the token, or decode its signature leniently.
#[test]
fn a_token_under_another_scheme_names_its_user() {
    let anna = String::from_utf8(bearer("anna", 4_000_000_000)).unwrap();
    let spelled = |scheme: &str, end: &str| (anna.replace("Bearer ", scheme) + end).into_bytes();
    let lines = [
        spelled("Bearer ", ""),
        spelled("JWT ", ""),
        spelled("Token ", ""),
        spelled("x ", ""),
        spelled("Bearer:", ""),
        spelled("", ""),
        spelled("Bearer ", "="),
        spelled("Bearer ", "~"),
        spelled("Bearer ", " x"),
        spelled("JWT ", "~="),
    ];
    let lines = lines.each_ref().map(|line| [line.as_slice()]);
    let requests = lines.each_ref().map(|line| ("GET", "/", line.as_slice()));
    let expected = [200, 429, 429, 429, 429, 429, 429, 429, 429, 429];
    check(&limit("by: user"), &requests, &expected, Some(&expected));
    let basic: [Request<'_>; 4] = [
        ("GET", "/", &[b"Authorization: Basic YW5uYTpzM2NyZXQ="]),
        ("GET", "/", &[b"Authorization: Basic YW5uYTpzM2NyZXQ=AAAA"]),
        ("GET", "/", &[b"Authorization: Basic YW5u~YTpzM2NyZXQ"]),
        ("GET", "/", &[b"Authorization: Basic Ym9iOnMzY3JldA=="]),
    ];
    let expected = [200, 429, 429, 200];
    check(&limit("by: 'header:Authorization'"), &basic, &expected, Some(&expected));
}

/// A11: in a bucket of its own; a user has another one, and another scheme says nothing.
#[test]
fn an_invalid_token_is_counted_by_address() {
    let (old, anna) = (bearer("anna", 1_000_000_000), bearer("anna", 4_000_000_000));
    let forged: &[u8] = b"Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.AAAA";
    let (rubbish, basic): (&[u8], &[u8]) = (b"Authorization: Bearer rubbish", b"Authorization: Basic YTpi");
    let requests: [Request<'_>; 6] = [
        ("GET", "/", &[&old]),
        ("GET", "/", &[forged]),
        ("GET", "/", &[rubbish]),
        ("GET", "/", &[&anna]),
        ("GET", "/", &[basic]),
        ("GET", "/", &[basic]),
    ];
    let expected = [200, 429, 429, 200, 200, 200];
    check(&limit("by: user"), &requests, &expected, Some(&expected));
}

/// A token that is refused is not a user: it neither joins the members nor keeps the guests' policy away.
#[test]
fn an_invalid_token_does_not_select_the_quota_of_users() {
    let rubbish: &[u8] = b"Authorization: Bearer rubbish";
    let requests: [Request<'_>; 2] = [("GET", "/", &[rubbish]), ("GET", "/", &[rubbish])];
    for policies in [
        "- {name: u, by: {first_of: [user, ip]}, quota: {rate: 1/h}, overrides: [{match: {user: '*'}, quota: {rate: 1000/h}}]}\n",
        "- {name: members, group: m, when: {user: '*'}, by: user, quota: {rate: 1000/h}}\n- {name: guests, group: m, by: ip, quota: {rate: 1/h}}\n",
        "- {name: members, group: m, by: user, quota: {rate: 1000/h}}\n- {name: guests, group: m, by: ip, quota: {rate: 1/h}}\n",
    ] {
        check(&format!("{USERS}policies:\n{policies}"), &requests, &[200, 429], Some(&[200, 429]));
    }
}
