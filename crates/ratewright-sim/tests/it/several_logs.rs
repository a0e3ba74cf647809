//! Several logs are one: neither their order nor how requests are distributed among them matters.

use proptest::prelude::*;
use ratewright_sim::{Format, Report, SimulationSettings};

use crate::{json_format, json_line, log, policies, simulate};

const FILE: &str =
    "policies: [{name: ip, by: ip, quota: {rate: 2/s, burst: 3}}, {name: all, quota: {rate: 5/s}}]";

fn lines(steps: &[(u64, u8)]) -> Vec<(u64, String)> {
    let mut at = 1_700_000_000_000_000;
    let line = |(step, ip): &(u64, u8)| {
        at += step;
        (at, json_line(at, &format!("192.0.2.{ip}"), "GET", "/", 200))
    };
    steps.iter().map(line).collect()
}

/// The report without the logs themselves.
fn results(report: Report) -> Report {
    let mut report = report;
    report.logs.clear();
    report
}

fn simulated(texts: Vec<String>) -> Report {
    let logs = texts.into_iter().enumerate();
    results(simulate(FILE, logs.map(|(n, text)| log(&format!("log {n}"), json_format(), text)).collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A log that is cut into pieces gives the same report, in whatever order the pieces are named.
    #[test]
    fn pieces_of_a_log_are_the_log(
        steps in prop::collection::vec((1u64..3_000_000, 0u8..4), 1..80),
        cuts in prop::collection::vec(0usize..80, 0..6),
        order in any::<prop::sample::Index>(),
    ) {
        let lines: Vec<String> = lines(&steps).into_iter().map(|(_, line)| line).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(lines.len())).chain([0, lines.len()]).collect();
        cuts.sort_unstable();
        let mut pieces: Vec<String> = cuts.windows(2).map(|pair| lines[pair[0]..pair[1]].concat()).collect();
        let whole = simulated(vec![lines.concat()]);
        let n = order.index(pieces.len());
        pieces.rotate_left(n);
        prop_assert_eq!(simulated(pieces), whole);
    }

    /// Requests that several servers logged are merged by time, also if there are more logs than are kept open.
    #[test]
    fn logs_of_several_servers_are_merged(
        steps in prop::collection::vec((1u64..3_000_000, 0u8..4), 1..120),
        servers in prop::collection::vec(0usize..40, 120),
        order in any::<prop::sample::Index>(),
    ) {
        let lines = lines(&steps);
        let mut logs = vec![String::new(); 40];
        for ((_, line), server) in lines.iter().zip(servers) {
            logs[server] += line;
        }
        let whole = simulated(vec![lines.into_iter().map(|(_, line)| line).collect()]);
        let n = order.index(logs.len());
        logs.rotate_left(n);
        prop_assert_eq!(simulated(logs), whole);
    }

    /// Lines that are out of order by up to a minute are sorted.
    #[test]
    fn lines_are_sorted_within_a_minute(
        steps in prop::collection::vec((1u64..3_000_000, 0u8..4), 1..80),
        delays in prop::collection::vec(0u64..60_000_000, 80),
    ) {
        let lines = lines(&steps);
        let whole = simulated(vec![lines.iter().map(|(_, line)| line.as_str()).collect()]);
        let mut delayed: Vec<_> = lines.into_iter().zip(delays).map(|((at, line), delay)| (at + delay, line)).collect();
        delayed.sort();
        prop_assert_eq!(simulated(vec![delayed.into_iter().map(|(_, line)| line).collect()]), whole);
    }
}

#[test]
fn requests_of_one_time_keep_the_order_of_their_log() {
    let file = "policies: [{name: all, quota: {rate: 1/h}}]";
    let text = "192.0.2.9 - - [10/Feb/2026:08:20:11 +0000] \"GET /first HTTP/1.1\" 200 1\n\
                192.0.2.1 - - [10/Feb/2026:08:20:11 +0000] \"GET /second HTTP/1.1\" 200 1\n";
    let report = simulate(file, vec![log("access.log", Format::Combined, text)]);
    assert_eq!(report.policies[0].first_denial.as_ref().unwrap().path, "/second");
    assert_eq!(
        report.policies[0].most_denied[0].client, "192.0.2.1",
        "without a partition, clients are addresses"
    );
}

#[test]
fn unreadable_lines_are_counted_and_the_first_are_shown() {
    let text = format!(
        "nonsense \u{1b}[2J\n{}\n\n{}\n{}\n",
        json_line(1_700_000_000_000_000, "192.0.2.1", "GET", "/", 200).trim_end(),
        "x".repeat(100_000),
        "{\"t\":\"yesterday\"}"
    );
    let report = simulate(FILE, vec![log("access.log", json_format(), text)]);
    assert_eq!((report.lines, report.unreadable, report.requests), (4, 3, 1));
    let shown: Vec<_> = report.unreadable_lines.iter().map(|line| (line.line, line.text.len())).collect();
    assert_eq!(shown, [(1, 13), (4, 80), (5, 17)]);
    assert!(!report.to_text().contains('\u{1b}'));
}

#[test]
fn another_policy_file_is_compared_request_by_request() {
    let text: String = (0..10u64)
        .map(|n| {
            json_line(
                1_700_000_000_000_000 + n,
                if n < 7 { "192.0.2.1" } else { "192.0.2.2" },
                "GET",
                "/",
                200,
            )
        })
        .collect();
    let compare = |new: &str, old: &str| {
        let logs = vec![log("log", json_format(), text.clone())];
        let report = ratewright_sim::simulate(
            policies(new),
            Some(policies(old)),
            logs,
            &SimulationSettings::default(),
            &mut |_| {},
        )
        .unwrap();
        let against = report.against.unwrap();
        (
            against.denied,
            against.newly_denied,
            against.newly_allowed,
            against.clients_newly_denied,
            against.clients_newly_allowed,
            against.most_newly_denied,
            against.most_newly_allowed,
        )
    };
    let strict = "policies: [{name: a, by: ip, quota: {rate: 1/h, burst: 2}}]";
    let soft = "policies: [{name: a, by: ip, quota: {rate: 1/h, burst: 5}}]";
    let (denied, newly_denied, newly_allowed, n_losing, n_gaining, losing, gaining) = compare(strict, soft);
    assert_eq!((denied, newly_denied, newly_allowed, n_losing, n_gaining), (2, 4, 0, 2, 0));
    assert_eq!(
        losing
            .iter()
            .map(|client| (client.client.as_str(), client.changed, client.requests))
            .collect::<Vec<_>>(),
        [("192.0.2.1", 3, 7), ("192.0.2.2", 1, 3)]
    );
    assert!(gaining.is_empty());
    let (denied, newly_denied, newly_allowed, n_losing, n_gaining, ..) = compare(soft, strict);
    assert_eq!((denied, newly_denied, newly_allowed, n_losing, n_gaining), (6, 0, 4, 0, 2));
}

#[test]
fn decisions_of_the_log_are_compared_with_the_simulated_ones() {
    let line = |n: u64, denied: bool| {
        format!(
            "{{\"time\":\"2026-11-15T12:00:00.{n:03}Z\",\"client\":\"192.0.2.7\",\"method\":\"GET\",\"host\":\"a\",\"path\":\"/a\",\"route\":null,\"policy\":\"a\",\"denied\":{denied},\"status\":200,\"duration_ms\":1.2,\"request_id\":\"r\",\"user_agent\":null,\"http\":\"1.1\"}}\n"
        )
    };
    let text: String = (0..6).map(|n| line(n, n == 0 || n == 4)).collect();
    let report = simulate(
        "policies: [{name: a, by: ip, quota: {rate: 1/h, burst: 3}}]",
        vec![log("log", Format::Ratewright, text)],
    );
    let logged = report.logged_decisions.unwrap();
    assert_eq!(
        (logged.requests, logged.denied, logged.denied_only_in_log, logged.denied_only_in_simulation),
        (6, 2, 1, 2)
    );
    assert_eq!(logged.first_difference.unwrap().request.at.as_micros() % 1_000_000, 0);
}

/// Both logs begin at one time with the same line: the rest of them decides which comes first.
#[test]
fn logs_that_begin_alike_have_one_order() {
    let csv = |ip: &str| format!("t,ip\n1770711611,192.0.2.9\n{}", format!("1770711611,{ip}\n").repeat(10));
    let format = || Format::named("csv", Some("time=t,ip=ip".parse().unwrap())).unwrap();
    let simulated = |names: [&str; 2]| {
        let logs = names.map(|ip| log(ip, format(), csv(ip)));
        results(simulate("policies: [{name: all, quota: {rate: 1/h, burst: 12}}]", logs.into()))
    };
    assert_eq!(simulated(["192.0.2.1", "192.0.2.2"]), simulated(["192.0.2.2", "192.0.2.1"]));
}

#[test]
fn a_missing_column_is_one_error() {
    let format = Format::named("csv", Some("time=wen,ip=client".parse().unwrap())).unwrap();
    let logs = vec![log("a.csv", format, "when,client,uri\n1770711611,192.0.2.1,/\n")];
    let error =
        ratewright_sim::simulate(policies(FILE), None, logs, &SimulationSettings::default(), &mut |_| {});
    let text = error.expect_err("a column is missing").to_string();
    assert_eq!(text, "a.csv: no column wen in the header line; it has when, client, uri");
}

#[test]
fn policies_of_the_other_file_that_were_not_simulated_are_named() {
    let other = "policies: [{name: key, by: 'header:X-Key', quota: {rate: 1/h}}, {name: off, mode: off, by: ip, quota: {rate: 1/h}}]";
    let line = "192.0.2.1 - - [10/Feb/2026:08:20:11 +0000] \"GET / HTTP/1.1\" 200 1\n";
    let logs = vec![log("access.log", Format::Combined, line)];
    let report = ratewright_sim::simulate(
        policies(FILE),
        Some(policies(other)),
        logs,
        &SimulationSettings::default(),
        &mut |_| {},
    )
    .unwrap();
    for name in ["key", "off"] {
        let note = format!("policy {name} was not simulated");
        assert!(report.notes.iter().any(|other| other.contains(&note)), "{:?}", report.notes);
    }
}
