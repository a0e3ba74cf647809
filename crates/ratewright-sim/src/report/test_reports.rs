//! Reports for tests.

use ratewright_core::Timestamp;

use super::*;

/// Seconds after 2026-02-10 00:00:00 UTC.
pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros((1_770_681_600 + seconds) * 1_000_000)
}

fn client(client: &str, denied: u64, requests: u64) -> DeniedClient {
    let (first_denied_at, last_denied_at) = (at(30_011), at(30_011 + 60 * denied));
    DeniedClient { client: client.to_owned(), requests, denied, first_denied_at, last_denied_at }
}

fn change(client: &str, changed: u64, requests: u64) -> ClientChange {
    let (first_at, last_at) = (at(30_011), at(30_011 + 60 * changed));
    ClientChange { client: client.to_owned(), requests, changed, first_at, last_at }
}

fn request(client: &str, path: &str) -> RequestSummary {
    RequestSummary {
        at: at(30_011),
        client: client.to_owned(),
        method: "POST".to_owned(),
        path: path.to_owned(),
    }
}

/// The 1,204 denials of `login`, from 08:20.
const LOGIN_DENIALS: &[u64] =
    &[38, 71, 104, 140, 171, 204, 160, 131, 97, 55, 21, 0, 0, 9, 0, 0, 2, 0, 0, 0, 1];

/// A day in intervals of 10 minutes: busy at noon, with these denials from 08:20.
fn day(scale: u64, denials: &[u64]) -> Timeline {
    let distance = |n: u64| 72 - n.abs_diff(72);
    let mut denied = vec![0; 144];
    denied.iter_mut().skip(50).zip(denials).for_each(|(interval, n)| *interval = *n);
    let allowed = (0..144).map(|n| scale * (20 + distance(n) * distance(n) / 20)).collect();
    Timeline { from: Some(at(0)), interval_seconds: 600, allowed, denied }
}

/// A report with every part.
pub(super) fn full_report() -> Report {
    Report {
        period: Some(Period { from: at(0), to: at(86_399) }),
        logs: vec![
            LogReport { log: "access.log.1".to_owned(), format: "combined".to_owned(), lines: 1_400_500, unreadable: 2, error: None },
            LogReport { log: "access.log".to_owned(), format: "combined".to_owned(), lines: 2_001_000, unreadable: 1, error: None },
        ],
        lines: 3_401_500,
        unreadable: 3,
        lines_without_request: 285,
        out_of_order: 12,
        requests: 3_401_200,
        allowed: 3_399_996,
        denied: 1_204,
        clients: 81_220,
        clients_denied: 37,
        timeline: day(160, LOGIN_DENIALS),
        policies: policies(),
        logged_decisions: Some(LoggedDecisionsReport {
            requests: 3_401_200,
            denied: 1_190,
            denied_only_in_log: 3,
            denied_only_in_simulation: 17,
            first_difference: Some(DecisionDifference {
                request: request("203.0.113.9", "/login?next=/account"),
                denied_in: "simulation",
            }),
        }),
        status_429: 1_190,
        against: Some(ComparisonReport {
            file: "old.yaml".to_owned(),
            denied: 800,
            newly_denied: 520,
            newly_allowed: 116,
            clients_newly_denied: 14,
            clients_newly_allowed: 5,
            most_newly_denied: vec![change("203.0.113.9", 310, 1_244), change("2001:db8:7::/64", 98, 4_020)],
            most_newly_allowed: vec![change("198.51.100.23", 61, 9_033)],
        }),
        unreadable_lines: unreadable_lines(),
        notes: vec![
            "The log has no User-Agent header, so the exemption of monitoring requests was not applied; these requests are \
             counted as if they came from ordinary clients."
                .to_owned(),
        ],
    }
}

fn policies() -> Vec<PolicyReport> {
    let login = PolicyReport {
        policy: "login".to_owned(),
        mode: "enforce",
        limit: "10 per 1m, burst 20".to_owned(),
        by: vec!["ip".to_owned()],
        requests: 41_080,
        allowed: 39_876,
        denied: 1_204,
        near_misses: 311,
        clients: 9_020,
        clients_denied: 37,
        first_denial: Some(request("203.0.113.9", "/login")),
        most_denied: vec![
            client("203.0.113.9", 712, 1_244),
            client("2001:db8:7::/64", 301, 4_020),
            client("198.51.100.77", 9, 61),
        ],
        timeline: day(2, LOGIN_DENIALS),
        notes: vec!["The log does not contain the cost of a request; each request costs 1.".to_owned()],
        is_simulated: true,
    };
    let search = PolicyReport {
        policy: "search-per-key".to_owned(),
        mode: "shadow",
        limit: "600 per 1m".to_owned(),
        by: vec!["api_key".to_owned(), "route".to_owned()],
        requests: 1_200_000,
        allowed: 1_199_997,
        denied: 3,
        near_misses: 40_113,
        clients: 512,
        clients_denied: 1,
        first_denial: Some(request("key-7 /search", "/search?q=a")),
        most_denied: vec![client("key-7 /search", 3, 410_000)],
        timeline: day(80, &[3]),
        ..PolicyReport::default()
    };
    let search = PolicyReport { is_simulated: true, ..search };
    let all = PolicyReport {
        policy: "all".to_owned(),
        mode: "enforce",
        limit: "5000 per 1s".to_owned(),
        requests: 3_401_200,
        allowed: 3_401_200,
        clients: 81_220,
        timeline: day(160, &[]),
        is_simulated: true,
        ..PolicyReport::default()
    };
    let tenant = PolicyReport {
        policy: "tenant".to_owned(),
        mode: "enforce",
        limit: "100 per 1s".to_owned(),
        by: vec!["header:x-tenant".to_owned()],
        notes: vec!["The log has no header x-tenant, which the policy counts by.".to_owned()],
        ..PolicyReport::default()
    };
    vec![login, search, all, tenant]
}

