//! Methods: in small letters, HEAD, and those that headers or parameters override.

use ratewright_lab::Nginx;

use super::{application, check, gateway, limit, pass};
use crate::curl::{HTTP_1, HTTP_2, Request};
use crate::process::Ratewright;

const HEAD: Request<'_> = ("HEAD", "/", &[]);

/// A policy by address of 4 units, of which methods cost so many.
fn costing(costs: &str) -> String {
    format!("policies: [{{name: p, by: ip, cost: {costs}, quota: {{rate: 4/h}}}}]\n")
}

/// A policy by address, with these overrides.
fn overridden([first, second]: [&str; 2]) -> String {
    format!("policies: [{{name: p, by: ip, quota: {{rate: 4/h}}, overrides: [{first}, {second}]}}]\n")
}

#[test]
fn a_lowercase_method_is_rejected_or_counted() {
    let requests: [Request<'_>; 3] = [("POST", "/", &[]), ("post", "/", &[]), ("Post", "/", &[])];
    check(&limit("by: ip, when: {method: POST}"), &requests, &[200, 400, 400], Some(&[200, 429, 429]));
    let options: [Request<'_>; 2] = [("options", "/", &[]), ("options", "/", &[])];
    check(&limit("by: ip"), &options, &[400, 400], Some(&[200, 429]));
    let posts: [Request<'_>; 2] = [("post", "/", &[]), ("Post", "/", &[])];
    check(&costing("{POST: 3}"), &posts, &[400, 400], Some(&[200, 429]));
}

#[test]
fn get_covers_head() {
    let requests: [Request<'_>; 2] = [("GET", "/", &[]), ("HEAD", "/", &[])];
    check(&limit("by: ip, when: {method: GET}"), &requests, &[200, 429], Some(&[200, 429]));
    check(&costing("{GET: 3}"), &[HEAD, HEAD], &[200, 429], Some(&[200, 429]));
}

/// It wins in whichever order they stand.
#[test]
fn an_entry_that_names_head_wins_over_get() {
    check(&costing("{GET: 3, HEAD: 2}"), &[HEAD; 3], &[200, 200, 429], Some(&[200, 200, 429]));
    check(&costing("{HEAD: 4, GET: 1}"), &[HEAD; 2], &[200, 429], Some(&[200, 429]));
    let (get, head) =
        ("{match: {method: GET}, quota: {rate: 1/h}}", "{match: {method: HEAD}, quota: {rate: 2/h}}");
    for overrides in [[get, head], [head, get]] {
        let requests: [Request<'_>; 5] = [HEAD, HEAD, HEAD, ("GET", "/", &[]), ("GET", "/", &[])];
        let expected = [200, 200, 429, 200, 429];
        check(&overridden(overrides), &requests, &expected, Some(&expected));
    }
}

#[test]
fn an_entry_for_every_method_does_not_win_over_get() {
    let (get, any) =
        ("{match: {method: GET}, quota: {rate: 1/h}}", "{match: {method: '*'}, quota: {rate: 1000/h}}");
    let requests: [Request<'_>; 4] = [HEAD, HEAD, ("POST", "/", &[]), ("POST", "/", &[])];
    let expected = [200, 429, 200, 200];
    check(&overridden([get, any]), &requests, &expected, Some(&expected));
    let group = "policies:\n\
        - {name: reads, group: g, when: {method: GET}, by: ip, quota: {rate: 1/h}}\n\
        - {name: others, group: g, when: {method: '*'}, by: ip, quota: {rate: 1000/h}}\n";
    check(group, &requests, &expected, Some(&expected));
    check(&costing("{GET: 3, default: 1}"), &[HEAD, HEAD], &[200, 429], Some(&[200, 429]));
}

#[test]
fn a_method_that_a_header_or_a_parameter_overrides_is_counted_under_both() {
    let headers: [&[u8]; 3] =
        [b"X-HTTP-Method-Override: delete", b"X-Method-Override: DELETE", b"X-HTTP-Method: DELETE"];
    let mut requests: Vec<Request<'_>> = vec![("DELETE", "/", &[])];
    requests.extend(headers.iter().map(|header| ("POST", "/", std::slice::from_ref(header))));
    requests.extend([("POST", "/?_method=DELETE", &[][..]), ("POST", "/?%5Fmethod=delete", &[])]);
    let expected = [200, 429, 429, 429, 429, 429];
    check(&limit("by: ip, when: {method: DELETE}"), &requests, &expected, Some(&expected));
    let options: [Request<'_>; 2] = [("OPTIONS", "/", &[headers[0]]), ("OPTIONS", "/", &[headers[0]])];
    check(&limit("by: ip"), &options, &[200, 429], Some(&[200, 429]));
}

/// Groups, overrides and costs of one reading do not hide those of another.
#[test]
fn an_overridden_method_does_not_choose_a_larger_quota() {
    let get: &[u8] = b"X-HTTP-Method-Override: GET";
    let list: &[u8] = b"X-HTTP-Method-Override: GET, X";
    let post: [Request<'_>; 2] = [("POST", "/", &[get]), ("POST", "/?_method=get", &[list])];
    let group = "policies:\n\
        - {name: reads, group: g, when: {method: GET}, by: ip, quota: {rate: 1000/h}}\n\
        - {name: writes, group: g, when: {method: POST}, by: ip, quota: {rate: 1/h}}\n";
    check(group, &post, &[200, 429], Some(&[200, 429]));
    let other = "policies: [{name: p, by: ip, quota: {rate: 1/h}, overrides: [{match: {method: GET}, quota: {rate: 1000/h}}]}]\n";
    check(other, &post, &[200, 429], Some(&[200, 429]));
    let shadow = "policies: [{name: p, by: ip, quota: {rate: 1/h}, overrides: [{match: {method: GET}, mode: shadow}]}]\n";
    check(shadow, &post, &[200, 429], Some(&[200, 429]));
}

/// A route for the method that is asked for may have other policies.
#[test]
fn an_overridden_method_does_not_choose_another_route() {
    let application = application();
    let upstream = application.address();
    let config = format!(
        "policies: [{{name: strict, by: ip, quota: {{rate: 1/h}}}}]\nroutes:\n\
         - {{id: post, match: {{path: /**, method: [GET, POST]}}, upstream: 'http://{upstream}'}}\n\
         - {{id: del, match: {{path: /**, method: DELETE}}, upstream: 'http://{upstream}', policies: [strict]}}\n"
    );
    let ratewright = Ratewright::start(&config);
    let delete: &[u8] = b"X-HTTP-Method-Override: DELETE";
    assert_eq!(pass(&ratewright, HTTP_1, ("POST", "/r", &[delete])).0, 400);
    assert_eq!(pass(&ratewright, HTTP_1, ("POST", "/r", &[b"X-HTTP-Method-Override: GET"])).0, 200);
    assert_eq!(pass(&ratewright, HTTP_1, ("POST", "/r", &[])).0, 200);
}

/// The upstream does not get them, so they are not counted. Parameters are not stripped.
#[test]
fn headers_that_override_the_method_can_be_stripped() {
    let says = "[$http_x_http_method_override|$http_x_method_override|$http_x_http_method]";
    let application = Nginx::start(1, "", &format!("location / {{ return 200 '{says}'; }}\n"));
    let headers: [&[u8]; 3] =
        [b"X-HTTP-Method-Override: DELETE", b"X-Method-Override: DELETE", b"X-HTTP-Method: DELETE"];
    let policy = limit("by: ip, when: {method: DELETE}");
    let stripping = format!("gateway: {{strip_method_override: true}}\n{policy}");
    for version in [HTTP_1, HTTP_2] {
        let ratewright = gateway(&application, &policy);
        let seen = pass(&ratewright, version, ("POST", "/", &headers));
        assert_eq!(
            seen,
            (200, "[DELETE|DELETE|DELETE]".to_owned()),
            "the upstream gets them without the setting"
        );
        assert_eq!(pass(&ratewright, version, ("POST", "/", &headers)).0, 429);
        let ratewright = gateway(&application, &stripping);
        for _ in 0..2 {
            assert_eq!(
                pass(&ratewright, version, ("POST", "/", &headers)),
                (200, "[||]".to_owned()),
                "{version}"
            );
        }
        let parameter: Request<'_> = ("POST", "/?_method=DELETE", &[]);
        assert_eq!([(); 2].map(|()| pass(&ratewright, version, parameter).0), [200, 429], "{version}");
    }
}
