//! Tokens: only those that another library signed are valid. B5, E1: a verified claim names the user, an unverified one
//! never does.

use std::sync::LazyLock;

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header as TokenHeader, encode};
use proptest::prelude::*;
use rcgen::{KeyPair, RsaKeySize, SignatureAlgorithm};
use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000 * 1_000_000);
const SECRET: &[u8] = b"a secret of thirty-two bytes or so";

/// An issuer of tokens, with its public key or secret.
struct Issuer {
    algorithm: Algorithm,
    key: EncodingKey,
    public_pem: String,
}

impl Issuer {
    fn new(algorithm: Algorithm, pair: &KeyPair) -> Self {
        let pem = pair.serialize_pem();
        let key = EncodingKey::from_rsa_pem(pem.as_bytes())
            .or_else(|_| EncodingKey::from_ec_pem(pem.as_bytes()))
            .or_else(|_| EncodingKey::from_ed_pem(pem.as_bytes()));
        Self { algorithm, key: key.unwrap(), public_pem: pair.public_key_pem() }
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_with(TokenHeader::new(self.algorithm), claims)
    }

    fn sign_with(&self, header: TokenHeader, claims: &Value) -> String {
        encode(&header, claims, &self.key).unwrap()
    }

    fn keys(&self) -> KeySet {
        KeySet::pem(self.public_pem.as_bytes()).unwrap()
    }

    /// The public key as in a key set.
    fn jwk(&self, id: &str) -> Jwk {
        let pem = self.public_pem.as_bytes();
        let key = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem));
        let mut jwk = Jwk::from_decoding_key(&key.unwrap(), Some(self.algorithm)).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        jwk
    }
}

fn pair(kind: &'static SignatureAlgorithm) -> KeyPair {
    KeyPair::generate_for(kind).unwrap()
}

static RSA: LazyLock<Issuer> = LazyLock::new(|| {
    Issuer::new(
        Algorithm::RS256,
        &KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap(),
    )
});
static EC: LazyLock<Issuer> =
    LazyLock::new(|| Issuer::new(Algorithm::ES256, &pair(&rcgen::PKCS_ECDSA_P256_SHA256)));
static ED: LazyLock<Issuer> = LazyLock::new(|| Issuer::new(Algorithm::EdDSA, &pair(&rcgen::PKCS_ED25519)));

