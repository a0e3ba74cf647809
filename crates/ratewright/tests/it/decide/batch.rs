//! Several decisions in one call.

use serde_json::{Value, json};

use super::policy;
use crate::process::{Answer, Ratewright};

fn batch(ratewright: &Ratewright, queries: &[Value]) -> Answer {
    let body = json!({ "queries": queries }).to_string();
    ratewright.post("/api/v1/decide/batch", &[], &body)
}

fn query(n: usize) -> Value {
    json!({"attributes": {"ip": format!("10.0.{}.{}", n / 256, n % 256)}})
}

#[test]
fn decisions_come_in_the_order_of_their_queries() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 2}", ""));
    let queries: Vec<_> = [1, 2, 1, 3, 1, 2].map(query).into();
    let answer = batch(&ratewright, &queries);
    assert_eq!(answer.status, 200);
    let decisions = answer.json()["decisions"].as_array().unwrap().clone();
    let outcomes: Vec<_> = decisions
        .iter()
        .map(|decision| {
            (decision["status"].as_u64().unwrap(), decision["limits"][0]["remaining"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(outcomes, [(200, 1), (200, 1), (200, 0), (200, 1), (429, 0), (200, 0)]);
    assert_eq!(decisions[4]["allowed"], false);
    assert_eq!(decisions[4]["message"], "Rate limit exceeded");
    let checks = |allowed: bool| {
        ratewright.metric(&format!(
            r#"rate_limiter_requests_total{{algorithm="TOKEN_BUCKET",allowed="{allowed}"}}"#
        ))
    };
    assert_eq!((checks(true), checks(false)), (5.0, 1.0));
}

#[test]
fn a_batch_holds_a_thousand() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 2}", ""));
    let queries: Vec<_> = (0..1_001).map(query).collect();
    let refused = batch(&ratewright, &queries);
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["detail"], "the batch has 1001 queries; send at most 1000 at once");
    let answer = batch(&ratewright, &queries[..1_000]).json();
    let decisions = answer["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 1_000);
    let fresh = |decision: &Value| decision["status"] == 200 && decision["limits"][0]["remaining"] == 1;
    assert!(decisions.iter().all(fresh), "what was refused was not charged");
    assert_eq!(batch(&ratewright, &[]).json(), json!({"decisions": []}));
}

/// One invalid query rejects the whole batch, and charges nothing.
#[test]
fn one_malformed_query_refuses_the_whole_batch() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 2}", ""));
    for (bad, expected_detail) in [
        (json!({"cost": 0}), "expected a nonzero u32 at line 1 column"),
        (json!({"attributes": {"ip": "nowhere"}}), "invalid IP address syntax at line 1 column"),
        (json!({"attribute": {}}), "unknown field `attribute`"),
        (json!({"policies": ["nobody"]}), "queries[1]: unknown policy \"nobody\"; the only policy is api"),
        (json!("query"), "invalid type: string"),
    ] {
        let refused = batch(&ratewright, &[query(1), bad.clone(), query(2)]);
        assert_eq!(
            (refused.status, &*refused.headers["content-type"]),
            (400, "application/problem+json"),
            "{bad}"
        );
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(expected_detail), "{bad}: {detail}");
    }
    let left = batch(&ratewright, &[query(1), query(2)]).json();
    let left = [0, 1].map(|n| left["decisions"][n]["limits"][0]["remaining"].clone());
    assert_eq!(left, [1, 1], "nobody was charged");
}
