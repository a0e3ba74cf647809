//! The keys that tokens may be signed with.
//!
//! | from | algorithm |
//! |---|---|
//! | a shared secret of 32 bytes or more | HS256 |
//! | a public key in PEM, or in a JSON Web Key Set | RSA of 2048 bits or more: RS256; EC on P-256: ES256; Ed25519: EdDSA |
//!
//! A key has one algorithm, whatever a token says. Keys of a set that serve another purpose (encryption, another
//! curve) are ignored. So are symmetric keys: a published key is not a secret.

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};

/// The most keys in a set.
pub const KEYS_MAX: usize = 100;

/// The shortest RSA modulus: 2048 bits, in bytes.
const MODULUS_MIN: usize = 256;

/// The shortest secret, in bytes: as long as the hash (RFC 7518, section 3.2).
const SECRET_MIN: usize = 32;

/// Keys that tokens may be signed with. The default is empty: every token is rejected.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// How a token is signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TokenAlgorithm {
    /// HMAC with SHA-256 and a shared secret.
    Hs256,
    /// RSA (PKCS #1 v1.5) with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

/// Why keys cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A client with a token can guess a short secret offline, and then sign its own tokens.
    #[error(
        "the secret has fewer than {SECRET_MIN} bytes, so it could be guessed from a token; use a longer one, for example what `openssl rand -base64 {SECRET_MIN}` prints"
    )]
    ShortSecret,

    /// Private keys and certificates are rejected too.
    #[error("this is not a public key in PEM (-----BEGIN PUBLIC KEY-----)")]
    NotPem,

    /// A public key, but not for a supported algorithm.
    #[error("the key is not for RS256 (2048 bits or more), ES256 (P-256) or EdDSA (Ed25519)")]
    Unsupported,

    /// Not JSON, or not a key set.
    #[error("this is not a JSON Web Key Set: line {line}, column {column}")]
    NotAKeySet {
        /// Where reading ended.
        line: usize,
        /// Where reading ended.
        column: usize,
    },

    /// None of the set's keys can be used.
    #[error("the set has no key for RS256, ES256 or EdDSA among its {n_keys} keys")]
    NoneUsable {
        /// How many there are.
        n_keys: usize,
    },

    /// The set has too many keys.
    #[error("the set has {n_keys} keys; use at most {KEYS_MAX}")]
    TooMany {
        /// How many there are.
        n_keys: usize,
    },
}

/// A key and its algorithm.
#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: TokenAlgorithm,
    key: DecodingKey,
}

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
        let key = DecodingKey::from_secret(secret);
        Ok(Self { keys: vec![Key { id: None, algorithm: TokenAlgorithm::Hs256, key }] })
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
        let key = Key::from_jwk(&jwk).ok_or(KeyError::Unsupported)?;
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
        let usable = |key| Key::from_jwk(&serde_json::from_value(key).ok()?);
        let keys: Vec<_> = keys.into_iter().filter_map(usable).collect();
        if keys.is_empty() { Err(KeyError::NoneUsable { n_keys }) } else { Ok(Self { keys }) }
    }

    /// The keys that may have signed a token: those with its id. If only the key or only the token has an id, the key is a
    /// candidate too.
    pub(super) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: TokenAlgorithm,
    ) -> impl Iterator<Item = &Key> {
        let may_be_meant = move |key: &&Key| match (key.id.as_deref(), id) {
            (Some(known), Some(asked)) => known == asked,
            (None, _) | (_, None) => true,
        };
        self.keys.iter().filter(move |key| key.algorithm == algorithm).filter(may_be_meant)
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| (key.algorithm, &key.id))).finish()
    }
}

impl Key {
    /// A public key for signatures, of a supported kind and size.
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let algorithm = TokenAlgorithm::of(&jwk.algorithm)?;
        let common = &jwk.common;
        let for_it =
            common.key_algorithm.is_none_or(|named| named == KeyAlgorithm::from(algorithm.in_library()));
        let signs = common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        let verifies =
            common.key_operations.as_ref().is_none_or(|for_| for_.contains(&KeyOperations::Verify));
        let key = DecodingKey::from_jwk(jwk).ok().filter(|key| has_the_right_size(key, algorithm))?;
        (for_it && signs && verifies).then(|| Self { id: common.key_id.clone(), algorithm, key })
    }

    /// True if this key signed `message`. The signature is still encoded.
    pub(super) fn signed(&self, message: &[u8], signature: &str) -> bool {
        let algorithm = self.algorithm.in_library();
        jsonwebtoken::crypto::verify(signature, message, &self.key, algorithm).unwrap_or(false)
    }
}

impl TokenAlgorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa];

    /// The algorithm of this name, as tokens spell it: `RS256`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its name, as tokens spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The one algorithm of a public key.
    fn of(parameters: &AlgorithmParameters) -> Option<Self> {
        if let AlgorithmParameters::RSA(_) = parameters {
            Some(Self::Rs256)
        } else if let AlgorithmParameters::EllipticCurve(key) = parameters {
            (key.curve == EllipticCurve::P256).then_some(Self::Es256)
        } else if let AlgorithmParameters::OctetKeyPair(key) = parameters {
            (key.curve == EllipticCurve::Ed25519).then_some(Self::EdDsa)
        } else {
            None
        }
    }

    fn in_library(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
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
