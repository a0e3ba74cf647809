//! CORS as a browser sees it: preflights, responses, denials, and a reload that removes it.

use super::{application, with_routes};
use crate::process::{Answer, Ratewright};

const APP: &str = "https://app.example.com";

/// Preflights cost nothing even where OPTIONS is not exempt.
const SHARED: &str = "gateway: {cors: {origins: ['https://*.example.com'], methods: [GET, PUT], credentials: true}}\n\
    exempt: {methods: []}\n\
    policies: [{name: p, by: ip, quota: {rate: 1/h, burst: 2}}]\n";

fn preflight(ratewright: &Ratewright, method: &str) -> Answer {
    let request = format!(
        "OPTIONS /orders HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: {APP}\r\nAccess-Control-Request-Method: {method}\r\n\r\n"
    );
    ratewright.pass_raw(&request)
}

#[test]
fn a_page_of_another_origin_can_read_why_it_was_denied() {
    let application = application();
    let ratewright = Ratewright::start(&with_routes(&application, SHARED));
    let allowed = |answer: &Answer| answer.headers.get("access-control-allow-origin").cloned();
    for _ in 0..5 {
        let answer = preflight(&ratewright, "PUT");
        assert_eq!((answer.status, allowed(&answer).as_deref()), (204, Some(APP)));
        assert_eq!(answer.headers["access-control-allow-methods"], "GET, PUT, HEAD");
        assert_eq!(preflight(&ratewright, "DELETE").status, 403);
    }
    for (path, status) in [("/orders", 200), ("/health", 200), ("/login", 401), ("/orders", 429)] {
        let answer = ratewright.pass(path, &[("Origin", APP)]);
        assert_eq!((answer.status, allowed(&answer).as_deref()), (status, Some(APP)), "{path}");
        assert_eq!(answer.headers["vary"], "Origin");
        assert!(answer.headers["access-control-expose-headers"].contains("Retry-After"));
    }
    let other = ratewright.pass("/orders", &[("Origin", "https://evil.example")]);
    assert_eq!((other.status, allowed(&other)), (429, None));
    assert_eq!(ratewright.metric("gateway_request_total{status=\"204\",route_path=\"/\"}"), 5.0);
    ratewright.reload(&with_routes(&application, "policies: []\n"));
    let answer = preflight(&ratewright, "PUT");
    assert_eq!((answer.status, allowed(&answer)), (200, None), "the application answers again");
    assert!(answer.body.starts_with("OPTIONS /orders"), "{}", answer.body);
}
