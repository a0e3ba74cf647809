//! Parameters in a URL: taken apart, each at most once, and a clear word for what is not understood.

use std::borrow::Cow;

use http::StatusCode;
use percent_encoding::percent_decode;
use ratewright_http::Problem;

/// The parameters of a URL's query, with their values as written.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Undoes the URL's encoding.
pub(crate) fn decode<'a>(name: &'static str, value: &'a str) -> Result<Cow<'a, str>, Problem> {
    if !value.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Ok(Cow::Borrowed(value));
    }
    let spaced: Vec<u8> = value.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    let decoded = percent_decode(&spaced).decode_utf8();
    decoded.map(|text| Cow::Owned(text.into_owned())).map_err(|_| bad(name, format!("{name} is not UTF-8")))
}

/// Keeps a parameter that was not there before.
pub(crate) fn once<T>(place: &mut Option<T>, value: T, name: &'static str) -> Result<(), Problem> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(bad(name, format!("{name} is given twice; give it once"))),
    }
}

/// A parameter that the call does not take.
pub(crate) fn unknown(name: &str, known: &str) -> Problem {
    let detail = format!("parameter {} is not known; this call takes {known}", quoted(name));
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// A parameter whose value cannot be used.
pub(crate) fn bad(parameter: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail).about(parameter)
}

/// A policy in a URL that the policy file does not have.
pub(crate) fn no_policy(name: &str) -> Problem {
    let detail = format!("there is no policy {}; the policy file has the names", quoted(name));
    Problem::new(StatusCode::NOT_FOUND, detail).about("policy")
}

/// A value as it may be shown: escaped, and not longer than one reads.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
