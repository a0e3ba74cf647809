//! The cost of a request by its path: the same in the gateway and at `/api/v1/decide`.

use ratewright_lab::Nginx;
use serde_json::json;

use crate::process::Ratewright;

const POLICIES: &str = "
policies:
- name: api
  by: ip
  quota: {rate: 1/h, burst: 100}
  cost: {path: {'/reports/**': 10, '/reports/yearly': 40, '/reports/free': 1, '/free/**': 0}}
- name: usual
  by: ip
  quota: {rate: 1/h, burst: 100}
  cost: {path: {'/reports/**': 10, default: 3}}
";

/// Paths, and what a request to each costs under both policies. Of several patterns the largest cost counts.
const COSTS: [(&str, [u64; 2]); 8] = [
    ("/reports/x", [10, 10]),
    ("/reports/2026/q3", [10, 10]),
    ("/reports/x?page=2", [10, 10]),
    ("//reports/./x", [10, 10]),
    ("/reports/yearly", [40, 10]),
    ("/reports/free", [10, 10]),
    ("/reporting", [1, 3]),
    ("/free/x", [0, 3]),
];

#[test]
fn a_request_costs_what_its_path_says_at_decide() {
    let ratewright = Ratewright::start(POLICIES);
    for (n, (path, [api, usual])) in COSTS.into_iter().enumerate() {
        let answer = ratewright.decide(&json!({"ip": format!("192.0.2.{n}"), "method": "GET", "path": path}));
        let left = (answer.remaining("api").unwrap_or(100), answer.remaining("usual"));
        assert_eq!(left, (100 - api, Some(100 - usual)), "{path}");
    }
    let body = json!({"attributes": {"ip": "192.0.2.99", "path": "/reports/x"}, "cost": 3});
    let answer = ratewright.post("/api/v1/decide", &[], &body.to_string());
    assert_eq!(answer.remaining("api"), Some(70), "three times ten");
    let attributes = json!({"ip": "192.0.2.98", "path": "/reports/x"});
    let statuses = [(); 11].map(|()| ratewright.decide(&attributes).status);
    assert_eq!((&statuses[..10], statuses[10]), (&[200; 10][..], 429));
}

#[test]
fn a_request_costs_what_its_path_says_in_the_gateway() {
    let application = Nginx::start(1, "", "location / { return 200 'ok'; }\n");
    let address = application.address();
    let routes = format!("routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{address}'}}]\n");
    let trusted = "clients: {trusted_proxies: [127.0.0.1/32]}\n";
    let ratewright = Ratewright::start(&format!("{trusted}{POLICIES}{routes}"));
    let left = |ip: &str, policy: &str| {
        let look = json!({"attributes": {"ip": ip, "path": "/reports/x"}, "look": true});
        ratewright.post("/api/v1/decide", &[], &look.to_string()).remaining(policy).unwrap()
    };
    for (n, (path, [api, usual])) in COSTS.into_iter().enumerate() {
        let ip = format!("192.0.2.{n}");
        assert_eq!(ratewright.pass(path, &[("X-Forwarded-For", &ip)]).status, 200, "{path}");
        assert_eq!((left(&ip, "api"), left(&ip, "usual")), (100 - api, 100 - usual), "{path}");
    }
    let statuses =
        [(); 3].map(|()| ratewright.pass("/reports/yearly", &[("X-Forwarded-For", "192.0.2.99")]).status);
    assert_eq!(statuses, [200, 200, 429], "forty of a hundred");
}
