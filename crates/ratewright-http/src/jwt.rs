//! The user according to a signed token (JWT).
//!
//! ```text
//!   Authorization: Bearer eyJhbGciOi….eyJzdWIiOi….MEUCIQDx…
//!                         header      payload     signature
//!                         which key   claims      over both
//! ```
//!
//! Until the signature is verified, an attacker may have written the header, so it only selects one of the configured
//! keys. The algorithm belongs to the key: an RSA public key used as an HMAC secret is rejected, and so is `none`. No
//! code can read a claim before verification, because only [`Verifier::verify`] returns [`Claims`].
//!
//! Time is a parameter; the signature library does not check it, because it would read a clock.
//!
//! Without the feature `jwt` there is no signature library: no key can be made, and every token is rejected. Tokens are
//! still found, because a condition on `authorization` reads them.
//!
//! # Laws
//! - A token is valid only if a configured key signed exactly these bytes with the key's algorithm, the rules accept
//!   this algorithm, and every claim that the rules require is present, of the right type, and accepted.
//! - Verification never panics, and rejects tokens longer than [`TOKEN_LENGTH_MAX`] unread.
//! - Secrets are never printed.

mod claims;
mod keys;
#[cfg(feature = "jwt")]
mod signature;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ratewright_core::{Micros, Timestamp};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny};
use smallvec::{SmallVec, smallvec};

pub use claims::Claims;
pub use keys::{KEYS_MAX, KeyError, KeySet, TokenAlgorithm};

use crate::lenient_base64;

/// The longest token that is verified, in bytes.
pub const TOKEN_LENGTH_MAX: usize = 8 * 1024;

/// The most keys tried for a token without a key id.
const KEYS_TRIED_MAX: usize = 4;

/// Verifies tokens. Its keys can be replaced while it is in use.
#[derive(Debug)]
pub struct Verifier {
    keys: ArcSwap<KeySet>,
    rules: TokenRules,
    n_verified: AtomicU64,
}

/// Requirements for a token, besides its signature.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TokenRules {
    /// The accepted algorithms. All by default, since each key has its own.
    pub algorithms: Vec<TokenAlgorithm>,
    /// The accepted issuers (`iss`); empty: any issuer that has a key.
    pub issuers: Vec<String>,
    /// The accepted audiences (`aud`); empty: any.
    pub audiences: Vec<String>,
    /// Whether it must expire.
    pub expiry: Expiry,
    /// The tolerated clock difference to the issuer. A minute by default.
    pub leeway: Micros,
}

/// Whether a token must expire (`exp`). An expiry, if present, is always checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Expiry {
    /// A token without `exp` is rejected.
    #[default]
    Required,
    /// A token without `exp` is accepted.
    Optional,
}

/// Why a token is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// No configured key has its id and algorithm. A newer key set may have one.
    #[error("the token is signed with an unknown key")]
    UnknownKey,

    /// It expired.
    #[error("the token has expired")]
    Expired,

    /// Its `nbf` is in the future.
    #[error("the token is not valid yet")]
    NotYet,

    /// The rules do not accept its algorithm.
    #[error("the token's algorithm is not accepted")]
    Algorithm,

    /// The signature does not match.
    #[error("the token's signature is wrong")]
    Signature,

    /// A claim is missing, of the wrong type, or not accepted by the rules.
    #[error("the token's claim {claim} is missing or not accepted")]
    Claim {
        /// Its name.
        claim: &'static str,
    },

    /// It requires an extension; none is supported.
    #[error("the token has critical header parameters; none is supported")]
    Critical,

    /// There are several, and which one the upstream reads is unknown.
    #[error("several credentials in Authorization; send one")]
    Repeated,

    /// The bearer token cannot be read.
    #[error("bearer token in Authorization cannot be read")]
    Unreadable,

    /// It is not a token.
    #[error("the token's {part} cannot be read")]
    Malformed {
        /// Which part.
        part: &'static str,
    },

    /// It is too long.
    #[error("the token has {length} bytes; at most {length_max} are read")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// [`TOKEN_LENGTH_MAX`].
        length_max: usize,
    },
}

/// The members of a token's header that are checked.
#[derive(serde::Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    #[serde(default, deserialize_with = "is_present")]
    crit: bool,
}

/// The bearer token in the `Authorization` headers of a request, if there is one.
///
/// # Errors
/// If there are several headers, or one with a bearer token that cannot be read.
pub fn bearer<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Result<Option<&'a str>, TokenError> {
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => bearer_in(line),
        (Some(_), Some(_)) => Err(TokenError::Repeated),
    }
}

