//! The list of metrics in `docs/guides/api.md` against a page that Ratewright serves.

use std::collections::{BTreeMap, BTreeSet};

use super::environment::Scene;
use super::text;
use crate::process::Ratewright;

const BEGIN: &str = "<!-- metrics -->\n";
const END: &str = "<!-- end of metrics -->\n";

/// A metric's kind and its labels.
type Listed = BTreeMap<String, (String, BTreeSet<String>)>;

/// The rows ``| `name{label, label}` | kind | meaning |`` of the page.
fn documented() -> Listed {
    let page = text("docs/guides/api.md");
    let list = page.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
    let rows = list.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "{row}");
        assert!(!cells[2].is_empty(), "{row} says nothing");
        let series = cells[0].trim_matches('`');
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.trim_end_matches('}').split(", ").filter(|label| !label.is_empty());
        (name.to_owned(), (cells[1].to_owned(), labels.map(str::to_owned).collect()))
    })
    .collect()
}

/// What a page of metrics has, without the label that is on every series.
fn scraped(page: &str) -> Listed {
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Listed::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            kinds.insert(name.to_owned(), kind.to_owned());
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let family = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        let family = family.filter(|family| kinds.get(*family).is_some_and(|kind| kind == "histogram"));
        let family = family.unwrap_or(name);
        let labels = labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(label, _)| label);
        let own = labels.filter(|label| !["application", "le"].contains(label)).map(str::to_owned);
        let kind = kinds.get(family).unwrap_or_else(|| panic!("{family} has no TYPE")).clone();
        found.entry(family.to_owned()).or_insert((kind, BTreeSet::new())).1.extend(own);
    }
    found
}

/// C8, E4: nothing is left out, and nothing is made up.
#[test]
fn c8_e4_every_metric_is_listed_with_its_labels() {
    let mut scene = Scene::start();
    scene.serve_one_round();
    ratewright_lab::wait_until("Redis has counted the instances", || {
        scene.serve_one_round();
        scene.ratewright.admin("/metrics").body.contains("ratewright_instances")
    });
    let (found, documented) = (scraped(&scene.ratewright.admin("/metrics").body), documented());
    for (name, listed) in &found {
        assert_eq!(Some(listed), documented.get(name), "{name}: scraped, and as docs/guides/api.md has it");
    }
    let made_up: Vec<_> = documented.keys().filter(|name| !found.contains_key(*name)).collect();
    assert!(made_up.is_empty(), "docs/guides/api.md lists metrics that are not there: {made_up:?}");
}

/// E4, C8: each entrypoint counts under its own name, and once in `rate_limiter_requests_total`.
#[test]
fn e4_c8_every_entrypoint_is_counted() {
    let mut scene = Scene::start();
    for _ in 0..3 {
        scene.serve_one_round();
    }
    let page = scene.ratewright.admin("/metrics").body;
    let sum = |parts: &[&str]| -> f64 {
        let lines = page.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    };
    for (entrypoint, policy, expected) in
        [("gateway", "orders", 3.0), ("gateway", "at-once", 6.0), ("rest", "everybody", 3.0)]
    {
        let labels = [format!("policy=\"{policy}\""), format!("entrypoint=\"{entrypoint}\"")];
        let counted = sum(&["ratewright_decisions_total{", &labels[0], &labels[1]]);
        assert_eq!(counted, expected, "{entrypoint} {policy}:\n{page}");
    }
    assert_eq!(sum(&["ratewright_decisions_total{", "entrypoint=\"json\""]), 3.0, "{page}");
    // Two at the gateway, one by REST, one by JSON; each of several policies, and none of in_flight.
    assert_eq!(sum(&["rate_limiter_requests_total{"]), 12.0, "{page}");
    assert_eq!(sum(&["rate_limiter_check_seconds_count{"]), 12.0, "{page}");
}

/// The metric has the expiry of a renewed certificate.
#[test]
fn e4_a_renewed_certificate_has_a_new_expiry() {
    let scene = Scene::start();
    let series = "ratewright_certificate_expiry_timestamp_seconds{application=\"shop\",listener=\"grpc\"}";
    let before = scene.ratewright.metric(series);
    scene.renew_certificate();
    ratewright_lab::wait_until("the new certificate is in place", || {
        scene.ratewright.metric(series) > before + 86_400.0
    });
}

/// E4: requests that wait for an upstream are in flight.
#[test]
fn e4_requests_in_flight_are_shown() {
    let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ratewright = Ratewright::start(&format!(
        "routes: [{{id: slow, match: {{path: /slow}}, upstream: 'http://{}'}}]\n",
        upstream.local_addr().unwrap()
    ));
    let in_flight = || {
        let page = ratewright.admin("/metrics").body;
        let line =
            page.lines().find(|line| line.starts_with("gateway_requests_in_flight{route_path=\"/slow\"}"));
        line.map(|line| line.rsplit_once(' ').unwrap().1.to_owned())
    };
    assert_eq!(in_flight(), None);
    let mut stream = ratewright_lab::Stream::connect(&ratewright.gateway);
    std::io::Write::write_all(&mut stream, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    ratewright_lab::wait_until("it is in flight", || in_flight().as_deref() == Some("1.0"));
    drop(stream);
    ratewright_lab::wait_until("its client has gone", || in_flight().as_deref() == Some("0.0"));
}
