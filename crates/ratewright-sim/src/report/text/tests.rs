use expect_test::expect;
use proptest::prelude::*;

use super::super::test_reports::{full_report, hostile_report, quiet_report};
use super::*;

#[test]
fn a_full_report_tells_the_most_important_first() {
    expect![[r#"
        3,401,200 requests, 2026-02-10 00:00:00 to 23:59:59 UTC
        denied 1,204 of 3,401,200 requests (0.035%) and 37 of 81,220 clients (0.046%)
        allowed 3,399,996 of 3,401,200 requests (99.965%)
        not simulated: tenant
        3,401,500 lines read; not replayed: 3 unreadable, 285 without a request, 12 too far out of order
        responses with status 429 in the log: 1,190 of 3,401,200 requests (0.035%); without them, these
        clients might have sent more requests

                                                                                          CLIENTS    NEAR  FIRST
          POLICY          MODE           LIMIT                 REQUESTS  DENIED    SHARE   DENIED  MISSES  DENIAL
          login           enforce        10 per 1m, burst 20     41,080   1,204     2.9%       37     311  2026-02-10 08:20
          search-per-key  shadow         600 per 1m           1,200,000       3  <0.001%        1  40,113  2026-02-10 08:20
          all             enforce        5000 per 1s          3,401,200       0       0%        0       0  –
          tenant          not simulated  100 per 1s                   –       –        –        –       –  –

        login (by ip) would have denied 1,204 of 41,080 requests (2.9%) and 37 of 9,020 clients (0.41%)
          CLIENT           DENIED  REQUESTS  FIRST DENIED (UTC)   LAST DENIED (UTC)
          203.0.113.9         712     1,244  2026-02-10 08:20:11  2026-02-10 20:12:11
          2001:db8:7::/64     301     4,020  2026-02-10 08:20:11  2026-02-10 13:21:11
          198.51.100.77         9        61  2026-02-10 08:20:11  2026-02-10 08:29:11
          first denial: 2026-02-10 08:20:11 203.0.113.9 POST /login
          denied requests per 30 min interval; peak 535 at 2026-02-10 09:00 UTC
          2026-02-10 00:00 ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▆█▅▂▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ 2026-02-11 00:00
          note: The log does not contain the cost of a request; each request costs 1.

        search-per-key (shadow, by api_key, route) would have denied 3 of 1,200,000 requests (<0.001%) and 1
          of 512 clients (0.20%)
          CLIENT         DENIED  REQUESTS  FIRST DENIED (UTC)   LAST DENIED (UTC)
          key-7 /search       3   410,000  2026-02-10 08:20:11  2026-02-10 08:23:11
          first denial: 2026-02-10 08:20:11 key-7 /search POST /search?q=a
          denied requests per 30 min interval; peak 3 at 2026-02-10 08:00 UTC
          2026-02-10 00:00 ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁█▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ 2026-02-11 00:00

        tenant was not simulated
          note: The log has no header x-tenant, which the policy counts by.

        compared with old.yaml
          denied: 1,204 requests (old.yaml: 800)
          newly denied: 520 requests from 14 clients
          CLIENT           NEWLY DENIED  REQUESTS  FIRST DENIED (UTC)   LAST DENIED (UTC)
          203.0.113.9               310     1,244  2026-02-10 08:20:11  2026-02-10 13:30:11
          2001:db8:7::/64            98     4,020  2026-02-10 08:20:11  2026-02-10 09:58:11
          newly allowed: 116 requests from 5 clients
          CLIENT         NEWLY ALLOWED  REQUESTS  FIRST (UTC)          LAST (UTC)
          198.51.100.23             61     9,033  2026-02-10 08:20:11  2026-02-10 09:21:11

        compared with the decisions in the log
          requests with a logged decision: 3,401,200, denied: 1,190
          denied in the log only: 3 requests
          denied in the simulation only: 17 requests
          first difference: allowed in the log, denied in the simulation: 2026-02-10 08:20:11 203.0.113.9
            POST /login?next=/account

        logs
          LOG           FORMAT        LINES  UNREADABLE
          access.log.1  combined  1,400,500           2
          access.log    combined  2,001,000           1

        unreadable lines (showing 2 of 3)
          access.log.1:17: no timestamp: 203.0.113.9 - - "GET / HTTP/1.1" 200 \u{1b}[2J
          access.log.1:88102: line ends in the middle of a string: 203.0.113.9 - - [10/Feb/2026:08:20:11 +0000] "GET /a

        notes
          - The log has no User-Agent header, so the exemption of monitoring requests was not applied;
            these requests are counted as if they came from ordinary clients.
    "#]].assert_eq(&full_report().to_text());
}

#[test]
fn a_report_without_requests_reads_well() {
    expect![[r#"
        no request was replayed

        the policy file has no policies
    "#]]
    .assert_eq(&Report::default().to_text());
}

#[test]
fn a_report_without_denials_reads_well() {
    expect![[r#"
        1 request, 2026-02-10 00:01:00 to 02:00:00 UTC
        no request was denied
        allowed 1 of 1 request (100%)

                                                                  CLIENTS    NEAR  FIRST
          POLICY  MODE     LIMIT         REQUESTS  DENIED  SHARE   DENIED  MISSES  DENIAL
          all     enforce  5000 per 1s  3,401,200       0     0%        0       0  –
    "#]]
    .assert_eq(&quiet_report().to_text());
}

#[test]
fn hostile_names_cannot_command_the_terminal() {
    let text = hostile_report("\x1b[2J\u{202e}</td><script>alert(1)</script>\r\n").to_text();
    assert!(text.contains(r"\u{1b}[2J\u{202e}</td><script>alert(1)</script>\r\n"), "{text}");
    assert!(!text.contains(['\x1b', '\r', '\u{202e}']), "{text}");
}

proptest! {
    /// Whatever a client sends, the terminal gets printable characters and the report's own newlines.
    #[test]
    fn text_has_no_control_characters(name: String) {
        let text = hostile_report(&name).to_text();
        prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    }
}