/// The token in one `Authorization` header: a bearer token, or a JWT under another scheme.
///
/// # Errors
/// If a bearer token cannot be read.
fn bearer_in(line: &[u8]) -> Result<Option<&str>, TokenError> {
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (scheme, token) = line.split_at(end);
    let begins = scheme.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case(b"bearer"));
    if begins && scheme.get(6).is_some_and(|byte| !byte.is_ascii_graphic()) {
        return find_jwt(line)?.map(Some).ok_or(TokenError::Unreadable); // a blank of some other kind
    }
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        // Two joined headers: an upstream that splits them finds a token.
        let is_joined = line.split(|byte| *byte == b',').skip(1).any(|part| {
            part.trim_ascii().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
        });
        return if is_joined { Err(TokenError::Repeated) } else { find_jwt(line) };
    }
    let token = str::from_utf8(token.trim_ascii()).ok();
    let is_token = |token: &&str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    match token.filter(is_token) {
        // An upstream that reads up to a comma or a semicolon may find a token.
        Some(token) if token.contains([',', ';']) => Ok(find_jwt(line)?.or(Some(token))),
        Some(token) => Ok(Some(token)),
        // So may an upstream that reads up to the next blank.
        None => find_jwt(line)?.map(Some).ok_or(TokenError::Unreadable),
    }
}

/// A token with the canonical spelling of its signature, because some applications accept other spellings. If the signature
/// continues after its padding, decoders read different parts, so there are two spellings.
pub(crate) fn spellings(token: &str) -> SmallVec<[Cow<'_, str>; 2]> {
    let is_long = token.len() > TOKEN_LENGTH_MAX;
    let parts = token.rsplit_once('.').filter(|(message, _)| !is_long && message.contains('.'));
    let Some((message, signature)) = parts else { return smallvec![Cow::Borrowed(token)] };
    let (start, after) = signature.split_once('=').unwrap_or((signature, ""));
    let spelled = |part: &str| match lenient_base64::canonical(part) {
        Cow::Borrowed(_) if part.len() == signature.len() => Cow::Borrowed(token),
        canonical @ (Cow::Borrowed(_) | Cow::Owned(_)) => Cow::Owned(format!("{message}.{canonical}")),
    };
    let mut spellings = smallvec![spelled(start)];
    if !after.trim_matches('=').is_empty() {
        spellings.push(spelled(signature));
    }
    spellings
}

/// A token anywhere in a line. Many applications accept one under another scheme, or without a scheme: `JWT eyJ…`,
/// `Token token=eyJ…`, `Bearer:eyJ…`.
///
/// # Errors
/// If there are several, or if it cannot be read.
pub(crate) fn find_jwt(line: &[u8]) -> Result<Option<&str>, TokenError> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let ends = |byte: &u8| is_blank(byte) || b",;:\"'".contains(byte);
    if let Some(token) = only_jwt(line.split(ends))? {
        return Ok(Some(token));
    }
    // The signature may contain the bytes at which the line was split.
    if let Some(token) = only_jwt(line.split(is_blank))? {
        return Ok(Some(token));
    }
    if jwt_in(line).is_some() { Err(TokenError::Unreadable) } else { Ok(None) }
}

/// The only token among some texts.
fn only_jwt<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Result<Option<&'a str>, TokenError> {
    let mut tokens = texts.filter_map(jwt_in);
    match (tokens.next(), tokens.next()) {
        (None, _) => Ok(None),
        (Some(token), None) => str::from_utf8(token?).map(Some).map_err(|_| TokenError::Unreadable),
        (Some(_), Some(_)) => Err(TokenError::Repeated),
    }
}

/// A text with the form of a signed token: three parts with dots between them. Bytes outside the alphabet may precede it,
/// and may be in the signature, where many decoders skip them.
///
/// # Errors
/// If there are more parts: some applications read the first three only. An encrypted token has five parts without a
/// signature; a PASETO may have four.
fn jwt_in(text: &[u8]) -> Option<Result<&[u8], TokenError>> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let mut parts: SmallVec<[&[u8]; 5]> = text.split(|byte| *byte == b'.').take(6).collect();
    let [header, payload, _, ..] = parts[..] else { return None };
    let start = header.iter().rposition(|byte| !is_letter(byte)).map_or(0, |at| at + 1);
    let n_letters = |part: &&[u8]| part.iter().filter(|byte| is_letter(byte) || b"+/".contains(byte)).count();
    // The shortest signature has 43 characters.
    let is_signed = parts[2..].iter().any(|part| n_letters(part) >= 43);
    if !is_signed || start == header.len() || payload.is_empty() || !payload.iter().all(is_letter) {
        return None;
    }
    match parts.drain(3..).count() {
        0 => Some(Ok(&text[start..])),
        1 if is_paseto(&header[start..], payload) => None,
        2 if is_encrypted(&header[start..]) => None,
        _ => Some(Err(TokenError::Unreadable)),
    }
}

