//! The keys that tokens may be signed with.
//!
//! | from | algorithm |
//! |---|---|
//! | a shared secret of 32 bytes or more | HS256 |
//! | a public key in PEM, or in a JSON Web Key Set | RSA of 2048 bits or more: RS256; EC on P-256: ES256; Ed25519: EdDSA |
//!
//! A key has one algorithm, whatever a token says. Keys of a set that serve another purpose (encryption, another
//! curve) are ignored. So are symmetric keys: a published key is not a secret.
//!
//! Keys are made in [`signature`](super::signature), which needs the feature `jwt`. Without it a set is always empty.

use std::fmt;

#[cfg(feature = "jwt")]
use super::signature::VerifyingKey;

/// The most keys in a set.
pub const KEYS_MAX: usize = 100;

/// The shortest secret, in bytes: as long as the hash (RFC 7518, section 3.2).
pub(super) const SECRET_MIN: usize = 32;

/// Keys that tokens may be signed with. The default is empty: every token is rejected.
///
/// `KeySet::secret`, `KeySet::pem` and `KeySet::jwks` need the feature `jwt`.
#[derive(Clone, Default)]
pub struct KeySet {
    pub(super) keys: Vec<JwtKey>,
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
pub(super) struct JwtKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: TokenAlgorithm,
    pub(super) key: VerifyingKey,
}

/// Without the feature `jwt` no key exists.
#[cfg(not(feature = "jwt"))]
#[derive(Clone)]
pub(super) enum VerifyingKey {}

impl KeySet {
    /// The keys that may have signed a token: those with its id. If only the key or only the token has an id, the key is a
    /// candidate too.
    pub(super) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: TokenAlgorithm,
    ) -> impl Iterator<Item = &JwtKey> {
        let may_be_meant = move |key: &&JwtKey| match (key.id.as_deref(), id) {
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

impl JwtKey {
    /// True if this key signed `message`. The signature is still encoded.
    pub(super) fn signed(&self, message: &[u8], signature: &str) -> bool {
        self.key.signed(self.algorithm, message, signature)
    }
}

#[cfg(not(feature = "jwt"))]
impl VerifyingKey {
    fn signed(&self, _: TokenAlgorithm, _: &[u8], _: &str) -> bool {
        match *self {}
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
}
