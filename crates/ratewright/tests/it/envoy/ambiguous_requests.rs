//! Ambiguous requests through Envoy: rules without a value count all their readings.

use ratewright_lab::Filter;

use super::{Edge, has_envoy};
use crate::curl::{self, HTTP_1, HTTP_2, Request};

const BY_PATH: &str = "- actions: [{request_headers: {header_name: ':path', descriptor_key: path}}]\n";
const BY_METHOD: &str = "- actions: [{request_headers: {header_name: ':method', descriptor_key: method}}]\n";
const BY_KEY: &str = "- actions: [{request_headers: {header_name: x-api-key, descriptor_key: api}}]\n";
const BY_ADDRESS: &str = "- actions: [{remote_address: {}}]\n";

/// Envoy makes one path of all its spellings.
const NORMAL_PATHS: &str = "\
normalize_path: true
merge_slashes: true
path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD
";

/// The statuses of requests over this version of HTTP under these descriptors, of which each allows one a year. What Envoy gets no
/// answer for, passes.
fn statuses(version: &str, filter: Filter<'_>, descriptors: &[&str], requests: &[Request<'_>]) -> Vec<u16> {
    let limit = "rate_limit: {unit: year, requests_per_unit: 1}";
    let descriptors = descriptors.iter().map(|descriptor| format!("- {{{descriptor}, {limit}}}\n"));
    let rules = format!("domain: edge\ndescriptors:\n{}", descriptors.collect::<String>());
    let edge = Edge::start(&rules, "");
    let envoy = edge.envoy_with(filter);
    curl::statuses(version, &envoy.address(), requests)
}

/// Checks the statuses of requests, over both versions of HTTP.
#[track_caller]
fn check(filter: Filter<'_>, descriptors: &[&str], requests: &[Request<'_>], expected: &[u16]) {
    for version in [HTTP_1, HTTP_2] {
        assert_eq!(statuses(version, filter, descriptors, requests), expected, "{version}");
    }
}

/// Each of these requests is counted: it passes once, and not again.
#[track_caller]
fn check_counted(rate_limits: &str, descriptors: &[&str], requests: &[Request<'_>]) {
    let twice: Vec<_> = requests.iter().flat_map(|request| [*request, *request]).collect();
    let filter = Filter { rate_limits, ..Filter::PATIENT };
    check(filter, descriptors, &twice, &[200, 429].repeat(requests.len()));
}

/// Envoy tells the path as it was written, with its parameters: a rule with a value sees one spelling, so that another rule must
/// see the others.
#[test]
fn every_spelling_of_a_path_is_counted() {
    if !has_envoy() {
        return;
    }
    let paths = ["/once", "/%6fnce", "/once?x=1", "//once", "/x/../once", "/x%2f..%2fonce", "/Once"];
    check_counted(
        BY_PATH,
        &["key: path, value: /once", "key: path"],
        &paths.map(|path| ("GET", path, &[][..])),
    );
}

/// One rule for a path counts all its spellings where Envoy makes one of them, and parameters too if it has a wildcard and
/// one bucket for what fits.
#[test]
fn normalised_paths_share_a_bucket() {
    if !has_envoy() {
        return;
    }
    let filter = Filter { rate_limits: BY_PATH, connection_manager: NORMAL_PATHS, ..Filter::PATIENT };
    let spellings = ["/once", "/%6fnce", "//once", "/x/../once", "/x%2f..%2fonce"];
    let spellings = spellings.map(|path| ("GET", path, &[][..]));
    check(filter, &["key: path, value: /once"], &spellings, &[200, 429, 429, 429, 429]);
    let parameters = ["/once", "/once?x=1", "/%6fnce?x=2"].map(|path| ("GET", path, &[][..]));
    let shared = "key: path, value: /once*, share_threshold: true";
    check(filter, &[shared], &parameters, &[200, 429, 429]);
}

#[test]
fn head_is_counted_and_a_lowercase_method_is_rejected() {
    if !has_envoy() {
        return;
    }
    let descriptors = ["key: method, value: GET", "key: method"];
    check_counted(BY_METHOD, &descriptors, &[("GET", "/", &[]), ("HEAD", "/", &[])]);
    let filter = Filter { rate_limits: BY_METHOD, ..Filter::PATIENT };
    check(filter, &descriptors, &[("get", "/", &[]), ("Get", "/", &[])], &[400, 400]);
}

/// Of several lines of a header Envoy tells the first: that one is counted, also if it is empty, whatever comes after it.
#[test]
fn a_duplicate_header_is_counted() {
    if !has_envoy() {
        return;
    }
    let [a, b, empty]: [&[u8]; 3] = [b"X-Api-Key: a", b"X-Api-Key: b", b"X-Api-Key:"];
    let descriptors = ["key: api, value: a", "key: api"];
    check_counted(
        BY_KEY,
        &descriptors,
        &[("GET", "/", &[a, b]), ("GET", "/", &[b, a]), ("GET", "/", &[empty, a])],
    );
    let filter = Filter { rate_limits: BY_KEY, ..Filter::PATIENT };
    let requests: [Request<'_>; 3] = [("GET", "/", &[a]), ("GET", "/", &[a, b]), ("GET", "/", &[a, a])];
    check(filter, &descriptors, &requests, &[200, 429, 429]);
}

/// A value that is not UTF-8 is counted, and the request still falls under the limit of its address.
#[test]
fn a_header_that_is_not_utf8_does_not_bypass_limits() {
    if !has_envoy() {
        return;
    }
    let unreadable: &[u8] = b"X-Api-Key: \xff";
    check_counted(BY_KEY, &["key: api"], &[("GET", "/", &[unreadable])]);
    let by_both = [BY_KEY, BY_ADDRESS].concat();
    let filter = Filter { rate_limits: &by_both, ..Filter::PATIENT };
    let requests: [Request<'_>; 2] = [("GET", "/", &[]), ("GET", "/", &[unreadable])];
    check(filter, &["key: remote_address"], &requests, &[200, 429]);
}
