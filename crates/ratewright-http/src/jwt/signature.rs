//! Makes keys and checks signatures, by a library of cryptography. Only with the feature `jwt`: a program that limits by
//! address does not build it.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};

use super::keys::{JwtKey, KEYS_MAX, KeyError, KeySet, SECRET_MIN, TokenAlgorithm};

/// The shortest RSA modulus: 2048 bits, in bytes.
const MODULUS_MIN: usize = 256;

/// A key in the library's form.
#[derive(Clone)]
pub(super) struct VerifyingKey(DecodingKey);

#[derive(serde::Deserialize)]
struct PublishedKeySet {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// A secret shared with the issuer.
    ///
    /// # Errors
    /// If it is shorter than 32 bytes.
    pub fn secret(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < SECRET_MIN {
            return Err(KeyError::ShortSecret);
        }
        let key = VerifyingKey(DecodingKey::from_secret(secret));
        Ok(Self { keys: vec![JwtKey { id: None, algorithm: TokenAlgorithm::Hs256, key }] })
    }

    /// One public key in PEM. The type of the key determines its algorithm.
    ///
    /// # Errors
    /// If it is not a public key, or not a supported one.
    pub fn pem(pem: &[u8]) -> Result<Self, KeyError> {
        let text = str::from_utf8(pem).map_err(|_| KeyError::NotPem)?;
        if !text.contains("-----BEGIN PUBLIC KEY-----") && !text.contains("-----BEGIN RSA PUBLIC KEY-----") {
            return Err(KeyError::NotPem);
        }
        let key = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem))
            .map_err(|_| KeyError::Unsupported)?;
        let jwk = Jwk::from_decoding_key(&key, None).map_err(|_| KeyError::Unsupported)?;
        let key = JwtKey::from_jwk(&jwk).ok_or(KeyError::Unsupported)?;
        Ok(Self { keys: vec![key] })
    }

    /// The usable keys of a JSON Web Key Set (RFC 7517).
    ///
    /// # Errors
    /// If it is not a key set, has too many keys, or none that can be used.
    pub fn jwks(json: &[u8]) -> Result<Self, KeyError> {
        let PublishedKeySet { keys } = serde_json::from_slice(json)
            .map_err(|error| KeyError::NotAKeySet { line: error.line(), column: error.column() })?;
        let n_keys = keys.len();
        if n_keys > KEYS_MAX {
            return Err(KeyError::TooMany { n_keys });
        }
        let usable = |key| JwtKey::from_jwk(&serde_json::from_value(key).ok()?);
        let keys: Vec<_> = keys.into_iter().filter_map(usable).collect();
        if keys.is_empty() { Err(KeyError::NoneUsable { n_keys }) } else { Ok(Self { keys }) }
    }
}

impl VerifyingKey {
    /// True if this key signed `message`. The signature is still encoded.
    pub(super) fn signed(&self, algorithm: TokenAlgorithm, message: &[u8], signature: &str) -> bool {
        jsonwebtoken::crypto::verify(signature, message, &self.0, in_library(algorithm)).unwrap_or(false)
    }
}

impl JwtKey {
    /// A public key for signatures, of a supported kind and size.
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let algorithm = algorithm_of(&jwk.algorithm)?;
        let common = &jwk.common;
        let for_it =
            common.key_algorithm.is_none_or(|named| named == KeyAlgorithm::from(in_library(algorithm)));
        let signs = common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        let verifies =
            common.key_operations.as_ref().is_none_or(|for_| for_.contains(&KeyOperations::Verify));
        let key = DecodingKey::from_jwk(jwk).ok().filter(|key| has_the_right_size(key, algorithm))?;
        (for_it && signs && verifies).then(|| Self {
            id: common.key_id.clone(),
            algorithm,
            key: VerifyingKey(key),
        })
    }
}

/// The one algorithm of a public key.
fn algorithm_of(parameters: &AlgorithmParameters) -> Option<TokenAlgorithm> {
    if let AlgorithmParameters::RSA(_) = parameters {
        Some(TokenAlgorithm::Rs256)
    } else if let AlgorithmParameters::EllipticCurve(key) = parameters {
        (key.curve == EllipticCurve::P256).then_some(TokenAlgorithm::Es256)
    } else if let AlgorithmParameters::OctetKeyPair(key) = parameters {
        (key.curve == EllipticCurve::Ed25519).then_some(TokenAlgorithm::EdDsa)
    } else {
        None
    }
}

fn in_library(algorithm: TokenAlgorithm) -> Algorithm {
    match algorithm {
        TokenAlgorithm::Hs256 => Algorithm::HS256,
        TokenAlgorithm::Rs256 => Algorithm::RS256,
        TokenAlgorithm::Es256 => Algorithm::ES256,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

/// Checks the size of a key, which the library checks only when the key is used.
fn has_the_right_size(key: &DecodingKey, algorithm: TokenAlgorithm) -> bool {
    match (algorithm, key.kind()) {
        (TokenAlgorithm::Rs256, DecodingKeyKind::RsaModulusExponent { n, .. }) => {
            n.iter().skip_while(|&&byte| byte == 0).count() >= MODULUS_MIN
        }
        (TokenAlgorithm::Es256, DecodingKeyKind::SecretOrDer(point)) => point.len() == 65,
        (TokenAlgorithm::EdDsa, DecodingKeyKind::SecretOrDer(point)) => point.len() == 32,
        _ => false,
    }
}
