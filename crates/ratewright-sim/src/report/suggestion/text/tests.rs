use expect_test::expect;
use proptest::prelude::*;

use super::super::super::test_reports::suggestion;
use super::*;

#[test]
fn one_burst_is_answered_in_the_first_line() {
    expect![[r#"
        12/min with burst 20 denies 340 of 412,000 requests (0.083%); 11/min would deny 0.12%.

        412,000 requests from 9,020 clients (by ip), 2026-02-10 00:00:00 to 23:59:59 UTC
        412,020 lines read; not replayed: 2 unreadable, 18 without a request

        most denied clients at 12/min
          CLIENT           DENIED  REQUESTS  FIRST DENIED (UTC)   LAST DENIED (UTC)
          203.0.113.9         212     1,244  2026-02-10 08:20:11  2026-02-10 11:52:11
          2001:db8:7::/64     101     4,020  2026-02-10 08:20:11  2026-02-10 10:01:11

        rates tried
                                     CLIENTS
               RATE  DENIED   SHARE   DENIED
              6/min   4,120    1.0%       97  ██████████████████████████████
              8/min   2,004   0.49%       41  ██████████████▋
             10/min     803   0.19%       19  █████▉
             11/min     494   0.12%       11  ███▋
          →  12/min     340  0.083%        8  ██▌
             15/min      96  0.023%        2  ▊
             20/min       0      0%        0

        logs
          LOG         FORMAT    LINES  UNREADABLE
          access.log  json    412,020           2

        unreadable lines (showing 2 of 2)
          access.log.1:17: no timestamp: 203.0.113.9 - - "GET / HTTP/1.1" 200 \u{1b}[2J
          access.log.1:88102: line ends in the middle of a string: 203.0.113.9 - - [10/Feb/2026:08:20:11 +0000] "GET /a

        notes
          - 120 requests got status 429 in the log; it does not show the requests that these clients would
            have sent without it.

        policy to paste (burst 20)

        policies:
          - name: suggested
            by: [ip]
            limit: 12/min
            burst: 20
    "#]].assert_eq(&suggestion().to_text());
}

#[test]
fn several_bursts_are_compared_first() {
    let mut suggestion = suggestion();
    let short = BurstSuggestion { burst: 1, sufficient_burst: Some(7), ..BurstSuggestion::default() };
    suggestion.bursts.insert(0, short);
    suggestion.of = "clients";
    expect![[r#"
                                         CLIENTS
          BURST    RATE  DENIED   SHARE   DENIED
              1    none       –       –        –
             20  12/min     340  0.089%        8

        burst 1: no rate keeps denials at or below 0.1% of clients; burst 7 or more is needed
        12/min with burst 20 denies 8 of 9,020 clients (0.089%); 11/min would deny 0.12%.

        412,000 requests from 9,020 clients (by ip), 2026-02-10 00:00:00 to 23:59:59 UTC
        412,020 lines read; not replayed: 2 unreadable, 18 without a request

        most denied clients at 12/min with burst 20
          CLIENT           DENIED  REQUESTS  FIRST DENIED (UTC)   LAST DENIED (UTC)
          203.0.113.9         212     1,244  2026-02-10 08:20:11  2026-02-10 11:52:11
          2001:db8:7::/64     101     4,020  2026-02-10 08:20:11  2026-02-10 10:01:11

        rates tried with burst 20
                                     CLIENTS
               RATE  DENIED   SHARE   DENIED
              6/min   4,120    1.1%       97  ██████████████████████████████
              8/min   2,004   0.45%       41  ████████████▊
             10/min     803   0.21%       19  ██████
             11/min     494   0.12%       11  ███▌
          →  12/min     340  0.089%        8  ██▌
             15/min      96  0.022%        2  ▋
             20/min       0      0%        0

        logs
          LOG         FORMAT    LINES  UNREADABLE
          access.log  json    412,020           2

        unreadable lines (showing 2 of 2)
          access.log.1:17: no timestamp: 203.0.113.9 - - "GET / HTTP/1.1" 200 \u{1b}[2J
          access.log.1:88102: line ends in the middle of a string: 203.0.113.9 - - [10/Feb/2026:08:20:11 +0000] "GET /a

        notes
          - 120 requests got status 429 in the log; it does not show the requests that these clients would
            have sent without it.

        policy to paste (burst 20)

        policies:
          - name: suggested
            by: [ip]
            limit: 12/min
            burst: 20
    "#]].assert_eq(&suggestion.to_text());
}

#[test]
fn a_log_without_requests_reads_well() {
    expect![[r#"
        no rate suggested: no request in the logs matches the policy
    "#]]
    .assert_eq(&Suggestion::default().to_text());
}

#[test]
fn a_long_curve_is_thinned_but_keeps_the_chosen_rate_and_both_ends() {
    let point = |n: u64| CurvePoint { rate: format!("{n}/min"), denied: 1_000 - n, clients_denied: 0 };
    let curve: Vec<_> = (1..=500).map(point).collect();
    let burst = BurstSuggestion { rate: Some("77/min".to_owned()), curve, ..BurstSuggestion::default() };
    let shown: Vec<_> = shown_points(&burst).map(|point| point.rate.as_str()).collect();
    assert!(shown.len() <= CURVE_MAX, "{shown:?}");
    for rate in ["1/min", "76/min", "77/min", "78/min", "500/min"] {
        assert!(shown.contains(&rate), "{shown:?}");
    }
}

proptest! {
    /// Whatever a client sends, the terminal gets printable characters and the report's own newlines.
    #[test]
    fn text_has_no_control_characters(name: String) {
        let mut suggestion = suggestion();
        suggestion.by = vec![name.clone()];
        suggestion.notes = vec![name.clone()];
        for burst in &mut suggestion.bursts {
            burst.most_denied.iter_mut().for_each(|client| client.client.clone_from(&name));
            burst.policy = Some(format!("match: {name}\nmode: shadow\n"));
        }
        prop_assert!(!suggestion.to_text().chars().any(|c| c.is_control() && c != '\n'));
    }
}

#[test]
fn one_bucket_for_all_requests_has_no_clients() {
    let text = Suggestion { by: Vec::new(), ..suggestion() }.to_text();
    let summary = text.lines().find(|line| line.ends_with("UTC")).unwrap();
    expect!["412,000 requests (one bucket for all requests), 2026-02-10 00:00:00 to 23:59:59 UTC"]
        .assert_eq(summary);
}