/// Claims that are valid for another minute, and additional ones.
fn claims(more: Value) -> Value {
    let mut claims = json!({ "sub": "alice", "exp": 1_700_000_060 });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

fn sign_with_secret(claims: &Value) -> String {
    encode(&TokenHeader::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

/// No leeway, so that the times in these tests are exact.
fn strict() -> TokenRules {
    TokenRules { leeway: Micros::ZERO, ..TokenRules::default() }
}

fn with_secret() -> Verifier {
    Verifier::new(KeySet::secret(SECRET).unwrap(), strict())
}

/// The user that a token names.
fn user(verifier: &Verifier, token: &str) -> Result<String, TokenError> {
    verifier.verify(token, NOW).map(|claims| claims.text("sub").unwrap().into_owned())
}

/// Verifies claims with a valid signature.
fn judge(rules: TokenRules, claims: &Value) -> Result<(), TokenError> {
    let verifier = Verifier::new(KeySet::secret(SECRET).unwrap(), rules);
    verifier.verify(&sign_with_secret(claims), NOW).map(drop)
}

fn claim(claim: &'static str) -> Result<(), TokenError> {
    Err(TokenError::Claim { claim })
}

fn encoded(json: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(json)
}

/// B5, E1
#[test]
fn a_signed_token_names_the_user() {
    assert_eq!(user(&with_secret(), &sign_with_secret(&claims(json!({})))).unwrap(), "alice");
    for issuer in [&*RSA, &EC, &ED] {
        let token = issuer.sign(&claims(json!({})));
        assert_eq!(user(&Verifier::new(issuer.keys(), strict()), &token).unwrap(), "alice");
        let set = json!({ "keys": [issuer.jwk("k")] }).to_string();
        let keys = KeySet::jwks(set.as_bytes()).unwrap();
        assert_eq!(user(&Verifier::new(keys, strict()), &token).unwrap(), "alice");
    }
}

/// B5, E1
#[test]
fn a_token_of_another_key_is_rejected() {
    let other = Issuer::new(Algorithm::ES256, &pair(&rcgen::PKCS_ECDSA_P256_SHA256));
    let token = other.sign(&claims(json!({})));
    assert_eq!(user(&Verifier::new(EC.keys(), strict()), &token), Err(TokenError::Signature));
    assert_eq!(user(&Verifier::new(RSA.keys(), strict()), &token), Err(TokenError::UnknownKey));
    assert_eq!(user(&Verifier::new(KeySet::default(), strict()), &token), Err(TokenError::UnknownKey));
    let secret =
        Verifier::new(KeySet::secret(b"another secret of thirty-two bytes or so").unwrap(), strict());
    assert_eq!(user(&secret, &sign_with_secret(&claims(json!({})))), Err(TokenError::Signature));
}

/// E1
#[test]
fn an_unsigned_token_is_rejected() {
    let payload = encoded(&claims(json!({})).to_string());
    for none in ["none", "None", "NONE", "nOnE", "", "hs256", "HS256 ", "HS384", "PS256", "ES384", "null"] {
        let header = encoded(&json!({ "alg": none, "typ": "JWT" }).to_string());
        for signature in ["", "e30", "AAAA"] {
            let token = format!("{header}.{payload}.{signature}");
            assert_eq!(user(&with_secret(), &token), Err(TokenError::Algorithm), "{none}");
        }
    }
    for header in
        ["{}", r#"{"alg":null}"#, r#"{"alg":["HS256"]}"#, r#"{"alg":"HS256","alg":"none"}"#, "[]", "x"]
    {
        let token = format!("{}.{payload}.", encoded(header));
        assert_eq!(user(&with_secret(), &token), Err(TokenError::Malformed { part: "header" }), "{header}");
    }
}

/// E1: a public key is not a secret, so it must not work as one.
#[test]
fn an_hmac_with_a_public_key_is_rejected() {
    for issuer in [&*RSA, &EC, &ED] {
        let der = pem_contents(&issuer.public_pem);
        for forged_with in [issuer.public_pem.as_bytes().to_vec(), issuer.public_pem.trim().into(), der] {
            let key = EncodingKey::from_secret(&forged_with);
            let token = encode(&TokenHeader::new(Algorithm::HS256), &claims(json!({})), &key).unwrap();
            assert_eq!(user(&Verifier::new(issuer.keys(), strict()), &token), Err(TokenError::UnknownKey));
            let rules =
                TokenRules { algorithms: vec![TokenAlgorithm::Rs256, TokenAlgorithm::Es256], ..strict() };
            assert_eq!(user(&Verifier::new(issuer.keys(), rules), &token), Err(TokenError::Algorithm));
        }
    }
}

fn pem_contents(pem: &str) -> Vec<u8> {
    let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    base64::prelude::BASE64_STANDARD.decode(text).unwrap()
}

#[test]
fn an_algorithm_counts_only_if_the_rules_name_it() {
    let token = EC.sign(&claims(json!({})));
    for (algorithms, expected) in [
        (vec![TokenAlgorithm::Es256], Ok("alice".to_owned())),
        (
            vec![TokenAlgorithm::Rs256, TokenAlgorithm::EdDsa, TokenAlgorithm::Hs256],
            Err(TokenError::Algorithm),
        ),
        (vec![], Err(TokenError::Algorithm)),
    ] {
        assert_eq!(user(&Verifier::new(EC.keys(), TokenRules { algorithms, ..strict() }), &token), expected);
    }
}

#[test]
fn a_token_ends_at_its_expiry_and_begins_at_not_before() {
    assert_eq!(judge(strict(), &json!({ "exp": 1_700_000_001 })), Ok(()));
    assert_eq!(judge(strict(), &json!({ "exp": 1_700_000_000.000_01 })), Ok(()));
    assert_eq!(judge(strict(), &json!({ "exp": u64::MAX })), Ok(()));
    assert_eq!(judge(strict(), &json!({ "exp": 1_700_000_000 })), Err(TokenError::Expired));
    assert_eq!(judge(strict(), &json!({ "exp": 0 })), Err(TokenError::Expired));
    assert_eq!(judge(strict(), &claims(json!({ "nbf": 1_700_000_000 }))), Ok(()));
    assert_eq!(judge(strict(), &claims(json!({ "nbf": 1_700_000_001 }))), Err(TokenError::NotYet));
    assert_eq!(judge(strict(), &claims(json!({ "nbf": 1_700_000_000.5 }))), Err(TokenError::NotYet));
}

#[test]
fn the_leeway_is_exact() {
    let rules = || TokenRules { leeway: Micros::from_secs(60), ..strict() };
    assert_eq!(judge(rules(), &json!({ "exp": 1_699_999_941 })), Ok(()));
    assert_eq!(judge(rules(), &json!({ "exp": 1_699_999_940 })), Err(TokenError::Expired));
    assert_eq!(judge(rules(), &claims(json!({ "nbf": 1_700_000_060 }))), Ok(()));
    assert_eq!(judge(rules(), &claims(json!({ "nbf": 1_700_000_061 }))), Err(TokenError::NotYet));
}

/// CVE-2026-25537: a time of another type was ignored.
#[test]
fn a_time_of_the_wrong_type_is_rejected_not_ignored() {
    for odd in [
        json!("1700000060"),
        json!(null),
        json!(true),
        json!([1_700_000_060]),
        json!({}),
        json!(-1),
        json!(1e300),
    ] {
        assert_eq!(judge(strict(), &json!({ "exp": odd })), claim("exp"), "{odd}");
        assert_eq!(judge(strict(), &claims(json!({ "nbf": odd }))), claim("nbf"), "{odd}");
    }
}

#[test]
fn a_token_must_expire_unless_the_rules_say_otherwise() {
    assert_eq!(judge(strict(), &json!({ "sub": "alice" })), claim("exp"));
    let optional = || TokenRules { expiry: Expiry::Optional, ..strict() };
    assert_eq!(judge(optional(), &json!({ "sub": "alice" })), Ok(()));
    assert_eq!(judge(optional(), &json!({ "exp": 1 })), Err(TokenError::Expired));
    assert_eq!(judge(optional(), &json!({ "exp": "x" })), claim("exp"));
}

#[test]
fn issuer_and_audience_are_required_where_the_rules_name_them() {
    let by = || TokenRules { issuers: vec!["https://a".to_owned(), "https://b".to_owned()], ..strict() };
    assert_eq!(judge(by(), &claims(json!({ "iss": "https://b" }))), Ok(()));
    for odd in [json!("https://c"), json!("https://a/"), json!(["https://a"]), json!(null)] {
        assert_eq!(judge(by(), &claims(json!({ "iss": odd }))), claim("iss"), "{odd}");
    }
    assert_eq!(judge(by(), &claims(json!({}))), claim("iss"));

    let for_us = || TokenRules { audiences: vec!["us".to_owned()], ..strict() };
    assert_eq!(judge(for_us(), &claims(json!({ "aud": "us" }))), Ok(()));
    assert_eq!(judge(for_us(), &claims(json!({ "aud": ["them", "us"] }))), Ok(()));
    for odd in
        [json!("them"), json!(["them"]), json!([]), json!([["us"]]), json!({ "us": "us" }), json!(null)]
    {
        assert_eq!(judge(for_us(), &claims(json!({ "aud": odd }))), claim("aud"), "{odd}");
    }
    assert_eq!(judge(for_us(), &claims(json!({}))), claim("aud"));
    assert_eq!(judge(strict(), &claims(json!({ "aud": "them", "iss": 7 }))), Ok(()));
}

#[test]
fn critical_extensions_are_rejected() {
    for crit in ["[]", r#"["exp"]"#, "null", "1"] {
        let header = encoded(&format!(r#"{{"alg":"HS256","crit":{crit}}}"#));
        let message = format!("{header}.{}", encoded(&claims(json!({})).to_string()));
        let key = EncodingKey::from_secret(SECRET);
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        assert_eq!(
            user(&with_secret(), &format!("{message}.{signature}")),
            Err(TokenError::Critical),
            "{crit}"
        );
    }
}

/// B5, E1: every byte of every part counts.
#[test]
fn a_token_with_one_byte_changed_is_rejected() {
    let verifier = with_secret();
    let token = sign_with_secret(&claims(json!({})));
    for at in 0..token.len() {
        for byte in 0..128u8 {
            let mut changed = token.clone().into_bytes();
            if std::mem::replace(&mut changed[at], byte) != byte {
                let changed = String::from_utf8(changed).unwrap();
                assert!(verifier.verify(&changed, NOW).is_err(), "byte {at} of {token} became {byte}");
            }
        }
    }
}

#[test]
fn a_token_that_is_cut_or_extended_is_rejected() {
    for issuer in [&*RSA, &EC, &ED] {
        let verifier = Verifier::new(issuer.keys(), strict());
        let token = issuer.sign(&claims(json!({})));
        for length in 0..token.len() {
            assert!(verifier.verify(token.split_at(length).0, NOW).is_err(), "{length}");
        }
        for more in [".", "A", "=", " ", "\n", ".e30"] {
            assert!(verifier.verify(&format!("{token}{more}"), NOW).is_err());
            assert!(verifier.verify(&format!("{more}{token}"), NOW).is_err());
        }
    }
}

#[test]
fn a_long_token_is_rejected_unread() {
    let long = sign_with_secret(&claims(json!({ "pad": "x".repeat(TOKEN_LENGTH_MAX) })));
    let error = user(&with_secret(), &long).unwrap_err();
    assert!(matches!(error, TokenError::TooLong { length_max: TOKEN_LENGTH_MAX, .. }));
    let fits = sign_with_secret(&claims(json!({ "pad": "x".repeat(TOKEN_LENGTH_MAX / 2) })));
    assert_eq!(user(&with_secret(), &fits).unwrap(), "alice");
}

#[test]
fn a_signed_payload_that_is_not_an_object_is_rejected() {
    for odd in [json!("alice"), json!(["sub"]), json!(1), json!(null)] {
        assert_eq!(judge(strict(), &odd), Err(TokenError::Malformed { part: "payload" }), "{odd}");
    }
}

#[test]
fn a_token_is_verified_with_the_key_that_it_names() {
    let other = Issuer::new(Algorithm::ES256, &pair(&rcgen::PKCS_ECDSA_P256_SHA256));
    let set = json!({ "keys": [EC.jwk("new"), other.jwk("old"), RSA.jwk("rsa")] }).to_string();
    let verifier = Verifier::new(KeySet::jwks(set.as_bytes()).unwrap(), strict());
    let sign = |issuer: &Issuer, kid: Option<&str>| {
        let header = TokenHeader { kid: kid.map(str::to_owned), ..TokenHeader::new(issuer.algorithm) };
        user(&verifier, &issuer.sign_with(header, &claims(json!({}))))
    };
    assert_eq!(sign(&EC, Some("new")).unwrap(), "alice");
    assert_eq!(sign(&other, Some("old")).unwrap(), "alice");
    assert_eq!(sign(&other, None).unwrap(), "alice", "who names none may mean any");
    assert_eq!(sign(&EC, Some("old")), Err(TokenError::Signature));
    assert_eq!(sign(&EC, Some("rsa")), Err(TokenError::UnknownKey));
    assert_eq!(sign(&EC, Some("newer")), Err(TokenError::UnknownKey));
    assert_eq!(sign(&ED, None), Err(TokenError::UnknownKey));

    let pem = Verifier::new(EC.keys(), strict());
    let header = TokenHeader { kid: Some("any".to_owned()), ..TokenHeader::new(Algorithm::ES256) };
    assert_eq!(
        user(&pem, &EC.sign_with(header, &claims(json!({})))).unwrap(),
        "alice",
        "our key has no name"
    );
}

#[test]
fn replaced_keys_count_at_once() {
    let verifier = Verifier::new(EC.keys(), strict());
    let (old, new) = (EC.sign(&claims(json!({}))), ED.sign(&claims(json!({}))));
    assert_eq!((user(&verifier, &old).is_ok(), user(&verifier, &new).is_ok()), (true, false));
    verifier.replace_keys(ED.keys());
    assert_eq!((user(&verifier, &old).is_ok(), user(&verifier, &new).is_ok()), (false, true));
}

#[test]
fn a_set_gives_the_keys_that_can_be_used() {
    let edit = |change: &dyn Fn(&mut Value)| {
        let mut jwk = serde_json::to_value(EC.jwk("k")).unwrap();
        change(&mut jwk);
        KeySet::jwks(json!({ "keys": [jwk] }).to_string().as_bytes()).map(drop)
    };
    let none = Err(KeyError::NoneUsable { n_keys: 1 });
    assert_eq!(edit(&|_| {}), Ok(()));
    assert_eq!(edit(&|jwk| drop(jwk.as_object_mut().unwrap().remove("alg"))), Ok(()));
    assert_eq!(edit(&|jwk| jwk["use"] = json!("sig")), Ok(()));
    assert_eq!(edit(&|jwk| jwk["key_ops"] = json!(["verify"])), Ok(()));
    assert_eq!(edit(&|jwk| jwk["use"] = json!("enc")), none);
    assert_eq!(edit(&|jwk| jwk["key_ops"] = json!(["encrypt"])), none);
    assert_eq!(edit(&|jwk| jwk["alg"] = json!("ES384")), none);
    assert_eq!(edit(&|jwk| jwk["alg"] = json!("HS256")), none);
    assert_eq!(edit(&|jwk| jwk["alg"] = json!("ES256K")), none);
    assert_eq!(edit(&|jwk| jwk["crv"] = json!("P-384")), none);
    assert_eq!(edit(&|jwk| jwk["x"] = json!("AAAA")), none);
    assert_eq!(edit(&|jwk| *jwk = json!({ "kty": "oct", "k": "c2VjcmV0" })), none, "published is not secret");
    assert_eq!(edit(&|jwk| *jwk = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" })), none, "too short");
    assert_eq!(edit(&|jwk| *jwk = json!({ "kty": "AKP", "alg": "ML-DSA-44" })), none);
    assert_eq!(edit(&|jwk| *jwk = json!(7)), none);
}

#[test]
fn keys_for_other_purposes_are_ignored() {
    let mut for_encryption = RSA.jwk("e");
    for_encryption.common.public_key_use = Some(PublicKeyUse::Encryption);
    let set = json!({ "keys": [7, { "kty": "new" }, for_encryption, ED.jwk("d")], "more": 1 }).to_string();
    assert_eq!(format!("{:?}", KeySet::jwks(set.as_bytes()).unwrap()), r#"[(EdDsa, Some("d"))]"#);
}

#[test]
fn invalid_keys_are_rejected_with_a_reason() {
    let p384 = pair(&rcgen::PKCS_ECDSA_P384_SHA384);
    let private = pair(&rcgen::PKCS_ED25519).serialize_pem();
    let says = |keys: Result<KeySet, KeyError>| keys.unwrap_err().to_string();
    for short in [&b""[..], &[7; 31]] {
        assert!(says(KeySet::secret(short)).starts_with("the secret has fewer than 32 bytes"));
    }
    assert!(KeySet::secret(&[7; 32]).is_ok());
    assert!(says(KeySet::pem(private.as_bytes())).starts_with("this is not a public key in PEM"));
    assert!(says(KeySet::pem(b"\xff")).starts_with("this is not a public key in PEM"));
    assert!(says(KeySet::pem(p384.public_key_pem().as_bytes())).starts_with("the key is not for RS256"));
    let rubbish = b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert!(says(KeySet::pem(rubbish)).starts_with("the key is not for RS256"));
    assert_eq!(says(KeySet::jwks(b"\"secret\"")), "this is not a JSON Web Key Set: line 1, column 8");
    assert_eq!(
        says(KeySet::jwks(br#"{"keys":[]}"#)),
        "the set has no key for RS256, ES256 or EdDSA among its 0 keys"
    );
    let many = json!({ "keys": vec![0; KEYS_MAX + 1] }).to_string();
    assert_eq!(says(KeySet::jwks(many.as_bytes())), "the set has 101 keys; use at most 100");
}

#[test]
fn scalar_claims_are_text() {
    let token = sign_with_secret(&claims(json!({
        "n": 7, "f": 1.5, "yes": true, "no": false, "nothing": null, "empty": "", "list": ["a"],
        "realm": { "plan": "gold", "limits": { "day": 10 } },
        "https://example.com/plan": "silver", "a.b": "whole", "a": { "b": "part" }, "x.y": { "z": "both" },
    })));
    let claims = with_secret().verify(&token, NOW).unwrap();
    for (name, text) in [
        ("sub", "alice"),
        ("n", "7"),
        ("f", "1.5"),
        ("yes", "true"),
        ("no", "false"),
        ("realm.plan", "gold"),
        ("realm.limits.day", "10"),
        ("https://example.com/plan", "silver"),
        ("a.b", "whole"),
        ("x.y.z", "both"),
    ] {
        assert_eq!(claims.text(name).as_deref(), Some(text), "{name}");
    }
    for nothing in ["nothing", "empty", "list", "list.0", "realm", "realm.x", "sub.x", "", ".", "other"] {
        assert_eq!(claims.text(nothing), None, "{nothing}");
    }
}

/// B5
#[test]
fn a_bearer_token_stands_in_the_one_authorization_line() {
    let bearer_of = |lines: &[&str]| {
        bearer(lines.iter().map(|line| line.as_bytes())).map(|token| token.map(str::to_owned))
    };
    for line in [
        "Bearer a.b.c",
        "bearer a.b.c",
        "BEARER   a.b.c",
        " Bearer a.b.c ",
        "Bearer\ta.b.c",
        "Bearer \t a.b.c",
    ] {
        assert_eq!(bearer_of(&[line]), Ok(Some("a.b.c".to_owned())), "{line}");
    }
    for none in ["", "Basic a.b.c", "Bearera.b.c", "a.b.c"] {
        assert_eq!(bearer_of(&[none]), Ok(None), "{none}");
    }
    for odd in ["Bearer", "Bearer ", "Bearer a b", "Bearer é"] {
        assert_eq!(bearer_of(&[odd]), Err(TokenError::Unreadable), "{odd}");
    }
    assert_eq!(bearer_of(&[]), Ok(None));
    assert_eq!(bearer_of(&["Bearer a.b.c", "Bearer a.b.c"]), Err(TokenError::Repeated), "which of them?");
    assert_eq!(bearer_of(&["Basic a, Bearer a.b.c"]), Err(TokenError::Repeated), "two that were joined");
}

/// A11: a valid token is found wherever an application finds it, so that it names its user.
#[test]
fn a_token_is_found_among_other_bytes() {
    let token = sign_with_secret(&claims(json!({})));
    let found = |line: &[u8]| bearer(std::iter::once(line)).map(|found| found.map(str::to_owned));
    let between = |before: &[u8], after: &[u8]| [before, token.as_bytes(), after].concat();
    for (before, after) in [
        (&b"\xa0Bearer \xa0"[..], &b""[..]),
        (b"\xa0Bearer\xa0", b""),
        (b"Bearer\xa0", b""),
        (b"JWT ", b""),
        (b"JWT \xa0", b""),
        (b"Token token=", b""),
        (b"Token token=\"", b"\", nonce=\"1\""),
        (b"Bearer=", b""),
        (b"Bearer<", b""),
        (b"Bearer ", b",x0"),
        (b"Bearer ", b";x0"),
        (b"", b""),
    ] {
        let line = between(before, after);
        assert_eq!(found(&line), Ok(Some(token.clone())), "{}", String::from_utf8_lossy(&line));
    }
    assert_eq!(found(&between(b"<Bearer", b"")), Ok(Some(format!("Bearer{token}"))), "which is refused");
    assert_eq!(found(&between(b"JWT ", format!(" {token}").as_bytes())), Err(TokenError::Repeated));
    assert_eq!(found(&between(b"JWT ", b"\xff")), Err(TokenError::Unreadable));
    assert_eq!(
        found(&between(b"JWT ", b".x")),
        Err(TokenError::Unreadable),
        "some read the first three parts"
    );
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (start, end) = signature.split_at(10);
    for inside in ["::::", ",,,,", ";;;;", "\"\"\"\"", "''''", "~"] {
        for scheme in ["JWT ", "", "Bearer:", "token=", "DPoP "] {
            let line = format!("{scheme}{message}.{start}{inside}{end}");
            let token = found(line.as_bytes()).unwrap().unwrap_or_else(|| panic!("{line}"));
            assert!(
                token.ends_with(&format!("{start}{inside}{end}")) && token.starts_with(message),
                "{token}"
            );
        }
    }
    let line = format!("JWT {message}.{start} {end}");
    assert_eq!(found(line.as_bytes()), Err(TokenError::Unreadable), "some decoders skip blanks");
}

/// Decoders read different parts of a signature that continues after its padding.
#[test]
fn a_signature_with_padding_in_it_has_two_spellings() {
    let token = sign_with_secret(&claims(json!({})));
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (start, end) = signature.split_at(4);
    let spelled = |signature: &str| {
        spellings(&format!("{message}.{signature}")).iter().map(|token| token.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(spelled(&format!("{signature}==")), std::slice::from_ref(&token));
    assert_eq!(spelled(&format!("{start}={end}=")), [format!("{message}.{start}"), token.clone()]);
    assert_eq!(spelled(&format!("{signature}=AAAA"))[0], token);
}

#[test]
fn secrets_are_never_printed() {
    let verifier = with_secret();
    let claims = verifier.verify(&sign_with_secret(&claims(json!({ "mail": "a@b" }))), NOW).unwrap();
    let printed = format!("{verifier:?} {:?} {claims:?}", KeySet::secret(SECRET).unwrap());
    assert!(printed.contains("Hs256") && printed.contains("mail"), "{printed}");
    for secret in [str::from_utf8(SECRET).unwrap(), &format!("{SECRET:?}"), "alice", "a@b"] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

proptest! {
    /// E1: arbitrary text is never valid, and verifying it never panics.
    #[test]
    fn arbitrary_text_is_rejected(token in "\\PC{0,200}", parts in prop::collection::vec("[A-Za-z0-9_-]{0,60}", 0..5)) {
        for verifier in [with_secret(), Verifier::new(EC.keys(), strict())] {
            prop_assert!(verifier.verify(&token, NOW).is_err());
            prop_assert!(verifier.verify(&parts.join("."), NOW).is_err());
        }
    }

    /// E1: the attacker chooses claims and header, but has no key.
    #[test]
    fn no_token_is_valid_without_a_key(sub in ".*", alg in 0..4usize, signature in prop::collection::vec(any::<u8>(), 0..80)) {
        let alg = TokenAlgorithm::ALL[alg].name();
        let header = encoded(&json!({ "alg": alg }).to_string());
        let payload = encoded(&claims(json!({ "sub": sub })).to_string());
        let token = format!("{header}.{payload}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature));
        for keys in [KeySet::secret(SECRET).unwrap(), RSA.keys(), EC.keys(), ED.keys()] {
            prop_assert!(Verifier::new(keys, strict()).verify(&token, NOW).is_err());
        }
    }

    /// Arbitrary bytes are not a key, and parsing them does not panic.
    #[test]
    fn arbitrary_bytes_are_not_a_key(bytes: Vec<u8>, text in "\\PC*") {
        prop_assert!(KeySet::pem(&bytes).is_err() && KeySet::jwks(&bytes).is_err());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
        prop_assert!(KeySet::pem(pem.as_bytes()).is_err());
    }
}
