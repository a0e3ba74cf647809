//! The credentials in `Authorization`, in a canonical spelling.
//!
//! Schemes ignore case, any blanks may follow them, and base64 is decoded leniently. Some applications accept any
//! scheme, or none, so credentials count under `bearer` besides their own scheme. Some end them at a comma or a
//! semicolon, and ignore the rest.
//!
//! ```text
//!   BEARER  abc              bearer abc
//!   Token abc                bearer abc, token abc
//!   Token token="abc", x=1   bearer abc, token abc, and the client's address
//!   Basic YW5uYTpz~M2NyZXQ=  basic YW5uYTpzM2NyZXQ
//!   Digest username="anna"   digest username="anna", and the client's address
//! ```

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Values;
use crate::{jwt, lenient_base64};

/// Adds the credentials in one `Authorization` header.
pub fn add_credentials<'a>(line: &'a str, values: &mut Values<'a>) {
    let line = line.trim();
    if line.is_empty() {
        return;
    }
    let (scheme, rest) = line.split_once([' ', '\t']).unwrap_or(("", line));
    let (scheme, rest) = (scheme.to_ascii_lowercase(), rest.trim_ascii());
    if scheme == "basic" {
        return add_basic(rest, values);
    }
    let token = jwt::find_jwt(line.as_bytes());
    let (first, after) = rest.split_once([' ', '\t', ',', ';']).unwrap_or((rest, ""));
    let is_parameter = first.trim_end_matches('=').contains('=');
    let credential = match first.split_once('=') {
        Some((name, value)) if is_parameter && name.eq_ignore_ascii_case("token") => value,
        _ if is_parameter && matches!(token, Ok(None)) => {
            // The client chooses their order, blanks and additional parameters.
            values.is_unreadable = true;
            return values.add(Some(Cow::Owned(format!("{scheme} {rest}").trim_ascii().to_owned())));
        }
        _ => first,
    };
    let credential = credential.trim_matches('"');
    values.is_unreadable |= !after.trim().is_empty() || token.is_err();
    let spellings: SmallVec<[Cow<'_, str>; 2]> = match token {
        Ok(Some(token)) => {
            let spellings = jwt::spellings(token);
            values.is_unreadable |= token != credential || spellings.len() > 1;
            spellings
        }
        // Base64 decoders ignore padding.
        Ok(None) | Err(_) => {
            let unpadded = credential.trim_end_matches('=');
            let unpadded = (unpadded.len() < credential.len()).then_some(Cow::Borrowed(unpadded));
            unpadded.into_iter().chain([Cow::Borrowed(credential)]).collect()
        }
    };
    for (n, credential) in spellings.into_iter().enumerate() {
        let bearer = Cow::Owned(format!("bearer {credential}"));
        if n == 0 {
            values.add(Some(bearer))
        } else {
            values.add_spelling(bearer)
        }
        if scheme != "bearer" {
            let own = format!("{scheme} {credential}").trim_ascii_start().to_owned();
            values.add_spelling(Cow::Owned(own));
        }
    }
}

/// If base64 continues after its padding, both the part before it and the whole count: decoders differ.
fn add_basic(rest: &str, values: &mut Values<'_>) {
    let (start, after) = rest.split_once('=').unwrap_or((rest, ""));
    values.is_unreadable |= !after.trim_matches('=').is_empty() || rest.contains([' ', '\t', ',', ';']);
    let basic = |spelling| Cow::Owned(format!("basic {}", lenient_base64::canonical(spelling)));
    values.add(Some(basic(start)));
    values.add_spelling(basic(rest));
}

/// A pattern for `Authorization`, in the spelling of [`add_credentials`].
pub fn credentials_pattern(pattern: &str) -> String {
    let pattern = pattern.trim_ascii();
    let end = pattern.find([' ', '\t', '*']).unwrap_or(pattern.len());
    let (scheme, rest) = pattern.split_at(end);
    let is_known = ["basic", "bearer", "token", "digest", "jwt", "apikey", "negotiate"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    if rest.is_empty() || rest.starts_with('*') && !is_known {
        return pattern.to_owned();
    }
    let scheme = scheme.to_ascii_lowercase();
    let credential = rest.trim_ascii();
    if rest.starts_with('*') {
        format!("{scheme}{credential}")
    } else if scheme == "basic" && !credential.contains('*') {
        format!("basic {}", lenient_base64::canonical(credential))
    } else {
        format!("{scheme} {credential}")
    }
}