fn unreadable_lines() -> Vec<UnreadableLine> {
    let line = |line, reason: &str, text: &str| UnreadableLine {
        log: "access.log.1".to_owned(),
        line,
        reason: reason.to_owned(),
        text: text.to_owned(),
    };
    vec![
        line(17, "no timestamp", "203.0.113.9 - - \"GET / HTTP/1.1\" 200 \x1b[2J"),
        line(
            88_102,
            "line ends in the middle of a string",
            "203.0.113.9 - - [10/Feb/2026:08:20:11 +0000] \"GET /a",
        ),
    ]
}

/// A report without denials.
pub(super) fn quiet_report() -> Report {
    let policies = policies().into_iter().filter(|policy| policy.policy == "all").collect();
    Report {
        period: Some(Period { from: at(60), to: at(7_200) }),
        lines: 1,
        requests: 1,
        allowed: 1,
        clients: 1,
        timeline: day(160, &[]),
        policies,
        ..Report::default()
    }
}

/// A report in which every text that a log, a file or a policy can contain is `name`.
pub(super) fn hostile_report(name: &str) -> Report {
    let mut report = full_report();
    let own = || name.to_owned();
    for log in &mut report.logs {
        (log.log, log.format) = (own(), own());
    }
    for policy in &mut report.policies {
        (policy.policy, policy.limit, policy.by, policy.notes) = (own(), own(), vec![own()], vec![own()]);
        policy.most_denied.iter_mut().for_each(|client| client.client = own());
        policy.first_denial = Some(RequestSummary { at: at(1), client: own(), method: own(), path: own() });
    }
    if let Some(against) = &mut report.against {
        against.file = own();
        against
            .most_newly_denied
            .iter_mut()
            .chain(&mut against.most_newly_allowed)
            .for_each(|client| client.client = own());
    }
    if let Some(logged) = &mut report.logged_decisions {
        let request = RequestSummary { at: at(1), client: own(), method: own(), path: own() };
        logged.first_difference = Some(DecisionDifference { request, denied_in: "log" });
    }
    for line in &mut report.unreadable_lines {
        (line.log, line.reason, line.text) = (own(), own(), own());
    }
    report.notes = vec![own()];
    report
}

/// A suggestion with one burst.
pub(super) fn suggestion() -> Suggestion {
    let point =
        |rate: &str, denied, clients_denied| CurvePoint { rate: rate.to_owned(), denied, clients_denied };
    let burst = BurstSuggestion {
        burst: 20,
        rate: Some("12/min".to_owned()),
        denied: 340,
        clients_denied: 8,
        next_lower: Some(point("11/min", 494, 11)),
        curve: vec![
            point("6/min", 4_120, 97),
            point("8/min", 2_004, 41),
            point("10/min", 803, 19),
            point("11/min", 494, 11),
            point("12/min", 340, 8),
            point("15/min", 96, 2),
            point("20/min", 0, 0),
        ],
        most_denied: vec![client("203.0.113.9", 212, 1_244), client("2001:db8:7::/64", 101, 4_020)],
        policy: Some(
            "policies:\n  - name: suggested\n    by: [ip]\n    limit: 12/min\n    burst: 20\n".to_owned(),
        ),
        sufficient_burst: None,
    };
    Suggestion {
        period: Some(Period { from: at(0), to: at(86_399) }),
        logs: vec![LogReport { log: "access.log".to_owned(), format: "json".to_owned(), lines: 412_020, unreadable: 2, error: None }],
        lines: 412_020,
        unreadable: 2,
        lines_without_request: 18,
        out_of_order: 0,
        requests: 412_000,
        clients: 9_020,
        by: vec!["ip".to_owned()],
        of: "requests",
        deny_at_most: "0.1%".to_owned(),
        bursts: vec![burst],
        unreadable_lines: unreadable_lines(),
        notes: vec!["120 requests got status 429 in the log; it does not show the requests that these clients would have sent without it.".to_owned()],
    }
}
