//! The same in JSON, as the original's `/json` has it.

use proptest::prelude::*;
use ratewright_rls::wire::RateLimitResponse;
use ratewright_rls::{Compat, HeaderFamily, Refunds, RlsSettings, json};

use crate::world::{World, limit};

async fn answer(text: &str) -> String {
    let (compat, headers) = (Compat::Strict, vec![HeaderFamily::RetryAfter]);
    let settings = RlsSettings { compat, headers, ..RlsSettings::default() };
    let world = World::new(&[limit("client", "", 1, "minute")], settings);
    let request = json::read(text.as_bytes()).unwrap();
    json::write(&world.rls.answer(&request, Refunds::Allowed).await.unwrap())
}

#[tokio::test]
async fn names_may_be_written_in_two_ways_and_numbers_in_quotes() {
    let one = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "client", "value": "a"}]}]}"#;
    let expected = r#"{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":1,"unit":"MINUTE"},"durationUntilReset":"43s"}]}"#;
    assert_eq!(answer(one).await, expected);
    let two = r#"{"domain": "shop", "hits_addend": "2", "descriptors": [{"entries": [{"key": "client", "value": "a"}]}]}"#;
    let denied = answer(two).await;
    assert!(denied.starts_with(r#"{"overallCode":"OVER_LIMIT""#), "{denied}");
    assert!(denied.ends_with(r#""responseHeadersToAdd":[{"key":"Retry-After","value":"43"}]}"#), "{denied}");
    let own = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "client"}], "hitsAddend": 3, "limit": {"requestsPerUnit": 5, "unit": "HOUR"}}]}"#;
    let odd = r#"{"domain": "shop", "hitsAddend": 1.0, "descriptors": [{"limit": null, "entries": [{"key": "client", "value": "a"}]}]}"#;
    assert_eq!(answer(odd).await, expected);
    assert!(answer(own).await.contains(r#""requestsPerUnit":5,"unit":"HOUR"},"limitRemaining":2"#));
}

#[test]
fn what_is_no_request_is_told() {
    for (text, outcomes) in [
        ("", "EOF"),
        ("[]", "invalid type"),
        (r#"{"descriptors": [[[["k", "v"]]]]}"#, "invalid type: sequence, expected an object"),
        (r#"{"descriptors": [{"entries": [["k", "v"]]}]}"#, "invalid type: sequence, expected an object"),
        (r#"{"hitsAddend": 1.5}"#, "expected a whole number at line 1"),
        (r#"{"domain": 5}"#, "invalid type: integer `5`, expected a string"),
        (r#"{"domian": "a"}"#, "unknown field `domian`"),
        (r#"{"hitsAddend": -1}"#, "expected a whole number"),
        (r#"{"hitsAddend": 4294967296}"#, "4294967296 is too large"),
        (r#"{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#, "expected a unit: SECOND"),
    ] {
        let error = json::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(outcomes), "{text}: {error}");
    }
}

#[test]
fn an_empty_answer_is_written_too() {
    assert_eq!(json::write(&RateLimitResponse::default()), r#"{"overallCode":"UNKNOWN"}"#);
}

proptest! {
    #[test]
    fn no_bytes_confuse_it(text in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = json::read(&text);
    }
}
