//! Refunds of charged units.

use ratewright_lab::{Redis, wait_until};
use serde_json::{Value, json};

use super::{ask, policy};
use crate::process::{Answer, Ratewright};

/// Spends units, and returns the receipt.
fn spend(ratewright: &Ratewright, cost: u32) -> String {
    let answer = ask(ratewright, &json!({"attributes": {"ip": "192.0.2.1"}, "cost": cost, "receipt": true}));
    assert_eq!(answer.status, 200);
    answer.json()["receipt"].as_str().unwrap().to_owned()
}

fn refund(ratewright: &Ratewright, receipt: &str) -> Answer {
    ratewright.post("/api/v1/refund", &[], &json!({ "receipt": receipt }).to_string())
}

/// The response to a receipt that refunds nothing.
fn nothing() -> Value {
    let message = "nothing to refund: the receipt was used before, its limit has changed, or another instance issued it";
    json!({"refunded": 0, "message": message})
}

fn left(ratewright: &Ratewright) -> u64 {
    let look = json!({"attributes": {"ip": "192.0.2.1"}, "look": true});
    ask(ratewright, &look).remaining("api").unwrap()
}

#[test]
fn a_refund_returns_the_charged_units() {
    for quota in [
        "{rate: 1/h, burst: 10}",
        "{algorithm: leaky_bucket, rate: 1/h, burst: 10}",
        "{rate: 10/1000d, refill: stepped}",
        "{algorithm: sliding_window, rate: 10/d}",
        "{algorithm: sliding_window_counter, rate: 10/100year}",
        "{algorithm: fixed_window, rate: 10/100year}",
        "[{rate: 1/h, burst: 10}, {name: day, algorithm: sliding_window, rate: 20/d}]",
    ] {
        let ratewright = Ratewright::start(&policy("api", quota, ""));
        let (first, second) = (spend(&ratewright, 3), spend(&ratewright, 4));
        assert_eq!(left(&ratewright), 3, "{quota}");
        let answer = refund(&ratewright, &first);
        let n_charges = if quota.starts_with('[') { 2 } else { 1 };
        let expected =
            json!({"refunded": n_charges, "message": "Refunded, except for units that were refilled since"});
        assert_eq!((answer.status, answer.json()), (200, expected), "{quota}");
        assert_eq!(left(&ratewright), 6, "{quota}");
        // What time has repaid of a bucket is not given back once more; of two charges it counts for both.
        refund(&ratewright, &second);
        assert!((9..=10).contains(&left(&ratewright)), "{quota}");
    }
}

/// A receipt is valid for one refund.
#[test]
fn a_receipt_can_be_refunded_once() {
    for quota in [
        "{rate: 1/h, burst: 10}",
        "{algorithm: sliding_window, rate: 10/d}",
        "{algorithm: fixed_window, rate: 10/100year}",
    ] {
        let ratewright = Ratewright::start(&policy("api", quota, ""));
        let receipt = spend(&ratewright, 4);
        assert_eq!(refund(&ratewright, &receipt).json()["refunded"], 1, "{quota}");
        assert_eq!(left(&ratewright), 10, "{quota}");
        spend(&ratewright, 4);
        for _ in 0..5 {
            assert_eq!(refund(&ratewright, &receipt).json(), nothing(), "{quota}");
            assert_eq!(left(&ratewright), 6, "{quota}");
        }
        spend(&ratewright, 6);
        let over = ask(&ratewright, &json!({"attributes": {"ip": "192.0.2.1"}}));
        assert_eq!(over.status, 429, "{quota}: ten were there, and no more");
    }
}

/// A unit of the old quota does not equal one of the new quota.
#[test]
fn a_receipt_for_a_changed_quota_refunds_nothing() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 10}", ""));
    let receipt = spend(&ratewright, 4);
    ratewright.reload(&policy("api", "{rate: 1/h, burst: 20}", ""));
    assert_eq!(refund(&ratewright, &receipt).json(), nothing());
    assert_eq!(left(&ratewright), 12, "four of ten are eight of twenty");
    let receipt = spend(&ratewright, 4);
    ratewright.reload("policies: []\n");
    assert_eq!(refund(&ratewright, &receipt).json()["refunded"], 0);
}