/// True if a token begins like a PASETO: `v4.local.….footer`. A PASETO version is not the JSON header of a signed token.
fn is_paseto(version: &[u8], purpose: &[u8]) -> bool {
    matches!(version, [b'v', b'1'..=b'9']) && matches!(purpose, b"local" | b"public")
}

/// True if a token's header has `enc`: the token is encrypted.
fn is_encrypted(header: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Encrypted {
        #[serde(rename = "enc")]
        _enc: IgnoredAny,
    }
    str::from_utf8(header).is_ok_and(|header| parse::<Encrypted>(header, "header").is_ok())
}

impl Verifier {
    /// A verifier with these keys and rules.
    pub fn new(keys: KeySet, rules: TokenRules) -> Self {
        Self { keys: ArcSwap::from_pointee(keys), rules, n_verified: AtomicU64::new(0) }
    }

    /// Replaces the keys. Tokens signed with removed keys are rejected from now on.
    pub fn replace_keys(&self, keys: KeySet) {
        self.keys.store(keys.into());
    }

    /// Takes over the keys of another verifier.
    pub fn adopt_keys(&self, other: &Self) {
        self.keys.store(other.keys.load_full());
    }

    /// How many tokens were checked, valid or not.
    pub fn n_verified(&self) -> u64 {
        self.n_verified.load(Ordering::Relaxed)
    }

    /// The claims of a token that is valid at `now`.
    ///
    /// # Errors
    /// If it is invalid, expired, or not valid yet.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        self.n_verified.fetch_add(1, Ordering::Relaxed);
        if token.len() > TOKEN_LENGTH_MAX {
            return Err(TokenError::TooLong { length: token.len(), length_max: TOKEN_LENGTH_MAX });
        }
        let (message, signature) =
            token.rsplit_once('.').ok_or(TokenError::Malformed { part: "signature" })?;
        let (header, payload) = message.split_once('.').ok_or(TokenError::Malformed { part: "payload" })?;
        self.check_signature(header, message, signature)?;

        let claims = Claims::new(parse(payload, "payload")?);
        claims.check(&self.rules, now)?;
        Ok(claims)
    }

    fn check_signature(&self, header: &str, message: &str, signature: &str) -> Result<(), TokenError> {
        let header: Header = parse(header, "header")?;
        if header.crit {
            return Err(TokenError::Critical);
        }
        let algorithm =
            TokenAlgorithm::named(&header.alg).filter(|named| self.rules.algorithms.contains(named));
        let algorithm = algorithm.ok_or(TokenError::Algorithm)?;

        let keys = self.keys.load();
        let mut candidates =
            keys.candidates(header.kid.as_deref(), algorithm).take(KEYS_TRIED_MAX).peekable();
        if candidates.peek().is_none() {
            return Err(TokenError::UnknownKey);
        }
        let signed = candidates.any(|key| key.signed(message.as_bytes(), signature));
        if signed { Ok(()) } else { Err(TokenError::Signature) }
    }
}

impl Default for TokenRules {
    fn default() -> Self {
        Self {
            algorithms: TokenAlgorithm::ALL.to_vec(),
            issuers: Vec::new(),
            audiences: Vec::new(),
            expiry: Expiry::Required,
            leeway: Micros::from_secs(60),
        }
    }
}

/// Setters, to be chained after `TokenRules::default()`.
impl TokenRules {
    /// Sets `algorithms`: the accepted algorithms. All by default, since each key has its own.
    #[must_use]
    pub fn algorithms(mut self, algorithms: Vec<TokenAlgorithm>) -> Self {
        self.algorithms = algorithms;
        self
    }

    /// Sets `issuers`: the accepted issuers (`iss`); empty: any issuer that has a key.
    #[must_use]
    pub fn issuers(mut self, issuers: Vec<String>) -> Self {
        self.issuers = issuers;
        self
    }

    /// Sets `audiences`: the accepted audiences (`aud`); empty: any.
    #[must_use]
    pub fn audiences(mut self, audiences: Vec<String>) -> Self {
        self.audiences = audiences;
        self
    }

    /// Sets `expiry`: whether it must expire.
    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets `leeway`: the tolerated clock difference to the issuer. A minute by default.
    #[must_use]
    pub fn leeway(mut self, leeway: Micros) -> Self {
        self.leeway = leeway;
        self
    }
}

/// One part of a token: base64url without padding, of JSON.
fn parse<T: DeserializeOwned>(encoded: &str, part: &'static str) -> Result<T, TokenError> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(encoded).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok()).ok_or(TokenError::Malformed { part })
}

/// True for a member that is present, even if it is `null`.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

#[cfg(test)]
#[cfg(feature = "jwt")]
mod tests;
