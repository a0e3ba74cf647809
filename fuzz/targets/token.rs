//! Of all texts one is the token that counts. And claims that are signed well are read without a stumble, however odd.
#![no_main]

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue, header};
use jsonwebtoken::crypto::sign;
use jsonwebtoken::{Algorithm, EncodingKey};
use ratewright_core::Timestamp;
use ratewright_http::jwt::{KeySet, TokenError, TokenRules, Verifier, bearer};
use serde_json::Value;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const SECRET: &[u8] = b"a secret of thirty-two bytes or so";

/// Signed with the secret: {"alg":"HS256","typ":"JWT"}, {"sub":"anna","exp":1700000600}. It is among the seeds.
const VALID: &str = include_str!("../seeds/token/valid");

static VERIFIER: LazyLock<Verifier> =
    LazyLock::new(|| Verifier::new(KeySet::secret(SECRET).expect("a secret"), TokenRules::default()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = str::from_utf8(data) {
        check(text);
        if let Some((header, payload)) = text.split_once('\n') {
            check_signed(header, payload);
        }
    }
    if let Ok(line) = HeaderValue::from_bytes(data) {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, line)]);
        if let Ok(Some(token)) =
            bearer(headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes))
        {
            assert!(!token.is_empty() && token.bytes().all(|byte| (0x21..0x7f).contains(&byte)), "{token:?}");
            check(token);
        }
    }
});

/// Nobody signs without the key.
fn check(text: &str) {
    let verified = VERIFIER.verify(text, NOW);
    assert_eq!(verified.is_ok(), text == VALID, "{text:?}: {verified:?}");
}

/// What the issuer signed counts if it is in force, by a second reading of it.
fn check_signed(header: &str, payload: &str) {
    let message = format!("{}.{}", encoded(header), encoded(payload));
    let signature = sign(message.as_bytes(), &EncodingKey::from_secret(SECRET), Algorithm::HS256);
    let token = format!("{message}.{}", signature.expect("a secret signs everything"));
    match VERIFIER.verify(&token, NOW) {
        Ok(claims) => {
            // One with numbers that nobody can hold is a header too: they belong to members that mean nothing here.
            if let Ok(header) = serde_json::from_str::<Value>(header) {
                assert_eq!((&header["alg"], header.get("crit")), (&"HS256".into(), None));
            }
            let payload: Value = serde_json::from_str(payload).expect("claims");
            assert!(payload["exp"].as_f64().expect("an end") > 1_700_000_000.0 - 60.0 - 1.0, "{payload}");
            assert!(
                payload.get("nbf").is_none_or(|nbf| nbf.as_f64().is_some_and(|nbf| nbf < 1_700_000_061.0))
            );
            for name in ["sub", "exp", "realm.plan", "a.b.c", ".", ""] {
                assert_ne!(claims.text(name).as_deref(), Some(""));
            }
        }
        Err(TokenError::Signature) => panic!("it was signed: {token}"),
        Err(_) => {}
    }
}

/// Base64 for URLs, without padding.
fn encoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digit = |n: usize| char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]);
        encoded.extend((0..=chunk.len()).map(digit));
    }
    encoded
}