/// A receipt is valid once for all instances that share Redis. Charges in another instance's memory cannot be refunded here.
#[test]
fn a_receipt_can_be_refunded_once_across_instances() {
    let server = Redis::start();
    for (algorithm, rate) in [
        ("token_bucket", "10/h"),
        ("leaky_bucket", "10/h"),
        ("sliding_window", "10/h"),
        ("sliding_window_counter", "10/100year"),
        ("fixed_window", "10/100year"),
    ] {
        let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
        let config =
            format!("{store}{}", policy("api", &format!("{{algorithm: {algorithm}, rate: {rate}}}"), ""));
        let [a, b] = [(), ()].map(|()| {
            let ratewright = Ratewright::start(&config);
            ratewright.wait_for_redis();
            ratewright
        });
        let receipt = spend(&a, 4);
        spend(&a, 4);
        let both: Vec<u64> = std::thread::scope(|scope| {
            let tasks = [&a, &b, &a, &b].map(|instance| {
                let receipt = &receipt;
                scope.spawn(move || refund(instance, receipt).json()["refunded"].as_u64().unwrap())
            });
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        assert_eq!(both.iter().sum::<u64>(), 1, "{algorithm}: {both:?}");
        assert_eq!((left(&a), left(&b)), (6, 6), "{algorithm}");
        assert_eq!([&a, &b].map(|instance| refund(instance, &receipt).json()), [(); 2].map(|()| nothing()));
        server.cli(&["FLUSHALL"]);
    }
    let [a, b] = [(), ()].map(|()| Ratewright::start(&policy("api", "{rate: 10/h}", "")));
    let receipt = spend(&a, 4);
    spend(&b, 4);
    assert_eq!(refund(&b, &receipt).json(), nothing(), "it was paid elsewhere");
    assert_eq!((left(&b), refund(&a, &receipt).json()["refunded"].as_u64(), left(&a)), (6, Some(1), 10));
}

/// A charge in Redis is not refunded by this instance's memory, nor later.
#[test]
fn without_redis_a_shared_charge_is_not_refunded() {
    let mut server = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
    let ratewright = Ratewright::start(&format!("{store}{}", policy("api", "{rate: 10/1000d}", "")));
    ratewright.wait_for_redis();
    let receipt = spend(&ratewright, 4);
    assert_eq!(left(&ratewright), 6);
    assert_eq!(server.cli(&["SAVE"]), "OK");
    server.kill();
    let look = json!({"attributes": {"ip": "192.0.2.1"}, "look": true});
    let basis = || ask(&ratewright, &look).json()["basis"].as_str().unwrap().to_owned();
    wait_until("the outage is noticed", || basis() == "local");
    spend(&ratewright, 4);
    assert_eq!(left(&ratewright), 1, "four of its share of five");

    assert_eq!(refund(&ratewright, &receipt).json()["refunded"], 0);
    assert_eq!(left(&ratewright), 1);
    server.run();
    wait_until("the return is noticed", || basis() == "shared");
    assert_eq!(left(&ratewright), 6);
}

#[test]
fn denied_queries_and_looks_have_no_receipt() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 1}", ""));
    let receipt = |more: Value| {
        let mut body = json!({"attributes": {"ip": "192.0.2.1"}, "receipt": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(&ratewright, &body).json().get("receipt").is_some()
    };
    assert!(!receipt(json!({"look": true})));
    assert!(receipt(json!({})));
    assert!(!receipt(json!({})), "denied");
    assert!(!receipt(json!({"attributes": {"ip": "192.0.2.1", "method": "OPTIONS"}})), "exempt");
    assert!(
        ask(&ratewright, &json!({"attributes": {"ip": "192.0.2.9"}})).json().get("receipt").is_none(),
        "not asked for"
    );
}

#[test]
fn invalid_receipts_are_rejected() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 10}", ""));
    let receipt = spend(&ratewright, 4);
    let shortened = receipt.split_at(receipt.len() - 4).0;
    for garbage in ["", "x", "!!!!", "W10x", "e30", "bnVsbA", shortened, &"A".repeat(70_000)] {
        let refused = refund(&ratewright, garbage);
        assert_eq!((refused.status, &refused.json()["parameter"]), (400, &json!("receipt")), "{refused:?}");
    }
    for body in ["", "[]", "{}", r#"{"receipt": 1}"#, r#"["e30"]"#, r#"{"receipt": "e30", "more": 1}"#] {
        assert_eq!(ratewright.post("/api/v1/refund", &[], body).status, 400, "{body}");
    }
    assert_eq!(left(&ratewright), 6);
}
