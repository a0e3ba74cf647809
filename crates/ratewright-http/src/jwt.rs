//! Who is asking, by a token that somebody we trust has signed.
//!
//! ```text
//!   Authorization: Bearer eyJhbGciOi….eyJzdWIiOi….MEUCIQDx…
//!                         header      payload     signature
//!                         which key   claims      over both
//! ```
//!
//! The header is the attacker's until the signature is checked, so it chooses nothing but a key among ours. The
//! algorithm belongs to the key: an RSA key's public half, used as an HMAC secret, opens nothing, nor does `none`.
//! No claim can be seen before everything is checked, since [`Claims`] come only out of [`Verifier::verify`].
//!
//! Time is a parameter, and the library that checks signatures is not asked about it: it would read a clock.
//!
//! # Laws
//! - A token counts only if a key of ours signed exactly these bytes, with the algorithm of that key, which the
//!   rules name, and every claim that the rules ask for is there, of the right type, and fits.
//! - Whatever the text, there is an answer, and nothing that is longer than [`TOKEN_LENGTH_MAX`] is looked at.
//! - Nothing secret is ever printed.

mod claims;
mod keys;

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

/// The longest token that is looked at, in bytes.
pub const TOKEN_LENGTH_MAX: usize = 8 * 1024;

/// How many keys are tried for a token that names none.
const KEYS_TRIED_MAX: usize = 4;

/// Decides which tokens count. Its keys can be replaced while it is in use.
#[derive(Debug)]
pub struct Verifier {
    keys: ArcSwap<KeySet>,
    rules: TokenRules,
    n_verified: AtomicU64,
}

/// What a token must be like, besides being signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRules {
    /// The algorithms that count. All by default: each key has its own anyway.
    pub algorithms: Vec<TokenAlgorithm>,
    /// Who may have issued it (`iss`); empty: anybody who has a key.
    pub issuers: Vec<String>,
    /// For whom it may be (`aud`); empty: for anybody.
    pub audiences: Vec<String>,
    /// Whether it must end.
    pub expiry: Expiry,
    /// How far the issuer's clock may be from ours. A minute by default.
    pub leeway: Micros,
}

/// Whether a token must say when it ends (`exp`). If it does, that always counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// It must.
    #[default]
    Required,
    /// A token that never ends will do.
    Optional,
}

/// Why a token does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// No key of ours is meant. Newer keys may help.
    #[error("the token is signed with a key that is not known")]
    UnknownKey,

    /// It ended.
    #[error("the token has expired")]
    Expired,

    /// It did not begin.
    #[error("the token is not valid yet")]
    NotYet,

    /// It is not signed in a way that the rules name.
    #[error("the token's algorithm is not accepted")]
    Algorithm,

    /// Somebody else made it, or changed it.
    #[error("the token's signature is wrong")]
    Signature,

    /// A claim is missing, of the wrong type, or not as the rules ask.
    #[error("the token's claim {claim} is missing or not as it must be")]
    Claim {
        /// Its name.
        claim: &'static str,
    },

    /// It asks for an extension, and there is none here.
    #[error("the token has critical header parameters, of which none is supported")]
    Critical,

    /// There are several, and nobody knows which one the upstream will read.
    #[error("several credentials in Authorization; send one")]
    Repeated,

    /// There is one that cannot be read.
    #[error("bearer token in Authorization cannot be read")]
    Unreadable,

    /// It is no token.
    #[error("the token's {part} cannot be read")]
    Malformed {
        /// Which part.
        part: &'static str,
    },

    /// It is too long to be looked at.
    #[error("the token has {length} bytes; at most {length_max} are read")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// [`TOKEN_LENGTH_MAX`].
        length_max: usize,
    },
}

/// What of a token's header matters here.
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

/// The token in one `Authorization` header: the bearer's, or one in the form of a JWT under another scheme.
///
/// # Errors
/// If there is a bearer token that cannot be read.
fn bearer_in(line: &[u8]) -> Result<Option<&str>, TokenError> {
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (scheme, token) = line.split_at(end);
    let begins = scheme.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case(b"bearer"));
    if begins && scheme.get(6).is_some_and(|byte| !byte.is_ascii_graphic()) {
        return find_jwt(line)?.map(Some).ok_or(TokenError::Unreadable); // a blank of some other kind
    }
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        // Two headers that somebody has joined: whoever splits them again finds a token.
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
        // So may one that reads up to the next blank.
        None => find_jwt(line)?.map(Some).ok_or(TokenError::Unreadable),
    }
}

/// A token with its signature in its canonical spelling. Some applications accept others, so it names the same user here. Of a
/// signature that goes on after its padding, decoders read different parts: then there are two.
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

/// A token anywhere in a line. Many applications accept one under another scheme, or none: `JWT eyJ…`, `Token token=eyJ…`,
/// `Bearer:eyJ…`.
///
/// # Errors
/// If there are several, or if it cannot be read.
pub(crate) fn find_jwt(line: &[u8]) -> Result<Option<&str>, TokenError> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let ends = |byte: &u8| is_blank(byte) || b",;:\"'".contains(byte);
    if let Some(token) = only_jwt(line.split(ends))? {
        return Ok(Some(token));
    }
    // The signature may contain the very bytes at which the line was split.
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

/// What has the form of a signed token in a text: three parts with dots between them. Bytes of no alphabet may stand before it, and in
/// the signature, where many decoders skip them.
///
/// # Errors
/// If there are more parts: some applications look at the first three only. An encrypted token has five, and none is a signature; a PASETO
/// may have four.
fn jwt_in(text: &[u8]) -> Option<Result<&[u8], TokenError>> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let mut parts: SmallVec<[&[u8]; 5]> = text.split(|byte| *byte == b'.').take(6).collect();
    let [header, payload, _, ..] = parts[..] else { return None };
    let start = header.iter().rposition(|byte| !is_letter(byte)).map_or(0, |at| at + 1);
    let n_letters = |part: &&[u8]| part.iter().filter(|byte| is_letter(byte) || b"+/".contains(byte)).count();
    // The shortest signature has 43 letters.
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

/// True if a token begins as a PASETO does: `v4.local.….footer`. As the header of a signed token its version would be no JSON.
fn is_paseto(version: &[u8], purpose: &[u8]) -> bool {
    matches!(version, [b'v', b'1'..=b'9']) && matches!(purpose, b"local" | b"public")
}

/// True if a token's header says that it is encrypted: its `enc` names how.
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

    /// Takes other keys from now on. Tokens of keys that are gone no longer count.
    pub fn replace_keys(&self, keys: KeySet) {
        self.keys.store(keys.into());
    }

    /// Takes the keys that another has.
    pub fn adopt_keys(&self, other: &Self) {
        self.keys.store(other.keys.load_full());
    }

    /// How many tokens were looked at.
    pub fn n_verified(&self) -> u64 {
        self.n_verified.load(Ordering::Relaxed)
    }

    /// The claims of a token that counts at `now`.
    ///
    /// # Errors
    /// If it does not count, or not yet, or no longer.
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

/// One part of a token: base64url without padding, of JSON.
fn parse<T: DeserializeOwned>(encoded: &str, part: &'static str) -> Result<T, TokenError> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(encoded).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok()).ok_or(TokenError::Malformed { part })
}

/// True for a member that is there, be it `null`.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

#[cfg(test)]
mod tests;
